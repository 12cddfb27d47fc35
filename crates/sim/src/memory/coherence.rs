//! Which cores may hold a line, where its page is, and what happens when several want it.
//!
//! The directory knows regions of 64 lines. While only one group of PUs with the same caches touches a region, that is
//! all it knows, and it asks no group. From the second group on it knows of each line which groups may hold it:
//!
//! * one group: the caches that hold it, if any, are that group's; it may write without asking;
//! * many: any may hold it, and outside caches that all groups share it is clean;
//! * many, dirty: as before, but a cache that some groups share may hold it dirty.
//!
//! That says where to look; the tags say what is there, so that nothing is to be kept when a line leaves a cache.

use super::{
    cache::{DIRTY, SHARED},
    hierarchy::Memory,
};
use crate::{counters::Counters, units::Ps};
use rustc_hash::FxHashMap;

/// Lines of a region, as a power of two.
pub(super) const REGION_BITS: u32 = 6;

const REGION_LINES: usize = 1 << REGION_BITS;

/// Each group remembers this many regions, as a power of two, and finds them without the table.
const RECENT_BITS: u32 = 12;

/// No region.
const NOWHERE: u64 = u64::MAX;

/// Many groups may hold a line, clean.
const MANY: u32 = u32::MAX;

/// Many groups may hold a line, and a cache that some of them share may hold it dirty.
const MANY_DIRTY: u32 = u32::MAX - 1;

/// Where pages are placed that no PU has touched yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// In the NUMA node of the PU that touches a page first, as Linux does.
    #[default]
    FirstTouch,
    /// In turn over all nodes, by the page's number.
    Interleave,
}

/// A region that only one group has touched, as that group finds it.
#[derive(Debug, Clone, Copy)]
struct Private {
    /// Which it is, or [`NOWHERE`].
    number: u64,
    /// Its NUMA node.
    home: u32,
}

/// What is known of a region.
#[derive(Debug, Clone)]
pub(super) struct Region {
    /// Which it is: its lines' numbers without the lowest bits.
    number: u64,
    /// Its NUMA node.
    pub home: u32,
    /// The only group that has touched it, while `lines` is `None`.
    owner: u32,
    /// Which groups have touched it since there are several: one bit each, modulo 64.
    touched: u64,
    /// Of each line the group that may hold it, or [`MANY`] or [`MANY_DIRTY`].
    lines: Option<Box<[u32; REGION_LINES]>>,
}

/// All regions that were ever touched.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    /// In the order in which they were touched first, behind one that is none.
    regions: Vec<Region>,
    /// Where each is in `regions`.
    places: FxHashMap<u64, u32>,
    /// Regions that a group used lately, by group and a hash of the region.
    recent: Vec<u32>,
    /// Those of them that are its own, side by side if they are so in memory.
    private: Vec<Private>,
    /// The nodes of pages, where a page is larger than a region.
    pages: FxHashMap<u64, u32>,
    /// Regions of a page, as a power of two.
    page_bits: u32,
    nodes: u32,
    placement: Placement,
}

impl Directory {
    /// A directory for `groups` groups and `nodes` nodes; pages are `page` bytes, lines 2^`line_bits`.
    pub fn new(groups: usize, nodes: usize, page: u64, line_bits: u32) -> Self {
        let nowhere = Region {
            number: NOWHERE,
            home: 0,
            owner: 0,
            touched: 0,
            lines: None,
        };
        let page_bits = page.max(1).next_power_of_two().trailing_zeros();
        Self {
            regions: vec![nowhere],
            places: FxHashMap::default(),
            recent: vec![0; groups << RECENT_BITS],
            private: vec![
                Private {
                    number: NOWHERE,
                    home: 0,
                };
                groups << RECENT_BITS
            ],
            pages: FxHashMap::default(),
            page_bits: page_bits.saturating_sub(line_bits + REGION_BITS),
            nodes: nodes as u32,
            placement: Placement::default(),
        }
    }

    /// Chooses where pages are placed from now on.
    pub fn set_placement(&mut self, placement: Placement) {
        self.placement = placement;
    }

