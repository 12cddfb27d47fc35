//! Threads that may fill only some ways of a cache.
//!
//! Ways that the same threads may fill form a part. A line that is brought in goes to each way of its thread's mask as
//! likely as to any other, and stays there until it is evicted; then its next visit misses, and it may go elsewhere. So
//! lines gather in the parts where they live long: of the visits of a thread, the share that finds or would find its line
//! in part `p` is proportional to `s / m`, where `s` is the part's share of the mask and `m` the part of these visits that
//! misses. Each part is a cache of its ways for the lines that gather there. Within it, a line lives for the time in which
//! as many others are touched as there are places (Che, Tung and Wang, IEEE JSAC 20(7), 2002); with that the shares are
//! found, and with these the misses as in any other cache ([`super::eviction`]).
//!
//! Threads whose masks do not overlap have one part each, and no share is to be found. Where masks overlap, that is an
//! approximation: in fact a line takes the place of the one in its mask that was not used for longest.

use super::eviction::{Shape, Visitor, misses as misses_of_all, time_of};

/// Ways that masks can name. Those behind them count as one.
const NAMED: usize = 32;

/// Steps in which shares are found.
const STEPS: usize = 40;

/// No part of the visits that miss counts as less than this.
const LEAST: f64 = 1e-4;

/// The ways that lines of several threads may fill, as bits; 0 for all.
pub(super) fn together(one: u32, other: u32) -> u32 {
    match one == 0 || other == 0 {
        true => 0,
        false => one | other,
    }
}

/// Ways that the same visitors may fill.
#[derive(Debug, PartialEq)]
struct Part {
    ways: f64,
    /// These visitors, each with the share of its lines that are here.
    members: Vec<(usize, f64)>,
}

/// The parts into which a cache falls. Lines are spread evenly at first.
fn parts(shape: Shape, visitors: &[Visitor]) -> Vec<Part> {
    let named = (shape.own_ways as usize).clamp(1, NAMED);
    // Places that a victim cache has besides are spread over its ways.
    let each = shape.ways / shape.own_ways;
    let others = shape.own_ways - named as f64;
    let bits = named + usize::from(others > 0.0);
    let all = u64::MAX >> (64 - bits);
    let mask = |visitor: &Visitor| match u64::from(visitor.ways) & all {
        0 => all,
        ways => ways,
    };
    let mut parts: Vec<Part> = Vec::new();
    for bit in 0..bits {
        let may = |(_, visitor): &(usize, &Visitor)| mask(visitor) >> bit & 1 == 1;
        let who = visitors.iter().enumerate().filter(may);
        let who: Vec<(usize, f64)> = who.map(|(at, _)| (at, 1.0)).collect();
        let ways = if bit < named { each } else { each * others };
        match parts.iter_mut().find(|part| part.members == who) {
            Some(part) => part.ways += ways,
            None if who.is_empty() => {}
            None => parts.push(Part { ways, members: who }),
        }
    }
    let mut of_masks = vec![0.0; visitors.len()];
    for part in &parts {
        for (at, _) in &part.members {
            of_masks[*at] += part.ways;
        }
    }
    for part in &mut parts {
        for (at, share) in &mut part.members {
            *share = part.ways / of_masks[*at];
        }
    }
    parts
}

/// The part of the visits that miss, of a visitor whose lines live for a time.
fn missing(visitor: &Visitor, time: f64) -> f64 {
    let visits = visitor.rate * time;
    let touched = |part: f64| visitor.reuse.distinct(visits * part);
    ((touched(1.1) - touched(0.9)) / (0.2 * visits)).clamp(LEAST, 1.0)
}

/// Moves lines to where they live longer, until they stay there.
fn gather(shape: Shape, visitors: &[Visitor], parts: &mut [Part]) {
    let even: Vec<Vec<f64>> = parts
        .iter()
        .map(|part| part.members.iter().map(|(_, share)| *share).collect())
        .collect();
    for step in 0..STEPS {
        let mut sums = vec![0.0; visitors.len()];
        for (part, even) in parts.iter_mut().zip(&even) {
            let places = part.ways * shape.sets;
            let members = part.members.iter();
            let members = members.map(|(at, share)| (&visitors[*at], *share));
            let touched = |time: f64| {
                let lines = members.clone();
                let lines = lines.map(|(v, share)| share * v.lines * v.chance(time));
                lines.sum()
            };
            let lines: f64 = members.clone().map(|(v, share)| share * v.lines).sum();
            let time = match lines > places {
                true => time_of(places, touched),
                false => None,
            };
            let pull = 1.0 / (2.0 + step as f64 / 8.0);
            for ((at, share), even) in part.members.iter_mut().zip(even) {
                let visitor = &visitors[*at];
                let misses = match time {
                    Some(time) if visitor.rate > 0.0 => missing(visitor, time),
                    _ => LEAST,
                };
                *share = share.powf(1.0 - pull) * (even / misses).powf(pull);
                sums[*at] += *share;
            }
        }
        for part in parts.iter_mut() {
            for (at, share) in &mut part.members {
                *share /= sums[*at];
            }
        }
    }
}

