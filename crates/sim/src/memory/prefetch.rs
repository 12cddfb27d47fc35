//! Hardware prefetchers: which lines a cache asks for before anybody needs them.
//!
//! A prefetcher belongs to a cache. It learns from loads and stores that miss in that cache, and from the first use of a
//! line that it brought itself, which is what would have missed without it ("tagged" prefetching: Smith, Cache Memories,
//! ACM Computing Surveys 14(3), 1982). It never reaches into another page, as it knows physical addresses only.

use crate::{
    model::{Pattern, Prefetcher},
    units::Ps,
};

/// As many lines under way are remembered without looking which of them are there.
const FEW: usize = 64;

/// A line that an access needed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    pub line: u64,
    /// Whether it was not in the cache; else a prefetcher had brought it.
    pub missed: bool,
}

/// Accesses to one page.
#[derive(Debug, Clone, Copy)]
struct Tracker {
    page: u64,
    /// The line that was needed last.
    last: u64,
    /// From one needed line to the next; 0 while only one was.
    stride: i64,
    /// How many needed lines one stride apart there were in a row.
    seen: u32,
    /// The line that was asked for last.
    head: u64,
    /// When it was last used, in needs.
    used: u64,
}

/// One prefetcher of a cache.
#[derive(Debug, Clone)]
struct Unit {
    model: Prefetcher,
    /// Lines of a page, as a power of two.
    page_bits: u32,
    trackers: Vec<Tracker>,
    needs: u64,
}

/// The prefetchers of a cache and what they have under way.
#[derive(Debug, Clone)]
pub(super) struct Prefetch {
    units: Vec<Unit>,
    /// Lines under way: which, and when each is there.
    under_way: Vec<(u64, Ps)>,
    /// The last of these moments.
    last: Ps,
    /// With this many, those are looked for that are there by now.
    many: usize,
    /// What to ask for next; kept to save the allocation.
    wanted: Vec<Want>,
}

/// A line to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Want {
    pub line: u64,
    /// It is not asked for while this many lines are under way.
    pub under_way: u32,
    /// Nor while this many lines wait for memory.
    pub backlog: u32,
}

impl Unit {
    fn new(model: &Prefetcher, line_bits: u32) -> Self {
        let page = model.page.max(1).next_power_of_two().trailing_zeros();
        Self {
            model: model.clone(),
            page_bits: page.saturating_sub(line_bits),
            trackers: Vec::new(),
            needs: 0,
        }
    }

    /// Learns from a need, and says what to ask for.
    fn learn(&mut self, need: Need, wanted: &mut Vec<Want>) {
        self.needs += 1;
        let page = need.line >> self.page_bits;
        match self.model.pattern {
            Pattern::NextLine => return self.ask(page, need.line, 1, 1, wanted),
            Pattern::AdjacentLine => {
                let other = if need.line.is_multiple_of(2) { 1 } else { -1 };
                return self.ask(page, need.line, other, 1, wanted);
            }
            Pattern::Stream | Pattern::Stride => {}
        }
        let known = self.trackers.iter().position(|its| its.page == page);
        let Some(place) = known else {
            if need.missed {
                self.begin(page, need.line);
            }
            return;
        };
        let needs = self.needs;
        let tracker = &mut self.trackers[place];
        tracker.used = needs;
        let stride = need.line.cast_signed() - tracker.last.cast_signed();
        if stride == 0 {
            return;
        }
        tracker.last = need.line;
        if stride.unsigned_abs() > u64::from(self.model.longest) {
            (tracker.stride, tracker.seen) = (0, 1);
            return;
        }
        let stride = match self.model.pattern {
            // Lines of a stream may be needed out of order, and some not at all: only the direction counts.
            Pattern::Stream => stride.signum(),
            _ => stride,
        };
        if tracker.stride == stride {
            tracker.seen += 1;
        } else {
            // Two lines make a stride.
            (tracker.stride, tracker.seen, tracker.head) = (stride, 2, need.line);
        }
        if tracker.seen < self.model.after {
            return;
        }
        // What was asked for already, as far as it lies ahead.
        let asked = (tracker.head.cast_signed() - need.line.cast_signed()) / stride;
        let asked = asked.clamp(0, i64::from(self.model.ahead));
        self.ask(page, need.line, stride, asked + 1, wanted);
        let ahead = stride * i64::from(self.model.ahead);
        self.trackers[place].head = need.line.wrapping_add_signed(ahead);
    }

    /// Asks for the lines from the `from`th ahead to the last, as far as they are in the page.
    fn ask(&self, page: u64, line: u64, stride: i64, from: i64, wanted: &mut Vec<Want>) {
        for step in from..=i64::from(self.model.ahead) {
            let line = line.wrapping_add_signed(stride * step);
            if line >> self.page_bits != page {
                break;
            }
            wanted.push(Want {
                line,
                under_way: self.model.under_way,
                backlog: self.model.backlog,
            });
        }
    }

    /// Begins to track a page, instead of the one that was left alone for longest if there are as many as can be.
    fn begin(&mut self, page: u64, line: u64) {
        let tracker = Tracker {
            page,
            last: line,
            stride: 0,
            seen: 1,
            head: line,
            used: self.needs,
        };
        if self.trackers.len() < self.model.streams as usize {
            self.trackers.push(tracker);
        } else if let Some(oldest) = self.trackers.iter_mut().min_by_key(|its| its.used) {
            *oldest = tracker;
        }
    }
}

