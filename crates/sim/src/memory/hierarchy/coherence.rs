//! What happens when several groups of cores want a line.

use super::{
    super::{
        cache::{DIRTY, SHARED},
        directory::{MANY, MANY_DIRTY},
    },
    Memory,
};
use crate::{counters::Counters, units::Ps};

/// What an access wants of a line of a region that is not private.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    /// Where its region is in the directory.
    pub region: usize,
    /// The line.
    pub line: u64,
    /// Who asks.
    pub group: u32,
    /// Whether to write.
    pub store: bool,
    /// The moment, in picoseconds of the machine.
    pub at: Ps,
}

/// What became of a line that others may have held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Got {
    /// Whether others may hold it still.
    pub shared: bool,
    /// The NUMA node from which it was written back, if it was dirty.
    pub from: Option<u32>,
}

impl Memory {
    /// Makes sure that a group may read or write a line: dirty copies of others are written back, and go if the line is
    /// to be written, as clean ones do.
    pub(super) fn cohere(&mut self, wish: Wish, counters: &mut Counters) -> Got {
        self.directory.share(wish.region);
        let state = *self.directory.holders(wish.region, wish.line, wish.group);
        let mut from = None;
        let next = match state {
            MANY if !wish.store => {
                return Got {
                    shared: true,
                    from: None,
                };
            }
            MANY | MANY_DIRTY => {
                from = self.ask_all(wish, counters);
                match wish.store {
                    true => wish.group,
                    false => self.many(wish),
                }
            }
            only if only == wish.group => {
                return Got {
                    shared: false,
                    from,
                };
            }
            only => {
                let held;
                (held, from) = self.ask(wish, only, counters);
                match held && !wish.store {
                    true => self.many(wish),
                    false => wish.group,
                }
            }
        };
        *self.directory.holders(wish.region, wish.line, wish.group) = next;
        Got {
            shared: next != wish.group,
            from,
        }
    }

    /// The state of a line that many may hold, after all caches that the group does not use were cleaned.
    fn many(&mut self, wish: Wish) -> u32 {
        let group = self.topology.groups[wish.group as usize];
        let dirty = group.data.all().iter().any(|number| {
            let cache = &mut self.topology.caches[*number as usize];
            !cache.everyones
                && cache
                    .tags
                    .find(wish.line)
                    .is_some_and(|entry| entry.has(DIRTY))
        });
        if dirty { MANY_DIRTY } else { MANY }
    }

    /// Asks all groups that have touched the region. Returns the node of one that held the line dirty.
    fn ask_all(&mut self, wish: Wish, counters: &mut Counters) -> Option<u32> {
        let mut from = None;
        let touched = self.directory.touched(wish.region);
        for other in 0..self.topology.groups.len() as u32 {
            if other != wish.group && touched >> (other % 64) & 1 == 1 {
                from = from.or(self.ask(wish, other, counters).1);
            }
        }
        from
    }

    /// Asks the caches of another group that the asking one does not use. Returns whether any held the line, and the
    /// group's node if one held it dirty.
    fn ask(&mut self, wish: Wish, other: u32, counters: &mut Counters) -> (bool, Option<u32>) {
        let own = self.topology.groups[wish.group as usize];
        let others = self.topology.groups[other as usize];
        let (mut clean, mut dirty) = (None, None);
        for number in others.without(&own) {
            let tags = &mut self.topology.caches[number].tags;
            let found = match wish.store {
                true => tags.remove(wish.line),
                false => tags.find(wish.line).map(|entry| {
                    let found = *entry;
                    *entry = found.without(DIRTY).with(SHARED);
                    found
                }),
            };
            clean = clean.or(found);
            dirty = dirty.or(found.filter(|entry| entry.has(DIRTY)));
        }
        let to = own.common(&others);
        // What is written back to the node that asks for it comes there once.
        let home = self.directory.region(wish.region).home;
        let from = if home == own.node { home } else { others.node };
        let place = (from, wish.at);
        if let Some(entry) = dirty {
            counters.coherence_misses += 1;
            self.write_back(to, entry.with(DIRTY | SHARED), place, counters);
        } else if let Some(entry) = clean
            && to.is_some_and(|to| self.topology.caches[to].victim)
        {
            // It knows what the caches before it hold: the line comes by way of it.
            self.write_back(to, entry.with(SHARED), place, counters);
        }
        (clean.is_some(), dirty.map(|_| others.node))
    }
}
