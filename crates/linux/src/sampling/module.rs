//! The monitoring module: samples in, metrics of threads out.

use super::{
    Options,
    bursts::{self, Bursts, Switcher},
    history::{Names, PROVIDED},
    known::Known,
    mapped_file::MappedFile,
    pace::RateController,
    per_thread::{Candidate, PerThread},
    reported::Reported,
    said::Said,
    source::allowed_rate,
    system_wide::SystemWide,
    thread::{How, Told},
    walks::Turns,
};
use crate::{
    perf::{Privilege, TaskEvent},
    threads::Switching,
};
use perch_core::{
    MachineError, MetricInfo, MetricScope, Module, ModuleContext, ModuleValues, Remark, Sharing,
    ThreadId, ThreadSample, metric::names,
};
use rustc_hash::FxHashSet;
use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

/// A core's private cache where the topology does not tell: 1 MiB, as on Zen 4 and Neoverse.
const DEFAULT_L2: u64 = 1 << 20;

enum Source {
    System(SystemWide),
    Threads(Box<PerThread>, Bursts),
}

/// Instruction sampling as a monitoring module.
///
/// It needs no more than [`Module::period`]. A caller that learns of new threads and execs between periods may report
/// them with [`SamplerModule::attach`] and [`SamplerModule::note`], so that short-lived threads are sampled too, and
/// may wait on [`SamplerModule::fd`] and call [`SamplerModule::drain`], so that nothing is lost in long periods.
pub struct SamplerModule {
    options: Options,
    privilege: Privilege,
    source: Source,
    known: Known,
    names: Names,
    remarks: Vec<Remark>,
    said: Said,
    pace: RateController,
    /// Who shares memory, of the last period.
    sharing: Vec<Sharing>,
    /// Whose turn it is to have all samples seen together.
    turns: Turns,
}

impl SamplerModule {
    /// The metrics of threads that sampling gives.
    pub fn provided() -> Vec<MetricInfo> {
        let metrics = PROVIDED.iter().map(|(name, unit, kind, about)| {
            MetricInfo::new(*name, unit, MetricScope::Thread, *kind, about)
        });
        metrics.collect()
    }

    /// Starts to sample: whole CPUs where that is permitted, else single threads.
    ///
    /// # Errors
    /// Perf events are refused altogether: with the remedy.
    pub fn open(options: Options) -> Result<Self, MachineError> {
        let privilege = Privilege::detect()?;
        let source = if privilege.system_wide && !options.per_thread {
            Source::System(SystemWide::open(options.cpu_hz)?)
        } else {
            Source::Threads(
                Box::new(PerThread::new(options.thread_hz, privilege.kernel)?),
                Bursts::new(privilege.kernel),
            )
        };
        Ok(Self {
            options,
            privilege,
            source,
            known: Known::default(),
            names: Names::new(),
            remarks: Vec::new(),
            said: Said::default(),
            pace: RateController::default(),
            sharing: Vec::new(),
            turns: Turns::default(),
        })
    }

    /// Whether whole CPUs are sampled.
    pub fn system_wide(&self) -> bool {
        matches!(self.source, Source::System(_))
    }

    /// A thread was given to perch, before the next period reports it.
    pub fn attach(&mut self, id: ThreadId, pid: i32) {
        self.known.add(id, pid);
        match &mut self.source {
            // It may run on any CPU.
            Source::System(system) => system.sample_only(&system.cpus()),
            Source::Threads(threads, _) => threads.add(id),
        }
    }

    /// A program is about to start. An event of its own would cost it time at every switch: [`SamplerModule::looked_at`]
    /// opens one, once it is known how often the program switches.
    pub fn launched(&mut self, id: ThreadId, pid: i32) {
        match &self.source {
            Source::System(_) => self.attach(id, pid),
            Source::Threads(..) => self.known.add(id, pid),
        }
    }

    /// Threads that were found a short while ago were looked at: where events are per thread, those that switch seldom
    /// are sampled from now on, the others not.
    pub fn looked_at(&mut self, young: &[Switching]) {
        let Source::Threads(threads, _) = &mut self.source else {
            return;
        };
        for thread in young {
            if thread.rate > self.options.max_switches as f64 {
                threads.remove(thread.id);
            } else if thread.ran {
                self.known.add(thread.id, thread.pid);
                threads.add(thread.id);
            }
        }
    }

    /// A process with all of its threads was given to perch, before the next period reports them.
    pub fn attach_process(&mut self, pid: i32) {
        self.known.add_process(pid);
    }

