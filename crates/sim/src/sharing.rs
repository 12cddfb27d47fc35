//! Lines that threads need from each other: who needed how many that whom wrote last.

use rustc_hash::FxHashMap;

/// At most this many partners are reported for each thread, those with most lines first.
const PARTNERS: usize = 8;

/// Two threads and the lines that went between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shared {
    /// Indices of the run's threads, the lower first.
    pub threads: (usize, usize),
    /// Lines that one of them needed after the other wrote them. Where they were makes no difference: also lines that
    /// both find in the same cache count.
    pub lines: f64,
}

/// Lines by pairs of threads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Needs(FxHashMap<(u32, u32), f64>);

impl Needs {
    /// A thread needed lines that another wrote.
    #[inline]
    pub fn add(&mut self, reader: u32, writer: u32, lines: f64) {
        let pair = (reader.min(writer), reader.max(writer));
        *self.0.entry(pair).or_default() += lines;
    }

    /// Hands out what was counted: of each thread the partners with which it shares most, sorted by threads.
    pub fn take(&mut self) -> Vec<Shared> {
        let mut all: Vec<Shared> = std::mem::take(&mut self.0)
            .into_iter()
            .filter(|(_, lines)| *lines > 0.0)
            .map(|((a, b), lines)| Shared {
                threads: (a as usize, b as usize),
                lines,
            })
            .collect();
        all.sort_unstable_by(|a, b| b.lines.total_cmp(&a.lines).then(a.threads.cmp(&b.threads)));
        let mut partners: FxHashMap<usize, usize> = FxHashMap::default();
        all.retain(|shared| {
            let (a, b) = shared.threads;
            let mut wanted = |thread: usize| {
                let count = partners.entry(thread).or_default();
                *count += 1;
                *count <= PARTNERS
            };
            // Both are counted, so no lazy `or`.
            wanted(a) | wanted(b)
        });
        all.sort_unstable_by_key(|shared| shared.threads);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every line reported was counted, every thread's strongest partner is reported, and the whole is linear in
        /// threads.
        #[test]
        fn the_strongest_partners_are_told(
            counted in proptest::collection::vec((0u32..40, 0u32..40, 1u32..1000), 0..800),
        ) {
            let mut needs = Needs::default();
            let mut truth: FxHashMap<(usize, usize), f64> = FxHashMap::default();
            for (reader, writer, lines) in counted.into_iter().filter(|(a, b, _)| a != b) {
                needs.add(reader, writer, f64::from(lines));
                let pair = (reader.min(writer) as usize, reader.max(writer) as usize);
                *truth.entry(pair).or_default() += f64::from(lines);
            }
            let told = needs.take();
            prop_assert!(told.is_sorted_by_key(|shared| shared.threads));
            prop_assert!(told.len() <= 40 * PARTNERS);
            for shared in &told {
                prop_assert!(shared.threads.0 < shared.threads.1);
                prop_assert_eq!(truth.get(&shared.threads), Some(&shared.lines));
            }
            for thread in 0..40 {
                let has = |pair: &(usize, usize)| pair.0 == thread || pair.1 == thread;
                let most = truth.iter().filter(|(pair, _)| has(pair)).map(|(_, lines)| *lines);
                let told = told.iter().filter(|shared| has(&shared.threads)).map(|shared| shared.lines);
                let most = most.fold(0.0, f64::max);
                prop_assert_eq!(told.fold(0.0, f64::max), most);
            }
            prop_assert!(needs.take().is_empty());
        }
    }
}
