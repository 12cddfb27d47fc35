//! One search: its schedules, which of them is tried, and what came of those before.

use super::{SosConfig, schedule::Schedule};
use crate::cpi::cores::Cores;
use perch_core::ThreadId;

/// A search under way, or what it found.
#[derive(Debug)]
pub(super) struct Search {
    /// About whom; by rising id.
    threads: Vec<ThreadId>,
    /// On which PUs.
    pus: Vec<Vec<u32>>,
    schedules: Vec<Schedule>,
    /// The mean score of each schedule that was tried.
    scores: Vec<f64>,
    /// The schedule in force.
    current: usize,
    /// Periods for which it has been in force.
    periods: u32,
    /// The sum of their scores.
    sum: f64,
    /// Whether the search is over and the best schedule in force.
    steady: bool,
}

impl Search {
    pub fn new(threads: Vec<ThreadId>, cores: &Cores, schedules: Vec<Schedule>) -> Self {
        Self {
            schedules: match schedules.is_empty() {
                true => vec![vec![None; threads.len()]],
                false => schedules,
            },
            threads,
            pus: cores.iter().map(|core| core.pus.clone()).collect(),
            scores: Vec::new(),
            current: 0,
            periods: 0,
            sum: 0.0,
            steady: false,
        }
    }

    /// Whether its schedules are still of these threads on these PUs.
    pub fn is_about(&self, threads: &[ThreadId], cores: &Cores) -> bool {
        self.threads == threads
            && self.pus.len() == cores.len()
            && self.pus.iter().zip(cores.iter()).all(|(a, b)| *a == b.pus)
    }

    /// A period under the present schedule is over: what comes next; `None` when it is time for a new search.
    pub fn advance(mut self, score: f64, config: &SosConfig) -> Option<Self> {
        self.periods += 1;
        self.sum += score;
        if self.steady {
            return (self.periods < config.steady_periods).then_some(self);
        }
        if self.periods < config.sample_periods {
            return Some(self);
        }
        self.scores.push(self.sum / f64::from(self.periods));
        self.periods = 0;
        self.sum = 0.0;
        self.current += 1;
        if self.current == self.schedules.len() {
            // The first of equals.
            let scores = self.scores.iter().enumerate().rev();
            let best = scores.max_by(|a, b| a.1.total_cmp(b.1));
            self.current = best.map_or(0, |(at, _)| at);
            self.steady = true;
        }
        Some(self)
    }

    /// The schedule that is to be in force.
    pub fn schedule(&self) -> &Schedule {
        &self.schedules[self.current]
    }

    /// What it is doing.
    pub fn explain(&self) -> String {
        let (at, of) = (self.current + 1, self.schedules.len());
        match (self.steady, self.scores.get(self.current)) {
            (true, Some(score)) => format!("schedule {at} was the best of {of} (score {score:.3})"),
            _ => format!("tries schedule {at} of {of}"),
        }
    }
}
