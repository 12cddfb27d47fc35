//! Which thread runs where.

use super::{demand::Demand, homes::Homes};
use crate::ways::Ways;

/// A thread on a PU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running<'a> {
    pub pu: usize,
    pub demand: &'a Demand,
    /// The NUMA nodes of its data.
    pub homes: Homes,
    /// The ways of caches that it may fill.
    pub ways: Ways,
}
