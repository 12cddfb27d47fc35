//! Threads whose accesses are drawn at random, so that it is known what they share.

use super::*;
use crate::accesses::Access;
use proptest::prelude::*;

/// A fixed generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Where a thread goes: first line, lines, and whether it writes there.
type Place = (u64, u64, bool);

/// As many accesses as that, spread evenly over some places.
fn thread(draw: &mut Draw, places: &[Place], count: usize) -> Accesses {
    let mut accesses = Accesses::default();
    for at in 0..count {
        let (first, lines, write) = places[at % places.len()];
        let address = 64 * (first + draw.below(lines)) + 8 * draw.below(8);
        accesses.add(Access { address, write });
    }
    accesses
}

fn found(threads: &[Accesses]) -> Vec<Common> {
    let touchers = threads.iter().map(|accesses| Toucher {
        accesses,
        busy: 1.0,
    });
    common(&touchers.collect::<Vec<_>>())
}

/// What is expected if a share of a thread's accesses needs a line.
fn transfers(needs: f64) -> f64 {
    needs / (ACCESS_TIME + needs * TRANSFER_TIME)
}

/// Far from all else, at the beginning of a page.
const SHARED: u64 = 1 << 30;

proptest! {
    /// A producer and a consumer, which have data of their own besides, are found in small buffers and in large ones,
    /// and the share of accesses that need a line is about right.
    #[test]
    fn a_producer_and_its_consumer_are_found(
        size in 0u32..13,
        seed in any::<u64>(),
        count in 500usize..1000,
    ) {
        let lines = 1 << size;
        let mut draw = Draw(seed);
        let producer = thread(&mut draw, &[(SHARED, lines, true), (1 << 20, 500, true)], count);
        let consumer = thread(&mut draw, &[(SHARED, lines, false), (1 << 21, 500, false)], count);
        let other = thread(&mut draw, &[(1 << 22, 500, true), (1 << 23, 500, false)], count);
        let found = found(&[producer, consumer, other]);
        prop_assert_eq!(found.len(), 1, "{} lines: {:?}", lines, found);
        let Common { threads, transfers: told, confidence } = found[0];
        prop_assert_eq!(threads, (0, 1));
        prop_assert!(confidence > if lines <= 1024 { 0.8 } else { 0.3 }, "{}", confidence);
        // Half of the consumer's accesses, and of these half find the line written since.
        let truth = transfers(0.25);
        prop_assert!((0.4..1.8).contains(&(told / truth)), "{lines} lines: {told} for {truth}");
    }

    /// Threads that only read the same are none, nor are those that write only elsewhere.
    #[test]
    fn readers_of_one_table_share_nothing(size in 0u32..15, seed in any::<u64>(), count in 1usize..1000) {
        let mut draw = Draw(seed);
        let threads = [0, 1, 2].map(|number| {
            let own = ((number + 1) << 20, 100, true);
            thread(&mut draw, &[(SHARED, 1 << size, false), own], count)
        });
        prop_assert_eq!(found(&threads), []);
    }

    /// Data of two threads that lie next to each other, in one page too, are not shared.
    #[test]
    fn neighbours_share_nothing(
        first in 1u64..200,
        second in 1u64..200,
        at in 0u64..64,
        seed in any::<u64>(),
        count in 1usize..1000,
    ) {
        let mut draw = Draw(seed);
        let a = thread(&mut draw, &[(SHARED + at, first, true), (1 << 20, 500, false)], count);
        let b = thread(&mut draw, &[(SHARED + at + first, second, true), (1 << 21, 500, false)], count);
        prop_assert_eq!(found(&[a, b]), []);
    }

    /// Objects of two threads that take turns in memory, as if one thread had made them all, are not shared, however much
    /// memory that is.
    #[test]
    fn objects_side_by_side_are_not_shared(
        size in 1u32..18,
        seed in any::<u64>(),
        count in 50usize..1000,
    ) {
        let mut draw = Draw(seed);
        let threads = [0, 1].map(|parity| {
            let mut accesses = Accesses::default();
            for at in 0..count {
                let line = SHARED + 2 * draw.below(1 << size) + parity;
                accesses.add(Access { address: 64 * line, write: at % 2 == 0 });
            }
            accesses
        });
        prop_assert_eq!(found(&threads), []);
    }

    /// One line among much else, such as a lock, costs as little as it is used.
    #[test]
    fn a_lock_is_a_little_sharing(seed in any::<u64>(), others in 20usize..60) {
        let mut draw = Draw(seed);
        let threads = [1u64, 2].map(|number| {
            let mut places = vec![(number << 20, 3000, true); others];
            places.push((SHARED, 1, true));
            thread(&mut draw, &places, 1000)
        });
        let found = found(&threads);
        prop_assert_eq!(found.len(), 1);
        // Both need it, every other time.
        let truth = 2.0 * transfers(0.5 / (others + 1) as f64);
        prop_assert!((0.6..1.7).contains(&(found[0].transfers / truth)), "{found:?} for {truth}");
    }

    /// The order of threads makes no difference, and no number of them makes it long.
    #[test]
    fn threads_may_be_told_in_any_order(seed in any::<u64>(), count in 2usize..40) {
        let mut draw = Draw(seed);
        let mut threads: Vec<Accesses> = (0..count as u64)
            .map(|number| {
                let places = [(SHARED + number / 2 * 100, 60, number % 2 == 0), (number << 20, 40, true)];
                thread(&mut draw, &places, 200)
            })
            .collect();
        let before = found(&threads);
        prop_assert!(before.len() <= count * PARTNERS);
        threads.reverse();
        let mut after = found(&threads);
        for common in &mut after {
            common.threads = (count - 1 - common.threads.1, count - 1 - common.threads.0);
        }
        after.sort_by_key(|common| common.threads);
        prop_assert_eq!(before.len(), after.len());
        for (before, after) in before.iter().zip(&after) {
            prop_assert_eq!(before.threads, after.threads);
            prop_assert!((before.transfers - after.transfers).abs() <= 1e-9 * before.transfers);
        }
    }
}