    /// Something happened that code or threads depend on: an exec, an executable mapping, an end.
    pub fn note(&mut self, event: &TaskEvent) {
        match event {
            TaskEvent::Comm {
                pid, exec: true, ..
            } => self.known.executed(*pid),
            TaskEvent::Mapped {
                pid,
                address,
                length,
                offset,
                file,
                id,
                ..
            } => {
                // If a file is not identified, its name may no longer lead to it.
                let reported = file.clone().zip(*id).map(|(path, id)| Reported {
                    address: *address,
                    length: *length,
                    file: MappedFile {
                        path,
                        id,
                        offset: *offset,
                    },
                });
                self.known.mapped(*pid, *address, *length, reported);
            }
            TaskEvent::Fork { pid, tid, ppid, .. } => self.known.forked(*pid, *tid, *ppid),
            TaskEvent::Comm { .. } | TaskEvent::Exit { .. } | TaskEvent::Lost(_) => {}
        }
    }

    /// Readable when a ring is half full: then call [`SamplerModule::drain`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::System(system) => system.fd(),
            Source::Threads(threads, _) => threads.fd(),
        }
    }

    /// When [`SamplerModule::drain`] is to be called at the latest: then some thread must not be sampled any longer. It
    /// is called at a period's end in any case.
    pub fn due(&self) -> Option<Instant> {
        match &self.source {
            Source::System(_) => None,
            Source::Threads(_, bursts) => bursts.due(),
        }
    }

    /// Takes the samples out of the rings.
    pub fn drain(&mut self) {
        self.known.next_drain();
        match &mut self.source {
            Source::System(system) => {
                system.drain(|cpu, record| self.known.record(Some(cpu), &record));
            }
            Source::Threads(threads, bursts) => {
                threads.drain(|record| self.known.record(None, &record));
                bursts.drain(|record| self.known.record(None, &record));
            }
        }
    }

    /// Decides which CPUs, or which threads, to sample in the next period.
    fn steer(&mut self, context: &ModuleContext<'_>, ended: &FxHashSet<ThreadId>) {
        match &mut self.source {
            Source::System(system) => {
                let followed = system.follow_cpus();
                let wanted = self.known.wanted_cpus(context, system);
                system.sample_only(&wanted);
                let seconds = context.interval as f64 / 1e9;
                if self.options.adapt {
                    system.set_rate(self.pace.next(seconds, wanted.len(), self.options.cpu_hz));
                }
                if let Err(error) = followed {
                    let text = format!(
                        "what runs on a CPU that has come online cannot be sampled for now: {error}"
                    );
                    self.remark_once("cpu-not-sampled", text);
                }
            }
            Source::Threads(threads, bursts) => {
                let most = self.options.max_switches;
                let ran = context.threads.iter().filter(|t| t.cpu_time > 0);
                let ran = ran.filter(|t| !ended.contains(&t.info.id));
                let (busy, steady): (Vec<_>, Vec<_>) = ran.partition(|t| switches_often(t, most));
                for thread in &busy {
                    threads.remove(thread.info.id);
                }
                let switchers: Vec<Switcher> = busy.iter().map(|thread| switcher(thread)).collect();
                let interval = Duration::from_nanos(context.interval);
                let without = bursts.begin(&switchers, interval);
                let candidates: Vec<_> = steady
                    .iter()
                    .map(|t| Candidate {
                        id: t.info.id,
                        cpu_time: t.cpu_time,
                    })
                    .collect();
                candidates.iter().for_each(|c| bursts.close(c.id));
                threads.choose(&candidates, interval);
                let (slots, refused) = (threads.slots(), threads.refused());
                let counts = (busy.len(), without);
                self.remark_left_out(counts, candidates.len(), slots, refused, interval);
            }
        }
    }

    fn remark_left_out(
        &mut self,
        (busy, without): (usize, usize),
        running: usize,
        slots: usize,
        refused: usize,
        interval: Duration,
    ) {
        let remedy = format!(
            "sample whole CPUs instead: `sysctl kernel.perf_event_paranoid=0`, or {}",
            crate::capability::advice("cap_perfmon")
        );
        if busy > 0 {
            let text = format!(
                "threads that switch more than {} times a second ({busy} now) are sampled for a part of some periods only, \
                 because more would slow them, so that their shares are known later and less surely; {remedy}",
                self.options.max_switches
            );
            self.remark_once("sampled-in-bursts", text);
        }
        if without > 0 {
            let text = format!(
                "threads that switch more than some {:.0} thousand times a second are not sampled ({without} now), because \
                 that would slow them; {remedy}",
                bursts::most_switches(interval) / 1e3
            );
            self.remark_once("not-sampled", text);
        }
        if running > slots {
            let text = format!(
                "{running} threads run, but descriptors and locked memory suffice for {slots} at a time, so they are \
                 sampled in turns; {remedy}, or raise `ulimit -n` and `ulimit -l`"
            );
            self.remark_once("sampled-in-turns", text);
        }
        if refused > 0 {
            let text = format!(
                "the kernel refuses to sample {refused} threads (another user's, or of a program with more \
                 privileges); {remedy}"
            );
            self.remark_once("sampling-refused", text);
        }
    }

    fn remark_losses(&mut self) {
        if self.known.lost > self.known.ours / 10 + 100 {
            let text = format!(
                "{} samples were lost in a period of {}: perch read them too late; a shorter --interval reads them more often",
                self.known.lost,
                self.known.lost + self.known.ours
            );
            self.remark_once("samples-lost", text);
        }
        if self.known.throttled {
            let text = "the kernel samples less often than asked for, because interrupts took too long: see \
                        `kernel.perf_cpu_time_max_percent`";
            self.remark_once("sampling-throttled", text);
        }
    }

    /// Says what stays true for a while. How often it is shown is not decided here.
    fn remark_once(&mut self, code: &'static str, text: impl Into<String>) {
        if self.said.is_time(code, Instant::now()) {
            self.remarks.push(Remark::warning(code, text).once());
        }
    }
}

