//! Tests of the parts, each against a naive model of its own.

mod bandwidth;
mod cache;
mod tlb;
