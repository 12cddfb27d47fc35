//! Whether a line is still in a cache when it is visited again.
//!
//! Of the lines that all streams of a cache touch meanwhile, some fall into the line's own set. The line is evicted if
//! they are as many as the cache has ways. Each stream's lines are contiguous, so that a set has a fixed number of
//! them, each of which was touched or not; those of one thread lie in a block ([`sets`]), others anywhere. With few ways
//! their sum is taken exactly; with many as binomial of the same mean and variance.

use super::{
    reuse::Reuse,
    sets::{Part, Stretch, parts},
};
use statrs::function::{beta::beta_reg, gamma::gamma_lr};
use std::collections::BTreeMap;

/// Points of the curve between "surely there" and "surely evicted".
const GRID: usize = 24;

/// The curve begins where a set gets this part of its ways on the average.
const BEGIN: f64 = 0.03;

/// And ends where it gets this many times its ways.
const END: f64 = 4.0;

/// Up to this many ways sums are exact.
const FEW_WAYS: usize = 8;

/// Smaller chances are none.
const UNLIKELY: f64 = 1e-7;

/// A cache or TLB as far as this is concerned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    pub sets: f64,
    pub ways: f64,
    /// Its ways without those that count as its own.
    pub own_ways: f64,
}

impl Shape {
    /// Of a structure with `places` places.
    pub fn new(places: u64, ways: u32) -> Self {
        let places = places.max(1);
        let ways = u64::from(ways).clamp(1, places);
        Self {
            sets: (places / ways) as f64,
            ways: ways as f64,
            own_ways: ways as f64,
        }
    }

    /// Places.
    pub fn places(&self) -> f64 {
        self.sets * self.ways
    }
}

/// A stream that visits lines of a cache.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    /// Visits in a picosecond.
    pub rate: f64,
    /// How many lines there are.
    pub lines: f64,
    /// How soon it comes back to them.
    pub reuse: Reuse,
    /// It uses only one set in this many.
    pub skips: f64,
    /// The block of memory in which its lines lie, and how many lines after its beginning.
    pub block: (usize, f64),
    /// How often others, elsewhere, take each line away, in a picosecond.
    pub taken: f64,
    /// The ways that it may fill, bit n for way n; 0 for all.
    pub ways: u32,
    /// The share of its lines that come to the ways which are looked at.
    pub here: f64,
}

impl Visitor {
    /// The chance that a line was visited within a time.
    pub fn chance(&self, time: f64) -> f64 {
        (self.reuse.distinct(self.rate * time) / self.lines).min(1.0)
    }

    /// Its lines in the sets that streams with `skips` use, of a cache with as many.
    fn stretch(&self, sets: f64, skips: f64) -> Stretch {
        let apart = skips.min(sets);
        let all_there = self.skips == skips;
        Stretch {
            start: self.block.1 / apart,
            lines: self.here * self.lines / if all_there { 1.0 } else { apart },
        }
    }
}

/// The visitors of one block.
struct Block {
    members: Vec<usize>,
    /// The sets of the cache that streams with some `skips` use, by how many lines each member has there.
    parts: Vec<Part>,
}

/// All blocks, and the sets that streams with `skips` use.
fn blocks(shape: Shape, visitors: &[Visitor], skips: f64) -> Vec<Block> {
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, visitor) in visitors.iter().enumerate() {
        members.entry(visitor.block.0).or_default().push(at);
    }
    let block = |members: Vec<usize>| {
        let stretches: Vec<Stretch> = members
            .iter()
            .map(|at| visitors[*at].stretch(shape.sets, skips))
            .collect();
        Block {
            parts: parts(shape.sets / skips.min(shape.sets), &stretches),
            members,
        }
    };
    members.into_values().map(block).collect()
}

/// The chance to be evicted by the time since the last visit.
struct Curve {
    /// The logarithms of the first time and of the ratio of one to the next.
    begin: f64,
    step: f64,
    chances: [f64; GRID],
}

