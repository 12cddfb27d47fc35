//! Lengths and starts in numbers: percentiles, a histogram, the dominant period. Pure.

use serde::Serialize;

/// Lengths of interruptions, or of what ran in them.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct Lengths {
    /// How many.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub total: u64,
    /// The median in nanoseconds; 0 if there are none, as all that follow.
    pub median: u64,
    /// The 99th percentile in nanoseconds (nearest rank).
    pub p99: u64,
    /// The longest, in nanoseconds.
    pub worst: u64,
}

impl Lengths {
    /// Of lengths in any order, in nanoseconds.
    pub fn of(mut lengths: Vec<u64>) -> Self {
        lengths.sort_unstable();
        Self {
            count: lengths.len() as u64,
            total: lengths.iter().sum(),
            median: percentile(&lengths, 50),
            p99: percentile(&lengths, 99),
            worst: lengths.last().copied().unwrap_or(0),
        }
    }
}

/// A percentile of sorted values by nearest rank; 0 of none.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    let at = rank.max(1) - 1;
    sorted.get(at).copied().unwrap_or(0)
}

/// Lengths from a bound up to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// The least length in nanoseconds: 1, 2 or 5 times a power of ten.
    pub from: u64,
    /// The first length in nanoseconds that is in the next bin.
    pub to: u64,
    /// How many lengths there are.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub total: u64,
}

/// How often which lengths came, from the bin of the shortest to that of the longest.
pub fn histogram(lengths: impl IntoIterator<Item = u64>) -> Vec<Bin> {
    let mut bins: Vec<Bin> = bounds()
        .map(|(from, to)| Bin {
            from,
            to,
            count: 0,
            total: 0,
        })
        .collect();
    for length in lengths {
        let at = bins.partition_point(|bin| bin.to <= length);
        let at = at.min(bins.len() - 1);
        bins[at].count += 1;
        bins[at].total += length;
    }
    let full = |bin: &Bin| bin.count > 0;
    let first = bins.iter().position(full);
    let last = bins.iter().rposition(full);
    match (first, last) {
        (Some(first), Some(last)) => bins[first..=last].to_vec(),
        _ => Vec::new(),
    }
}

/// From 0 to 1 µs, and then 1, 2, 5, 10, … µs up to 1000 s.
fn bounds() -> impl Iterator<Item = (u64, u64)> {
    let above = (3..12).flat_map(|exponent| {
        let unit = 10u64.pow(exponent);
        [
            (unit, 2 * unit),
            (2 * unit, 5 * unit),
            (5 * unit, 10 * unit),
        ]
    });
    std::iter::once((0, 1000)).chain(above)
}

/// A period in which something came again and again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Period {
    /// Its length in nanoseconds.
    pub nanoseconds: u64,
    /// The share of starts that another one followed after this time, 0 to 1.
    pub share: f64,
}

/// Intervals that differ by less than this part of them are taken for the same.
const TOLERANCE: f64 = 0.05;
/// Fewer starts have no period.
const FEW: usize = 8;
/// How many followers of each start are looked at: with several sources, the next one is not of the same source.
const FOLLOWERS: usize = 24;
/// At most this many starts are looked at.
const MANY: usize = 20_000;
/// A period must hold for this share of the starts beyond what chance gives.
const ENOUGH: f64 = 0.4;
/// What is tolerated grows with the interval. Where it is so much that starts at random would be followed more often than
/// this, an interval says nothing.
const MOST_CHANCE: f64 = 0.5;
/// An interval is a multiple of the period if this share of the starts that have a follower after it have one after the
/// period too.
const AS_WELL: f64 = 0.75;
/// The most common interval is at most this multiple of the period.
const MULTIPLES: u32 = FOLLOWERS as u32;
/// This many candidates are examined.
const CANDIDATES: usize = 48;

/// The dominant period of starts in rising order (nanoseconds): the shortest interval after which most starts are
/// followed by another. `None` where there is none, such as for starts at random.
pub fn period(starts: &[u64]) -> Option<Period> {
    let starts = &starts[..starts.len().min(MANY)];
    let (first, last) = (*starts.first()?, *starts.last()?);
    if starts.len() < FEW || last == first {
        return None;
    }
    let rate = (starts.len() - 1) as f64 / (last - first) as f64;
    let judge = |lag: f64| {
        // As many would be followed if starts came at random at this rate.
        let chance = 1.0 - (-rate * 2.0 * TOLERANCE * lag).exp();
        if chance > MOST_CHANCE {
            return None;
        }
        let found = followed(starts, lag)?;
        let beyond = (found.share - chance) / (1.0 - chance).max(1e-9);
        (beyond >= ENOUGH).then_some((beyond, found))
    };
    let judged = candidates(starts).into_iter().filter_map(judge);
    let (_, top) = judged.max_by(|a, b| a.0.total_cmp(&b.0))?;
    // A multiple of the period holds as well, or better: more delay is tolerated, and starts near the end do not count.
    // So it is asked of the same starts whether a part of the interval holds for them.
    let part = (2..=MULTIPLES).rev().find_map(|part| {
        let lag = top.length as f64 / f64::from(part);
        let found = followed(starts, lag)?;
        let both = top.starts.iter();
        let both = both.filter(|start| found.starts.binary_search(start).is_ok());
        (both.count() as f64 >= AS_WELL * top.starts.len() as f64).then_some(found)
    });
    let found = part.unwrap_or(top);
    Some(Period {
        nanoseconds: found.length,
        share: found.share,
    })
}

