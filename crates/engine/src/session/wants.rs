//! What a policy wants to be observed.

use crate::characterise::Processor;
use perch_core::{EventPlan, Machine, MachineError, Policy};

/// What the machine observes for a policy besides threads and their masks.
#[derive(Debug)]
pub(super) struct Wants {
    pu_loads: bool,
    pub(super) irqs: bool,
    weights: bool,
    pub(super) system: bool,
    pub(super) settings: bool,
    /// Whether the policy is asked before a whole period is over.
    pub(super) at_once: bool,
    events: EventPlan,
}

impl Wants {
    pub(super) fn of(policy: &dyn Policy, processor: &dyn Processor) -> Self {
        Self {
            pu_loads: policy.wants_pu_loads(),
            irqs: policy.wants_irqs(),
            weights: policy.wants_weights(),
            system: policy.wants_system(),
            settings: policy.wants_settings(),
            at_once: policy.decides_at_once(),
            events: processor.event_plan_with(policy.needs()),
        }
    }

    /// Has the machine observe all that from now on.
    ///
    /// # Errors
    /// A machine that cannot. It may observe some of it by then.
    pub(super) fn configure<M: Machine>(&self, machine: &mut M) -> Result<(), MachineError> {
        machine.watch_pus(self.pu_loads)?;
        machine.watch_weights(self.weights)?;
        machine.watch_system(self.system)?;
        // A policy for the operating system's work does without interrupts and settings where a machine has none.
        let if_any = |watched: Result<(), MachineError>| match watched {
            Err(MachineError::Absent(_)) if self.system => Ok(()),
            other => other,
        };
        if_any(machine.watch_irqs(self.irqs))?;
        if_any(machine.watch_settings(self.settings))?;
        machine.configure(&self.events)
    }
}
