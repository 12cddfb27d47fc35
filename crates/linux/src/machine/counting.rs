//! How threads are characterised: hardware counters where they are available and plausible, else sampled instructions.

use super::modules::{Modules, Period};
use crate::{
    perf::{Counters, TaskEvent, probe},
    sampling::{Options, SamplerModule},
    threads::{Sampled, Switching},
};
use perch_core::{
    CountQuality, EventPlan, MachineError, Module, PuSample, Reading, Remark, Scope, Sharing,
    TargetSample, ThreadId, Topology, Window, module::check_needs,
};
use rustix::fd::BorrowedFd;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// The requested source of thread metrics (`--counters`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CountersMode {
    /// Hardware counters if they can be had, else instruction sampling.
    #[default]
    Auto,
    /// Hardware counters or an error.
    Pmu,
    /// Instruction sampling or an error.
    Sampling,
    /// Neither: for sessions that place no threads.
    Nothing,
    /// The plan's events, hardware or software ones; nothing if it has none. A remark lists those that cannot be
    /// counted. Launched programs are also counted as a whole.
    Chosen {
        /// Whether instructions are sampled besides.
        sample: bool,
    },
}

/// Nanoseconds of a context switch, at most, that are the thread's CPU time but not its events'. An own choice: with one
/// software event, 0.8 µs were measured in a virtual machine, and 12 to 20 µs beside busy
/// loops; hardware counters take longer to set.
const SWITCH: u64 = 50_000;

/// The same of the kernel's work to start a program, or to end a thread. An own choice.
const EDGE: u64 = 1_000_000;

/// What is in use.
#[derive(Default)]
pub(super) struct Counting {
    mode: CountersMode,
    options: Options,
    counters: Option<Counters>,
    sampler: Option<SamplerModule>,
    /// All modules but the sampler.
    modules: Modules,
    remarks: Vec<Remark>,
}

impl Counting {
    pub(super) fn new(
        mode: CountersMode,
        rate: Option<u32>,
        per_thread: bool,
        modules: Vec<Box<dyn Module>>,
    ) -> Self {
        let mut options = Options {
            per_thread,
            ..Options::default()
        };
        if let Some(rate) = rate {
            (options.cpu_hz, options.thread_hz) = (rate, rate);
            options.adapt = false;
        }
        Self {
            mode,
            options,
            modules: Modules::new(modules),
            ..Self::default()
        }
    }

    /// Opens what the mode asks for, for the threads that are followed already and for those to come. Without
    /// permission for any of it, `auto` goes on with the kernel's accounting. A user's module that needs what no other
    /// module provides is an error.
    pub(super) fn configure(
        &mut self,
        plan: &EventPlan,
        live: impl Iterator<Item = (ThreadId, i32)>,
    ) -> Result<(), MachineError> {
        self.counters = match self.mode {
            CountersMode::Sampling | CountersMode::Nothing => None,
            CountersMode::Pmu => Some(Counters::open(plan).map_err(no_counters)?),
            CountersMode::Auto => self.try_counters(plan),
            CountersMode::Chosen { .. } if plan.sets.is_empty() => None,
            CountersMode::Chosen { .. } => Some(Counters::open(plan)?),
        };
        for (id, pid) in live {
            self.count(id, pid);
        }
        let sample = match self.mode {
            CountersMode::Nothing => false,
            CountersMode::Chosen { sample } => sample,
            CountersMode::Auto | CountersMode::Pmu | CountersMode::Sampling => {
                let counters = self.counters.as_ref();
                counters.is_none_or(|counters| self.lacks_events(plan, counters))
            }
        };
        if sample {
            self.sample()?;
        }
        check_needs(self.all().map(|module| &*module))
    }

    /// The counters of threads, if there are any.
    pub(super) fn counters(&mut self) -> Option<&mut Counters> {
        self.counters.as_mut()
    }

    fn try_counters(&mut self, plan: &EventPlan) -> Option<Counters> {
        if plan.sets.iter().all(|set| set.events.is_empty()) {
            return None;
        }
        let probe = probe();
        if !probe.pmu_usable {
            self.remarks.push(Remark::note("no-counters", probe.why));
            return None;
        }
        match Counters::open(plan) {
            Ok(counters) => Some(counters),
            Err(error) => {
                let text = error.to_string();
                self.remarks.push(Remark::warning("counters-refused", text));
                None
            }
        }
    }

