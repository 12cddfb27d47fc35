//! How much memory a thread touches, from the addresses of sampled accesses.

use std::collections::VecDeque;

/// Bytes in a cache line on every machine that perch knows.
pub const LINE_BYTES: u64 = 64;

/// Addresses that the estimate looks back on.
const WINDOW: usize = 1024;

/// The Chao1 lower bound on how many distinct things there are, having seen `distinct` of them,
/// `once` exactly once and `twice` exactly twice:
/// distinct + once·(once - 1) / (2·(twice + 1)),
/// the bias-corrected form (A. Chao, "Nonparametric estimation of the number of classes in a
/// population", Scandinavian Journal of Statistics 11, 1984; the correction: EstimateS manual).
pub fn chao1(distinct: u64, once: u64, twice: u64) -> f64 {
    let (once, twice) = (once as f64, twice as f64);
    distinct as f64 + once * (once - 1.0).max(0.0) / (2.0 * (twice + 1.0))
}

/// The cache lines of a thread's last sampled accesses.
#[derive(Debug, Clone, Default)]
pub struct Footprint {
    lines: VecDeque<u64>,
}

impl Footprint {
    /// Adds the address of one access; the oldest is forgotten after 1,024.
    #[inline]
    pub fn add(&mut self, address: u64) {
        if self.lines.len() == WINDOW {
            self.lines.pop_front();
        }
        self.lines.push_back(address / LINE_BYTES);
    }

    /// Addresses that the estimate rests on.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether no address was added.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Forgets all addresses and gives their memory back.
    pub fn clear(&mut self) {
        self.lines = VecDeque::new();
    }

    /// Estimated bytes of distinct cache lines that the accesses come from; `None` without addresses.
    ///
    /// A lower bound: with n addresses that are all different the estimate is about n²/2 lines, so
    /// 1,000 addresses can tell up to some 32 MB apart.
    pub fn bytes(&self) -> Option<f64> {
        if self.lines.is_empty() {
            return None;
        }
        let mut sorted: Vec<u64> = self.lines.iter().copied().collect();
        sorted.sort_unstable();
        let (mut distinct, mut once, mut twice) = (0, 0, 0);
        for run in sorted.chunk_by(|a, b| a == b) {
            distinct += 1;
            match run.len() {
                1 => once += 1,
                2 => twice += 1,
                _ => {}
            }
        }
        Some(chao1(distinct, once, twice) * LINE_BYTES as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A population of `lines` lines drawn from uniformly by a fixed generator.
    fn drawn(lines: u64, count: usize) -> Footprint {
        let mut footprint = Footprint::default();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..count {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            footprint.add(0x7f00_0000_0000 + (state >> 33) % lines * LINE_BYTES + (state >> 58));
        }
        footprint
    }

    #[test]
    fn known_populations_are_found() {
        for lines in [1, 16, 256, 2_000, 8_000, 64_000] {
            let bytes = drawn(lines, 1_000).bytes().unwrap();
            let truth = (lines * LINE_BYTES) as f64;
            assert!(
                (0.6..1.6).contains(&(bytes / truth)),
                "{lines} lines: {bytes} for {truth}"
            );
        }
    }

    #[test]
    fn published_example() {
        // 10 seen, 3 once, 2 twice: 10 + 3·2/(2·3) = 11.
        assert_eq!(chao1(10, 3, 2), 11.0);
        assert_eq!(chao1(5, 0, 0), 5.0);
    }

    proptest! {
        #[test]
        fn bounded_and_at_least_what_was_seen(addresses in prop::collection::vec(any::<u64>(), 0..3_000)) {
            let mut footprint = Footprint::default();
            addresses.iter().for_each(|&address| footprint.add(address));
            prop_assert!(footprint.len() <= WINDOW);
            let kept = &addresses[addresses.len().saturating_sub(WINDOW)..];
            let distinct: std::collections::BTreeSet<u64> = kept.iter().map(|a| a / LINE_BYTES).collect();
            match footprint.bytes() {
                None => prop_assert!(addresses.is_empty()),
                Some(bytes) => {
                    prop_assert!(bytes >= (distinct.len() as u64 * LINE_BYTES) as f64);
                    prop_assert!(bytes <= (WINDOW * WINDOW) as f64 * LINE_BYTES as f64);
                }
            }
        }
    }
}