impl Prefetch {
    /// The prefetchers of a cache with lines of 2^`line_bits` bytes; `None` if it has none.
    pub fn new(models: &[Prefetcher], line_bits: u32) -> Option<Box<Self>> {
        let units = models.iter().map(|model| Unit::new(model, line_bits));
        (!models.is_empty()).then(|| {
            Box::new(Self {
                units: units.collect(),
                under_way: Vec::new(),
                last: 0,
                many: FEW,
                wanted: Vec::new(),
            })
        })
    }

    /// Learns from a need. Returns the lines to ask for, in this order. [`Self::give_back`] takes the list.
    pub fn learn(&mut self, need: Need) -> Vec<Want> {
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        for unit in &mut self.units {
            unit.learn(need, &mut wanted);
        }
        wanted
    }

    /// Takes the list back, to save an allocation.
    pub fn give_back(&mut self, wanted: Vec<Want>) {
        self.wanted = wanted;
    }

    /// Whether another line may be asked for at a moment.
    pub fn has_room(&mut self, want: Want, at: Ps) -> bool {
        if self.last <= at {
            self.under_way.clear();
        } else if self.under_way.len() >= self.many.min(want.under_way as usize) {
            self.under_way.retain(|(_, there)| *there > at);
            self.many = (2 * self.under_way.len()).max(FEW);
        }
        self.under_way.len() < want.under_way as usize
    }

    /// A line is on its way.
    pub fn ask(&mut self, line: u64, there: Ps) {
        self.under_way.push((line, there));
        self.last = self.last.max(there);
    }

    /// How long after a moment a line is there that was brought by a prefetcher and is used for the first time.
    pub fn wait(&self, line: u64, at: Ps) -> Ps {
        if self.last <= at {
            return 0;
        }
        // It may have left the cache and been asked for again.
        let of_line = self.under_way.iter().rev().find(|(its, _)| *its == line);
        of_line.map_or(0, |(_, there)| there.saturating_sub(at))
    }

    /// Nothing is under way any more.
    pub fn rest(&mut self) {
        self.under_way.clear();
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(pattern: Pattern, after: u32, ahead: u32) -> Unit {
        let model = Prefetcher {
            pattern,
            streams: 2,
            after,
            ahead,
            longest: 16,
            page: 4096,
            under_way: u32::MAX,
            backlog: u32::MAX,
        };
        Unit::new(&model, 6)
    }

    fn asked(unit: &mut Unit, lines: &[u64]) -> Vec<Vec<u64>> {
        let ask = |line: &u64| {
            let mut wanted = Vec::new();
            let need = Need {
                line: *line,
                missed: true,
            };
            unit.learn(need, &mut wanted);
            wanted.into_iter().map(|want| want.line).collect()
        };
        lines.iter().map(ask).collect()
    }

    #[test]
    fn the_next_line_of_the_page_is_asked_for() {
        let mut unit = unit(Pattern::NextLine, 1, 1);
        assert_eq!(asked(&mut unit, &[5, 62, 63]), [vec![6], vec![63], vec![]]);
    }

    #[test]
    fn the_other_line_of_a_pair_is_asked_for() {
        let mut unit = unit(Pattern::AdjacentLine, 1, 1);
        assert_eq!(asked(&mut unit, &[4, 5, 64]), [[5], [4], [65]]);
    }

    #[test]
    fn a_stream_is_followed_in_its_direction_to_the_end_of_the_page() {
        let mut up = unit(Pattern::Stream, 3, 4);
        let lines = asked(&mut up, &[10, 11, 12, 13, 15]);
        let wanted = [vec![], vec![], vec![13, 14, 15, 16], vec![17], vec![18, 19]];
        assert_eq!(lines, wanted);
        let mut down = unit(Pattern::Stream, 2, 2);
        let lines = asked(&mut down, &[66, 65, 64, 63]);
        assert_eq!(lines, [vec![], vec![64], vec![], vec![]], "other page");
    }

    #[test]
    fn a_turn_begins_a_new_stream() {
        let mut unit = unit(Pattern::Stream, 3, 2);
        let lines = asked(&mut unit, &[20, 21, 22, 21, 20, 19]);
        assert_eq!(lines[2], [23, 24]);
        assert_eq!(lines[3], [0; 0]);
        assert_eq!(lines[4], [19, 18]);
        assert_eq!(lines[5], [17]);
    }

    #[test]
    fn a_stride_is_followed_only_if_it_repeats() {
        let mut unit = unit(Pattern::Stride, 3, 2);
        let lines = asked(&mut unit, &[1, 4, 7, 10, 12]);
        assert_eq!(lines[..2], [vec![], vec![]] as [Vec<u64>; 2]);
        assert_eq!(lines[2], [10, 13]);
        assert_eq!(lines[3], [16]);
        assert_eq!(lines[4], [0; 0]);
        assert_eq!(asked(&mut unit, &[64, 84, 104])[2], [0; 0], "too long");
    }

    #[test]
    fn the_page_left_alone_for_longest_makes_room() {
        let mut unit = unit(Pattern::Stream, 2, 1);
        asked(&mut unit, &[0, 64, 1, 128]);
        assert_eq!(asked(&mut unit, &[2]), [vec![3]], "page 0 was used last");
        assert_eq!(asked(&mut unit, &[65]), [vec![]], "page 1 is new again");
    }
}
