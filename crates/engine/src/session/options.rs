//! What a session is to do.

use crate::{characterise::Processor, decider::Deciding, journal::state_dir::StateDir};
use perch_core::{Policy, PuSet, Topology};
use std::{sync::Arc, time::Duration};

/// Whether masks are changed.
pub enum Acting {
    /// They are, and journaled in this directory first.
    Live(StateDir),
    /// Nothing is changed: a dry run, on a what-if topology if one is given.
    DryRun(Option<Arc<Topology>>),
}

/// Settings of a session.
pub struct Options {
    /// The policy that decides on placements.
    pub policy: Box<dyn Policy>,
    /// Whether the policy decides on the observing thread or on one of its own.
    pub deciding: Deciding,
    /// Metrics, units and thresholds of the processor, from its profile.
    pub processor: Box<dyn Processor>,
    /// Time between two decisions; the policy's own period if `None`.
    pub period: Option<Duration>,
    /// Time between two observations, at most a period; a period if `None`.
    pub interval: Option<Duration>,
    /// Whether masks are changed, and the directory of the journal if so.
    pub acting: Acting,
    /// Whether threads that were placed before perch saw them are placed too (`--take-over`).
    pub take_over: bool,
    /// The only PUs to which threads may be bound (`--pus`); all usable ones if `None`.
    pub pus: Option<PuSet>,
}

impl Options {
    /// Default settings: decides on the observing thread, once per period of the policy, takes no threads over, and may
    /// use all PUs.
    pub fn new(policy: Box<dyn Policy>, processor: Box<dyn Processor>, acting: Acting) -> Self {
        Self {
            policy,
            deciding: Deciding::Inline,
            processor,
            period: None,
            interval: None,
            acting,
            take_over: false,
            pus: None,
        }
    }
}
