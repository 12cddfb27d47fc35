//! Which cores may hold a line, and where its page is.
//!
//! The directory knows regions of 64 lines. While only one group of PUs with the same caches touches a region, that is
//! all it knows, and it asks no group. From the second group on it knows of each line which groups may hold it:
//!
//! * one group: the caches that hold it, if any, are that group's; it may write without asking;
//! * many: any may hold it, and outside caches that all groups share it is clean;
//! * many, dirty: as before, but a cache that some groups share may hold it dirty.
//!
//! That says where to look; the tags say what is there, so that nothing is to be kept when a line leaves a cache.

use rustc_hash::FxHashMap;

/// Lines of a region, as a power of two.
pub(super) const REGION_BITS: u32 = 6;

const REGION_LINES: usize = 1 << REGION_BITS;

/// Each group remembers this many regions, as a power of two, and finds them without the table.
const RECENT_BITS: u32 = 12;

/// No region.
const NOWHERE: u64 = u64::MAX;

/// Many groups may hold a line, clean.
pub(super) const MANY: u32 = u32::MAX;

/// Many groups may hold a line, and a cache that some of them share may hold it dirty.
pub(super) const MANY_DIRTY: u32 = u32::MAX - 1;

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

    /// Several groups want lines of a region, if they have not before.
    pub fn share(&mut self, place: usize) {
        let Region { number, owner, .. } = self.regions[place];
        if self.regions[place].lines.is_some() {
            return;
        }
        let private = &mut self.private[Self::private_place(number, owner)];
        if private.number == number {
            private.number = NOWHERE;
        }
    }

    /// Which group may hold a line of a region that several want, or [`MANY`] or [`MANY_DIRTY`].
    pub fn holders(&mut self, place: usize, line: u64, group: u32) -> &mut u32 {
        self.regions[place].state(line, group)
    }

    /// Which groups have touched a region since there are several: one bit each, modulo 64.
    pub fn touched(&self, place: usize) -> u64 {
        self.regions[place].touched
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