/// The share of each class of each visitor's reuse times that misses, as [`misses_of_all`], where some may fill only some
/// ways.
pub(super) fn misses(shape: Shape, visitors: &[Visitor]) -> Vec<Vec<f64>> {
    if visitors.iter().all(|visitor| visitor.ways == 0) {
        return misses_of_all(shape, visitors);
    }
    let mut parts = parts(shape, visitors);
    let in_one = |part: &Part| part.members.iter().all(|(_, share)| *share == 1.0);
    if !parts.iter().all(in_one) {
        gather(shape, visitors, &mut parts);
    }
    let nothing = |visitor: &Visitor| vec![0.0; visitor.reuse.points().len()];
    let mut all: Vec<Vec<f64>> = visitors.iter().map(nothing).collect();
    for part in parts {
        let here = |(at, share): &(usize, f64)| Visitor {
            here: *share,
            ..visitors[*at].clone()
        };
        let members: Vec<Visitor> = part.members.iter().map(here).collect();
        let shape = Shape {
            ways: part.ways,
            ..shape
        };
        for ((at, share), missed) in part.members.iter().zip(misses_of_all(shape, &members)) {
            for (sum, missed) in all[*at].iter_mut().zip(missed) {
                *sum += share * missed;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::reuse::Reuse;
    use proptest::prelude::*;

    const SETS: f64 = 64.0;

    fn shape(ways: u64) -> Shape {
        Shape::new(SETS as u64 * ways, ways as u32)
    }

    /// A random walk through as many lines as fill this many ways.
    fn visitor(block: usize, rate: f64, fills: f64, ways: u32) -> Visitor {
        let lines = fills * SETS;
        Visitor {
            rate,
            lines,
            reuse: Reuse::random(lines),
            skips: 1.0,
            block: (block, 0.0),
            taken: 0.0,
            ways,
            here: 1.0,
        }
    }

    /// The part of each visitor's visits that misses.
    fn ratios(ways: u64, visitors: &[Visitor]) -> Vec<f64> {
        let all = misses(shape(ways), visitors);
        let both = visitors.iter().zip(all);
        both.map(|(visitor, missed)| {
            let points = visitor.reuse.points().iter().zip(missed);
            points.map(|(point, missed)| point.share * missed).sum()
        })
        .collect()
    }

    #[test]
    fn ways_that_do_not_overlap_are_caches_of_their_own() {
        let visitors = [
            visitor(0, 1.0, 8.0, 0x3),
            visitor(1, 5.0, 3.0, 0xc),
            visitor(2, 1.0, 1.0, 0xc),
        ];
        let free = |at: usize| Visitor {
            ways: 0,
            ..visitors[at].clone()
        };
        let all = misses(shape(16), &visitors);
        assert_eq!(all[0], misses(shape(2), &[free(0)])[0]);
        assert_eq!(all[1..], misses(shape(2), &[free(1), free(2)]));
    }

    #[test]
    fn one_that_is_held_in_a_few_ways_leaves_the_others() {
        let with = |ways| [visitor(0, 50.0, 100.0, ways), visitor(1, 1.0, 12.0, 0)];
        let (free, held) = (ratios(16, &with(0)), ratios(16, &with(0x3)));
        assert!(free[1] > 0.5 && held[1] < 0.01, "{free:?} {held:?}");
        // Ways beyond those that masks name are there too.
        let many = [visitor(0, 50.0, 200.0, 0x3), visitor(1, 1.0, 44.0, 0)];
        assert!(ratios(48, &many)[1] < 0.01);
        assert!(ratios(40, &many)[1] > 0.1);
    }

    proptest! {
        /// All lines are somewhere, and a wider mask of one visitor alone never makes it miss more.
        #[test]
        fn lines_are_spread_over_their_ways(
            visitors in prop::collection::vec((0.1f64..10.0, 0.2f64..40.0, 0u32..8, 1u32..9), 1..6),
        ) {
            let mask = |from: u32, number: u32| (0xffu32 >> (8 - number.min(8))) << from & 0xff;
            let of = |(at, (rate, fills, from, number))| visitor(at, rate, fills, mask(from, number));
            let visitors: Vec<Visitor> = visitors.into_iter().enumerate().map(of).collect();
            let mut parts = parts(shape(8), &visitors);
            gather(shape(8), &visitors, &mut parts);
            let ways: f64 = parts.iter().map(|part| part.ways).sum();
            prop_assert!(ways <= 8.0 + 1e-9);
            for at in 0..visitors.len() {
                let members = parts.iter().flat_map(|part| &part.members);
                let shares: f64 = members.filter(|(who, _)| *who == at).map(|(_, share)| share).sum();
                prop_assert!((shares - 1.0).abs() < 1e-9);
            }
            for ratio in ratios(8, &visitors) {
                prop_assert!((0.0..=1.0 + 1e-9).contains(&ratio));
            }
            let alone = |ways| {
                let one = Visitor { ways, ..visitors[0].clone() };
                ratios(8, &[one])[0]
            };
            prop_assert!(alone(0) <= alone(visitors[0].ways) + 1e-9);
        }
    }
}
