//! A recording as a machine: any policy can be asked what it would have done.
//!
//! This is an open loop. The recorded threads do not react, so a policy that would have been satisfied by its own move
//! does not see its effect.

use crate::{
    irqs::KnownIrqs,
    observer::Cause,
    ownership::Ownership,
    recording::{PeriodRecord, Reader, Record, RecordingError},
    settings::KnownSettings,
    ways::is_about_ways,
    weights::KnownNices,
};
use perch_core::{
    Affinity, EventPlan, Machine, MachineError, MaskChange, MaskError, Observation, Outcome,
    ProcessId, PuSet, ThreadId, Topology, Wake, affinity::Descendant,
};
use std::{
    collections::{HashMap, VecDeque},
    io::BufRead,
    sync::Arc,
    time::Duration,
};

/// Plays a recording back. What perch had set then is taken out of the masks, so that threads look as they would have
/// without it.
#[derive(Debug)]
pub struct RecordedMachine<R: BufRead> {
    reader: Reader<R>,
    next: VecDeque<PeriodRecord>,
    /// The number of the last period that was read.
    last: Option<u64>,
    cause: Option<Cause>,
    at: u64,
    topology: Arc<Topology>,
    ownership: Ownership,
    irqs: KnownIrqs,
    settings: KnownSettings,
    nices: KnownNices,
    masks: Masks,
}

#[derive(Debug, Default)]
struct Masks(HashMap<ThreadId, PuSet>);

impl<R: BufRead> RecordedMachine<R> {
    /// Plays what the reader reads.
    pub fn new(reader: Reader<R>) -> Self {
        let header = reader.header();
        Self {
            topology: Arc::clone(&header.topology),
            ownership: Ownership::new(header.default_mask.clone(), header.take_over),
            irqs: KnownIrqs::default(),
            settings: KnownSettings::default(),
            nices: KnownNices::default(),
            next: VecDeque::new(),
            last: None,
            cause: None,
            at: 0,
            masks: Masks::default(),
            reader,
        }
    }

    /// The recording, for its header.
    pub fn recording(&self) -> &Reader<R> {
        &self.reader
    }

    /// Reads on until the next period, or to the end.
    fn look_ahead(&mut self) -> Result<(), MachineError> {
        let error = |error: RecordingError| MachineError::Other(error.to_string());
        while self.next.len() < 2 && self.cause.is_none() {
            match self.reader.read().map_err(error)? {
                Some(Record::Period(period)) => {
                    self.check_order(period.number).map_err(error)?;
                    self.next.push_back(*period);
                }
                Some(Record::End(end)) => self.cause = Some(end.cause),
                Some(Record::Header(_)) => {}
                None => self.cause = Some(Cause::Ended(None)),
            }
        }
        Ok(())
    }

    /// Whether a period is behind the one before: replayed twice, one would count twice.
    fn check_order(&mut self, number: u64) -> Result<(), RecordingError> {
        match self.last.replace(number) {
            Some(last) if number == last => Err(self.reader.wrong(format!(
                "period {number} again, as in a line before: remove this line"
            ))),
            Some(last) if number < last => Err(self.reader.wrong(format!(
                "period {number} after period {last}: the lines are not in their order"
            ))),
            _ => Ok(()),
        }
    }

