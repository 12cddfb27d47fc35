//! What the events of one reading counted, added up by name.

use super::{
    group::{Delta, Group},
    resolve::GroupPlan,
};
use crate::plausibility::OnCpu;
use perch_core::{Count, CountQuality};
use std::{collections::BTreeMap, sync::Arc};

/// Below this share of the time on the PMU a count is scaled.
const ALL_THE_TIME: f64 = 0.995;

/// Sums of one reading over all groups of a set.
#[derive(Default)]
pub(super) struct Accumulator {
    counts: BTreeMap<Arc<str>, Sum>,
}

/// What one alias counted: where PMUs differ by core, it is an event of several groups.
#[derive(Default)]
struct Sum {
    value: u64,
    /// Longest time that one of its events was switched on. Events of a program are read one after the other, and those
    /// that are read later were on for longer.
    enabled: u64,
    /// Time on a PMU, of all its events.
    running: u64,
    /// Whether one of the counts was impossible.
    impossible: bool,
}

impl Accumulator {
    pub(super) fn add(&mut self, group: &mut Group, plan: &GroupPlan) {
        if let Ok(delta) = group.read() {
            self.add_delta(&delta, plan);
        }
    }

    pub(super) fn add_delta(&mut self, delta: &Delta, plan: &GroupPlan) {
        for ((alias, _), value) in plan.events.iter().zip(&delta.values) {
            self.add_event(alias, *value, (delta.enabled, delta.running));
        }
    }

    /// Adds one event: its count, `None` for an impossible one, and the nanoseconds for which it was switched on and was
    /// on a PMU.
    pub(super) fn add_event(&mut self, alias: &Arc<str>, value: Option<u64>, times: (u64, u64)) {
        let (enabled, running) = times;
        let sum = self.counts.entry(Arc::clone(alias)).or_default();
        sum.enabled = sum.enabled.max(enabled);
        sum.running += running;
        match value {
            Some(value) => sum.value += value,
            None => sum.impossible = true,
        }
    }

    /// The times for which events were switched on (while the thread ran), of those that ever were.
    pub(super) fn on_cpu(&self) -> OnCpu {
        let times = self.counts.values().map(|sum| sum.enabled);
        let times = times.filter(|time| *time > 0);
        OnCpu {
            shortest: times.clone().min().unwrap_or(0),
            longest: times.max().unwrap_or(0),
        }
    }

    /// The counts, scaled to the whole time, and the least share of it.
    pub(super) fn counts(self) -> (Vec<Count>, f64) {
        let mut least = 1.0f64;
        let longest = self.on_cpu().longest;
        let sums = self.counts.into_iter();
        let counts = sums
            .filter_map(|(alias, sum)| {
                let share = match sum.enabled {
                    // Others were on.
                    0 if longest > 0 => 0.0,
                    enabled => (sum.running as f64 / enabled as f64).min(1.0),
                };
                least = least.min(share);
                if sum.impossible {
                    let why = "the counter went backwards".to_owned();
                    let quality = CountQuality::Implausible(why);
                    let value = 0.0;
                    return Some(Count {
                        alias,
                        value,
                        quality,
                    });
                }
                // Never on the PMU: nothing is known, which is not zero.
                (sum.running > 0).then(|| Count {
                    alias,
                    value: sum.value as f64 / share,
                    quality: match share >= ALL_THE_TIME {
                        true => CountQuality::Exact,
                        false => CountQuality::Scaled(share),
                    },
                })
            })
            .collect();
        (counts, least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_later_scales_nothing() {
        let mut tally = Accumulator::default();
        let alias = |name: &str| Arc::<str>::from(name);
        tally.add_event(&alias("first"), Some(1_000), (50, 50));
        tally.add_event(&alias("second"), Some(1_100), (55, 55));
        // Multiplexed for half of the time; and time-shared by the PMUs of two kinds of core.
        tally.add_event(&alias("third"), Some(500), (60, 30));
        tally.add_event(&alias("fourth"), Some(300), (60, 20));
        tally.add_event(&alias("fourth"), Some(700), (60, 40));
        tally.add_event(&alias("never"), Some(0), (0, 0));
        assert_eq!((tally.on_cpu().shortest, tally.on_cpu().longest), (50, 60));
        let (counts, least) = tally.counts();
        let of = |name: &str| {
            let count = counts.iter().find(|count| &*count.alias == name);
            count.map(|count| (count.value, count.quality.clone()))
        };
        assert_eq!(of("first"), Some((1_000.0, CountQuality::Exact)));
        assert_eq!(of("second"), Some((1_100.0, CountQuality::Exact)));
        assert_eq!(of("third"), Some((1_000.0, CountQuality::Scaled(0.5))));
        assert_eq!(of("fourth"), Some((1_000.0, CountQuality::Exact)));
        assert_eq!((of("never"), least), (None, 0.0));
    }
}