/// Intervals between starts that are common, as bins of a logarithmic scale.
fn candidates(starts: &[u64]) -> Vec<f64> {
    let step = (1.0 + TOLERANCE / 2.0).ln();
    let mut counts = std::collections::BTreeMap::<i64, u32>::new();
    for (at, start) in starts.iter().enumerate() {
        for later in starts[at + 1..].iter().take(FOLLOWERS) {
            let lag = (later - start).max(1) as f64;
            *counts.entry((lag.ln() / step) as i64).or_default() += 1;
        }
    }
    let mut counts: Vec<(i64, u32)> = counts.into_iter().collect();
    counts.sort_by_key(|(bin, count)| (std::cmp::Reverse(*count), *bin));
    counts.truncate(CANDIDATES);
    counts
        .into_iter()
        .map(|(bin, _)| ((bin as f64 + 0.5) * step).exp())
        .collect()
}

/// Starts that another one follows after some time.
struct Followed {
    /// Their places, rising.
    starts: Vec<usize>,
    /// Their share of all that are not too near the end to be followed.
    share: f64,
    /// The median of the intervals to the nearest follower, in nanoseconds.
    length: u64,
}

/// The starts that another one follows after this time.
fn followed(starts: &[u64], lag: f64) -> Option<Followed> {
    let last = *starts.last()?;
    let (low, high) = (lag * (1.0 - TOLERANCE), lag * (1.0 + TOLERANCE));
    let (mut places, mut intervals) = (Vec::new(), Vec::new());
    let mut asked = 0usize;
    for (at, start) in starts.iter().enumerate() {
        if (last - start) as f64 <= low {
            break;
        }
        asked += 1;
        let rest = &starts[at + 1..];
        let from = rest.partition_point(|later| ((later - start) as f64) < low);
        let near = rest[from..]
            .iter()
            .map(|later| later - start)
            .take_while(|interval| *interval as f64 <= high)
            .min_by(|a, b| {
                let off = |interval: u64| (interval as f64 - lag).abs();
                off(*a).total_cmp(&off(*b))
            });
        if let Some(interval) = near {
            places.push(at);
            intervals.push(interval);
        }
    }
    if asked < FEW / 2 || intervals.is_empty() {
        return None;
    }
    intervals.sort_unstable();
    Some(Followed {
        share: places.len() as f64 / asked as f64,
        starts: places,
        length: percentile(&intervals, 50),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lengths_and_histograms_add_up(lengths in proptest::collection::vec(0u64..2_000_000_000_000, 0..300)) {
            let told = Lengths::of(lengths.clone());
            let bins = histogram(lengths.clone());
            prop_assert_eq!(told.count, bins.iter().map(|bin| bin.count).sum::<u64>());
            prop_assert_eq!(told.total, bins.iter().map(|bin| bin.total).sum::<u64>());
            prop_assert!(told.median <= told.p99 && told.p99 <= told.worst);
            let below = lengths.iter().filter(|length| **length <= told.median).count();
            prop_assert!(2 * below >= lengths.len());
            for pair in bins.windows(2) {
                prop_assert_eq!(pair[0].to, pair[1].from);
            }
            for bin in &bins {
                let within = lengths.iter().filter(|length| (bin.from..bin.to).contains(length)).count() as u64;
                prop_assert!(bin.to == 1_000_000_000_000 || within == bin.count);
            }
        }

        #[test]
        fn a_period_is_found_among_other_starts(
            length in 100_000u64..50_000_000,
            jitter in proptest::collection::vec(-0.01..0.01f64, 100..400),
            others in proptest::collection::vec(0.0..1.0f64, 0..60),
        ) {
            let mut starts: Vec<u64> = jitter
                .iter()
                .enumerate()
                .map(|(at, off)| ((at as f64 + 1.0 + off) * length as f64) as u64)
                .collect();
            let end = *starts.last().unwrap() as f64;
            starts.extend(others.iter().map(|share| (share * end) as u64));
            starts.sort_unstable();
            let found = period(&starts).expect("a period");
            let off = found.nanoseconds as f64 / length as f64 - 1.0;
            prop_assert!(off.abs() < 0.03, "{} instead of {length}", found.nanoseconds);
        }

        #[test]
        fn any_starts_are_survived(mut starts in proptest::collection::vec(any::<u64>(), 0..60)) {
            starts.sort_unstable();
            if let Some(found) = period(&starts) {
                prop_assert!((0.0..=1.0).contains(&found.share));
            }
        }
    }

    /// A generator of random numbers (Knuth's MMIX), 0 to 1.
    fn random(state: &mut u64) -> f64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn starts_at_random_have_no_period() {
        let mut state = 42;
        for _ in 0..20 {
            let mut time = 0.0;
            let starts: Vec<u64> = (0..2000)
                .map(|_| {
                    time -= 1e6 * (1.0 - random(&mut state)).ln();
                    time as u64
                })
                .collect();
            assert_eq!(period(&starts), None);
        }
    }

    #[test]
    fn few_starts_have_no_period_and_none_no_lengths() {
        assert_eq!(period(&[1, 2, 3, 4]), None);
        assert_eq!(period(&[]), None);
        assert_eq!(Lengths::of(Vec::new()), Lengths::default());
        assert_eq!(histogram([]), []);
    }
}