    /// Where in the directory the region of a line is, which `group` of `node` touches.
    #[inline]
    pub fn touch(&mut self, line: u64, group: u32, node: u32) -> usize {
        let region = line >> REGION_BITS;
        let hash = region.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT_BITS);
        let place = ((group as usize) << RECENT_BITS) + hash as usize;
        let recent = self.recent[place] as usize;
        if self.regions[recent].number == region {
            return recent;
        }
        let found = self.find_or_make(region, group, node);
        self.recent[place] = found;
        found as usize
    }

    /// Where in `private` a region of a group is, if it is there.
    #[inline]
    fn private_place(region: u64, group: u32) -> usize {
        let folded = region ^ region >> RECENT_BITS;
        ((group as usize) << RECENT_BITS) + (folded as usize & ((1 << RECENT_BITS) - 1))
    }

    /// The NUMA node of a line in a region that is known to be the group's own.
    #[inline]
    pub fn private_home(&self, line: u64, group: u32) -> Option<usize> {
        let region = line >> REGION_BITS;
        let private = &self.private[Self::private_place(region, group)];
        (private.number == region).then_some(private.home as usize)
    }

    /// Remembers that a region is the group's own.
    pub fn remember_private(&mut self, place: usize, group: u32) {
        let Region { number, home, .. } = self.regions[place];
        self.private[Self::private_place(number, group)] = Private { number, home };
    }

    /// A region is no longer the only one's that had touched it.
    fn share(&mut self, place: usize) {
        let Region { number, owner, .. } = self.regions[place];
        let private = &mut self.private[Self::private_place(number, owner)];
        if private.number == number {
            private.number = NOWHERE;
        }
    }

    fn find_or_make(&mut self, region: u64, group: u32, node: u32) -> u32 {
        if let Some(place) = self.places.get(&region) {
            return *place;
        }
        let page = region >> self.page_bits;
        let chosen = match self.placement {
            Placement::FirstTouch => node,
            Placement::Interleave => (page % u64::from(self.nodes)) as u32,
        };
        let home = match self.page_bits {
            0 => chosen,
            _ => *self.pages.entry(page).or_insert(chosen),
        };
        let place = self.regions.len() as u32;
        self.regions.push(Region {
            number: region,
            home,
            owner: group,
            touched: 0,
            lines: None,
        });
        self.places.insert(region, place);
        place
    }

    /// The region at a place in the directory.
    #[inline]
    pub fn region(&self, place: usize) -> &Region {
        &self.regions[place]
    }

    /// The NUMA node of a line's page, if it was ever touched.
    pub fn home(&self, line: u64) -> Option<u32> {
        let region = line >> REGION_BITS;
        match self.places.get(&region) {
            Some(place) => Some(self.regions[*place as usize].home),
            None => self.pages.get(&(region >> self.page_bits)).copied(),
        }
    }
}

impl Region {
    /// Whether only this group has ever touched it.
    #[inline]
    pub fn is_private(&self, group: u32) -> bool {
        self.owner == group && self.lines.is_none()
    }

    /// Who may hold a line; from now on this is known line by line.
    fn state(&mut self, line: u64, group: u32) -> &mut u32 {
        let owner = self.owner;
        let touched = &mut self.touched;
        let lines = self.lines.get_or_insert_with(|| {
            *touched |= 1 << (owner % 64);
            Box::new([owner; REGION_LINES])
        });
        *touched |= 1 << (group % 64);
        &mut lines[line as usize % REGION_LINES]
    }
}

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
        if self.directory.regions[wish.region].lines.is_none() {
            self.directory.share(wish.region);
        }
        let state = *self.directory.regions[wish.region].state(wish.line, wish.group);
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
        *self.directory.regions[wish.region].state(wish.line, wish.group) = next;
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
        let touched = self.directory.regions[wish.region].touched;
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
        if let Some(entry) = dirty {
            counters.coherence_misses += 1;
            self.write_back(to, entry.with(DIRTY | SHARED), wish.at, counters);
        } else if let Some(entry) = clean
            && to.is_some_and(|to| self.topology.caches[to].victim)
        {
            // It knows what the caches before it hold: the line comes by way of it.
            self.write_back(to, entry.with(SHARED), wish.at, counters);
        }
        (clean.is_some(), dirty.map(|_| others.node))
    }
}
