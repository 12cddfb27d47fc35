//! Sums of what threads or PUs did.

use perch_core::{
    Count, CountQuality, CountedSet, Metric, MetricName, Metrics, PuSample, TargetSample,
    ThreadSample, Window, metric::names,
};
use std::{collections::BTreeMap, sync::Arc};

/// An event's count, with the time in which it was counted: nothing is scaled before it is shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Value {
    /// Occurrences while it was counted.
    pub counted: f64,
    /// Nanoseconds on PUs in which it was counted.
    pub time: f64,
    /// Why the count is not used, if it is implausible.
    pub doubt: Option<String>,
}

impl Value {
    /// The share of this time on PUs (nanoseconds) in which the event was counted, 0 to 1.
    pub fn share(&self, time: u64) -> f64 {
        match time {
            0 => 0.0,
            // Sums of times from files may be off by the last bits.
            _ => match (self.time / time as f64).clamp(0.0, 1.0) {
                share if share > 1.0 - 1e-9 => 1.0,
                share => share,
            },
        }
    }

    /// The count over all of this time (nanoseconds), as if the event had occurred as often in the rest of it; `None` if
    /// it was not counted at all, or implausibly.
    pub fn estimate(&self, time: u64) -> Option<f64> {
        let share = self.share(time);
        (share > 0.0 && self.doubt.is_none()).then(|| self.counted / share)
    }

    /// Whether [`Value::estimate`] over this time is more than what was counted; rounding of the times aside.
    pub fn is_scaled(&self, time: u64) -> bool {
        self.share(time) <= 0.995
    }

    fn add(&mut self, other: &Self) {
        self.counted += other.counted;
        self.time += other.time;
        if self.doubt.is_none() {
            self.doubt.clone_from(&other.doubt);
        }
    }
}

/// A metric that a module or the machine gave: a sum, or a mean weighted by CPU time and confidence.
#[derive(Debug, Clone, PartialEq)]
struct Given {
    sum: f64,
    weighted: f64,
    weight: f64,
    time: f64,
    metric: Metric,
}

/// What one thread, or several, or a part of the machine did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Amounts {
    /// Threads or PUs that are in it, those of each interval anew.
    pub members: u32,
    /// Of several intervals, how many of them there were on the average of the time, where that is known.
    pub mean_members: Option<f64>,
    /// Nanoseconds on PUs; of a PU, those in which it was not idle.
    pub cpu_time: u64,
    /// Those of `cpu_time` in which some event set was switched on. An event that was counted for a part of them, since
    /// sets or the kernel multiplex, can be scaled up to all of them; of the rest of `cpu_time` nothing is known.
    pub covered: u64,
    /// Nanoseconds runnable without a PU; 0 for PUs.
    pub wait_time: u64,
    /// Context switches, where the kernel counts them.
    pub switches: Option<u64>,
    /// Moves to another PU, where the kernel counts them.
    pub migrations: Option<u64>,
    /// Those nanoseconds of `cpu_time` whose switches are known.
    pub switches_known: u64,
    /// Whether nothing is known of what a thread did after it was last looked at: waiting time and switches are lower bounds.
    pub unknown_end: bool,
    /// Whether migrations of some intervals are not known.
    pub unknown_migrations: bool,
    /// Nanoseconds that PUs spent on interrupts; 0 for threads.
    pub interrupts: u64,
    /// By the event's alias; an event of one kind of core is `ALIAS@PMU`.
    pub values: BTreeMap<Arc<str>, Value>,
    given: BTreeMap<MetricName, Given>,
}

/// The covered time: none without counts, and all of it where a recording or a simulated machine does not tell it.
///
/// Counters are read a moment before or after run times, so a set may have been on for longer than the interval that the
/// run time tells of, and for less than the next: what it has counted belongs to the time in which it was on.
fn covered(set: Option<CountedSet>, counts: &[Count], cpu_time: u64) -> u64 {
    match (counts.is_empty(), set) {
        (true, _) => 0,
        (false, Some(set)) => set.enabled,
        (false, None) => cpu_time,
    }
}

