//! Where threads were, and the parts of the machine in which that is shown.

use perch_core::{Outcome, PuSet, ShareLevel, ThreadId, ThreadSample, Topology};
use perch_engine::recording::{Header, PeriodRecord};
use rustc_hash::{FxHashMap, FxHashSet};

/// Lanes that a page has room for. A machine with more PUs is shown by cores, caches or packages.
pub const LANES: usize = 64;

/// Where threads were: where they were seen, but in a dry run where the policy would have put them.
#[derive(Debug)]
pub struct Whereabouts {
    dry_run: bool,
    elsewhere: bool,
    bound: FxHashMap<ThreadId, PuSet>,
}

impl Whereabouts {
    /// Those of a recording, before its first period.
    pub fn new(header: &Header) -> Self {
        Self {
            dry_run: header.dry_run,
            elsewhere: header.what_if.is_some(),
            bound: FxHashMap::default(),
        }
    }

    /// The PU where a thread spent a period.
    pub fn of(&self, sample: &ThreadSample) -> Option<u32> {
        let seen = sample.last_pu.filter(|_| !self.elsewhere);
        let bound = self.bound.get(&sample.info.id);
        match (seen, bound) {
            (Some(seen), Some(bound)) if !bound.contains(seen) => bound.first(),
            (None, Some(bound)) => bound.first(),
            (seen, _) => seen,
        }
    }

    /// Takes notice of what was moved at the end of a period.
    pub fn follow(&mut self, period: &PeriodRecord) {
        if !self.dry_run && !self.elsewhere {
            return;
        }
        for made in &period.moves {
            if matches!(made.outcome, Outcome::Applied | Outcome::NotApplied) {
                match &made.to {
                    Some(to) => self.bound.insert(made.thread, to.clone()),
                    None => self.bound.remove(&made.thread),
                };
            }
        }
        for ended in &period.observation.ended {
            self.bound.remove(ended);
        }
    }
}

/// The machine's parts of one kind.
#[derive(Debug)]
pub struct Parts {
    /// `PU`, `core`, …
    pub kind: &'static str,
    /// The parts.
    pub list: Vec<Part>,
    /// The part of each PU.
    pub of: FxHashMap<u32, usize>,
}

/// One of them.
#[derive(Debug)]
pub struct Part {
    /// `PU 3`.
    pub label: String,
    /// Of a PU its core; else its PUs.
    pub detail: String,
    /// Its PUs.
    pub pus: PuSet,
}

impl Parts {
    /// The parts at every level at which something is shared, from PUs to packages; a level with the same parts as the
    /// one below is left out.
    pub fn levels(topology: &Topology) -> Vec<Self> {
        let llc = topology.llc_level().unwrap_or(3);
        let mut levels: Vec<Self> = vec![Self::pus(topology)];
        for (level, kind) in [
            (ShareLevel::Core, "core"),
            (ShareLevel::L2, "L2 cache"),
            (ShareLevel::Llc, "last-level cache"),
            (ShareLevel::Package, "package"),
        ] {
            let sets: Vec<PuSet> = topology
                .domains(level)
                .into_iter()
                .map(|domain| domain.pus)
                .collect();
            let below = levels.last().map_or(0, |parts| parts.list.len());
            if sets.len() >= below {
                continue;
            }
            let number = |at: usize, pus: &PuSet| match level {
                ShareLevel::Core => {
                    let core = pus.first().and_then(|pu| topology.pu(pu));
                    format!("core {}", core.map_or(at, |pu| pu.core))
                }
                ShareLevel::L2 => format!("L2 {at}"),
                ShareLevel::Llc => format!("L{llc} {at}"),
                _ => format!("package {at}"),
            };
            let list = sets.into_iter().enumerate().map(|(at, pus)| Part {
                label: number(at, &pus),
                detail: named(&pus),
                pus,
            });
            levels.push(Self::new(kind, list.collect()));
        }
        levels
    }

    /// The PUs, core by core.
    fn pus(topology: &Topology) -> Self {
        let cores = topology.cores.iter().enumerate();
        let list = cores.flat_map(|(number, core)| {
            let detail = topology.core_label(number);
            core.pus.iter().map(move |pu| Part {
                label: format!("PU {pu}"),
                detail: detail.clone(),
                pus: PuSet::single(pu),
            })
        });
        Self::new("PU", list.collect())
    }

    fn new(kind: &'static str, list: Vec<Part>) -> Self {
        let parts = list.iter().enumerate();
        let of = parts.flat_map(|(at, part)| part.pus.iter().map(move |pu| (pu, at)));
        Self {
            kind,
            of: of.collect(),
            list,
        }
    }

    /// The lanes of a page: the smallest parts of which there are few enough; of a large machine only those where threads
    /// were, with the siblings of their PUs. The number that is left out of even the largest.
    pub fn lanes(topology: &Topology, used: &FxHashSet<u32>) -> (Self, usize) {
        let cores = used.iter().filter_map(|pu| topology.core_of(*pu));
        let near = PuSet::union(cores.map(|core| &core.pus));
        let usable = topology.usable();
        let mut left_out = 0;
        let mut chosen = None;
        for parts in Self::levels(topology) {
            let Self { kind, mut list, .. } = parts;
            if list.len() > LANES {
                list.retain(|part| !part.pus.is_disjoint(&near));
            } else if kind == "PU" {
                // One that is switched off is shown if a thread was there before.
                list.retain(|part| {
                    !part.pus.is_disjoint(&usable) || part.pus.iter().any(|pu| used.contains(&pu))
                });
            }
            left_out = list.len().saturating_sub(LANES);
            list.truncate(LANES);
            chosen = Some(Self::new(kind, list));
            if left_out == 0 {
                break;
            }
        }
        (
            chosen.unwrap_or_else(|| Self::new("PU", Vec::new())),
            left_out,
        )
    }
}

/// `PU 3`, `PUs 2-3`.
pub fn named(pus: &PuSet) -> String {
    match pus.len() {
        1 => format!("PU {pus}"),
        _ => format!("PUs {pus}"),
    }
}
