//! Watches and never acts: what the kernel does by itself, measured.

use perch_core::{Plan, Policy, Snapshot};

/// The policy that never binds anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observe;

impl Policy for Observe {
    fn name(&self) -> &'static str {
        "observe"
    }

    fn decide(&mut self, _: &Snapshot) -> Plan {
        Plan::default()
    }
}
