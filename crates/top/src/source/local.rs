//! This machine, only observed: nothing is changed.

use super::{Next, Pace, Source, SourceError};
use crate::assemble::Assembler;
use perch_core::{Machine, Wake};
use perch_engine::limiter::Limiter;
use perch_linux::LinuxMachine;
use perch_profile::Profile;
use std::time::Duration;

/// Observes an opened machine.
pub struct LocalSource {
    machine: LinuxMachine,
    assembler: Assembler,
    limiter: Limiter,
    interval: Duration,
    title: String,
    ended: Option<Next>,
}

impl LocalSource {
    /// Looks once every `interval` at what the machine follows: programs that were launched, processes to which it was
    /// attached, or all.
    pub fn new(machine: LinuxMachine, profile: Profile, interval: Duration, title: String) -> Self {
        Self {
            assembler: Assembler::new(machine.topology(), profile),
            limiter: Limiter::default(),
            machine,
            interval,
            title,
            ended: None,
        }
    }
}

impl Source for LocalSource {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn pace(&self) -> Pace {
        Pace::Live
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        if let Some(end) = self.ended.take() {
            return Ok(end);
        }
        match self.machine.wait(self.interval)? {
            Wake::Stop(signal) => return Ok(Next::Stop(signal)),
            Wake::Ended(status) => self.ended = Some(Next::End(status)),
            Wake::Period => {}
        }
        let mut observation = self.machine.observe()?;
        self.limiter.limit(observation.at, &mut observation.remarks);
        let frame = self
            .assembler
            .frame(&observation, &[], &observation.remarks);
        Ok(Next::Frame(Box::new(frame)))
    }

    fn catches_signals(&self) -> bool {
        true
    }
}
