//! The entries of one queue, and when each becomes free.

use super::{
    occupancy::Held,
    ring::{AHEAD, Ring},
};

/// Entries that are remembered beyond need before they are looked through.
const REMEMBERED: usize = 64;

/// The entries that are taken.
#[derive(Debug, Clone)]
pub(super) struct Entries {
    pub size: usize,
    /// How many are taken after cycle `now`.
    taken: usize,
    now: u64,
    /// How many become free in each of the next [`AHEAD`] cycles, and in which of them any do. Found by the cycle: to keep
    /// a list in order costs more.
    free: Box<[u16; AHEAD]>,
    any: Ring,
    /// When those become free that do so later, and the first of them.
    late: Vec<u64>,
    first_late: u64,
    /// The context that takes them; `None` if several do.
    pub of: Option<usize>,
    /// Of shared ones, all that are taken, and some that are free again.
    held: Vec<Held>,
    /// With this many, those that are free again are forgotten.
    many: usize,
}

impl Entries {
    pub fn new(size: usize, of: Option<usize>) -> Self {
        Self {
            size,
            taken: 0,
            now: 0,
            free: Box::new([0; AHEAD]),
            any: Ring::default(),
            late: Vec::new(),
            first_late: u64::MAX,
            of,
            held: Vec::new(),
            many: REMEMBERED,
        }
    }

    /// Whether there is room in cycle `now`.
    ///
    /// # Errors
    /// The first cycle in which an entry becomes free, as things are. More are taken than there are if it was just divided
    /// among more contexts.
    #[inline]
    pub fn room(&mut self, now: u64) -> Result<(), u64> {
        if self.taken < self.size {
            return Ok(());
        }
        self.pass(now);
        if self.taken < self.size {
            return Ok(());
        }
        let next = self.now + 1;
        let first = self.any.marked(next, next + AHEAD as u64);
        Err(first.unwrap_or(self.first_late))
    }

    /// One is taken from cycle `now` to before `until`.
    #[inline]
    pub fn take(&mut self, now: u64, until: u64, context: usize) {
        if self.of.is_none() {
            if self.held.len() >= self.many {
                self.held.retain(|held| held.until() > now);
                self.many = (2 * self.held.len()).max(REMEMBERED);
            }
            self.held.push(Held::new(until, context));
        }
        if until > self.now + AHEAD as u64 {
            self.pass(now);
        }
        self.add(until);
    }

    #[inline]
    fn add(&mut self, until: u64) {
        // Without a branch on whether it is taken at all: that is at random.
        let taken = until > self.now;
        self.taken += usize::from(taken);
        if until <= self.now + AHEAD as u64 {
            self.free[until as usize % AHEAD] += u16::from(taken);
            self.any.set(until, taken);
        } else {
            self.add_late(until);
        }
    }

    #[cold]
    fn add_late(&mut self, until: u64) {
        self.late.push(until);
        self.first_late = self.first_late.min(until);
    }

    /// What becomes free up to cycle `now` is free.
    #[inline]
    fn pass(&mut self, now: u64) {
        if now <= self.now {
            return;
        }
        // All that are marked become free within that time.
        let end = now.min(self.now + AHEAD as u64) + 1;
        let mut next = self.now + 1;
        while let Some(cycle) = self.any.marked(next, end) {
            self.any.clear(cycle);
            let free = std::mem::take(&mut self.free[cycle as usize % AHEAD]);
            self.taken -= usize::from(free);
            next = cycle + 1;
        }
        self.now = now;
        if self.first_late <= now + AHEAD as u64 {
            self.pass_late();
        }
    }

    /// Those that were late are so no longer.
    #[cold]
    fn pass_late(&mut self) {
        let end = self.now + AHEAD as u64;
        self.first_late = u64::MAX;
        let mut place = 0;
        while let Some(until) = self.late.get(place).copied() {
            if until <= end {
                self.late.swap_remove(place);
                self.taken -= 1;
                self.add(until);
            } else {
                self.first_late = self.first_late.min(until);
                place += 1;
            }
        }
    }

    /// Takes over some of the entries of another one.
    pub fn take_over(&mut self, other: &mut Self, moves: impl Fn(Held) -> bool) {
        let moved = other.held.extract_if(.., |held| moves(*held));
        self.held.extend(moved);
        self.count_again();
        other.count_again();
    }

    /// Those of a context are free, whose thread has left.
    pub fn forget(&mut self, context: usize) {
        self.held.retain(|held| !held.is_of(context));
        self.count_again();
    }

    /// Those of a context belong to none any more, as its thread has left.
    pub fn disown(&mut self, context: usize) {
        let own = self.held.iter_mut().filter(|held| held.is_of(context));
        own.for_each(Held::disown);
    }

    fn count_again(&mut self) {
        self.free.fill(0);
        self.any.clear_all();
        self.late.clear();
        (self.taken, self.first_late) = (0, u64::MAX);
        for at in 0..self.held.len() {
            self.add(self.held[at].until());
        }
    }

    /// How many cycles from `now` on a context's entries are taken, all together.
    pub fn ahead(&self, context: usize, now: u64) -> u64 {
        match self.of {
            None => {
                let own = self.held.iter().filter(|held| held.is_of(context));
                return own.map(|held| held.until().saturating_sub(now)).sum();
            }
            Some(of) if of != context => return 0,
            Some(_) => {}
        }
        let late = self.late.iter().map(|until| until.saturating_sub(now));
        let (mut sum, end) = (late.sum(), self.now + 1 + AHEAD as u64);
        let mut next = now.max(self.now) + 1;
        while let Some(cycle) = self.any.marked(next, end) {
            sum += u64::from(self.free[cycle as usize % AHEAD]) * (cycle - now);
            next = cycle + 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_queue_has_room_when_the_first_leaves() {
        let mut entries = Entries::new(2, Some(0));
        entries.take(0, 9, 0);
        entries.take(0, 7, 0);
        assert_eq!(entries.room(5), Err(7));
        assert_eq!(entries.room(7), Ok(()));
        assert_eq!(entries.taken, 1);
    }

    proptest! {
        /// A list of all that are taken says the same, however far ahead they become free.
        #[test]
        fn room_is_what_a_list_gives(
            shared in proptest::bool::ANY,
            steps in proptest::collection::vec((0u64..400, 0u64..2500, 0usize..2, 1usize..12, 0u32..20), 1..300),
        ) {
            let mut queue = Entries::new(8, (!shared).then_some(0));
            let mut other = Entries::new(8, (!shared).then_some(0));
            let mut list: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            for (later, lasts, context, size, what) in steps {
                now += later * u64::from(what % 3 == 0);
                let context = if shared { context } else { 0 };
                list.retain(|(until, _)| *until > now);
                match what {
                    0 => queue.size = size,
                    1 => {
                        queue.forget(context);
                        list.retain(|(_, of)| *of != context);
                    }
                    2 if shared => {
                        other.take_over(&mut queue, |held| held.is_of(context));
                        queue.take_over(&mut other, |_| true);
                    }
                    _ => {
                        let first = list.iter().map(|(until, _)| *until).min();
                        let room = match list.len() < queue.size {
                            true => Ok(()),
                            false => Err(first.unwrap()),
                        };
                        prop_assert_eq!(queue.room(now), room);
                        if room.is_ok() {
                            queue.take(now, now + lasts, context);
                            if lasts > 0 {
                                list.push((now + lasts, context));
                            }
                        }
                    }
                }
                let own = list.iter().filter(|(_, of)| *of == context);
                prop_assert_eq!(queue.ahead(context, now), own.map(|(until, _)| until - now).sum::<u64>());
            }
        }
    }
}
