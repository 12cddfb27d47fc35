//! What the visitors of a cache or TLB miss, found again only when the proportions of their speeds have changed.

use super::{
    eviction::{Shape, Visitor},
    reuse::Reuse,
    ways::misses,
};

/// Visitors of one cache or TLB, and what they last missed there. Only the proportions of their speeds matter: while these
/// stay as they are, so does what was missed.
#[derive(Default)]
pub(super) struct Known {
    pub visitors: Vec<Visitor>,
    pub missed: Vec<Missed>,
    /// The ways that the cache then had.
    ways: f64,
}

/// What a visitor misses.
pub(super) struct Missed {
    /// The share of all its visits.
    pub ratio: f64,
    /// What the next level sees.
    pub rest: Reuse,
}

/// Proportions of speeds that differ by less than this part are the same.
const SAME: f64 = 3e-5;

impl Known {
    /// Brings it up to date with these visitors.
    pub fn update(&mut self, shape: Shape, visitors: Vec<Visitor>) {
        if self.holds_for(&visitors) && near(self.ways, shape.ways) {
            return;
        }
        self.ways = shape.ways;
        let missed = misses(shape, &visitors);
        let of_visitor = |(visitor, missed): (&Visitor, Vec<f64>)| {
            let points = visitor.reuse.points().iter();
            Missed {
                ratio: points.zip(&missed).map(|(p, m)| p.share * m).sum(),
                rest: visitor.reuse.missed(&missed),
            }
        };
        self.missed = visitors.iter().zip(missed).map(of_visitor).collect();
        self.visitors = visitors;
    }

    fn holds_for(&self, visitors: &[Visitor]) -> bool {
        let total = |all: &[Visitor]| all.iter().map(|visitor| visitor.rate).sum::<f64>();
        let (before, now) = (total(&self.visitors), total(visitors));
        !visitors.is_empty()
            && self.visitors.len() == visitors.len()
            && self.visitors.iter().zip(visitors).all(|(then, visitor)| {
                then.reuse.is(&visitor.reuse)
                    && then.ways == visitor.ways
                    && near(then.rate / before, visitor.rate / now)
                    && near(then.taken / before, visitor.taken / now)
            })
    }
}

/// Whether two numbers are the same but for a rounding.
fn near(then: f64, now: f64) -> bool {
    (then - now).abs() <= SAME * then.max(now)
}
