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

/// What a session is to do.
pub struct Options {
    /// Who decides.
    pub policy: Box<dyn Policy>,
    /// Where it decides.
    pub deciding: Deciding,
    /// What is known of the processor.
    pub processor: Box<dyn Processor>,
    /// How long a period is; the policy's own if not given.
    pub period: Option<Duration>,
    /// How often the machine is observed; once a period if not given. At most a period.
    pub interval: Option<Duration>,
    /// Whether masks are changed.
    pub acting: Acting,
    /// Whether threads that others have placed are placed all the same.
    pub take_over: bool,
    /// The only PUs on which threads are put, if given.
    pub pus: Option<PuSet>,
}

impl Options {
    /// On the observing path, once a period, the policy's own; nobody is taken over, and all PUs may be used.
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