impl Amounts {
    /// One thread over one interval.
    pub fn of_thread(sample: &ThreadSample) -> Self {
        let mut amounts = Self {
            members: 1,
            cpu_time: sample.cpu_time,
            covered: covered(sample.event_set, &sample.counts, sample.cpu_time),
            wait_time: sample.wait_time,
            switches: sample.switches,
            migrations: sample.migrations,
            switches_known: sample.switches.map_or(0, |_| sample.cpu_time),
            unknown_end: sample.switches.is_none(),
            unknown_migrations: sample.migrations.is_none(),
            ..Self::default()
        };
        amounts.count(&sample.counts, amounts.covered);
        for (name, metric) in sample.metrics.iter() {
            amounts.give(name, *metric, sample.cpu_time as f64);
        }
        amounts
    }

    /// One PU over one interval.
    pub fn of_pu(sample: &PuSample) -> Self {
        let mut amounts = Self {
            members: 1,
            cpu_time: sample.busy,
            // A PU's counters are on while it is idle too.
            covered: covered(sample.event_set, &sample.counts, sample.busy).min(sample.busy),
            interrupts: sample.interrupts,
            ..Self::default()
        };
        amounts.count(&sample.counts, amounts.covered);
        amounts
    }

    /// One thread from one record of its event set to the next.
    pub fn of_window(window: &Window) -> Self {
        let mut amounts = Self {
            members: 1,
            cpu_time: window.cpu_time,
            covered: window.cpu_time,
            ..Self::default()
        };
        amounts.count(&window.counts, window.cpu_time);
        amounts
    }

    /// What one event set counted in this many nanoseconds on PUs, all of them covered.
    pub fn of_counts(counts: &[Count], cpu_time: u64) -> Self {
        let mut amounts = Self {
            cpu_time,
            covered: covered(None, counts, cpu_time),
            ..Self::default()
        };
        amounts.count(counts, cpu_time);
        amounts
    }

    /// A whole program over one interval.
    pub fn of_target(sample: &TargetSample) -> Self {
        let mut amounts = Self {
            cpu_time: sample.cpu_time,
            covered: sample.cpu_time,
            ..Self::default()
        };
        amounts.count(&sample.counts, sample.cpu_time);
        amounts
    }

    /// Sets context switches and migrations, which are those of all of the CPU time.
    pub fn set_switches(&mut self, switches: Option<u64>, migrations: Option<u64>) {
        (self.switches, self.migrations) = (switches, migrations);
        let known = switches.is_some() || migrations.is_some();
        self.switches_known = if known { self.cpu_time } else { 0 };
    }

    fn count(&mut self, counts: &[Count], time: u64) {
        for count in counts {
            let (share, doubt) = match &count.quality {
                CountQuality::Exact => (1.0, None),
                CountQuality::Scaled(share) => (*share, None),
                CountQuality::Implausible(why) => (0.0, Some(why.clone())),
            };
            let value = Value {
                counted: count.value * share,
                time: time as f64 * share,
                doubt,
            };
            self.values
                .entry(Arc::clone(&count.alias))
                .or_default()
                .add(&value);
        }
    }

    fn give(&mut self, name: &MetricName, metric: Metric, time: f64) {
        if !metric.value.is_finite() || !metric.confidence.is_finite() {
            return;
        }
        let weight = time.max(1.0) * metric.confidence;
        let new = Given {
            sum: metric.value,
            weighted: metric.value * weight,
            weight,
            time,
            metric,
        };
        match self.given.get_mut(name) {
            Some(given) => given.add(&new),
            None => {
                self.given.insert(MetricName::clone(name), new);
            }
        }
    }

    /// How many threads or PUs it is about; of several intervals their mean number.
    pub fn threads(&self) -> f64 {
        self.mean_members.unwrap_or(f64::from(self.members))
    }

