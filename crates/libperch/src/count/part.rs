//! What was done in a region, or in a part of its time.

use super::{moment::Moment, plan::Plan};
use perch_linux::perf::Sums;
use perch_stat::Amounts;

/// Sums between pairs of moments, in nanoseconds and events.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    pub wall: u64,
    pub cpu: u64,
    pub wait: u64,
    /// By event set.
    pub sums: Vec<Sums>,
}

impl Part {
    /// Adds what was done between two moments in which the same set was active.
    pub(crate) fn add(&mut self, set: usize, before: &Moment, after: &Moment) {
        self.wall += after.wall.saturating_sub(before.wall);
        self.cpu += after.cpu.saturating_sub(before.cpu);
        self.wait += after.wait.saturating_sub(before.wait);
        if self.sums.len() <= set {
            self.sums.resize_with(set + 1, Sums::default);
        }
        self.sums[set].add(&before.counts, &after.counts);
    }

    /// Adds what another thread did in the same region. Its time was another's: the longer one is kept.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.wall = self.wall.max(other.wall);
        self.cpu += other.cpu;
        self.wait += other.wait;
        if self.sums.len() < other.sums.len() {
            self.sums.resize_with(other.sums.len(), Sums::default);
        }
        for (sum, other) in self.sums.iter_mut().zip(&other.sums) {
            sum.merge(other);
        }
    }

    /// The same in events of the plan, for so many threads.
    pub(crate) fn amounts(&self, plan: &Plan, threads: u32) -> Amounts {
        let mut amounts = Amounts::default();
        if let Some(counters) = &plan.counters {
            for (set, sums) in self.sums.iter().enumerate().take(counters.sets()) {
                let (counts, enabled) = counters.counts(set, sums);
                amounts.add(&Amounts::of_counts(&counts, enabled));
            }
        }
        amounts.members = threads;
        amounts.cpu_time = self.cpu;
        amounts.wait_time = self.wait;
        let counted = |alias: &str| {
            let estimate = amounts.value(alias)?.estimate(amounts.covered)?;
            Some(estimate.round() as u64)
        };
        let switches = counted("context_switches").filter(|_| plan.needs_switches);
        let migrations = counted("cpu_migrations").filter(|_| plan.needs_migrations);
        amounts.set_switches(switches, migrations);
        amounts
    }
}
