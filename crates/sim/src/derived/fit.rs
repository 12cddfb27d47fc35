//! Working sets whose accesses come back to their lines as soon as recorded ones do.
//!
//! Accesses to a working set of N lines in random order, of which it gets a share a of all accesses, have exponential reuse
//! times of mean N/a. So a list of working sets is a mixture of exponentials, and the mixture of greatest likelihood for
//! the recorded reuse times is found by expectation maximization (Dempster, Laird and Rubin, J. Royal Statistical Society
//! B 39, 1977). From reuse times follow the misses of caches of any size (Eklov and Hagersten, StatStack, ISPASS 2010).

use super::LINE;
use crate::{
    reuse_times::{Class, Histogram},
    workload::{Pattern, WorkingSet},
};

/// From one mean reuse time to the next.
const APART: f64 = 4.0;

/// Steps of the maximization. More change nothing that is seen.
const ROUNDS: usize = 400;

/// A working set with a lesser share of the accesses is part of its neighbour.
const LEAST: f64 = 1e-5;

/// Sets that come back sooner are one: all first levels hold them.
const HOT: f64 = 64.0;

/// A share of the accesses, and the mean of their reuse times.
#[derive(Debug, Clone, Copy)]
struct Part {
    share: f64,
    after: f64,
}

impl Part {
    fn lines(self) -> f64 {
        self.share * self.after
    }

    fn with(self, other: Self) -> Self {
        let share = self.share + other.share;
        Self {
            share,
            after: (self.lines() + other.lines()) / share.max(f64::MIN_POSITIVE),
        }
    }

    fn set(self, pattern: Pattern) -> WorkingSet {
        WorkingSet {
            bytes: self.lines().round().max(1.0) as u64 * LINE,
            share: self.share,
            pattern,
            stride: LINE,
            region: None,
        }
    }
}

/// The working sets of recorded accesses: those that go from line to line, and the others.
pub(super) fn working_sets(streams: &Histogram, others: &Histogram) -> Vec<WorkingSet> {
    let all = (streams.visits() + others.visits()).max(1) as f64;
    let share = |class: Class| Part {
        share: class.count as f64 / all,
        after: class.after,
    };
    let mut random = joined(exponentials(
        &others.classes().map(share).collect::<Vec<_>>(),
    ));
    let mut walks: Vec<Part> = Vec::new();
    for part in streams.classes().map(share) {
        match walks.last_mut() {
            // One factor of reuse times is one walk.
            Some(last) if part.after < APART * last.after => *last = last.with(part),
            _ => walks.push(part),
        }
    }
    for rare in walks.iter().filter(|part| part.share < LEAST) {
        if let Some(last) = random.last_mut() {
            *last = last.with(*rare);
        }
    }
    walks.retain(|part| part.share >= LEAST);
    let random = random.into_iter().map(|part| part.set(Pattern::Random));
    let walks = walks.into_iter().map(|part| part.set(Pattern::Stride));
    random.chain(walks).collect()
}

/// The mixture of exponentials for these reuse times.
fn exponentials(classes: &[Part]) -> Vec<Part> {
    let Some(longest) = classes.last().map(|class| class.after) else {
        return Vec::new();
    };
    let all: f64 = classes.iter().map(|class| class.share).sum();
    let count = (longest.ln() / APART.ln()).ceil() as i32 + 1;
    let means: Vec<f64> = (0..=count).map(|at| APART.powi(at)).collect();
    // How likely a reuse time of about a class's is in each part.
    let likely = |after: f64, mean: f64| (-after / mean).exp() / mean;
    let mut shares = vec![all / means.len() as f64; means.len()];
    for _ in 0..ROUNDS {
        let mut next = vec![0.0; means.len()];
        for class in classes {
            let each = || means.iter().zip(&shares);
            let sum: f64 = each()
                .map(|(mean, share)| share * likely(class.after, *mean))
                .sum();
            for (next, (mean, share)) in next.iter_mut().zip(each()) {
                *next +=
                    class.share * share * likely(class.after, *mean) / sum.max(f64::MIN_POSITIVE);
            }
        }
        shares = next;
    }
    let parts = shares.into_iter().zip(means);
    parts.map(|(share, after)| Part { share, after }).collect()
}

/// Without parts that make no difference. By rising time.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if part.after <= HOT || part.share < LEAST || last.share < LEAST => {
                *last = last.with(part);
            }
            _ => joined.push(part),
        }
    }
    joined
}

/// By rising size in lines: how many different lines lie between the visits of a class, and the share of the visits that
/// come back later. This is the curve of misses of fully associative caches (StatStack).
pub(super) fn distances(times: &Histogram) -> impl Iterator<Item = (f64, f64)> {
    let all = times.visits().max(1) as f64;
    let (mut lines, mut last, mut later) = (0.0, 0.0, 1.0);
    let classes: Vec<Class> = times.classes().collect();
    classes.into_iter().map(move |class| {
        lines += (class.after - last) * later;
        last = class.after;
        later -= class.count as f64 / all;
        (lines, later)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reuse_times::LastVisits,
        stream::{MixStream, Random},
        workload::Mix,
    };

    fn set(lines: u64, share: f64) -> WorkingSet {
        WorkingSet {
            bytes: lines * LINE,
            share,
            pattern: Pattern::Random,
            stride: LINE,
            region: None,
        }
    }

    /// How often an access to one of these sets comes back only after this many accesses or more, and how many different
    /// lines there are.
    fn measured(sets: &[WorkingSet]) -> Histogram {
        let mut mix = Mix {
            working_sets: sets.to_vec(),
            ..Mix::default()
        };
        mix.shares[crate::model::Op::Load as usize] = 1.0;
        let bases: Vec<u64> = (1..=sets.len() as u64).map(|at| at << 32).collect();
        let mut stream = MixStream::new(&mix, 0, &bases, Random::new(1));
        let (mut visits, mut histogram) = (LastVisits::default(), Histogram::default());
        for number in 0..8_000_000 {
            let after = visits.visit(stream.next().data / LINE);
            if let (Some(after), true) = (after, number > 4_000_000) {
                histogram.add(after);
            }
        }
        histogram
    }

    /// The share of visits that miss a cache of this many lines.
    fn misses(histogram: &Histogram, lines: f64) -> f64 {
        let mut curve = distances(histogram);
        curve
            .find(|(size, _)| *size > lines)
            .map_or(0.0, |(_, later)| later)
    }

    #[test]
    fn working_sets_are_found_again() {
        let recorded = measured(&[set(40, 0.9), set(3_000, 0.08), set(20_000, 0.02)]);
        let found = working_sets(&Histogram::default(), &recorded);
        let again = measured(&found);
        let lines: u64 = found.iter().map(|set| set.bytes / LINE).sum();
        assert!((18_000..28_000).contains(&lines), "{found:?}");
        for size in [100.0, 512.0, 2_000.0, 8_000.0, 16_000.0] {
            let (one, two) = (misses(&recorded, size), misses(&again, size));
            assert!(
                (one - two).abs() < 0.005 + 0.1 * one,
                "{size} lines: {one} {two}; {found:?}"
            );
        }
    }

    #[test]
    fn a_walk_stays_a_walk() {
        let (mut streams, mut others) = (Histogram::default(), Histogram::default());
        (0..1_000).for_each(|_| streams.add(50_000));
        (0..9_000).for_each(|_| others.add(10));
        let found = working_sets(&streams, &others);
        let walk = found.last().unwrap();
        assert_eq!((walk.pattern, walk.bytes / LINE), (Pattern::Stride, 5_000));
        assert!((walk.share - 0.1).abs() < 1e-9);
    }
}