impl Curve {
    /// Of the sets that streams with `skips` use.
    fn new(shape: Shape, visitors: &[Visitor], skips: f64, blocks: &[Block]) -> Option<Self> {
        let sets = shape.sets / skips.min(shape.sets);
        let in_set = |visitor: &Visitor| visitor.stretch(shape.sets, skips).lines / sets;
        let all: f64 = visitors.iter().map(in_set).sum();
        let moments = |time: f64| {
            let (mut mean, mut variance) = (0.0, 0.0);
            for block in blocks {
                let chance = |at: &usize| {
                    let visitor = &visitors[*at];
                    visitor.reuse.distinct(visitor.rate * time) / visitor.lines
                };
                let chances: Vec<f64> = block.members.iter().map(chance).collect();
                let (mut own, mut squares) = (0.0, 0.0);
                for part in &block.parts {
                    let (mut touched, mut spread) = (0.0, 0.0);
                    for (lines, chance) in part.lines.iter().zip(&chances) {
                        touched += lines * chance;
                        spread += lines * chance * (1.0 - chance);
                    }
                    own += touched * part.sets / sets;
                    squares += touched * touched * part.sets / sets;
                    variance += spread * part.sets / sets;
                }
                mean += own;
                variance += (squares - own * own).max(0.0);
            }
            // The line itself is one of them and evicts nothing.
            let others = 1.0 - 1.0 / all.max(1.0);
            (mean * others, variance * others)
        };
        let top = (END * shape.ways).min((all - 1.0) * 0.999);
        if top <= BEGIN * shape.ways || visitors.iter().all(|visitor| visitor.rate <= 0.0) {
            return None;
        }
        let begin = time_of(BEGIN * shape.ways, |time| moments(time).0)?.ln();
        let end = time_of(top, |time| moments(time).0)?.ln();
        let step = (end - begin).max(1e-9) / (GRID - 1) as f64;
        let chances = std::array::from_fn(|at| {
            let (mean, variance) = moments((begin + step * at as f64).exp());
            at_least(shape.ways, mean, variance)
        });
        Some(Self {
            begin,
            step,
            chances,
        })
    }

    fn chance(&self, time: f64) -> f64 {
        let place = (time.ln() - self.begin) / self.step;
        if place <= 0.0 {
            return 0.0;
        }
        let below = place as usize;
        let Some(next) = self.chances.get(below + 1) else {
            return self.chances[GRID - 1];
        };
        let here = self.chances[below];
        here + (next - here) * place.fract()
    }
}

/// The time at which a rising function reaches a value; `None` if it never does.
pub(super) fn time_of(value: f64, rising: impl Fn(f64) -> f64) -> Option<f64> {
    let (mut low, mut high) = (1e-3, 1.0);
    while rising(high) < value {
        low = high;
        high *= 16.0;
        if high > 1e24 {
            return None;
        }
    }
    for _ in 0..16 {
        let middle = (low * high).sqrt();
        match rising(middle) < value {
            true => low = middle,
            false => high = middle,
        }
    }
    Some(high)
}

/// The chance that a number with this mean and variance is at least `least`: binomial, Poisson at the limit.
fn at_least(least: f64, mean: f64, variance: f64) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    let chance = 1.0 - variance / mean;
    if chance < 1e-3 {
        return gamma_lr(least, mean);
    }
    let number = mean / chance;
    if chance > 1.0 - 1e-6 {
        return f64::from(u8::from(mean >= least));
    }
    match number > least - 1.0 + 1e-6 {
        true => beta_reg(least, number - least + 1.0, chance),
        false => 0.0,
    }
}

/// The number of touched lines in a set: the chance of each number below the ways.
type Numbers = [f64; FEW_WAYS];

/// Each of `lines` lines was touched with probability `chance`.
fn binomial(lines: usize, chance: f64) -> Numbers {
    let mut numbers: Numbers = [0.0; FEW_WAYS];
    if chance >= 1.0 {
        if let Some(all) = numbers.get_mut(lines) {
            *all = 1.0;
        }
        return numbers;
    }
    let odds = chance / (1.0 - chance);
    let mut here = (1.0 - chance).powi(lines as i32);
    for (at, number) in numbers.iter_mut().enumerate().take(lines + 1) {
        *number = here;
        here *= (lines - at) as f64 / (at + 1) as f64 * odds;
    }
    numbers
}

/// The numbers of two kinds of lines together.
fn together(one: &Numbers, other: &Numbers) -> Numbers {
    std::array::from_fn(|n| (0..=n).map(|k| one[k] * other[n - k]).sum())
}

/// The probability that a line of `own` has been evicted after a time, by exact sums: the mean over the sets where it may
/// be.
fn evicted(shape: Shape, visitors: &[Visitor], (own, block): (usize, &Block), time: f64) -> f64 {
    let place = block.members.iter().position(|at| *at == own);
    let of_own = |part: &Part| place.map_or(0.0, |place| part.lines[place]) * part.sets;
    let all: f64 = block.parts.iter().map(of_own).sum();
    let here = block.parts.iter().filter(|part| of_own(part) > 0.0);
    here.map(|part| of_own(part) / all * evicted_from(shape, visitors, (own, block, part), time))
        .sum()
}

