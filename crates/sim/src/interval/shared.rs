//! Lines of regions that threads need after others wrote them.
//!
//! Of a region of N lines, thread i visits each line `a_i` times in a while and thread j writes to each `b_j` times. The
//! share `q_ij` of the lines that j wrote last and i has not visited since follows
//!
//! `dq_ij/dt = b_j - q_ij (a_i + Σ_{k≠i} b_k)`,
//!
//! as writes by any thread but i take a line out of one state into another, and i's visits out of all; `N a_i ∫q_ij dt`
//! lines are needed meanwhile. While threads time-share one PU the same holds with one rate at a time, so that nothing
//! depends on where they run. That is exact for random visits. Walks in order come back after just one round: in the
//! steady state a visit finds its line written with a probability of `1 - e^-x` instead of `x/(1+x)`, where x is the
//! writes between two visits, and with `min(1, x)` if the writers walk in order too; what they need is scaled by that.

use super::{demand::Lines, owner::Owner};
use crate::sharing::{Needs, Shared};
use rustc_hash::{FxHashMap, FxHashSet};

/// A while lasts until this part of a region was visited, so that longer time slices are seen separately.
const WHILE: f64 = 0.25;

/// Threads that write most to a region, of whom it is known who wrote what.
const WRITERS: usize = 64;

/// With more pairs than that, a while lasts until the result is asked for.
const MANY: usize = 1024;

/// A thread that never visits anything: what it has not seen is what everyone who comes new has not seen.
const NOBODY: u32 = u32::MAX;

/// What a thread did to a region in the present while.
#[derive(Debug, Clone, Copy)]
struct Member {
    visits: f64,
    /// Visits that write.
    writes: f64,
    in_order: bool,
}

/// A region of a process.
#[derive(Debug, Clone, Default)]
struct Region {
    lines: f64,
    members: FxHashMap<u32, Member>,
    /// How many of them write.
    writers: usize,
    /// Visits by anybody in the present while.
    visits: f64,
    /// Whether that is enough for a while.
    due: bool,
    /// Shares of the lines that the second wrote last and the first has not visited since.
    unseen: FxHashMap<(u32, u32), f64>,
}

/// All regions that were visited.
#[derive(Debug, Clone, Default)]
pub(super) struct Regions {
    regions: FxHashMap<Owner, Region>,
    due: Vec<Owner>,
    needs: Needs,
}

impl Regions {
    /// A thread visits lines of a region while it executes `instructions` instructions.
    pub fn visit(&mut self, thread: u32, lines: &Lines, instructions: f64) {
        let visits = lines.visits * instructions;
        if visits <= 0.0 {
            return;
        }
        let region = self.regions.entry(lines.owner).or_default();
        region.lines = region.lines.max(lines.lines);
        let member = region.members.entry(thread).or_insert(Member {
            visits: 0.0,
            writes: 0.0,
            in_order: true,
        });
        member.visits += visits;
        // A visit writes if one of its accesses does.
        let writes = visits * (1.0 - (1.0 - lines.written).powf(lines.accesses.max(1.0)));
        region.writers += usize::from(member.writes <= 0.0 && writes > 0.0);
        member.writes += writes;
        member.in_order &= lines.reuse.in_order();
        region.visits += visits;
        if !region.due && region.visits >= WHILE * region.lines {
            region.due = true;
            self.due.push(lines.owner);
        }
    }

    /// To be called when all visits of threads that run at the same time are recorded.
    pub fn settle(&mut self) {
        for owner in self.due.drain(..) {
            if let Some(region) = self.regions.get_mut(&owner) {
                region.due = false;
                let pairs = region.members.len() * region.writers.min(WRITERS);
                if pairs.max(region.unseen.len()) <= MANY {
                    region.pass(&mut self.needs);
                }
            }
        }
    }

    /// What threads needed from each other since this was last asked. Forgets those that have ended.
    pub fn take(&mut self, ended: impl Fn(u32) -> bool) -> Vec<Shared> {
        for region in self.regions.values_mut() {
            region.pass(&mut self.needs);
            region.unseen.retain(|(reader, writer), _| {
                (*reader == NOBODY || !ended(*reader)) && !ended(*writer)
            });
        }
        self.regions.retain(|_, region| !region.unseen.is_empty());
        self.needs.take()
    }
}

