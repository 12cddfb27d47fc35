//! What a recording says of a thread besides its times: metrics, and counts of events.

use super::data::Quantity;
use crate::render::explain::words;
use perch_core::{CountQuality, Metrics, ThreadSample, metric::names};
use perch_engine::Processor;
use perch_profile::Profile;
use perch_top::frame::{Unit, unit};
use rustc_hash::FxHashMap;
use std::{collections::BTreeSet, sync::Arc};

/// More quantities than these are not shown.
pub const MOST: usize = 20;

/// Amounts of an interval and errors say little beside the others.
const HIDDEN: [&str; 4] = [
    names::CYCLES,
    names::INSTRUCTIONS,
    names::SAMPLES,
    names::FP_SHARE_ERROR,
];

/// A mean of several values: a metric's weight is CPU time x confidence; a count's value is the number of events in all,
/// and its weight the seconds of CPU time in which they were counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.weight += other.weight;
    }

    /// The weight.
    pub fn weight(self) -> f64 {
        self.weight
    }

    /// The mean, if anything is known.
    pub fn value(self) -> Option<f32> {
        let value = (self.weight > 0.0).then(|| self.sum / self.weight);
        value
            .map(|value| value as f32)
            .filter(|value| value.is_finite())
    }
}

/// The means of several quantities, by their numbers.
#[derive(Debug, Clone, Default)]
pub struct Means(Vec<Mean>);

impl Means {
    /// Adds to one of them.
    pub fn add(&mut self, number: usize, value: Mean) {
        if self.0.len() <= number {
            self.0.resize(number + 1, Mean::default());
        }
        self.0[number].add(value);
    }

    /// Adds all of another's.
    pub fn add_all(&mut self, other: &Self) {
        for (number, value) in other.0.iter().enumerate() {
            self.add(number, *value);
        }
    }

    /// The mean of one of them.
    pub fn get(&self, number: usize) -> Option<f32> {
        self.0.get(number).and_then(|mean| mean.value())
    }
}

/// The quantities of a recording, in the order in which they were first seen.
#[derive(Debug, Default)]
pub struct Quantities {
    numbers: FxHashMap<(Arc<str>, bool), usize>,
    list: Vec<Quantity>,
    left_out: BTreeSet<Arc<str>>,
    /// Whether a count was scaled up, because its event was not counted all the time.
    pub scaled: bool,
    /// Counts that are left out because they are not possible.
    pub implausible: u64,
}

impl Quantities {
    /// What a sample says, as pairs of a number and a value; quantities that are new get numbers.
    pub fn of(&mut self, profile: &Profile, sample: &ThreadSample) -> Vec<(usize, Mean)> {
        for count in &sample.counts {
            match count.quality {
                CountQuality::Exact => {}
                CountQuality::Scaled(_) => self.scaled = true,
                CountQuality::Implausible(_) => self.implausible += 1,
            }
        }
        let said = said(profile, sample);
        let numbered = said.into_iter().filter_map(|(name, counted, value)| {
            let number = self.number(&name, counted)?;
            Some((number, value))
        });
        numbered.collect()
    }

    /// The same of quantities that have numbers.
    pub fn known(&self, profile: &Profile, sample: &ThreadSample) -> Vec<(usize, Mean)> {
        let said = said(profile, sample);
        let numbered = said.into_iter().filter_map(|(name, counted, value)| {
            let number = self.numbers.get(&(name, counted))?;
            Some((*number, value))
        });
        numbered.collect()
    }

    /// The quantities, by number.
    pub fn list(&self) -> &[Quantity] {
        &self.list
    }

    /// The number of a metric, if there is one of that name.
    pub fn metric(&self, name: &str) -> Option<usize> {
        self.numbers.get(&(Arc::from(name), false)).copied()
    }

    /// The names of those beyond.
    pub fn left_out(&self) -> &BTreeSet<Arc<str>> {
        &self.left_out
    }

    fn number(&mut self, name: &Arc<str>, counted: bool) -> Option<usize> {
        let known = self.numbers.get(&(Arc::clone(name), counted));
        if known.is_some() {
            return known.copied();
        }
        if self.list.len() >= MOST {
            // As many as a recording may name; each is a word of its file.
            self.left_out.insert(Arc::clone(name));
            return None;
        }
        let plain = |c: char| c.is_ascii_alphanumeric();
        let key = name.replace(|c: char| !plain(c), "-").to_lowercase();
        self.list.push(match counted {
            true => Quantity {
                key: format!("{key}-rate"),
                label: format!("{} per second of CPU time", name.replace('_', " ")),
                unit: "number",
            },
            false => Quantity {
                key,
                label: words(name),
                unit: match unit(name) {
                    Unit::Share => "share",
                    Unit::Bytes => "bytes",
                    Unit::Number => "number",
                },
            },
        });
        let number = self.list.len() - 1;
        self.numbers.insert((Arc::clone(name), counted), number);
        Some(number)
    }
}

/// Names and values in a sample; and whether each is a count.
fn said(profile: &Profile, sample: &ThreadSample) -> Vec<(Arc<str>, bool, Mean)> {
    let seconds = sample.cpu_time as f64 / 1e9;
    let counted = match sample.counts.is_empty() {
        true => Metrics::default(),
        false => Processor::metrics(profile, &sample.counts, sample.cpu_time).0,
    };
    let metrics = sample.metrics.iter().chain(counted.iter());
    let metrics = metrics.filter_map(|(name, metric)| {
        let weight = seconds * metric.confidence;
        let sum = metric.value * weight;
        let known = weight > 0.0 && weight.is_finite() && sum.is_finite();
        let shown = known && !HIDDEN.contains(&&**name);
        shown.then(|| (Arc::clone(name), false, Mean { sum, weight }))
    });
    let counts = sample.counts.iter().filter_map(|count| {
        let possible = !matches!(count.quality, CountQuality::Implausible(_));
        let (sum, weight) = (count.value, seconds);
        let shown = possible && seconds > 0.0 && sum.is_finite();
        shown.then(|| (Arc::clone(&count.alias), true, Mean { sum, weight }))
    });
    metrics.chain(counts).collect()
}
