//! The trait of machines: live, simulated, or a replayed recording.

use crate::{Affinity, EventPlan, MachineError, Observation, ProcessId, PuSet, Topology};
use std::{ffi::OsString, sync::Arc, time::Duration};

/// The environment variable that marks a session's program and all that descends from it.
pub const SESSION_VARIABLE: &str = "PERCH_SESSION";

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Launch {
    /// The program and its arguments; the first is looked up in `PATH`.
    pub command: Vec<OsString>,
    /// Environment variables to set besides the inherited ones.
    pub environment: Vec<(OsString, OsString)>,
}

/// The reason why [`Machine::wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The period is over.
    Period,
    /// The launched program has exited, with its wait status (wait(2)), even if it left descendants running; or all
    /// processes that perch was attached to have exited, with all their descendants. `None` where there is no status:
    /// nothing was launched, or other code in this process reaped the program.
    Ended(Option<i32>),
    /// The user asked to stop (a signal's number).
    Stop(i32),
}

/// What a machine follows: programs that it starts and processes that run already. A target is one of them, with all that
/// descends from it; targets are numbered in the order in which they were given.
pub trait Targets {
    /// Starts a program and follows it and all that descends from it; its process number.
    ///
    /// # Errors
    /// A program that is not there or cannot be executed; a machine that starts none.
    fn launch(&mut self, launch: &Launch) -> Result<i32, MachineError>;

    /// Follows a process that runs already, and all that descends from it. Returns its target; that of an ancestor if it
    /// is followed already.
    ///
    /// # Errors
    /// A process that is not there or not ours.
    fn attach(&mut self, pid: i32) -> Result<u32, MachineError>;

    /// No longer follows a target. Its masks are the caller's business.
    fn detach(&mut self, target: u32);
}

/// A machine. It owns time.
pub trait Machine: Send {
    /// The present topology, with the state of each PU.
    fn topology(&self) -> Arc<Topology>;

    /// Says what to count; may be called again with another plan.
    ///
    /// # Errors
    /// Events that cannot be opened, with the permission or sysctl that would allow it.
    fn configure(&mut self, plan: &EventPlan) -> Result<(), MachineError>;

    /// Says whether PUs are to be observed besides threads ([`Observation::pus`]); before [`Machine::configure`], whose
    /// events are then counted on PUs too, where that is possible.
    ///
    /// # Errors
    /// A machine that cannot observe them.
    fn watch_pus(&mut self, watch: bool) -> Result<(), MachineError> {
        match watch {
            false => Ok(()),
            true => Err(MachineError::Other(
                "this machine cannot observe what its PUs do: choose another policy".to_owned(),
            )),
        }
    }

    /// Says whether interrupts are to be observed ([`Observation::irqs`]).
    ///
    /// # Errors
    /// A machine that has none to observe.
    fn watch_irqs(&mut self, watch: bool) -> Result<(), MachineError> {
        match watch {
            false => Ok(()),
            true => Err(MachineError::Absent(
                "this machine has no interrupts to observe: choose another policy".to_owned(),
            )),
        }
    }

    /// Says whether CPU weights are to be changed, and so nice values observed ([`Observation::nices`]).
    ///
    /// # Errors
    /// A machine that has no CPU weights.
    fn watch_weights(&mut self, watch: bool) -> Result<(), MachineError> {
        match watch {
            false => Ok(()),
            true => Err(MachineError::Other(
                "this machine has no CPU weights: leave out --weight".to_owned(),
            )),
        }
    }

    /// Says whether settings of the machine are to be observed ([`Observation::settings`]).
    ///
    /// # Errors
    /// A machine that has none.
    fn watch_settings(&mut self, watch: bool) -> Result<(), MachineError> {
        match watch {
            false => Ok(()),
            true => Err(MachineError::Absent(
                "this machine has no settings to change: choose another policy".to_owned(),
            )),
        }
    }

    /// Says whether threads that belong to no target are to be followed besides, as those of the operating system
    /// ([`Work`](crate::Work)).
    ///
    /// # Errors
    /// A machine that has no others; a user who may not change their masks.
    fn watch_system(&mut self, watch: bool) -> Result<(), MachineError> {
        match watch {
            false => Ok(()),
            true => Err(MachineError::Absent(
                "this machine has no operating system whose threads could be moved: choose another policy".to_owned(),
            )),
        }
    }

    /// The target that is the operating system, while that is followed.
    fn system_target(&self) -> Option<u32> {
        None
    }

    /// Starts, attaches and detaches; `None` for machines whose threads are given (simulations, recordings).
    fn targets(&mut self) -> Option<&mut dyn Targets> {
        None
    }

    /// Waits until this long after the last period's end.
    ///
    /// # Errors
    /// A machine that cannot go on.
    fn wait(&mut self, period: Duration) -> Result<Wake, MachineError>;

    /// Measurements since the last call: of threads and, if requested, of PUs and interrupts.
    ///
    /// # Errors
    /// A machine that cannot go on.
    fn observe(&mut self) -> Result<Observation, MachineError>;

    /// Nanoseconds since the machine was opened, as [`Observation::at`]; `None` where its time stands still between
    /// observations.
    fn now(&self) -> Option<u64> {
        None
    }

    /// The processes that are followed at this moment, each with its target. Includes processes created since the last
    /// observation, so that none is missed when masks are restored. None on machines on which
    /// [`Affinity::descendants`] finds all of them.
    fn processes(&mut self) -> Vec<(ProcessId, u32)>;

    /// The mask of threads that have not been placed, where [`Observation::processes`] says nothing else: for a
    /// launched program the one that perch inherited, for an attached one the effective cpuset. Offline PUs included.
    fn default_mask(&self) -> PuSet;

    /// Reads and changes masks.
    fn affinity(&mut self) -> &mut dyn Affinity;

    /// How threads are characterised, for the report: `hardware counters (…)`, `instruction sampling, 251 Hz, per CPU`.
    fn counting(&self) -> String;
}
