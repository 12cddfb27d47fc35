//! The memory system as cores use it: against a naive model, and what coherence, migration, NUMA and bandwidth do.

mod against_naive;
mod behaviour;
mod links;
mod machine;
mod moves;
mod naive;
mod numa;
mod prefetch;
