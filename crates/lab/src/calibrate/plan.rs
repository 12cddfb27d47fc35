//! Which kernels co-run, and where: in isolation, in pairs at each level of sharing, in groups.

use super::kernels::Kind;
use perch_core::{PuSet, SharingDomain, Topology};
use perch_policy::{Share, calibration::Closest};
use std::{cmp::Reverse, collections::BTreeSet};

/// One thread of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    /// The PU to which it is bound.
    pub pu: u32,
    /// What it does: an index of the kernels.
    pub kernel: usize,
}

/// Threads that run at once, each alone on a PU of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// An index of the levels; `None` for one alone.
    pub level: Option<usize>,
    /// The threads; those of a group after the first all do the same.
    pub seats: Vec<Seat>,
}

/// PUs at which a level of sharing is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// The closest that each two of them share.
    pub share: Share,
    /// At least two, the first of them that where kernels are measured alone, if that has such neighbours.
    pub pus: Vec<u32>,
}

/// Where kernels are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sites {
    /// Where they are measured alone: on the fastest kind of cores.
    pub first: u32,
    /// The levels of sharing that there are, the closest first.
    pub levels: Vec<Level>,
}

impl Sites {
    /// Those among some PUs of a machine; `None` if there is no PU.
    pub fn new(topology: &Topology, fp_domains: &[SharingDomain], usable: &PuSet) -> Option<Self> {
        // The fastest kind of cores is the last of the topology, and comes first here.
        let kind = |pu: u32| topology.core_of(pu).map_or(0, |core| core.kind);
        let mut pus: Vec<u32> = usable.iter().collect();
        pus.sort_by_key(|pu| (Reverse(kind(*pu)), *pu));
        let closest = Closest::new(topology, fp_domains);
        let mut levels: Vec<Level> = Vec::new();
        for (at, first) in pus.iter().enumerate() {
            for second in &pus[at + 1..] {
                let share = closest.share(*first, *second);
                if levels.iter().any(|level| level.share == share) {
                    continue;
                }
                let mut members = vec![*first, *second];
                for other in pus.iter().filter(|pu| *pu != first && *pu != second) {
                    let same = |pu: &u32| closest.share(*pu, *other) == share;
                    if kind(*other) == kind(*second) && members.iter().all(same) {
                        members.push(*other);
                    }
                }
                levels.push(Level {
                    share,
                    pus: members,
                });
            }
        }
        let size = |share: Share| {
            let groups = share.sets(topology, fp_domains);
            groups.iter().map(PuSet::len).max().unwrap_or(0)
        };
        levels.sort_by_key(|level| size(level.share));
        Some(Self {
            first: *pus.first()?,
            levels,
        })
    }

    /// The runs: each kernel in isolation wherever it is a neighbour or has one, all pairs at each level, and of
    /// `groups` the larger ones, in which one kernel runs next to several copies of one pure kernel. Each once, those
    /// in isolation first.
    pub fn runs(&self, kernels: &[Kind<'_>], groups: bool) -> Vec<Run> {
        let mut coupled = Vec::new();
        for (number, level) in self.levels.iter().enumerate() {
            let mut run = |first: usize, other: usize, others: usize| {
                let seats = level.pus[..=others].iter().enumerate();
                let seats = seats.map(|(at, pu)| Seat {
                    pu: *pu,
                    kernel: if at == 0 { first } else { other },
                });
                coupled.push(Run {
                    level: Some(number),
                    seats: seats.collect(),
                });
            };
            for a in 0..kernels.len() {
                (a..kernels.len()).for_each(|b| run(a, b, 1));
            }
            if !groups {
                continue;
            }
            for others in crowds(level.pus.len() - 1) {
                for (other, _) in kernels.iter().enumerate().filter(|(_, kernel)| kernel.pure) {
                    (0..kernels.len()).for_each(|first| run(first, other, others));
                }
            }
        }
        let seats = coupled.iter().flat_map(|run| &run.seats).copied();
        let mut alone: BTreeSet<Seat> = seats.collect();
        alone.extend((0..kernels.len()).map(|kernel| Seat {
            pu: self.first,
            kernel,
        }));
        let alone = alone.into_iter().map(|seat| Run {
            level: None,
            seats: vec![seat],
        });
        alone.chain(coupled).collect()
    }
}

/// How many neighbours groups have, where at most `most` are possible: 3, 7, 15, … and all.
fn crowds(most: usize) -> Vec<usize> {
    let doubled = (2..usize::BITS).map(|power| (1usize << power) - 1);
    let mut crowds: Vec<usize> = doubled.take_while(|others| *others < most).collect();
    if most > 1 {
        crowds.push(most);
    }
    crowds
}
