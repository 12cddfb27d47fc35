//! From what a machine saw to what is shown: observation + profile + moves = frame.

use crate::frame::{Column, Frame, Moved, PuLoad, Thread};
use perch_core::{
    MetricName, Metrics, Observation, Outcome, PuSet, Remark, ThreadId, ThreadSample, Topology,
    metric::names, text::printable,
};
use perch_engine::{Move, Processor};
use perch_profile::Profile;
use rustc_hash::FxHashMap;
use std::{borrow::Cow, sync::Arc};

/// Metrics that are not shown: amounts of an interval and errors say little beside the others.
const HIDDEN: [&str; 4] = [
    names::CYCLES,
    names::INSTRUCTIONS,
    names::SAMPLES,
    names::FP_SHARE_ERROR,
];

/// For how long a metric is shown of which nothing new is known: sampling gives a thread new values only from time to time.
const KEPT: u64 = 10_000_000_000;

/// Makes frames of observations, one after the other. Linear in threads.
#[derive(Debug)]
pub struct Assembler {
    topology: Arc<Topology>,
    profile: Profile,
    /// Metrics seen so far, so that columns keep their order.
    metrics: Vec<MetricName>,
    /// The last values of each thread's metrics, in that order, each with when it was new.
    known: FxHashMap<ThreadId, Vec<(f32, u64)>>,
    /// Where perch has bound threads, as far as moves tell.
    bound: FxHashMap<ThreadId, Arc<PuSet>>,
    /// Names of threads that were moved after they had ended, or before they were sampled.
    names: FxHashMap<ThreadId, Arc<str>>,
}

impl Assembler {
    /// For a machine and the profile of its processor.
    pub fn new(topology: Arc<Topology>, profile: Profile) -> Self {
        Self {
            topology,
            profile,
            metrics: Vec::new(),
            known: FxHashMap::default(),
            bound: FxHashMap::default(),
            names: FxHashMap::default(),
        }
    }

    /// The frame of an interval, with what was moved and remarked in it.
    pub fn frame(
        &mut self,
        observation: &Observation,
        moves: &[Move],
        remarks: &[Remark],
    ) -> Frame {
        if let Some(topology) = &observation.topology {
            self.topology = Arc::clone(topology);
        }
        self.follow(moves);
        for ended in &observation.ended {
            self.bound.remove(ended);
        }
        let mut samples: Vec<&ThreadSample> = observation.threads.iter().collect();
        samples.sort_by_key(|sample| sample.info.id);
        samples.dedup_by_key(|sample| sample.info.id);
        let threads = samples
            .iter()
            .map(|sample| self.thread(sample, observation.interval))
            .collect();
        let frame = Frame {
            at: observation.at,
            interval: observation.interval,
            topology: Arc::clone(&self.topology),
            pus: pus(observation),
            threads,
            metrics: self.columns(&samples, observation.at),
            moves: self.moved(moves, &samples),
            remarks: remarks
                .iter()
                .map(|remark| printable(&remark.text).into_owned())
                .collect(),
            unseen: observation.unseen,
            own: share(observation.own_cpu_time, observation.interval),
        };
        for ended in &observation.ended {
            self.names.remove(ended);
            self.known.remove(ended);
        }
        frame
    }

    /// Follows where perch binds threads.
    fn follow(&mut self, moves: &[Move]) {
        for made in moves {
            if !matches!(made.outcome, Outcome::Applied | Outcome::NotApplied) {
                continue;
            }
            match &made.to {
                Some(to) => self.bound.insert(made.thread, Arc::new(to.clone())),
                None => self.bound.remove(&made.thread),
            };
        }
    }

    fn thread(&self, sample: &ThreadSample, interval: u64) -> Thread {
        let rate = |count: Option<u64>| {
            let seconds = interval.max(1) as f32 / 1e9;
            count.map(|count| count as f32 / seconds)
        };
        Thread {
            id: sample.info.id,
            pid: sample.info.pid,
            name: shown(&sample.info.name),
            process: shown(&sample.info.process),
            cpu: share(sample.cpu_time, interval),
            waiting: share(sample.wait_time, interval),
            pu: sample.last_pu,
            switches: rate(sample.switches),
            migrations: rate(sample.migrations),
            bound: self.bound.get(&sample.info.id).cloned(),
        }
    }

    /// The metrics of all threads: those that modules gave, and those that the profile computes from counts; else the last
    /// ones, if they are not too old.
    fn columns(&mut self, samples: &[&ThreadSample], now: u64) -> Vec<Column> {
        for sample in samples {
            let counted = match sample.counts.is_empty() {
                true => Metrics::default(),
                false => Processor::metrics(&self.profile, &sample.counts, sample.cpu_time).0,
            };
            for (name, metric) in sample.metrics.iter().chain(counted.iter()) {
                if metric.confidence <= 0.0 || HIDDEN.contains(&&**name) {
                    continue;
                }
                let name = shown(name);
                let known = self.metrics.iter().position(|known| *known == name);
                let at = known.unwrap_or_else(|| {
                    self.metrics.push(name);
                    self.metrics.len() - 1
                });
                let values = self.known.entry(sample.info.id).or_default();
                if values.len() <= at {
                    values.resize(at + 1, (f32::NAN, 0));
                }
                values[at] = (metric.value as f32, now);
            }
        }
        let known: Vec<Option<&Vec<(f32, u64)>>> = samples
            .iter()
            .map(|sample| self.known.get(&sample.info.id))
            .collect();
        let value = |of: &Option<&Vec<(f32, u64)>>, at: usize| {
            let value = of.and_then(|values| values.get(at));
            let value = value.filter(|(_, since)| now.saturating_sub(*since) <= KEPT);
            value.map_or(f32::NAN, |(value, _)| *value)
        };
        let columns = self.metrics.iter().enumerate();
        columns
            .map(|(at, name)| Column {
                name: Arc::clone(name),
                values: known.iter().map(|of| value(of, at)).collect(),
            })
            .collect()
    }

