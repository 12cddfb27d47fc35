//! The trait of monitoring modules: what is no plain counter.

use crate::{MachineError, Metrics, Sharing, ThreadId, ThreadSample, Topology};
use std::sync::Arc;

/// What a module receives at a period's end.
pub struct ModuleContext<'a> {
    /// The machine.
    pub topology: &'a Arc<Topology>,
    /// Nanoseconds since the last period's end.
    pub interval: u64,
    /// The threads of this period, by rising id, before modules added to them.
    pub threads: &'a [ThreadSample],
    /// Threads that ended in this period.
    pub ended: &'a [ThreadId],
}

/// Adds metrics to threads: instruction mix by sampling, energy, cache occupancy, a model's prediction.
pub trait Module {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The metrics that it adds.
    fn provides(&self) -> &[&'static str];

    /// The metrics that it must find.
    fn needs(&self) -> &[&'static str] {
        &[]
    }

    /// A period is over: metrics for those threads about which it knows something.
    ///
    /// # Errors
    /// A module that cannot go on.
    fn period(
        &mut self,
        context: &ModuleContext<'_>,
    ) -> Result<Vec<(ThreadId, Metrics)>, MachineError>;

    /// Threads of the period that just ended that were seen to share memory.
    fn sharing(&mut self) -> Vec<Sharing> {
        Vec::new()
    }

    /// What the user should know since the last call, such as lost samples.
    fn remarks(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// One line for the report: what it does and how, such as rate and privilege.
    fn description(&self) -> String;
}
