//! Misses of a first-level cache that are under way at a time, which its miss status holding registers bound.

/// What is remembered beyond need before it is looked through.
const REMEMBERED: usize = 64;

/// Cycles in order, of which the first are forgotten from time to time.
#[derive(Debug, Clone, Default)]
struct Cycles {
    all: Vec<u64>,
    /// Those before this place are forgotten.
    first: usize,
}

impl Cycles {
    #[inline]
    fn left(&self) -> &[u64] {
        &self.all[self.first..]
    }

    /// Adds one. Most are later than nearly all that are there, so its place is looked for from the end.
    #[inline]
    fn add(&mut self, cycle: u64) {
        let later = self.left().iter().rev().take_while(|its| **its > cycle);
        let place = self.all.len() - later.count();
        self.all.insert(place, cycle);
    }

    /// Forgets the first ones.
    #[inline]
    fn forget(&mut self, count: usize) {
        self.first += count;
        if self.first >= REMEMBERED {
            self.all.drain(..self.first);
            self.first = 0;
        }
    }

    fn clear(&mut self) {
        self.all.clear();
        self.first = 0;
    }
}

/// How many misses are under way in each cycle: those that began by then, less those that ended.
#[derive(Debug, Clone, Default)]
struct Occupancy {
    begins: Cycles,
    ends: Cycles,
}

impl Occupancy {
    /// What was before `now` is of no interest.
    #[inline]
    fn forget(&mut self, now: u64) {
        let ended = self.ends.left().iter().take_while(|end| **end <= now);
        let ended = ended.count();
        // At least as many have begun by then. Which are forgotten does not matter to the difference.
        self.ends.forget(ended);
        self.begins.forget(ended);
    }

    /// The first cycle from `from` on with fewer than `most`, which is at least 1.
    #[inline]
    fn below(&self, most: usize, from: u64) -> u64 {
        let (begins, ends) = (self.begins.left(), self.ends.left());
        if begins.len() < most {
            return from;
        }
        let is_by = |cycle: u64| move |its: &&u64| **its <= cycle;
        let mut begun = begins.iter().take_while(is_by(from)).count();
        let mut ended = ends.iter().take_while(is_by(from)).count();
        let mut at = from;
        // Each that has begun ends some time.
        while begun - ended >= most {
            at = ends[ended];
            ended += ends[ended..].iter().take_while(is_by(at)).count();
            begun += begins[begun..].iter().take_while(is_by(at)).count();
        }
        at
    }

    /// One more, from one cycle to another.
    #[inline]
    fn add(&mut self, from: u64, until: u64) {
        self.begins.add(from);
        self.ends.add(until);
    }

    fn clear(&mut self) {
        self.begins.clear();
        self.ends.clear();
    }
}

/// Places in which lines on their way are found at once, a power of two.
const PLACES: usize = 256;

/// When a line is there.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    line: u64,
    until: u64,
}

/// The misses of one first-level cache, bounded by its miss status holding registers (line fill buffers). A line that is on
/// its way is not requested again.
#[derive(Debug, Clone)]
pub(super) struct Misses {
    most: usize,
    /// What one context has at most if several have a thread, and now.
    watermark: usize,
    most_of_one: usize,
    /// Of those that are bounded, and by context, if there is a watermark.
    all: Occupancy,
    own: Vec<Occupancy>,
    /// All that are on their way, and some that are there.
    fills: Vec<Arrival>,
    /// When the last of them is there.
    last: u64,
    /// With this many, those that are there are forgotten.
    many: usize,
    /// The same by the lowest bits of their lines.
    arrivals: Box<[Arrival; PLACES]>,
    /// When the last is there of those that have no place of their own, since another line has it.
    crowded: u64,
}

impl Misses {
    /// At most `most` at a time, 0: without limit; `watermark` of them of one context if several have a thread.
    pub fn new(most: u32, watermark: Option<u32>) -> Self {
        Self {
            most: match most {
                0 => usize::MAX,
                most => most as usize,
            },
            watermark: watermark.map_or(usize::MAX, |most| most as usize),
            most_of_one: usize::MAX,
            all: Occupancy::default(),
            own: Vec::new(),
            fills: Vec::new(),
            last: 0,
            many: REMEMBERED,
            arrivals: Box::new([Arrival { line: 0, until: 0 }; PLACES]),
            crowded: 0,
        }
    }

    /// Sets the watermark for this many contexts with a thread.
    pub fn share(&mut self, busy: usize) {
        self.most_of_one = if busy > 1 { self.watermark } else { usize::MAX };
    }

