//! Which context can issue next: idle cycles cost no time, and the usual few contexts are compared all at once.

use super::context::NEVER;

/// The most contexts of a core: numbers of six bits.
pub(crate) const MOST: usize = 1 << BITS;

const BITS: u32 = 6;

/// This many are compared together.
const LANES: usize = 4;

/// When each context can issue.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    /// By context, with room below the cycle for a number; places that fill up the last [`LANES`] are never ready.
    at: Box<[[u64; LANES]]>,
}

impl Ready {
    /// Contexts of which none is ever ready.
    ///
    /// # Panics
    /// With more than [`MOST`] contexts.
    pub fn new(contexts: usize) -> Self {
        assert!(contexts <= MOST, "a core has at most {MOST} contexts");
        let groups = contexts.div_ceil(LANES).max(1);
        Self {
            at: vec![[NEVER << BITS; LANES]; groups].into(),
        }
    }

    /// A context is ready from this cycle on.
    #[inline]
    pub fn put(&mut self, context: usize, at: u64) {
        self.at.as_flattened_mut()[context] = at << BITS;
    }

    /// The cycle from which on a context is ready.
    #[inline]
    pub fn at(&self, context: usize) -> u64 {
        self.at.as_flattened()[context] >> BITS
    }

    /// The first cycle from `cycle` on in which any is ready, and which: the first at or behind the place `turn`, and else
    /// before it. The cycle is [`NEVER`] if none ever is.
    #[inline(always)]
    pub fn next(&self, cycle: u64, turn: usize) -> (u64, usize) {
        const NUMBERS: u64 = MOST as u64 - 1;
        let (from, turn) = (cycle << BITS, turn as u64);
        let first_of = |at: &[u64; LANES], before: u64| {
            // The cycle, and below it how far behind `turn` the context is.
            let key = |lane: u64| {
                at[lane as usize].max(from) | (before + lane).wrapping_sub(turn) & NUMBERS
            };
            key(0).min(key(1)).min(key(2).min(key(3)))
        };
        let [at, others @ ..] = &*self.at else {
            return (NEVER, 0);
        };
        let mut first = first_of(at, 0);
        for (group, at) in others.iter().enumerate() {
            first = first.min(first_of(at, (group as u64 + 1) * LANES as u64));
        }
        let context = (first & NUMBERS).wrapping_add(turn) & NUMBERS;
        (first >> BITS, context as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The next one is the one that the times give.
        #[test]
        fn the_next_is_who_is_ready_first(
            times in proptest::collection::vec(proptest::option::weighted(0.8, 0u64..20), 1..=MOST),
            cycle in 0u64..20,
            turn in 0usize..MOST,
        ) {
            let turn = turn % times.len();
            let mut ready = Ready::new(times.len());
            for (context, at) in times.iter().enumerate() {
                ready.put(context, at.unwrap_or(NEVER));
                prop_assert_eq!(ready.at(context), at.unwrap_or(NEVER));
            }
            let (next, context) = ready.next(cycle, turn);
            let Some(first) = times.iter().flatten().min() else {
                prop_assert_eq!(next, NEVER);
                return Ok(());
            };
            prop_assert_eq!(next, cycle.max(*first));
            let in_turn = (turn..times.len()).chain(0..turn);
            let ready_then = |context: &usize| times[*context].is_some_and(|at| at <= next);
            prop_assert_eq!(Some(context), in_turn.into_iter().find(ready_then));
        }
    }
}
