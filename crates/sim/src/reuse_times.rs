//! Counts after how many visits something is visited again.

use rustc_hash::FxHashMap;

/// Classes of reuse times in each doubling.
const CLASSES: f64 = 4.0;

/// Visits with about the same reuse time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Class {
    /// How many.
    pub count: u64,
    /// The mean of their reuse times.
    pub after: f64,
}

/// How many visits have which reuse time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram(Vec<(u64, u64)>);

impl Histogram {
    /// Counts a visit.
    pub fn add(&mut self, after: u64) {
        let class = ((after as f64).log2() * CLASSES) as usize;
        if self.0.len() <= class {
            self.0.resize(class + 1, (0, 0));
        }
        self.0[class].0 += 1;
        self.0[class].1 += after;
    }

    /// The classes that have visits, by rising time.
    pub fn classes(&self) -> impl Iterator<Item = Class> {
        let some = self.0.iter().filter(|(count, _)| *count > 0);
        some.map(|(count, sum)| Class {
            count: *count,
            after: *sum as f64 / *count as f64,
        })
    }

    /// The number of visits.
    pub fn visits(&self) -> u64 {
        self.0.iter().map(|(count, _)| count).sum()
    }
}

/// What was visited when.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastVisits {
    visits: u64,
    last: FxHashMap<u64, u64>,
}

impl LastVisits {
    /// Visits something; the number of visits since its last one.
    pub fn visit(&mut self, what: u64) -> Option<u64> {
        self.visits += 1;
        let before = self.last.insert(what, self.visits)?;
        Some(self.visits - before)
    }

    /// Visits in all.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    /// How many different ones were visited.
    pub fn different(&self) -> usize {
        self.last.len()
    }
}