    /// Adds what others did, or what the same did later.
    pub fn add(&mut self, other: &Self) {
        let known = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        self.members = self.members.saturating_add(other.members);
        // Files may tell any number.
        for (sum, more) in [
            (&mut self.cpu_time, other.cpu_time),
            (&mut self.covered, other.covered),
            (&mut self.wait_time, other.wait_time),
            (&mut self.interrupts, other.interrupts),
            (&mut self.switches_known, other.switches_known),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.unknown_end |= other.unknown_end;
        self.unknown_migrations |= other.unknown_migrations;
        self.switches = known(self.switches, other.switches);
        self.migrations = known(self.migrations, other.migrations);
        for (name, value) in &other.values {
            self.values.entry(Arc::clone(name)).or_default().add(value);
        }
        for (name, given) in &other.given {
            match self.given.get_mut(name) {
                Some(sum) => sum.add(given),
                None => {
                    self.given.insert(MetricName::clone(name), given.clone());
                }
            }
        }
    }

    /// An event's count, on all kinds of core together.
    pub fn value(&self, alias: &str) -> Option<Value> {
        if let Some(value) = self.values.get(alias) {
            return Some(value.clone());
        }
        let of_kinds = self.values.iter().filter(|(known, _)| {
            known
                .strip_prefix(alias)
                .is_some_and(|rest| rest.starts_with('@'))
        });
        of_kinds
            .map(|(_, value)| value.clone())
            .reduce(|mut sum, value| {
                sum.add(&value);
                sum
            })
    }

    /// Whether some of the time was not covered, so that counts are lower bounds. The two clocks differ a little.
    pub fn is_partial(&self) -> bool {
        (self.covered as f64) < 0.98 * self.cpu_time as f64
    }

    /// The part of the time, 0 to 1, whose switches and migrations are known: of the rest nothing is in the counts.
    pub fn known_switches(&self) -> f64 {
        match self.cpu_time {
            0 => 1.0,
            all => (self.switches_known as f64 / all as f64).min(1.0),
        }
    }

    /// The counts over the covered time, each saying for which share of it the event was counted.
    pub fn counts(&self) -> Vec<Count> {
        let counts = self.values.iter().filter_map(|(name, value)| {
            let share = value.share(self.covered);
            Some(Count {
                alias: Arc::clone(name),
                // For all of the time: formulas divide by it.
                value: value.estimate(self.covered)?,
                quality: match value.is_scaled(self.covered) {
                    false => CountQuality::Exact,
                    true => CountQuality::Scaled(share),
                },
            })
        });
        counts.collect()
    }

    /// Whether an amount that the machine or its modules gave is a lower bound, since it was known for a part of the CPU
    /// time only.
    pub fn is_given_in_part(&self, name: &str) -> bool {
        let given = self.given.get(name);
        given.is_some_and(|given| given.time < 0.98 * self.cpu_time as f64)
    }

    /// The metrics of threads that the machine or its modules gave; `amounts` names those that add up besides the known
    /// ones.
    pub fn given(&self, amounts: &[MetricName]) -> Metrics {
        let metric = |(name, given): (&MetricName, &Given)| {
            let adds_up = names::AMOUNTS.contains(&&**name) || amounts.contains(name);
            let value = match adds_up || given.weight <= 0.0 {
                true => given.sum,
                false => given.weighted / given.weight,
            };
            let confidence = match given.time > 0.0 {
                true => (given.weight / given.time).min(1.0),
                false => given.metric.confidence,
            };
            let metric = Metric {
                value,
                confidence,
                ..given.metric
            };
            (MetricName::clone(name), metric)
        };
        self.given.iter().map(metric).collect()
    }
}

impl Given {
    fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.weighted += other.weighted;
        self.weight += other.weight;
        self.time += other.time;
        self.metric = other.metric;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn amounts(cpu_time: u64, value: f64, quality: CountQuality) -> Amounts {
        let mut amounts = Amounts {
            cpu_time,
            covered: cpu_time,
            members: 1,
            ..Amounts::default()
        };
        amounts.count(
            &[Count {
                alias: "x".into(),
                value,
                quality,
            }],
            cpu_time,
        );
        amounts
    }