    fn moved(&mut self, moves: &[Move], samples: &[&ThreadSample]) -> Vec<Moved> {
        let mut shown_moves = Vec::with_capacity(moves.len());
        for made in moves {
            let found = samples.binary_search_by_key(&made.thread, |sample| sample.info.id);
            let name = match found {
                Ok(at) => shown(&samples[at].info.name),
                Err(_) => {
                    let known = self.names.get(&made.thread).cloned();
                    known.unwrap_or_else(|| made.thread.tid.to_string().into())
                }
            };
            self.names.insert(made.thread, Arc::clone(&name));
            shown_moves.push(Moved {
                id: made.thread,
                name,
                from: made.from.clone(),
                to: made.to.clone(),
                reason: printable(&made.reason.text).into_owned(),
                numbers: made
                    .reason
                    .numbers
                    .iter()
                    .map(|(name, value)| (printable(name).into_owned(), *value))
                    .collect(),
                outcome: made.outcome,
            });
        }
        shown_moves
    }
}

/// A name without characters that a terminal would obey; the same one where there are none.
fn shown(name: &Arc<str>) -> Arc<str> {
    match printable(name) {
        Cow::Borrowed(_) => Arc::clone(name),
        Cow::Owned(clean) => clean.into(),
    }
}

fn share(time: u64, interval: u64) -> f32 {
    (time as f64 / interval.max(1) as f64).min(1.0) as f32
}

fn pus(observation: &Observation) -> Vec<PuLoad> {
    let mut pus: Vec<PuLoad> = observation
        .pus
        .iter()
        .map(|sample| PuLoad {
            pu: sample.pu,
            busy: share(sample.busy, sample.interval),
            interrupts: share(sample.interrupts, sample.interval),
        })
        .collect();
    pus.sort_by_key(|pu| pu.pu);
    pus.dedup_by_key(|pu| pu.pu);
    pus
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{Metric, MetricSource, Reason, ThreadInfo};

    pub fn profile() -> Profile {
        let text = include_str!("../../../profiles/generic.toml");
        Profile::parse(text, "profiles/generic.toml").unwrap()
    }

    fn sample(tid: i32, name: &str, cpu_time: u64) -> ThreadSample {
        ThreadSample {
            info: ThreadInfo {
                id: ThreadId { tid, start: 7 },
                pid: 10,
                name: name.into(),
                process: "app".into(),
                work: perch_core::Work::default(),
            },
            interval: 1_000_000_000,
            cpu_time,
            wait_time: 0,
            switches: Some(4),
            migrations: None,
            last_pu: Some(1),
            mask: None,
            counts: Vec::new(),
            event_set: None,
            metrics: Metrics::default(),
        }
    }

    fn machine() -> Arc<Topology> {
        crate::check::tests::machine(1, 2, 1)
    }

    #[test]
    fn shares_rates_metrics_and_moves_are_told() {
        let mut assembler = Assembler::new(machine(), profile());
        let mut busy = sample(12, "b\x1b[2J", 500_000_000);
        let metric = |value| Metric {
            value,
            confidence: 0.5,
            source: MetricSource::Sampling,
        };
        busy.metrics.set(names::FP_SHARE.into(), metric(0.25));
        busy.metrics.set(names::SAMPLES.into(), metric(99.0));
        let observation = Observation {
            at: 2_000_000_000,
            interval: 2_000_000_000,
            threads: vec![busy, sample(11, "a", 0)],
            own_cpu_time: 20_000_000,
            ..Observation::default()
        };
        let made = Move {
            thread: ThreadId { tid: 12, start: 7 },
            from: None,
            to: Some(PuSet::single(1)),
            reason: Reason::new("FP rank 1").with("fp_share", 0.25),
            outcome: Outcome::Applied,
            span: None,
            rest: None,
        };
        let frame = assembler.frame(&observation, &[made], &[]);
        let names: Vec<&str> = frame.threads.iter().map(|of| &*of.name).collect();
        assert_eq!(names, ["a", "b\\x1b[2J"]);
        assert_eq!(frame.threads[1].cpu, 0.25);
        assert_eq!(frame.threads[1].switches, Some(2.0));
        assert_eq!(frame.threads[1].bound.as_deref(), Some(&PuSet::single(1)));
        assert_eq!(frame.metrics.len(), 1);
        assert_eq!(frame.metric(names::FP_SHARE, 1), Some(0.25));
        assert_eq!(frame.metric(names::FP_SHARE, 0), None);
        assert_eq!(frame.own, 0.01);
        // Kept for a while where nothing new is known.
        let later = |at: u64| Observation {
            at,
            threads: vec![sample(12, "b", 0)],
            ..Observation::default()
        };
        for (at, expected) in [(9_000_000_000, Some(0.25)), (12_000_000_001, None)] {
            let frame = assembler.frame(&later(at), &[], &[]);
            assert_eq!(frame.metric(names::FP_SHARE, 0), expected);
        }
        assert_eq!(frame.moves[0].name, frame.threads[1].name);
        // Released again, after it ended.
        let released = Move {
            thread: ThreadId { tid: 12, start: 7 },
            from: Some(PuSet::single(1)),
            to: None,
            reason: Reason::default(),
            outcome: Outcome::Applied,
            span: None,
            rest: None,
        };
        let frame = assembler.frame(&Observation::default(), &[released], &[]);
        assert_eq!(&*frame.moves[0].name, "b\\x1b[2J");
        assert!(frame.threads.is_empty());
    }
}