impl Module for SamplerModule {
    fn name(&self) -> &str {
        "sampling"
    }

    fn provides(&self) -> Vec<MetricInfo> {
        Self::provided()
    }

    fn period(&mut self, context: &ModuleContext<'_>) -> Result<ModuleValues, MachineError> {
        self.known.follow(context);
        self.drain();
        let l2_bytes = context.topology.cache_size(2).unwrap_or(DEFAULT_L2);
        let interval = Duration::from_nanos(context.interval);
        let ended: FxHashSet<ThreadId> = context.ended.iter().copied().collect();
        let mut results = Vec::new();
        let mut walks = self.turns.begin(context.threads.len(), interval);
        for (at, thread) in context.threads.iter().enumerate() {
            let id = thread.info.id;
            let mut how = How {
                interval,
                l2_bytes,
                names: &self.names,
                walk: &mut |mix| walks.next(at, mix),
            };
            let over = ended.contains(&id);
            let told = self.known.metrics(thread, over, &mut how);
            // Of one that has ended no more can be learnt, however fast others are sampled.
            if !over {
                tell_pace(&mut self.pace, thread, &told);
            }
            if let Told::News(metrics) = told {
                results.push((id, metrics));
            }
        }
        drop(walks);
        self.steer(context, &ended);
        self.remark_losses();
        if let Some((process, name)) = self.known.unreadable(context) {
            let text = format!(
                "code that process {process} ({name}) makes at run time cannot be read, so that its threads are not \
                 characterised: run perch as the owner, start the program with `perch run`, or `sysctl \
                 kernel.yama.ptrace_scope=0` (CAP_SYS_PTRACE)"
            );
            self.remark_once("code-unreadable", text);
        }
        self.sharing = self.known.sharing(context.threads, interval);
        self.known.end_period(context);
        if let Source::Threads(threads, bursts) = &mut self.source {
            for id in context.ended {
                threads.remove(*id);
                bursts.remove(*id);
            }
        }
        Ok(ModuleValues {
            threads: results,
            readings: Vec::new(),
        })
    }

    fn sharing(&mut self) -> Vec<Sharing> {
        std::mem::take(&mut self.sharing)
    }

    fn remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }

    fn description(&self) -> String {
        match &self.source {
            Source::System(_) => format!(
                "instruction sampling, {}{} Hz on each busy CPU, with registers",
                if self.options.adapt { "up to " } else { "" },
                allowed_rate(self.options.cpu_hz)
            ),
            Source::Threads(..) if self.privilege.kernel => format!(
                "instruction sampling, {} Hz per thread, with registers",
                allowed_rate(self.options.thread_hz)
            ),
            Source::Threads(..) => format!(
                "instruction sampling, {} Hz per thread, user space only ({})",
                allowed_rate(self.options.thread_hz),
                self.privilege.paranoid_text()
            ),
        }
    }
}

/// Tells the pace what a thread did.
fn tell_pace(pace: &mut RateController, thread: &ThreadSample, told: &Told) {
    let share = thread.cpu_time as f64 / thread.interval.max(1) as f64;
    match told {
        Told::Nothing => {}
        Told::Gathering => pace.note_gathering(thread.info.id, share),
        Told::News(metrics) => {
            let samples = metrics.value(names::SAMPLES).unwrap_or(0.0) as u64;
            let fp_share = metrics.value(names::FP_SHARE).unwrap_or(0.0);
            pace.note(thread.info.id, share, samples, fp_share);
        }
    }
}

fn switcher(thread: &ThreadSample) -> Switcher {
    let interval = thread.interval.max(1) as f64;
    Switcher {
        id: thread.info.id,
        rate: thread.switches.unwrap_or(0) as f64 / interval * 1e9,
        busy: thread.cpu_time as f64 / interval,
    }
}

fn switches_often(thread: &ThreadSample, most: u64) -> bool {
    let Some(switches) = thread.switches else {
        return false;
    };
    let a_second = u128::from(switches) * 1_000_000_000 / u128::from(thread.interval.max(1));
    a_second > u128::from(most)
}
