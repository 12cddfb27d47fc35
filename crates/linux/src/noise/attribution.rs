//! Which sources ran in which interruption, and what remains: pure.

use super::{
    quantum::Interruption,
    walk::{Slice, Walked},
};
use std::collections::BTreeMap;

/// What became known of one interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// The source that had most of it; `None` if none was seen.
    pub source: Option<u32>,
    /// The time that all sources had in it, at most what it lost, in nanoseconds.
    pub known: u64,
}

/// The causes of interruptions, one each, in their order. Both are in order of time and without overlaps.
pub fn causes(interruptions: &[Interruption], slices: &[Slice]) -> Vec<Cause> {
    let mut first = 0;
    let mut causes = Vec::with_capacity(interruptions.len());
    for found in interruptions {
        let end = found.start + found.within;
        while slices
            .get(first)
            .is_some_and(|slice| slice.end <= found.start)
        {
            first += 1;
        }
        let mut times = BTreeMap::<u32, u64>::new();
        for slice in slices[first..].iter().take_while(|slice| slice.start < end) {
            let time = slice.end.min(end) - slice.start.max(found.start);
            *times.entry(slice.source).or_default() += time;
        }
        let known: u64 = times.values().sum();
        let most = times.into_iter().max_by_key(|(_, time)| *time);
        causes.push(Cause {
            source: most.map(|(source, _)| source),
            known: known.min(found.lost),
        });
    }
    causes
}

/// What a source took within the windows of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Time in all, in nanoseconds.
    pub total: u64,
    /// When each of its runs began and how long it took, in nanoseconds, in order; one that went on beyond a window with
    /// all of its time.
    pub runs: Vec<(u64, u64)>,
}

/// What each source took within windows, which are in order.
pub fn taken(walked: &Walked, windows: &[(u64, u64)]) -> BTreeMap<u32, Taken> {
    let mut sources = BTreeMap::<u32, Taken>::new();
    let mut first = 0;
    for slice in &walked.slices {
        while windows
            .get(first)
            .is_some_and(|window| window.1 <= slice.start)
        {
            first += 1;
        }
        for (from, to) in windows[first..]
            .iter()
            .take_while(|window| window.0 < slice.end)
        {
            let time = slice.end.min(*to) - slice.start.max(*from);
            sources.entry(slice.source).or_default().total += time;
        }
    }
    let mut runs = walked.runs.clone();
    runs.sort_by_key(|run| run.start);
    for run in runs {
        let at = windows.partition_point(|window| window.1 <= run.start);
        if windows.get(at).is_some_and(|window| window.0 <= run.start) {
            let taken = sources.entry(run.source).or_default();
            taken.runs.push((run.start, run.took));
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::walk::Run;
    use proptest::prelude::*;

    fn slice(start: u64, end: u64, source: u32) -> Slice {
        Slice { start, end, source }
    }

    #[test]
    fn an_interruption_has_the_source_that_had_most_of_it() {
        let found = |start, within, lost| Interruption {
            start,
            within,
            lost,
        };
        let slices = [slice(90, 110, 1), slice(110, 115, 2), slice(300, 310, 1)];
        let causes = causes(
            &[found(100, 20, 18), found(200, 20, 18), found(290, 40, 38)],
            &slices,
        );
        let cause = |source, known| Cause { source, known };
        assert_eq!(
            causes,
            [cause(Some(1), 15), cause(None, 0), cause(Some(1), 10)]
        );
    }

    #[test]
    fn only_what_is_in_windows_is_taken() {
        let walked = Walked {
            slices: vec![slice(5, 20, 1), slice(30, 60, 1), slice(70, 80, 2)],
            runs: vec![
                Run {
                    start: 30,
                    took: 30,
                    source: 1,
                },
                Run {
                    start: 5,
                    took: 15,
                    source: 1,
                },
                Run {
                    start: 70,
                    took: 10,
                    source: 2,
                },
            ],
        };
        let taken = taken(&walked, &[(10, 40), (50, 65)]);
        assert_eq!(taken[&1].total, 10 + 10 + 10);
        assert_eq!(taken[&1].runs, [(30, 30)]);
        assert!(!taken.contains_key(&2));
    }

    proptest! {
        #[test]
        fn no_more_is_known_than_was_lost_and_windows_bound_what_was_taken(
            parts in proptest::collection::vec((0u64..50, 1u64..50, 0u32..4), 0..60),
            found in proptest::collection::vec((0u64..50, 1u64..80), 0..40),
        ) {
            let mut time = 0;
            let slices: Vec<Slice> = parts.into_iter().map(|(wait, length, source)| {
                let start = time + wait;
                time = start + length;
                slice(start, time, source)
            }).collect();
            let mut time = 0;
            let found: Vec<Interruption> = found.into_iter().map(|(wait, within)| {
                let start = time + wait;
                time = start + within;
                Interruption { start, within, lost: within - within / 3 }
            }).collect();
            let told = causes(&found, &slices);
            prop_assert_eq!(told.len(), found.len());
            for (cause, found) in told.iter().zip(&found) {
                prop_assert!(cause.known <= found.lost);
                prop_assert_eq!(cause.source.is_some(), cause.known > 0);
            }
            let windows: Vec<(u64, u64)> = found.iter().map(|f| (f.start, f.start + f.within)).collect();
            let walked = Walked { slices: slices.clone(), runs: Vec::new() };
            let sum: u64 = taken(&walked, &windows).values().map(|taken| taken.total).sum();
            let mut overlap = 0;
            for slice in &slices {
                for (from, to) in &windows {
                    overlap += slice.end.min(*to).saturating_sub(slice.start.max(*from));
                }
            }
            prop_assert_eq!(sum, overlap);
        }
    }
}
