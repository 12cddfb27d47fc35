//! Which caches, TLB and NUMA node each PU of a machine uses: the same at both levels of detail.

use super::{CacheLevel, Holds, MachineModel};
use crate::units::Ps;

/// One cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wired<'a> {
    /// What it is like.
    pub like: &'a CacheLevel,
    /// Its PUs.
    pub pus: &'a [u32],
}

impl Wired<'_> {
    /// Its level less one.
    pub fn level(&self) -> usize {
        usize::from(self.like.level.clamp(1, 3)) - 1
    }

    /// What a look into it adds to an access; 0 at level 1, whose latency is the instruction's.
    pub fn latency(&self) -> Ps {
        if self.like.level <= 1 {
            0
        } else {
            self.like.latency
        }
    }
}

/// What one PU uses.
#[derive(Debug, Clone)]
pub(crate) struct PuUses {
    /// Its core, and its number there.
    pub core: usize,
    pub context: usize,
    /// Its NUMA node.
    pub node: usize,
    /// Caches that loads and stores pass, by rising level.
    pub data: Vec<usize>,
    /// Caches that fetches pass.
    pub fetch: Vec<usize>,
    /// The number of its TLB.
    pub tlb: usize,
}

/// The caches of a machine by rising level, and what each PU uses. Lists of PUs are taken as they are: a PU that is in two
/// caches of the same level uses the first.
pub(crate) fn wiring<'a>(machine: &'a MachineModel) -> (Vec<Wired<'a>>, Vec<PuUses>) {
    let mut levels: Vec<&CacheLevel> = machine.caches.iter().collect();
    levels.sort_by_key(|level| level.level);
    let of_level = |like: &'a CacheLevel| {
        let all = like.shared_by.iter();
        all.map(move |pus| Wired { like, pus })
    };
    let caches: Vec<Wired<'a>> = levels.into_iter().flat_map(of_level).collect();
    let private_tlb = machine.tlb.is_some_and(|tlb| tlb.private);
    let places = machine.places().into_iter().enumerate();
    let uses = places.map(|(pu, (core, context))| PuUses {
        core,
        context,
        node: machine.cores[core].numa_node as usize,
        data: path(&caches, pu as u32, Holds::Instructions),
        fetch: path(&caches, pu as u32, Holds::Data),
        tlb: if private_tlb { pu } else { core },
    });
    let uses = uses.collect();
    (caches, uses)
}

/// The caches of a PU without those that hold only `not`: the first of each level.
fn path(caches: &[Wired<'_>], pu: u32, not: Holds) -> Vec<usize> {
    let mut path: Vec<usize> = Vec::new();
    for (number, cache) in caches.iter().enumerate() {
        let taken = path
            .iter()
            .any(|other| caches[*other].level() == cache.level());
        if cache.like.holds != not && cache.pus.contains(&pu) && !taken {
            path.push(number);
        }
    }
    path
}