    /// Whether `auto` must sample besides, since the formulas would miss something.
    fn lacks_events(&self, plan: &EventPlan, counters: &Counters) -> bool {
        let counted: BTreeSet<&str> = counters.aliases().collect();
        let wanted = plan.sets.iter().flat_map(|set| &set.events);
        self.mode == CountersMode::Auto
            && wanted
                .into_iter()
                .any(|event| !counted.contains(&*event.alias))
    }

    fn sample(&mut self) -> Result<(), MachineError> {
        if self.sampler.is_some() {
            return Ok(());
        }
        match SamplerModule::open(self.options) {
            Ok(sampler) => self.sampler = Some(sampler),
            Err(error) if matches!(self.mode, CountersMode::Auto | CountersMode::Chosen { .. }) => {
                let text = format!(
                    "instructions cannot be sampled, so nothing may be known of what threads do: {error}"
                );
                self.remarks.push(Remark::warning("no-samples", text));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether events that were asked for are counted, rather than what a policy needs.
    pub(super) fn counts_chosen(&self) -> bool {
        matches!(self.mode, CountersMode::Chosen { .. }) && self.counters.is_some()
    }

    /// Counts a thread from now on, if it is not counted yet.
    pub(super) fn count(&mut self, id: ThreadId, pid: i32) {
        self.attach(id, |counters| counters.attach(id, pid));
    }

    fn attach(&mut self, id: ThreadId, how: impl Fn(&mut Counters) -> Result<(), MachineError>) {
        if let Some(counters) = &mut self.counters
            && let Err(error) = how(counters)
        {
            let remark = Remark::warning("not-counted", error.to_string());
            self.remarks.push(remark.about(Scope::Thread(id)));
        }
    }

    /// A program is about to start, as this target.
    pub(super) fn launched(&mut self, thread: ThreadId, target: u32) {
        self.attach(thread, |counters| counters.attach_at_exec(thread));
        self.modules.launched(thread);
        if let (CountersMode::Chosen { .. }, Some(counters)) = (self.mode, &mut self.counters)
            && let Err(error) = counters.launched(target, thread.tid)
        {
            let text = format!("totals miss threads that live for less than an interval: {error}");
            self.remarks.push(Remark::warning("not-counted", text));
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.launched(thread, thread.tid);
        }
    }

    /// A running process is followed from now on.
    pub(super) fn attached(&mut self, pid: i32) {
        if let Some(sampler) = &mut self.sampler {
            sampler.attach_process(pid);
        }
    }

    /// Reads the counters of the threads that ran. To be called before [`Counting::period`].
    pub(super) fn read_counters(&mut self, sampled: &mut Sampled, interval: u64) {
        if self.counters.is_none() {
            return;
        }
        if let Some(counters) = &mut self.counters {
            let renumbered = sampled.renumbered.iter();
            renumbered.for_each(|(before, now)| counters.renumber(*before, *now));
        }
        let renumbered = sampled.renumbered.iter();
        for (id, pid) in renumbered
            .map(|(_, now)| (now, &now.tid))
            .chain(sampled.new.iter().map(|(id, pid)| (id, pid)))
        {
            self.count(*id, *pid);
        }
        let Some(counters) = &mut self.counters else {
            return;
        };
        let ended: BTreeSet<ThreadId> = sampled.ended.iter().copied().collect();
        let (mut counted, mut doubtful) = (0, 0);
        for sample in &mut sampled.threads {
            // What a thread did up to its end is still in its counters.
            let has_ended = ended.contains(&sample.info.id);
            if sample.cpu_time > 0 || has_ended {
                let read = counters.read(sample.info.id);
                (sample.counts, sample.event_set) = (read.counts, read.set);
                if let Some(set) = &mut sample.event_set {
                    // Where no exit record tells how long it ran after it was last looked at, its events do.
                    let ran = set.enabled.min(sample.interval);
                    if has_ended && ran > sample.cpu_time {
                        sampled.counted_late += ran - sample.cpu_time;
                        sample.cpu_time = ran;
                    }
                    if read.throughout && has_ended {
                        sampled.counted_to_end.insert(sample.info.id);
                    }
                    let edge = if has_ended || read.first { EDGE } else { 0 };
                    let beside = match read.throughout {
                        true => edge + SWITCH.saturating_mul(sample.switches.unwrap_or(0)),
                        false => 0,
                    };
                    let id = sample.info.id;
                    set.enabled = counters.cover(id, set.enabled, sample.cpu_time, beside);
                }
                counted += usize::from(!sample.counts.is_empty());
                let lies = |quality: &CountQuality| matches!(quality, CountQuality::Implausible(_));
                doubtful += usize::from(sample.counts.iter().any(|count| lies(&count.quality)));
            }
        }
        for id in ended {
            counters.detach(id);
        }
        counters.end_period(&sampled.threads, Duration::from_nanos(interval));
        if self.mode == CountersMode::Auto && 2 * doubtful > counted && self.sampler.is_none() {
            let text = format!(
                "the counts of {doubtful} of {counted} threads cannot be true: instructions are sampled besides"
            );
            self.remarks
                .push(Remark::warning("counters-doubtful", text).once());
            // With `auto` a refusal is a remark.
            let _ = self.sample();
        }
    }

    /// The windows that ended; `opened` is when the machine was, by CLOCK_MONOTONIC.
    pub(super) fn windows(&mut self, opened: u64) -> Vec<Window> {
        let mut windows = self
            .counters
            .as_mut()
            .map_or_else(Vec::new, Counters::take_windows);
        for window in &mut windows {
            window.at = window.at.saturating_sub(opened);
        }
        windows
    }

    /// What targets did that are counted as a whole.
    pub(super) fn targets(&mut self) -> Vec<TargetSample> {
        self.counters
            .as_mut()
            .map_or_else(Vec::new, Counters::read_programs)
    }

    /// A target is not followed any more.
    pub(super) fn target_gone(&mut self, target: u32) {
        if let Some(counters) = &mut self.counters {
            counters.close_program(target);
        }
    }

    /// Threads that were found a short while ago were looked at.
    pub(super) fn looked_at(&mut self, young: &[Switching]) {
        if let Some(sampler) = &mut self.sampler {
            sampler.looked_at(young);
        }
    }

    /// The kernel reported something about a thread.
    pub(super) fn note(&mut self, event: &TaskEvent) {
        if let Some(sampler) = &mut self.sampler {
            sampler.note(event);
        }
    }

    /// Readable when rings fill up: then call [`Counting::drain`].
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.sampler.as_ref().map(SamplerModule::fd)
    }

    /// When to call [`Counting::drain`] at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        let sampler = self.sampler.as_ref().and_then(SamplerModule::due);
        [sampler, self.modules.due()].into_iter().flatten().min()
    }

    pub(super) fn drain(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.drain();
        }
        self.modules.refresh();
    }