    /// Takes out of the masks what perch had set, and follows what it did next.
    fn undo(&mut self, observation: &mut Observation, period: &PeriodRecord) {
        let usable = self.topology.usable();
        let asked: HashMap<ThreadId, PuSet> = observation.allowed.iter().cloned().collect();
        let allowed = |thread: ThreadId| asked.get(&thread).cloned();
        self.ownership.observe(observation, &usable, &allowed);
        let pids: HashMap<ThreadId, i32> = observation
            .threads
            .iter()
            .map(|sample| (sample.info.id, sample.info.pid))
            .collect();
        for (id, mask) in &observation.read_late {
            let pid = pids.get(id).copied().unwrap_or(0);
            self.ownership.learn(*id, pid, mask, &allowed);
        }
        for ended in &observation.ended {
            self.masks.0.remove(ended);
        }
        let sampled = observation.threads.iter_mut();
        let sampled = sampled.filter_map(|sample| Some((sample.info.id, sample.mask.as_mut()?)));
        let late = observation.read_late.iter_mut();
        let late = late.map(|(id, mask)| (*id, mask));
        for (id, mask) in sampled.chain(late) {
            if let Some(owned) = self.ownership.get(id) {
                if owned.held() {
                    *mask = owned.before.clone();
                }
                self.masks.0.insert(id, mask.clone());
            }
        }
        self.irqs.observe(&observation.irqs);
        for sample in &mut observation.irqs {
            let before = sample.irq().and_then(|irq| self.irqs.before(irq));
            if let Some((before, state)) = before.zip(sample.state.as_mut()) {
                state.mask = before.clone();
            }
        }
        self.settings.observe(&observation.settings);
        // Nothing is journaled here.
        self.settings.take_released();
        for sample in &mut observation.settings {
            if let Some(before) = self.settings.before(&sample.setting) {
                sample.value = before.clone();
            }
        }
        self.nices.observe(observation);
        for sample in &mut observation.nices {
            let known = self.nices.get(sample.thread);
            if let Some(known) = known.filter(|known| known.asked.is_some()) {
                sample.nice = known.before;
            }
        }
        for taken in period.actions.iter().filter(|taken| !is_about_ways(taken)) {
            let change = self.nices.change(taken);
            self.nices.taken(taken, change.as_ref(), false);
        }
        for made in &period.irq_moves {
            self.irqs.moved(made, false);
        }
        for made in &period.setting_moves {
            self.settings.moved(made, false);
        }
        for made in &period.moves {
            let before = self
                .ownership
                .get(made.thread)
                .map(|owned| owned.before.clone());
            if let Some(set) = made.to.clone().or(before) {
                let rest = made.rest.as_ref();
                self.ownership
                    .outcome(made.thread, &set, made.outcome, made.span, rest);
            }
        }
    }
}

impl<R: BufRead + Send> Machine for RecordedMachine<R> {
    fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology)
    }

    fn configure(&mut self, _: &EventPlan) -> Result<(), MachineError> {
        Ok(())
    }

    fn watch_pus(&mut self, _: bool) -> Result<(), MachineError> {
        Ok(())
    }

    fn watch_irqs(&mut self, _: bool) -> Result<(), MachineError> {
        Ok(())
    }

    fn watch_settings(&mut self, _: bool) -> Result<(), MachineError> {
        Ok(())
    }

    fn watch_system(&mut self, _: bool) -> Result<(), MachineError> {
        Ok(())
    }

    fn watch_weights(&mut self, _: bool) -> Result<(), MachineError> {
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> Result<Wake, MachineError> {
        self.look_ahead()?;
        // The last period was observed when the session ended, if it came to its end.
        let last = self.next.len() < 2 && self.next.front().is_none_or(|period| period.last);
        Ok(match self.cause {
            Some(Cause::Ended(status)) if last => Wake::Ended(status),
            Some(Cause::Stopped(signal)) if last => Wake::Stop(signal),
            Some(Cause::Commanded) if last => Wake::Ended(None),
            _ => Wake::Period,
        })
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        let Some(period) = self.next.pop_front() else {
            // Cut short: there is no more to see than that everything is over.
            return Ok(Observation {
                at: self.at,
                ..Observation::default()
            });
        };
        self.at = period.observation.at;
        let mut observation = Observation::clone(&period.observation);
        if let Some(topology) = &period.topology {
            observation.topology = Some(Arc::clone(topology));
        }
        if let Some(topology) = &observation.topology {
            self.topology = Arc::clone(topology);
        }
        if let Some(default) = &observation.default {
            self.ownership.set_default(default.clone());
        }
        self.undo(&mut observation, &period);
        Ok(observation)
    }

    fn processes(&mut self) -> Vec<(ProcessId, u32)> {
        Vec::new()
    }

    fn default_mask(&self) -> PuSet {
        self.ownership.default_mask().clone()
    }

    fn affinity(&mut self) -> &mut dyn Affinity {
        &mut self.masks
    }

    fn counting(&self) -> String {
        let then = &self.reader.header().counting;
        format!("{then}, recorded (open loop: the recorded threads do not react)")
    }
}

impl Affinity for Masks {
    fn settle(&self) {}

    /// Nothing is changed, for whatever user.
    fn belongs_to(&self, _: ThreadId, _: u32) -> bool {
        true
    }

    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        self.0.get(&thread).cloned().ok_or(MaskError::Gone)
    }

    fn change(&mut self, _: &MaskChange) -> Outcome {
        Outcome::NotApplied
    }

    fn allowed(&self, _: ThreadId) -> Option<PuSet> {
        None
    }

    fn descendants(
        &self,
        _: &str,
        _: &[ProcessId],
        _: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError> {
        Ok(Vec::new())
    }
}
