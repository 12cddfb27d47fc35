//! The trait of policies.

use crate::{Plan, Snapshot};
use std::time::Duration;

/// Decides where threads run: a pure function of what it has seen. No clock, no file, no system call, no randomness
/// but a seeded one; hence every decision can be recorded, replayed and explained.
pub trait Policy: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The period that its paper uses or that suits it.
    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Metrics without which it cannot decide.
    fn needs(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it looks at what PUs do ([`Snapshot::pus`]), which machines observe only then.
    fn wants_pu_loads(&self) -> bool {
        false
    }

    /// Whether it decides about interrupts ([`Snapshot::irqs`]), which machines observe only then.
    fn wants_irqs(&self) -> bool {
        false
    }

    /// Whether it asks for CPU weights ([`ActionKind::CpuWeight`](crate::ActionKind::CpuWeight)).
    fn wants_weights(&self) -> bool {
        false
    }

    /// Whether it decides about settings of the machine ([`Snapshot::settings`]), which machines observe only then.
    fn wants_settings(&self) -> bool {
        false
    }

    /// Whether it places the threads of the operating system too ([`Work`](crate::Work)), which are observed only then.
    fn wants_system(&self) -> bool {
        false
    }

    /// Whether it decides by names alone, with nothing measured: then sessions do not wait for a whole period before they
    /// ask it for the first time.
    fn decides_at_once(&self) -> bool {
        false
    }

    /// The desired state after this period.
    fn decide(&mut self, snapshot: &Snapshot) -> Plan;
}
