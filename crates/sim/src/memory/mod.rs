//! Caches, address translation and memory.
//!
//! Every access looks in the caches of its PU, level by level, and goes to memory if none has the line. Caches are
//! set-associative with true LRU, write back and allocate on writes; a line that leaves one cache may stay in others
//! (they are neither inclusive nor exclusive). What a thread finds after a migration is what the tags say.
//!
//! Latencies add up: a request reaches a level when the level before has missed, which takes that level's latency, and
//! leaves for memory when the last has. So a machine's file gives each level's own part, not the time from the load.
//! The first level's is part of the instruction's latency and not counted here.
//!
//! Coherence is by invalidation: one core writes or many read. [`Memory`] asks other caches only about lines of regions
//! (64 lines) that more than one core has touched.

mod access;
mod bandwidth;
mod cache;
mod directory;
mod hierarchy;
mod links;
mod lru;
mod prefetch;
mod sets;
#[cfg(test)]
mod tests;
mod tlb;
mod topology;
mod warm;
mod written;

pub use access::{Access, Hierarchy};
pub(crate) use bandwidth::Channel;
pub use directory::Placement;
pub use hierarchy::Memory;
pub use topology::Occupancy;

/// Lines of a cache name this many threads. All further ones have one number in common.
pub(crate) const CONFINABLE: usize = cache::LAST_THREAD as usize;

pub(crate) use warm::Span;