impl Region {
    /// A while is over.
    fn pass(&mut self, needs: &mut Needs) {
        let lines = self.lines.max(1.0);
        let members = std::mem::take(&mut self.members);
        (self.visits, self.writers) = (0.0, 0);
        let mut writers: Vec<(u32, Member)> = members
            .iter()
            .map(|(thread, of)| (*thread, *of))
            .filter(|(_, of)| of.writes > 0.0)
            .collect();
        writers.sort_unstable_by(|a, b| b.1.writes.total_cmp(&a.1.writes).then(a.0.cmp(&b.0)));
        let all: f64 = writers.iter().map(|(_, of)| of.writes / lines).sum();
        let walked = writers.iter().all(|(_, of)| of.in_order);
        writers.truncate(WRITERS);
        // Who was idle may have lines to see that others write now, and writers of before are still unseen.
        let mut rates: FxHashMap<u32, Rates> = FxHashMap::default();
        for (thread, member) in &members {
            let rates = rates.entry(*thread).or_default();
            rates.visits = member.visits / lines;
            rates.in_order = member.in_order;
        }
        let mut met: FxHashSet<u32> = FxHashSet::default();
        let mut wrote = Vec::new();
        for ((reader, writer), unseen) in &self.unseen {
            met.insert(*reader);
            if *reader == NOBODY {
                wrote.push((*writer, *unseen));
            }
        }
        for new in members.keys().filter(|thread| !met.contains(thread)) {
            let of_others = wrote.iter().filter(|(writer, _)| writer != new);
            self.unseen
                .extend(of_others.map(|(writer, unseen)| ((*new, *writer), *unseen)));
        }
        for reader in met.into_iter().chain([NOBODY]) {
            rates.entry(reader).or_default();
        }
        for (thread, writer) in &writers {
            rates.entry(*thread).or_default().writes = writer.writes / lines;
            for reader in rates.keys().copied().filter(|reader| *reader != *thread) {
                self.unseen.entry((reader, *thread)).or_default();
            }
        }
        for ((reader, writer), unseen) in &mut self.unseen {
            let own = rates.get(reader).copied().unwrap_or_default();
            let others = all - own.writes;
            let change = own.visits + others;
            if change <= 0.0 {
                continue;
            }
            let written = rates.get(writer).map_or(0.0, |rates| rates.writes);
            let steady = written / change;
            let decay = (-change).exp();
            let mean = steady + (*unseen - steady) * (1.0 - decay) / change;
            let needed = own.visits * mean * own.scale(others, walked);
            if needed > 0.0 {
                needs.add(*reader, *writer, lines * needed.min(own.visits));
            }
            *unseen = steady + (*unseen - steady) * decay;
        }
    }
}

/// What a thread does to each line in a while.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    visits: f64,
    writes: f64,
    in_order: bool,
}

impl Rates {
    /// By how much a walk needs more than visits at random do, when others write so often.
    fn scale(&self, others: f64, walked: bool) -> f64 {
        if !self.in_order || self.visits <= 0.0 || others <= 0.0 {
            return 1.0;
        }
        let x = others / self.visits;
        let chance = match walked {
            true => x.min(1.0),
            false => -(-x).exp_m1(),
        };
        chance * (1.0 + x) / x
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{interval::reuse::Reuse, stream::Random};
    use proptest::prelude::*;

    fn lines(number: f64, written: f64) -> Lines {
        Lines {
            owner: Owner::Region(0, 0),
            code: false,
            visits: 1.0,
            written,
            accesses: 1.0,
            lines: number,
            start: 0.0,
            first_page: 0.0,
            reuse: Reuse::random(number),
            step: None,
            skips: 1.0,
            pages: 1.0,
            page_visits: 0.0,
            page_reuse: Reuse::random(1.0),
        }
    }

    fn needed(shared: &[Shared]) -> f64 {
        shared.iter().map(|shared| shared.lines).sum()
    }

    proptest! {
        /// Visits at random, one by one, against the formula: side by side, and in turns.
        #[test]
        fn as_many_as_random_visits_need(
            number in 50u64..400,
            written in 0.05f64..1.0,
            read in 0.2f64..3.0,
            turn in prop::sample::select(vec![10u64, 1_000, 20_000]),
            seed in any::<u64>(),
        ) {
            let mut random = Random::new(seed);
            // Of each line: who wrote last, and whether the other has seen it.
            let mut state = vec![(2usize, true); number as usize];
            let mut truth = 0u64;
            let mut regions = Regions::default();
            let sets = [lines(number as f64, written), lines(number as f64, 0.0)];
            for step in 0..40_000 / turn {
                let thread = (step % 2) as usize;
                let visits = match thread { 0 => turn, _ => (turn as f64 * read) as u64 };
                for _ in 0..visits {
                    let line = &mut state[random.below(number) as usize];
                    if thread == 0 && random.unit() < written {
                        *line = (0, false);
                    } else if thread == 1 && line.0 == 0 && !line.1 {
                        truth += 1;
                        line.1 = true;
                    }
                }
                regions.visit(thread as u32, &sets[thread], visits as f64);
                regions.settle();
            }
            let told = needed(&regions.take(|_| false));
            let truth = truth as f64;
            prop_assert!((told - truth).abs() < 0.05 * truth + 6.0 * truth.sqrt() + number as f64, "{told} for {truth}");
        }

        /// No thread needs more lines than it visits, and a thread that only reads needs nothing of others that only
        /// read.
        #[test]
        fn never_more_than_visits(
            visits in prop::collection::vec((0u32..80, 0.0f64..1000.0), 1..300),
            writers in 0u32..80,
        ) {
            let mut regions = Regions::default();
            let (mut all, mut wrote) = (0.0, false);
            for (thread, visits) in visits {
                let written = if thread < writers { 0.5 } else { 0.0 };
                wrote |= thread < writers;
                regions.visit(thread, &lines(100.0, written), visits);
                regions.settle();
                all += visits;
            }
            let shared = regions.take(|_| false);
            prop_assert!(needed(&shared) <= all + 1e-6);
            prop_assert!(wrote || shared.is_empty());
        }
    }
}