    #[test]
    fn a_thread_that_was_not_counted_lowers_the_share() {
        let mut sum = amounts(1_000, 50.0, CountQuality::Exact);
        sum.add(&Amounts {
            cpu_time: 3_000,
            members: 1,
            ..Amounts::default()
        });
        let value = &sum.values["x"];
        assert_eq!((value.counted, value.share(sum.cpu_time)), (50.0, 0.25));
        assert_eq!(value.estimate(sum.cpu_time), Some(200.0));
        // It is a lower bound: formulas get what was counted, beside the time in which it was.
        assert!(sum.is_partial());
        let count = &sum.counts()[0];
        assert_eq!((count.value, &count.quality), (50.0, &CountQuality::Exact));
    }

    #[test]
    fn sets_that_were_switched_late_still_tell_the_rates() {
        // A thread that does 3 of one event and 7 of the other in a nanosecond, all the time; sets that are switched up to
        // a third of an interval after or before run times are read.
        let sample = |number: u32, (alias, rate): (&str, u64), enabled: u64| ThreadSample {
            info: perch_core::ThreadInfo {
                id: perch_core::ThreadId { tid: 1, start: 1 },
                pid: 1,
                name: "t".into(),
                process: "p".into(),
                work: perch_core::Work::default(),
            },
            interval: 100,
            cpu_time: 100,
            wait_time: 0,
            switches: None,
            migrations: None,
            last_pu: None,
            mask: None,
            counts: vec![Count {
                alias: alias.into(),
                value: (rate * enabled) as f64,
                quality: CountQuality::Exact,
            }],
            event_set: Some(CountedSet { number, enabled }),
            metrics: Metrics::default(),
        };
        let mut sum = Amounts::default();
        for (first, second) in [(100, 100), (130, 70), (70, 125), (101, 104)] {
            sum.add(&Amounts::of_thread(&sample(0, ("a", 3), first)));
            sum.add(&Amounts::of_thread(&sample(1, ("b", 7), second)));
        }
        assert_eq!((sum.cpu_time, sum.covered), (800, 800));
        let estimate = |alias: &str| sum.values[alias].estimate(sum.covered).unwrap();
        assert!((estimate("a") - 3.0 * 800.0).abs() < 1e-6);
        assert!((estimate("b") - 7.0 * 800.0).abs() < 1e-6);
    }

    #[test]
    fn an_implausible_count_is_no_number() {
        let sum = amounts(1_000, 7.0, CountQuality::Implausible("lies".into()));
        assert_eq!(sum.values["x"].estimate(1_000), None);
        assert_eq!(sum.counts(), []);
        assert_eq!(sum.values["x"].doubt.as_deref(), Some("lies"));
    }

    proptest! {
        #[test]
        fn the_order_of_adding_does_not_matter(
            parts in proptest::collection::vec((0u64..1_000_000, 0u32..1_000_000, 1u32..=100), 1..8)
        ) {
            let all: Vec<Amounts> = parts
                .iter()
                .map(|(time, value, share)| {
                    let quality = match share {
                        100 => CountQuality::Exact,
                        share => CountQuality::Scaled(f64::from(*share) / 100.0),
                    };
                    amounts(*time, f64::from(*value), quality)
                })
                .collect();
            let sum = |parts: &mut dyn Iterator<Item = &Amounts>| {
                let mut sum = Amounts::default();
                parts.for_each(|part| sum.add(part));
                sum
            };
            let (forth, back) = (sum(&mut all.iter()), sum(&mut all.iter().rev()));
            prop_assert_eq!(forth.cpu_time, back.cpu_time);
            let (a, b) = (&forth.values["x"], &back.values["x"]);
            prop_assert!((a.counted - b.counted).abs() <= 1e-9 * a.counted.abs().max(1.0));
            prop_assert!(a.share(forth.cpu_time) <= 1.0);
            // What was counted is never more than what is estimated.
            if let Some(estimate) = a.estimate(forth.cpu_time) {
                prop_assert!(estimate >= a.counted - 1e-6 * a.counted.abs());
            }
        }
    }
}
