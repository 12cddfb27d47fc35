//! A policy on a simulated machine, under perch's own loop: masks are journaled before they are changed, as live.

use crate::{processor::SimProcessor, sampled::Sampled};
use perch_core::{Policy, PuSet};
use perch_engine::{
    Acting, Handle, Options, Processor, Session, SessionError, SessionSink, StateDir, StateDirError,
};
use perch_sim::{machine::SimMachine, system::System};
use std::time::Duration;
use tempfile::TempDir;

/// A policy, and how it is run.
pub struct Decider {
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// How often it decides; `None` for its own period.
    pub period: Option<Duration>,
    /// The only PUs that it may use; `None` for all.
    pub pus: Option<PuSet>,
    /// Metrics that are counted besides those that it needs.
    pub metrics: Vec<String>,
    /// Whether it sees only what sampled instructions tell, or all counts.
    pub sampled: bool,
}

impl Decider {
    /// A policy with its own period, which sees all counts and uses all PUs.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            period: None,
            pus: None,
            metrics: Vec::new(),
            sampled: false,
        }
    }
}

/// A session on a simulated machine.
pub struct SimSession {
    session: Session<SimMachine>,
    // The journal's directory, removed at the end.
    _state: TempDir,
}

impl SimSession {
    /// Of a system at its first moment, for this long in the operating system's time.
    ///
    /// # Errors
    /// A journal that cannot be kept.
    pub fn new(system: System, time: Duration, decider: Decider) -> Result<Self, SessionError> {
        let state = tempfile::tempdir().map_err(|error| StateDirError::Io {
            path: std::env::temp_dir(),
            error,
        })?;
        let processor = SimProcessor::new(system.machine())
            .with_metrics(&decider.metrics)
            .with_metrics(decider.policy.needs());
        let processor: Box<dyn Processor> = match decider.sampled {
            true => Box::new(Sampled(processor)),
            false => Box::new(processor),
        };
        let options = Options {
            period: decider.period,
            pus: decider.pus,
            ..Options::new(
                decider.policy,
                processor,
                Acting::Live(StateDir::open(state.path())?),
            )
        };
        let mut session = Session::new(SimMachine::new(system, Some(time)), options)?;
        // Simulated threads inherit no masks, so it does not matter when they started.
        session.set_clock(|| u64::MAX);
        Ok(Self {
            session,
            _state: state,
        })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// A deadlock.
    pub fn run(&mut self, observer: &mut dyn SessionSink) -> Result<(), SessionError> {
        self.session.run(observer).map(|_| ())
    }

    /// Sends it commands, from any thread.
    pub fn handle(&self) -> Handle {
        self.session.handle()
    }

    /// The system as it is now.
    pub fn system(&mut self) -> &System {
        self.session.machine().system()
    }
}