/// The same in one of these sets.
fn evicted_from(
    shape: Shape,
    visitors: &[Visitor],
    (own, block, part): (usize, &Block, &Part),
    time: f64,
) -> f64 {
    let ways = shape.ways as usize;
    let mut numbers: Numbers = [0.0; FEW_WAYS];
    numbers[0] = 1.0;
    for (at, visitor) in visitors.iter().enumerate() {
        let mut number = match block.members.iter().position(|other| *other == at) {
            Some(place) => part.lines[place],
            None => {
                let skips = match visitor.skips == visitors[own].skips {
                    true => visitor.skips.min(shape.sets),
                    false => 1.0,
                };
                visitor.here * visitor.lines * skips / shape.sets
            }
        };
        if at == own {
            // The line itself evicts nothing.
            number = (number - 1.0).max(0.0);
        }
        let mut chance = visitor.chance(time);
        if number * chance < UNLIKELY / 64.0 {
            continue;
        }
        if visitor.reuse.in_order() {
            // One after the other: as many in each set, or one more.
            (number, chance) = (number * chance, 1.0);
        }
        if number >= shape.ways && chance == 1.0 {
            return 1.0;
        }
        if number > 64.0 {
            if number * chance > 4.0 * shape.ways {
                return 1.0;
            }
            // With this many, only their mean matters.
            let mean = number * chance;
            let mut poisson: Numbers = [(-mean).exp(); FEW_WAYS];
            for at in 1..FEW_WAYS {
                poisson[at] = poisson[at - 1] * mean / at as f64;
            }
            numbers = together(&numbers, &poisson);
            continue;
        }
        numbers = together(&numbers, &binomial(number as usize, chance));
        // Some sets have one more.
        let more = chance * number.fract();
        if more > 0.0 {
            numbers = together(&numbers, &binomial(1, more));
        }
    }
    (1.0 - numbers[..ways].iter().sum::<f64>()).clamp(0.0, 1.0)
}

/// The values of a chance that rises with the place. Beyond where it is next to never, or as good as sure, nothing is
/// computed.
fn rising_values(places: usize, chance: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut values = vec![0.0; places];
    let middle = places / 2;
    for at in middle..places {
        values[at] = chance(at);
        if values[at] >= 1.0 - UNLIKELY {
            values[at..].fill(1.0);
            break;
        }
    }
    for at in (0..middle).rev() {
        values[at] = chance(at);
        if values[at] <= UNLIKELY {
            break;
        }
    }
    values
}

/// Whether no set can ever be too small, wherever the blocks are.
fn all_fit(shape: Shape, blocks: &[Block]) -> bool {
    let most = |block: &Block| {
        let lines = block.parts.iter().map(|part| part.lines.iter().sum());
        lines.fold(0.0, f64::max)
    };
    blocks.iter().map(most).sum::<f64>() <= shape.ways
}

/// The share of each class of each visitor's reuse times that misses.
pub(super) fn misses(shape: Shape, visitors: &[Visitor]) -> Vec<Vec<f64>> {
    let exact = shape.ways as usize <= FEW_WAYS;
    // What streams see that use the same sets.
    let mut seen: Vec<(f64, Vec<Block>, Option<Curve>)> = Vec::new();
    let mut fit = true;
    for visitor in visitors {
        if seen.iter().all(|(skips, ..)| *skips != visitor.skips) {
            let blocks = blocks(shape, visitors, visitor.skips);
            let these_fit = all_fit(shape, &blocks);
            fit &= these_fit;
            let curve = match exact || these_fit {
                true => None,
                false => Curve::new(shape, visitors, visitor.skips, &blocks),
            };
            seen.push((visitor.skips, blocks, curve));
        }
    }
    let of_visitor = |(own, visitor): (usize, &Visitor)| {
        let points = visitor.reuse.points();
        if visitor.rate <= 0.0 {
            return vec![1.0; points.len()];
        }
        let time = |at: usize| points[at].after / visitor.rate;
        let same = seen.iter().find(|(skips, ..)| *skips == visitor.skips);
        let mut misses = vec![0.0; points.len()];
        if let (Some((_, blocks, curve)), false) = (same, fit) {
            let block = blocks.iter().find(|block| block.members.contains(&own));
            misses = match (curve, block) {
                (Some(curve), _) => (0..points.len()).map(|at| curve.chance(time(at))).collect(),
                (None, Some(block)) if exact => rising_values(points.len(), |at| {
                    evicted(shape, visitors, (own, block), time(at))
                }),
                _ => misses,
            };
        }
        if visitor.taken > 0.0 {
            for (at, misses) in misses.iter_mut().enumerate() {
                *misses = 1.0 - (1.0 - *misses) * (-visitor.taken * time(at)).exp();
            }
        }
        misses
    };
    visitors.iter().enumerate().map(of_visitor).collect()
}
