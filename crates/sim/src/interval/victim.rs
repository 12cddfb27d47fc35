//! A victim cache holds what the caches before it evicted, and not what they hold.
//!
//! It continues their LRU stacks: a line goes out when as many others were touched since as it and the caches before it
//! hold together. So it counts as if it had the places besides whose lines, in the caches before it, would otherwise be in
//! it too: those that missed within the time in which its content changes once.

use super::eviction::{Shape, Visitor, time_of};

/// Longer than any line stays anywhere, in picoseconds.
const LONG: f64 = 1e24;

/// A cache before a victim cache: its visitors, and the part of the visits of each that misses there.
pub(super) struct Before<'a> {
    pub shape: Shape,
    pub visitors: &'a [Visitor],
    pub ratios: &'a [f64],
}

impl Before<'_> {
    /// Misses in a picosecond.
    fn misses(&self) -> f64 {
        let both = self.visitors.iter().zip(self.ratios);
        both.map(|(visitor, ratio)| visitor.rate * ratio).sum()
    }

    /// How many of its lines would be in the victim cache too, whose content changes once in a time.
    fn lines(&self, turnover: f64) -> f64 {
        let held = |time: f64| {
            let lines = move |visitor: &Visitor| visitor.lines * visitor.chance(time);
            self.visitors.iter().map(lines)
        };
        let age = time_of(self.shape.places(), |time| held(time).sum());
        let lines = held(age.unwrap_or(LONG));
        let missing = self.visitors.iter().zip(self.ratios);
        // What has been in the caches before it for longer has not come from it lately.
        let come = missing.map(|(visitor, ratio)| visitor.rate * ratio * turnover);
        lines.zip(come).map(|(lines, come)| lines.min(come)).sum()
    }
}

/// The shape of a victim cache, with the places of the caches before it that count as its own.
pub(super) fn shape(own: Shape, before: &[Before<'_>]) -> Shape {
    let misses: f64 = before.iter().map(Before::misses).sum();
    let turnover = own.places() / misses.max(1e-30);
    let lines: f64 = before.iter().map(|cache| cache.lines(turnover)).sum();
    Shape {
        ways: own.ways + lines / own.sets,
        ..own
    }
}
