//! How many lines of stretches of memory fall into one set of a cache.
//!
//! A stretch of N lines puts N/S of them into each of S sets, rounded down, and one more into as many sets in a row as are
//! left over. Where that is depends on where the stretch begins: two stretches side by side have their additional lines in
//! different sets, unless these go round.

/// Consecutive lines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stretch {
    pub start: f64,
    pub lines: f64,
}

/// Sets that have the same number of lines of each stretch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    /// How many sets that are.
    pub sets: f64,
    /// Lines of each stretch in each of them.
    pub lines: Vec<f64>,
}

/// The sets of a cache by what stretches have in them.
pub(super) fn parts(sets: f64, stretches: &[Stretch]) -> Vec<Part> {
    let sets = sets.max(1.0);
    let ends = |stretch: &Stretch| {
        [
            stretch.start.rem_euclid(sets),
            (stretch.start + stretch.lines).rem_euclid(sets),
        ]
    };
    let mut borders: Vec<f64> = stretches.iter().flat_map(ends).chain([0.0, sets]).collect();
    borders.sort_unstable_by(f64::total_cmp);
    borders.dedup();
    let between = borders.windows(2).map(|pair| {
        let middle = (pair[0] + pair[1]) / 2.0;
        let here = |stretch: &Stretch| {
            let rounds = (stretch.lines / sets).floor();
            let after = (middle - stretch.start).rem_euclid(sets);
            rounds + f64::from(u8::from(after < stretch.lines - rounds * sets))
        };
        Part {
            sets: pair[1] - pair[0],
            lines: stretches.iter().map(here).collect(),
        }
    });
    between.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Lines counted one by one.
        #[test]
        fn as_many_as_there_are(
            sets in 1u64..40,
            stretches in prop::collection::vec((0u64..200, 0u64..150), 1..4),
        ) {
            let all: Vec<Stretch> = stretches
                .iter()
                .map(|(start, lines)| Stretch { start: *start as f64, lines: *lines as f64 })
                .collect();
            let mut counted = vec![vec![0.0; stretches.len()]; sets as usize];
            for (number, (start, lines)) in stretches.iter().enumerate() {
                for line in *start..start + lines {
                    counted[(line % sets) as usize][number] += 1.0;
                }
            }
            let mut told = Vec::new();
            for part in parts(sets as f64, &all) {
                told.extend(std::iter::repeat_n(part.lines, part.sets as usize));
            }
            prop_assert_eq!(told, counted);
        }
    }
}