    /// The first cycle from `from` on in which another miss of a context can be under way. What was there before `now` is
    /// forgotten.
    #[inline]
    pub fn free(&mut self, now: u64, from: u64, context: usize) -> u64 {
        if self.last <= now {
            self.fills.clear();
            self.all.clear();
            self.own.iter_mut().for_each(Occupancy::clear);
            return from;
        }
        if self.fills.len() >= self.many {
            self.fills.retain(|fill| fill.until > now);
            self.many = (2 * self.fills.len()).max(REMEMBERED);
        }
        self.all.forget(now);
        let mut at = self.all.below(self.most, from);
        if self.most_of_one == usize::MAX {
            return at;
        }
        let Some(own) = self.own.get_mut(context) else {
            return at;
        };
        own.forget(now);
        loop {
            let later = own.below(self.most_of_one, at);
            if later == at {
                return at;
            }
            at = self.all.below(self.most, later);
            if at == later {
                return at;
            }
        }
    }

    /// When a line is there that is on its way in cycle `at`; `at` if it is not on its way.
    #[inline]
    pub fn there(&self, line: u64, at: u64) -> u64 {
        if self.last <= at {
            return at;
        }
        if at < self.crowded {
            let of_line = self.fills.iter().filter(|fill| fill.line == line);
            return of_line.map(|fill| fill.until).fold(at, u64::max);
        }
        let arrival = self.arrivals[line as usize % PLACES];
        match arrival.line == line {
            true => arrival.until.max(at),
            false => at,
        }
    }

    fn under_way(&mut self, from: u64, until: u64, context: usize) {
        if self.most < usize::MAX {
            self.all.add(from, until);
        }
        if self.watermark < usize::MAX {
            if self.own.len() <= context {
                self.own.resize_with(context + 1, Occupancy::default);
            }
            self.own[context].add(from, until);
        }
    }

    /// A line is on its way, of a context if it is one of those that are bounded. What was there before `now` is of no
    /// interest.
    #[inline]
    pub fn fill(&mut self, now: u64, line: u64, [from, until]: [u64; 2], of: Option<usize>) {
        if let Some(context) = of {
            self.under_way(from, until, context);
        }
        self.fills.push(Arrival { line, until });
        self.last = self.last.max(until);
        let arrival = &mut self.arrivals[line as usize % PLACES];
        if arrival.line == line {
            arrival.until = arrival.until.max(until);
        } else if arrival.until <= now {
            *arrival = Arrival { line, until };
        } else {
            self.crowded = self.crowded.max(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// No more misses at a time than there may be, of all and of a context, and none waits while there may be another.
        #[test]
        fn misses_are_bounded_and_none_waits_for_nothing(
            most in 1u32..6,
            watermark in proptest::option::of(1u32..6),
            wishes in proptest::collection::vec((0u64..6, 0u64..30, 1u64..40, 0usize..3), 1..150),
        ) {
            let watermark = watermark.map(|its| its.min(most));
            let mut misses = Misses::new(most, watermark);
            misses.share(2);
            let mut all: Vec<(u64, u64, usize)> = Vec::new();
            let mut lines: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (number, (step, ahead, takes, context)) in wishes.into_iter().enumerate() {
                now += step;
                let from = now + ahead;
                // The third is not bounded.
                let of = (context < 2).then_some(context);
                let at = if of.is_some() { misses.free(now, from, context) } else { from };
                let full = |at: u64| {
                    let under_way = all.iter().filter(|(from, until, _)| *from <= at && at < *until);
                    let own = under_way.clone().filter(|(.., of)| *of == context).count();
                    under_way.count() >= most as usize
                        || watermark.is_some_and(|most| own >= most as usize)
                };
                if of.is_some() {
                    prop_assert!(!full(at));
                    for earlier in from..at {
                        prop_assert!(full(earlier), "waits in {}", earlier);
                    }
                }
                // Lines come again, and several have the same place.
                let line = (number as u64 * number as u64) % 11 * (PLACES as u64 / 4);
                misses.fill(now, line, [at, at + takes], of);
                if of.is_some() {
                    all.push((at, at + takes, context));
                }
                lines.push((line, at + takes));
                for (line, _) in &lines {
                    let of_line = lines.iter().filter(|(its, _)| its == line);
                    let there = of_line.map(|(_, until)| *until).fold(now, u64::max);
                    prop_assert_eq!(misses.there(*line, now), there);
                }
            }
        }
    }
}
