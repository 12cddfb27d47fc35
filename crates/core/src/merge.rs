//! Several intervals in a row as one: perch may look more often than it decides.

use crate::{
    Count, CountQuality, CountedSet, IrqSample, Metric, MetricKind, Metrics, Observation, PuSample,
    Reading, TargetSample, ThreadId, ThreadSample,
};
use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

impl Observation {
    /// Leaves out what says nothing about threads that live: so that an observation to which others are added for long
    /// does not grow with those that come and go. Linear in threads.
    pub fn retain_live(&mut self) {
        let ended: HashSet<ThreadId> = self.ended.drain(..).collect();
        self.threads
            .retain(|sample| !ended.contains(&sample.info.id));
        self.nices.retain(|sample| !ended.contains(&sample.thread));
        self.remarks.clear();
        self.origins.clear();
        self.read_late.clear();
        self.allowed.clear();
        self.processes.clear();
    }

    /// Adds the next interval to this one. Times, counts and lists add up, states and metrics are the later ones.
    /// Linear in threads.
    pub fn absorb(&mut self, later: &Observation) {
        let before = self.interval;
        self.at = later.at;
        self.interval += later.interval;
        merge(
            &mut self.threads,
            &later.threads,
            |sample| sample.info.id,
            add_thread,
        );
        merge(&mut self.pus, &later.pus, |sample| sample.pu, add_pu);
        self.windows.extend_from_slice(&later.windows);
        merge(
            &mut self.targets,
            &later.targets,
            |sample| sample.target,
            add_target,
        );
        merge(
            &mut self.irqs,
            &later.irqs,
            |sample| sample.label.clone(),
            add_irq,
        );
        merge(
            &mut self.nices,
            &later.nices,
            |sample| sample.thread,
            Clone::clone_from,
        );
        merge(
            &mut self.settings,
            &later.settings,
            |sample| sample.setting.clone(),
            Clone::clone_from,
        );
        merge(
            &mut self.readings,
            &later.readings,
            |reading| (reading.subject, reading.name.clone()),
            add_reading,
        );
        add_sharing(self, later, before);
        self.ended.extend(&later.ended);
        merge(
            &mut self.processes,
            &later.processes,
            |state| state.process,
            Clone::clone_from,
        );
        self.origins.extend(&later.origins);
        self.unseen += later.unseen;
        self.unmeasured += later.unmeasured;
        self.remarks.extend(later.remarks.iter().cloned());
        self.own_cpu_time += later.own_cpu_time;
        if later.topology.is_some() {
            self.topology.clone_from(&later.topology);
        }
        if later.default.is_some() {
            self.default.clone_from(&later.default);
        }
        self.read_late.extend(later.read_late.iter().cloned());
        self.allowed.extend(later.allowed.iter().cloned());
    }
}

/// One interval's part of a longer one.
fn part(interval: u64, of: u64) -> f64 {
    interval as f64 / of.max(1) as f64
}

/// Adds to each item that there is, and appends the others.
fn merge<T: Clone, K: Hash + Eq>(
    sums: &mut Vec<T>,
    later: &[T],
    key: impl Fn(&T) -> K,
    add: impl Fn(&mut T, &T),
) {
    let places: HashMap<K, usize> = sums.iter().map(&key).zip(0..).collect();
    for next in later {
        match places.get(&key(next)) {
            Some(at) => add(&mut sums[*at], next),
            None => sums.push(next.clone()),
        }
    }
}

/// Rates of transfers over both intervals; the first one took `before` nanoseconds.
fn add_sharing(sum: &mut Observation, later: &Observation, before: u64) {
    let (old, new) = (
        part(before, sum.interval),
        part(later.interval, sum.interval),
    );
    for sharing in &mut sum.sharing {
        sharing.transfers *= old;
    }
    let mut next = later.sharing.clone();
    for sharing in &mut next {
        sharing.transfers *= new;
    }
    merge(
        &mut sum.sharing,
        &next,
        |sharing| sharing.threads,
        |sum, next| {
            sum.transfers += next.transfers;
            sum.confidence = sum.confidence.max(next.confidence);
        },
    );
}

