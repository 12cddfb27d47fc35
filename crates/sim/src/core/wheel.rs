//! Which contexts are ready when: a wheel of the next cycles, so that neither many contexts nor idle cycles cost time.

/// Cycles that the wheel shows. Who is ready later is looked at again once they have passed.
const SLOTS: u64 = u64::BITS as u64;

/// The most contexts of a core.
pub(crate) const MOST: usize = 64;

/// Some contexts, a bit each.
type Set = u64;

/// Contexts by the cycle in which they can issue.
#[derive(Debug, Clone)]
pub(super) struct Wheel {
    /// The cycle that is played.
    now: u64,
    /// Those that are ready.
    ready: Set,
    /// Slots with anybody in them, a bit each.
    used: u64,
    /// Those that are to be looked at in each of the next cycles, by cycle modulo the length.
    slots: Box<[Set; SLOTS as usize]>,
    /// When each is ready, as far as is known.
    at: Box<[u64]>,
}

impl Wheel {
    /// A wheel on which nobody is.
    ///
    /// # Panics
    /// With more than [`MOST`] contexts.
    pub fn new(contexts: usize) -> Self {
        assert!(contexts <= MOST, "a core has at most {MOST} contexts");
        Self {
            now: 0,
            ready: 0,
            used: 0,
            slots: Box::new([0; SLOTS as usize]),
            at: vec![0; contexts].into(),
        }
    }

    /// A context that is on the wheel nowhere is ready from this cycle on.
    #[inline]
    pub fn put(&mut self, context: usize, at: u64) {
        self.at[context] = at;
        let ahead = at.saturating_sub(self.now).min(SLOTS - 1);
        if ahead == 0 {
            self.ready |= 1 << context;
        } else {
            let slot = (self.now + ahead) % SLOTS;
            self.slots[slot as usize] |= 1 << context;
            self.used |= 1 << slot;
        }
    }

    /// Takes a context off, wherever it is.
    pub fn remove(&mut self, context: usize) {
        self.ready &= !(1 << context);
        for (number, slot) in self.slots.iter_mut().enumerate() {
            *slot &= !(1 << context);
            if *slot == 0 {
                self.used &= !(1 << number);
            }
        }
    }

    /// Takes off a context that is ready.
    #[inline]
    pub fn take(&mut self, context: usize) {
        self.ready &= !(1 << context);
    }

    /// Those that are ready now.
    #[inline]
    pub fn ready(&self) -> Set {
        self.ready
    }

    /// Whether a context is ready now.
    #[inline]
    pub fn is_ready(&self, context: usize) -> bool {
        self.ready >> context & 1 == 1
    }

    /// The first that is ready now at or behind a place, and else before it.
    #[inline]
    pub fn first_from(&self, place: usize) -> usize {
        let behind = self.ready >> place;
        if behind != 0 {
            place + behind.trailing_zeros() as usize
        } else {
            self.ready.trailing_zeros() as usize
        }
    }

    /// A cycle before which nobody new will be ready, if anybody will at all.
    #[inline]
    pub fn next(&self) -> Option<u64> {
        let ahead = self
            .used
            .rotate_right((self.now % SLOTS) as u32)
            .trailing_zeros();
        (self.used != 0).then(|| self.now + u64::from(ahead))
    }

    /// Goes on to a cycle, which is none behind [`Wheel::next`], and looks who is ready then.
    #[inline]
    pub fn go(&mut self, cycle: u64) {
        debug_assert!(self.next().is_none_or(|next| cycle <= next));
        self.now = cycle;
        let slot = (cycle % SLOTS) as usize;
        if self.used >> slot & 1 == 0 {
            return;
        }
        self.used &= !(1 << slot);
        let mut there = std::mem::take(&mut self.slots[slot]);
        while there != 0 {
            let context = there.trailing_zeros() as usize;
            there &= there - 1;
            self.put(context, self.at[context]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Who is ready when is what the times say, however far off they are.
        #[test]
        fn the_wheel_says_what_the_times_say(
            contexts in 1usize..MOST,
            steps in proptest::collection::vec((0usize..MOST, 0u64..300, any::<bool>()), 1..200),
        ) {
            let mut wheel = Wheel::new(contexts);
            let mut times = vec![None; contexts];
            let mut now = 0;
            for (context, ahead, away) in steps {
                let context = context % contexts;
                wheel.remove(context);
                times[context] = (!away).then_some(now + ahead);
                if let Some(at) = times[context] {
                    wheel.put(context, at);
                }
                let later = times.iter().flatten().copied().filter(|at| *at > now).min();
                let next = wheel.next();
                prop_assert_eq!(next.is_some(), later.is_some());
                if let (Some(next), Some(later)) = (next, later) {
                    prop_assert!(now < next && next <= later);
                    now = next;
                    wheel.go(now);
                }
                let ready: Vec<usize> = (0..contexts).filter(|c| times[*c].is_some_and(|at| at <= now)).collect();
                let shown: Vec<usize> = (0..contexts).filter(|c| wheel.ready() >> c & 1 == 1).collect();
                prop_assert_eq!(&ready, &shown);
                if let Some(first) = ready.iter().find(|c| **c >= context).or(ready.first()) {
                    prop_assert_eq!(wheel.first_from(context), *first);
                }
            }
        }
    }
}