    fn all(&mut self) -> impl Iterator<Item = &mut (dyn Module + 'static)> {
        let sampler = self
            .sampler
            .iter_mut()
            .map(|sampler| sampler as &mut (dyn Module + 'static));
        sampler.chain(self.modules.iter_mut())
    }

    /// Adds to the threads of a period what is known of them, and returns what is known of everything else. A module that
    /// fails is asked again in the next period: the threads are placed by what is known without it.
    pub(super) fn period(
        &mut self,
        topology: &Arc<Topology>,
        interval: u64,
        sampled: &mut Sampled,
        pus: &[PuSample],
    ) -> Vec<Reading> {
        let sampler = self
            .sampler
            .as_mut()
            .map(|sampler| sampler as &mut dyn Module);
        self.modules.period(
            sampler,
            Period {
                topology,
                interval,
                sampled,
                pus,
            },
        )
    }

    /// Who shares memory, as far as the period that just ended has shown, by rising ids.
    pub(super) fn sharing(&mut self) -> Vec<Sharing> {
        let mut sharing: Vec<Sharing> = self.all().flat_map(|module| module.sharing()).collect();
        sharing.sort_by_key(|sharing| sharing.threads);
        sharing
    }

    pub(super) fn take_remarks(&mut self) -> Vec<Remark> {
        let mut remarks = std::mem::take(&mut self.remarks);
        remarks.extend(self.counters.iter_mut().flat_map(Counters::remarks));
        remarks.extend(self.all().flat_map(|module| module.remarks()));
        remarks.extend(self.modules.take_remarks());
        remarks
    }

    /// See [`perch_core::Machine::counting`].
    pub(super) fn description(&self) -> String {
        let sampler = self.sampler.as_ref().map(|sampler| sampler.description());
        let counters = self.counters.as_ref().map(Counters::description);
        let texts: Vec<String> = counters
            .into_iter()
            .chain(sampler)
            .chain(self.modules.descriptions())
            .collect();
        if texts.is_empty() {
            "the kernel's accounting only (run times, waiting, switches)".into()
        } else {
            texts.join("; ")
        }
    }
}

/// Why there are no counters: because there is no PMU at all, if so.
fn no_counters(error: MachineError) -> MachineError {
    let probe = probe();
    if probe.pmu_usable {
        return error;
    }
    MachineError::Other(format!(
        "{}; without `--counters pmu` perch samples instructions instead",
        probe.why
    ))
}