/// Amounts add up; of states and ratios the later one counts, as of metrics.
fn add_reading(sum: &mut Reading, next: &Reading) {
    let before = sum.metric.value;
    sum.clone_from(next);
    if next.kind == MetricKind::Amount {
        sum.metric.value += before;
    }
}

fn add_thread(sum: &mut ThreadSample, next: &ThreadSample) {
    let some = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
    };
    sum.info.clone_from(&next.info);
    sum.interval += next.interval;
    add_counts(
        (&mut sum.counts, sum.cpu_time),
        (&next.counts, next.cpu_time),
    );
    sum.event_set = add_set(sum.event_set, next.event_set);
    sum.cpu_time += next.cpu_time;
    sum.wait_time += next.wait_time;
    sum.switches = some(sum.switches, next.switches);
    sum.migrations = some(sum.migrations, next.migrations);
    sum.last_pu = next.last_pu.or(sum.last_pu);
    if next.mask.is_some() {
        sum.mask.clone_from(&next.mask);
    }
    take_later(&mut sum.metrics, &next.metrics);
}

/// That of two intervals, if it is the same.
fn add_set(sum: Option<CountedSet>, next: Option<CountedSet>) -> Option<CountedSet> {
    let (sum, next) = sum.zip(next)?;
    (sum.number == next.number).then_some(CountedSet {
        number: sum.number,
        enabled: sum.enabled + next.enabled,
    })
}

fn add_target(sum: &mut TargetSample, next: &TargetSample) {
    add_counts(
        (&mut sum.counts, sum.cpu_time),
        (&next.counts, next.cpu_time),
    );
    sum.cpu_time += next.cpu_time;
}

fn add_pu(sum: &mut PuSample, next: &PuSample) {
    add_counts((&mut sum.counts, sum.busy), (&next.counts, next.busy));
    sum.event_set = add_set(sum.event_set, next.event_set);
    sum.interval += next.interval;
    sum.busy += next.busy;
    sum.interrupts += next.interrupts;
}

/// An interrupt that belongs to another device now begins anew.
fn add_irq(sum: &mut IrqSample, next: &IrqSample) {
    let device = |sample: &IrqSample| sample.state.as_ref().map(|state| state.device.clone());
    if device(sum) != device(next) {
        sum.clone_from(next);
        return;
    }
    sum.interval += next.interval;
    sum.what.clone_from(&next.what);
    sum.state.clone_from(&next.state);
    for (pu, count) in &next.counts {
        match sum.counts.binary_search_by_key(pu, |(pu, _)| *pu) {
            Ok(at) => sum.counts[at].1 += count,
            Err(at) => sum.counts.insert(at, (*pu, *count)),
        }
    }
}

/// A module's metric covers a window of its own; the last one counts.
fn take_later(metrics: &mut Metrics, later: &Metrics) {
    for (name, metric) in later.iter() {
        metrics.set(name.clone(), Metric { ..*metric });
    }
}

/// Sums of counts, each with the nanoseconds on PUs in which it was counted. An event that was not counted in one of the
/// two intervals counts there as often as in the other, and says for which share it was counted.
fn add_counts(sums: (&mut Vec<Count>, u64), next: (&[Count], u64)) {
    let (sums, before) = sums;
    let (next, time) = next;
    let all = (before + time).max(1) as f64;
    let (before_share, time_share) = (before as f64 / all, time as f64 / all);
    let missing: Vec<usize> = (0..sums.len())
        .filter(|at| !next.iter().any(|count| count.alias == sums[*at].alias))
        .collect();
    for at in missing {
        extrapolate(&mut sums[at], before_share);
    }
    for count in next {
        match sums.iter_mut().find(|sum| sum.alias == count.alias) {
            None => {
                let mut count = count.clone();
                extrapolate(&mut count, time_share);
                sums.push(count);
            }
            Some(sum) => {
                sum.value += count.value;
                sum.quality = match (&sum.quality, &count.quality) {
                    (CountQuality::Implausible(why), _) | (_, CountQuality::Implausible(why)) => {
                        CountQuality::Implausible(why.clone())
                    }
                    (CountQuality::Exact, CountQuality::Exact) => CountQuality::Exact,
                    (a, b) => {
                        CountQuality::Scaled(counted(a) * before_share + counted(b) * time_share)
                    }
                };
            }
        }
    }
}

