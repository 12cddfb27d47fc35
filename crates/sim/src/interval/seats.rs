//! The threads of a core whose speeds are looked for.

use super::{alone::Alone, demand::Asked, layout::Layout, play::InQueues};
use std::sync::Arc;

/// A thread on a PU.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    pub pu: usize,
    pub asked: Arc<Asked>,
    /// How it does alone in its part of the core.
    pub alone: Alone,
}

/// The threads of one core.
#[derive(Debug, Clone)]
pub(super) struct Seats {
    pub core: usize,
    pub seats: Vec<Seat>,
    /// By how much the closed formula is wrong for each.
    pub corrections: Vec<f64>,
    /// Speeds to begin with, in instructions a picosecond while the clock runs.
    pub guesses: Vec<f64>,
    /// What each holds of the core's queues, if that has any.
    pub in_queues: Vec<InQueues>,
}

/// On which contexts of the core its threads are.
pub(super) fn contexts(layout: &Layout, seats: &Seats) -> Vec<usize> {
    let of = |seat: &Seat| layout.pus[seat.pu].context;
    seats.seats.iter().map(of).collect()
}
