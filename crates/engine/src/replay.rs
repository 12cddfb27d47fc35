//! A recording as a machine: any policy can be asked what it would have done.
//!
//! This is an open loop. The recorded threads do not react, so a policy that would have been satisfied by its own move
//! does not see its effect.

use crate::{
    observer::Cause,
    ownership::Ownership,
    recording::{PeriodRecord, Reader, Record, RecordingError},
};
use perch_core::{
    Affinity, EventPlan, Launch, Machine, MachineError, MaskChange, MaskError, Observation,
    Outcome, ProcessId, PuSet, ThreadId, Topology, Wake, affinity::Relative,
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
    cause: Option<Cause>,
    at: u64,
    topology: Arc<Topology>,
    ownership: Ownership,
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
            next: VecDeque::new(),
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
                Some(Record::Period(period)) => self.next.push_back(*period),
                Some(Record::End(end)) => self.cause = Some(end.cause),
                Some(Record::Header(_)) => {}
                None => self.cause = Some(Cause::Ended(None)),
            }
        }
        Ok(())
    }

    /// Takes out of the masks what perch had set, and follows what it did next.
    fn undo(&mut self, period: &mut PeriodRecord) {
        let usable = self.topology.usable();
        let nobody_asks = |_: ThreadId| None;
        self.ownership
            .observe(&period.observation, &usable, &nobody_asks);
        for ended in &period.observation.ended {
            self.masks.0.remove(ended);
        }
        for sample in &mut period.observation.threads {
            let id = sample.info.id;
            if let (Some(mask), Some(owned)) = (&mut sample.mask, self.ownership.get(id)) {
                if owned.held() {
                    *mask = owned.before.clone();
                }
                self.masks.0.insert(id, mask.clone());
            }
        }
        for made in &period.moves {
            let before = self
                .ownership
                .get(made.thread)
                .map(|owned| owned.before.clone());
            if let Some(set) = made.to.clone().or(before) {
                self.ownership
                    .outcome(made.thread, &set, made.outcome, None);
            }
        }
    }
}

impl<R: BufRead> Machine for RecordedMachine<R> {
    fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology)
    }

    fn configure(&mut self, _: &EventPlan) -> Result<(), MachineError> {
        Ok(())
    }

    fn launch(&mut self, _: &Launch) -> Result<i32, MachineError> {
        Err(MachineError::Other(
            "a recording runs no programs: use `perch run`".to_owned(),
        ))
    }

    fn attach(&mut self, _: i32) -> Result<(), MachineError> {
        Err(MachineError::Other(
            "a recording has no processes to attach to: use `perch attach`".to_owned(),
        ))
    }

    fn wait(&mut self, _: Duration) -> Result<Wake, MachineError> {
        self.look_ahead()?;
        // The last period was observed when the session ended, if it came to its end.
        let last =
            self.next.len() < 2 && self.next.front().is_none_or(|period| period.plan.is_none());
        Ok(match self.cause {
            Some(Cause::Ended(status)) if last => Wake::Ended(status),
            Some(Cause::Stopped(signal)) if last => Wake::Stop(signal),
            _ => Wake::Period,
        })
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        let Some(mut period) = self.next.pop_front() else {
            // Cut short: there is no more to see than that everything is over.
            return Ok(Observation {
                at: self.at,
                ..Observation::default()
            });
        };
        self.at = period.observation.at;
        if let Some(topology) = &period.topology {
            self.topology = Arc::clone(topology);
        }
        self.undo(&mut period);
        Ok(period.observation)
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
    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        self.0.get(&thread).cloned().ok_or(MaskError::Gone)
    }

    fn change(&mut self, _: &MaskChange) -> Outcome {
        Outcome::NotApplied
    }

    fn allowed(&self, _: ThreadId) -> Option<PuSet> {
        None
    }

    fn relatives(
        &self,
        _: &str,
        _: &[ProcessId],
        _: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Relative>, MaskError> {
        Ok(Vec::new())
    }
}