/// A count that covers this share of the time, scaled up to all of it.
fn extrapolate(count: &mut Count, share: f64) {
    if share >= 1.0 || matches!(count.quality, CountQuality::Implausible(_)) {
        return;
    }
    if share > 0.0 {
        count.value /= share;
    }
    count.quality = CountQuality::Scaled(counted(&count.quality) * share);
}

/// The share of the time in which an event was counted.
fn counted(quality: &CountQuality) -> f64 {
    match quality {
        CountQuality::Exact => 1.0,
        CountQuality::Scaled(share) => *share,
        CountQuality::Implausible(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IrqState, PuSet, Sharing, ThreadId, ThreadInfo};
    use proptest::prelude::*;

    fn sample(tid: i32, cpu_time: u64, count: Option<f64>) -> ThreadSample {
        let id = ThreadId { tid, start: 0 };
        ThreadSample {
            info: ThreadInfo {
                id,
                pid: tid,
                name: "worker".into(),
                process: "app".into(),
                work: crate::Work::default(),
            },
            interval: 100,
            cpu_time,
            wait_time: 1,
            switches: Some(2),
            migrations: None,
            last_pu: None,
            mask: None,
            counts: count
                .map(|value| Count {
                    alias: "instructions".into(),
                    value,
                    quality: CountQuality::Exact,
                })
                .into_iter()
                .collect(),
            event_set: None,
            metrics: Metrics::default(),
        }
    }

    fn observation(threads: Vec<ThreadSample>) -> Observation {
        Observation {
            interval: 100,
            threads,
            ..Observation::default()
        }
    }

    proptest! {
        /// A thread that does the same all the time has the same rate in the sum, whichever intervals were counted.
        #[test]
        fn a_steady_rate_stays_what_it_is(
            ticks in prop::collection::vec((1..100u64, any::<bool>()), 1..12),
            rate in 0.1..8.0f64,
        ) {
            let counted = |(time, counts): &(u64, bool)| {
                observation(vec![sample(1, *time, counts.then_some(rate * *time as f64))])
            };
            let mut sum = counted(&ticks[0]);
            ticks[1..].iter().for_each(|tick| sum.absorb(&counted(tick)));
            let all: u64 = ticks.iter().map(|(time, _)| time).sum();
            let thread = &sum.threads[0];
            prop_assert_eq!(thread.cpu_time, all);
            prop_assert_eq!(thread.interval, 100 * ticks.len() as u64);
            prop_assert_eq!(sum.interval, 100 * ticks.len() as u64);
            prop_assert_eq!(thread.switches, Some(2 * ticks.len() as u64));
            prop_assert_eq!(thread.migrations, None);
            match ticks.iter().any(|(_, counts)| *counts) {
                false => prop_assert!(thread.counts.is_empty()),
                true => {
                    let found = thread.counts[0].value / all as f64;
                    prop_assert!((found - rate).abs() < 1e-9 * rate, "{} for {}", found, rate);
                    let exact = ticks.iter().all(|(_, counts)| *counts);
                    prop_assert_eq!(thread.counts[0].quality == CountQuality::Exact, exact);
                }
            }
        }
    }

    #[test]
    fn threads_of_either_interval_are_in_the_sum() {
        let mut sum = observation(vec![sample(1, 10, None), sample(2, 20, None)]);
        let mut later = observation(vec![sample(2, 5, None), sample(3, 7, None)]);
        later.ended.push(ThreadId { tid: 1, start: 0 });
        sum.absorb(&later);
        let times: Vec<(i32, u64)> = sum
            .threads
            .iter()
            .map(|sample| (sample.info.pid, sample.cpu_time))
            .collect();
        assert_eq!(times, [(1, 10), (2, 25), (3, 7)]);
        assert_eq!(sum.ended.len(), 1);
    }

    #[test]
    fn amounts_of_modules_add_up_and_states_are_the_later_ones() {
        let with = |value: f64| Observation {
            readings: [
                (MetricKind::Amount, "energy_pkg"),
                (MetricKind::Level, "power"),
            ]
            .map(|(kind, name)| Reading {
                subject: crate::Subject::Package(1),
                name: name.into(),
                kind,
                metric: Metric {
                    value,
                    confidence: 1.0,
                    source: crate::MetricSource::Sensor,
                },
            })
            .into(),
            ..observation(Vec::new())
        };
        let mut sum = with(5.0);
        sum.absorb(&with(7.0));
        sum.absorb(&observation(Vec::new()));
        let values: Vec<f64> = sum.readings.iter().map(|r| r.metric.value).collect();
        assert_eq!(values, [12.0, 7.0]);
        // As recordings have it.
        let line = serde_json::to_string(&sum.readings[0]).unwrap();
        assert!(
            line.starts_with(r#"{"subject":{"package":1},"name":"energy_pkg","kind":"amount""#),
            "{line}"
        );
        assert_eq!(
            serde_json::from_str::<Reading>(&line).unwrap(),
            sum.readings[0]
        );
    }

    #[test]
    fn what_comes_and_goes_does_not_pile_up() {
        let mut kept = observation(vec![sample(1, 10, None)]);
        for tid in 2..100 {
            let mut later = observation(vec![sample(1, 10, None), sample(tid, 1, None)]);
            later.ended = vec![ThreadId { tid, start: 0 }];
            later.remarks = vec![crate::Remark::note("test", "a test")];
            kept.absorb(&later);
            kept.retain_live();
        }
        let times: Vec<(i32, u64)> = kept
            .threads
            .iter()
            .map(|sample| (sample.info.pid, sample.cpu_time))
            .collect();
        assert_eq!(times, [(1, 990)]);
        assert_eq!((kept.ended.len(), kept.remarks.len()), (0, 0));
    }

    #[test]
    fn interrupts_add_up_by_pu_unless_they_are_another_devices() {
        let irq = |device: &str, counts: &[(u32, u64)]| IrqSample {
            label: "24".to_owned(),
            what: String::new(),
            interval: 100,
            counts: counts.to_vec(),
            state: Some(IrqState {
                device: device.to_owned(),
                mask: PuSet::single(0),
                movable: true,
            }),
        };
        let with = |irq| Observation {
            irqs: vec![irq],
            ..observation(Vec::new())
        };
        let mut sum = with(irq("eth0", &[(2, 5)]));
        sum.absorb(&with(irq("eth0", &[(0, 1), (2, 3)])));
        assert_eq!(sum.irqs[0].counts, [(0, 1), (2, 8)]);
        assert_eq!(sum.irqs[0].interval, 200);
        sum.absorb(&with(irq("eth1", &[(1, 4)])));
        assert_eq!(sum.irqs, [irq("eth1", &[(1, 4)])]);
    }

    #[test]
    fn transfers_are_a_rate_over_the_whole_time() {
        let pair = |tid| {
            let id = |tid| ThreadId { tid, start: 0 };
            (id(tid), id(tid + 1))
        };
        let with = |threads, transfers| Observation {
            sharing: vec![Sharing {
                threads,
                transfers,
                confidence: 0.5,
            }],
            ..observation(Vec::new())
        };
        let mut sum = with(pair(1), 1000.0);
        sum.absorb(&with(pair(1), 3000.0));
        sum.absorb(&observation(Vec::new()));
        sum.absorb(&with(pair(5), 800.0));
        let rates: Vec<f64> = sum.sharing.iter().map(|pair| pair.transfers).collect();
        assert!(
            (rates[0] - 1000.0).abs() < 1e-9 && (rates[1] - 200.0).abs() < 1e-9,
            "{rates:?}"
        );
    }
}
