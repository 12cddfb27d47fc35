//! One period: who runs on which PU, and the loads of PUs and of the groups that share something.

use super::{MasaConfig, Variant, load::LoadMetric, load::Loads};
use crate::{calibration::Share, cpi};
use perch_core::{PuSet, Snapshot, ThreadState, topology::PuState};
use std::cmp::Ordering;

const NOWHERE: u32 = u32::MAX;

/// A busy thread on its PU.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    /// Its place in the snapshot.
    pub at: usize,
    /// Where it is, or will be after the moves so far.
    pub pu: u32,
    /// Whether it may be moved.
    pub ours: bool,
    /// Whether it took part in a move of this period.
    pub moved: bool,
    /// By metric; 0 where it is not known.
    pub loads: Vec<f64>,
    /// By metric, whether the load is known.
    pub known: Vec<bool>,
}

/// The groups of PUs that share one metric's resource.
#[derive(Debug, Clone)]
pub(crate) struct Level {
    of_pu: Vec<u32>,
    /// The usable PUs of each group, rising.
    pub pus: Vec<Vec<u32>>,
    /// The load of each group: of each PU what was measured there, else the sum over its threads.
    pub load: Vec<f64>,
    /// The execution resource limit of each group.
    pub limit: Vec<f64>,
}

impl Level {
    /// The group of a PU.
    pub fn of(&self, pu: u32) -> Option<usize> {
        let group = self.of_pu.get(pu as usize).copied()?;
        (group != NOWHERE).then_some(group as usize)
    }
}

/// A period's threads and PUs.
pub(crate) struct Field<'a> {
    pub snapshot: &'a Snapshot,
    pub metrics: Vec<LoadMetric>,
    /// Load metrics that no busy thread has.
    pub missing: Vec<String>,
    /// In an order that depends on what the threads do and where they are, not on their numbers.
    pub runners: Vec<Runner>,
    /// By metric.
    pub levels: Vec<Level>,
    /// By PU, the runners there; empty vectors where a PU cannot be used.
    pub on_pu: Vec<Vec<usize>>,
    /// The PUs that can be used and that some busy thread of ours may use, and those where others are.
    pub usable: PuSet,
}

impl<'a> Field<'a> {
    pub fn new(snapshot: &'a Snapshot, loads: &mut Loads, config: &MasaConfig) -> Self {
        let busy = |thread: &&ThreadState| cpi::is_busy(thread, config.min_activity);
        let threads: Vec<&ThreadState> = snapshot.threads.iter().filter(busy).collect();
        let (metrics, missing) = loads.present(&threads, snapshot.interval, config);
        let topology = &snapshot.topology;
        let all_usable = topology.usable();
        let mut usable = cpi::reachable(snapshot, config.min_activity).and(&all_usable);
        let mut runners = Vec::with_capacity(threads.len());
        for (at, thread) in snapshot.threads.iter().enumerate() {
            if !busy(&thread) {
                continue;
            }
            let Some(pu) = pu_of(thread).filter(|pu| all_usable.contains(*pu)) else {
                continue;
            };
            usable.insert(pu);
            let seen = metrics.iter().map(|metric| metric.load(thread, config));
            let seen: Vec<Option<f64>> = seen.collect();
            runners.push(Runner {
                at,
                pu,
                ours: thread.hands_off.is_none() && thread.allowed.contains(pu),
                moved: false,
                loads: seen.iter().map(|load| load.unwrap_or(0.0)).collect(),
                known: seen.iter().map(Option::is_some).collect(),
            });
        }
        // Sums of floating-point numbers and ties depend on the order: it must not be that of the threads' numbers.
        runners.sort_by(|a, b| in_order(a, b, snapshot));
        let highest = topology.pus.iter().map(|pu| pu.os as usize + 1).max();
        let mut on_pu = vec![Vec::new(); highest.unwrap_or(0)];
        for (place, runner) in runners.iter().enumerate() {
            on_pu[runner.pu as usize].push(place);
        }
        let mut field = Self {
            snapshot,
            levels: Vec::new(),
            metrics,
            missing,
            runners,
            on_pu,
            usable,
        };
        for metric in 0..field.metrics.len() {
            let share = field.metrics[metric].share;
            let limit = loads.limit(&field.metrics[metric], snapshot, config.headroom);
            let mut level = field.level(share, limit, config.variant);
            field.add_loads(&mut level, metric, config);
            field.levels.push(level);
        }
        field
    }

    fn level(&self, share: Share, limit: f64, variant: Variant) -> Level {
        let native = share.groups(self.snapshot);
        let sets = match variant {
            Variant::Perch => native.clone(),
            Variant::Paper => Share::Package.groups(self.snapshot),
        };
        let mut level = Level {
            of_pu: vec![NOWHERE; self.on_pu.len()],
            pus: Vec::new(),
            load: Vec::new(),
            limit: Vec::new(),
        };
        // The group of each PU by what is shared, to see how many times a package has it.
        let mut piece = vec![NOWHERE; self.on_pu.len()];
        for (at, domain) in native.iter().enumerate() {
            domain
                .pus
                .iter()
                .for_each(|pu| piece[pu as usize] = at as u32);
        }
        let rest = self.snapshot.topology.pus.iter();
        let rest =
            rest.filter(|pu| pu.state == PuState::Usable && piece[pu.os as usize] == NOWHERE);
        let alone = rest.map(|pu| PuSet::single(pu.os)).collect::<Vec<_>>();
        let sets = sets.into_iter().map(|domain| domain.pus).chain(alone);
        for set in sets {
            let free = |pu: &u32| self.usable.contains(*pu) && level.of_pu[*pu as usize] == NOWHERE;
            let pus: Vec<u32> = set.iter().filter(free).collect();
            if pus.is_empty() {
                continue;
            }
            let mut pieces: Vec<u32> = pus.iter().map(|pu| piece[*pu as usize]).collect();
            pieces.sort_unstable();
            pieces.dedup();
            for pu in &pus {
                level.of_pu[*pu as usize] = level.pus.len() as u32;
            }
            level.limit.push(limit * pieces.len() as f64);
            level.pus.push(pus);
        }
        level.load = vec![0.0; level.pus.len()];
        level
    }

    /// Adds up what the PUs of each group did: as measured on the PU, where interrupts and the threads of others count
    /// too, else as the sum over its threads.
    fn add_loads(&self, level: &mut Level, metric: usize, config: &MasaConfig) {
        let mut measured = vec![false; self.on_pu.len()];
        for pu in &self.snapshot.pus {
            let load = self.metrics[metric].of_pu(pu, config);
            if let (Some(group), Some(load)) = (level.of(pu.pu), load) {
                level.load[group] += load;
                measured[pu.pu as usize] = true;
            }
        }
        for runner in &self.runners {
            if let Some(group) = level.of(runner.pu)
                && !measured[runner.pu as usize]
            {
                level.load[group] += runner.loads[metric];
            }
        }
    }

    /// The thread of a runner.
    pub fn thread(&self, runner: usize) -> &'a ThreadState {
        &self.snapshot.threads[self.runners[runner].at]
    }

    /// Whether a runner of ours may be put on the PU.
    pub fn may(&self, runner: usize, pu: u32) -> bool {
        self.runners[runner].ours
            && self.usable.contains(pu)
            && self.thread(runner).allowed.contains(pu)
    }

    /// Whether a runner is tied to its PU: by us, in this period or before, or by others.
    pub fn tied(&self, runner: usize) -> bool {
        let thread = self.thread(runner);
        self.runners[runner].moved || thread.bound.is_some() || thread.hands_off.is_some()
    }

    /// Whether a PU has a tied runner other than `but`: then no second one is tied to it.
    pub fn held(&self, pu: u32, but: Option<usize>) -> bool {
        let mut there = self.on_pu[pu as usize].iter();
        there.any(|at| Some(*at) != but && self.tied(*at))
    }

    /// Puts a runner on another PU.
    pub fn put(&mut self, runner: usize, pu: u32) {
        let from = std::mem::replace(&mut self.runners[runner].pu, pu);
        self.runners[runner].moved = true;
        self.on_pu[from as usize].retain(|other| *other != runner);
        self.on_pu[pu as usize].push(runner);
        for (level, load) in self.levels.iter_mut().zip(&self.runners[runner].loads) {
            if let Some(group) = level.of(from) {
                level.load[group] -= load;
            }
            if let Some(group) = level.of(pu) {
                level.load[group] += load;
            }
        }
    }

    /// The sum of a metric over the machine.
    pub fn total(&self, metric: usize) -> f64 {
        self.levels[metric].load.iter().sum()
    }
}

/// The PU where perch has bound the thread, or others have, or where it was last seen.
fn pu_of(thread: &ThreadState) -> Option<u32> {
    let single = |pus: &PuSet| pus.first().filter(|_| pus.len() == 1);
    let bound = thread
        .bound
        .as_ref()
        .filter(|pus| pus.is_subset(&thread.allowed));
    let pinned = || match thread.hands_off {
        Some(_) => single(&thread.allowed),
        None => None,
    };
    bound.and_then(single).or_else(pinned).or(thread.last_pu)
}

fn in_order(a: &Runner, b: &Runner, snapshot: &Snapshot) -> Ordering {
    let loads = a.loads.iter().zip(&b.loads);
    let loads = loads.map(|(a, b)| a.total_cmp(b));
    let loads = loads.fold(Ordering::Equal, Ordering::then);
    let (left, right) = (&snapshot.threads[a.at], &snapshot.threads[b.at]);
    loads
        .then_with(|| a.known.cmp(&b.known))
        .then(a.pu.cmp(&b.pu))
        .then(left.activity.total_cmp(&right.activity))
        .then(a.ours.cmp(&b.ours))
        .then_with(|| left.bound.cmp(&right.bound))
        .then_with(|| left.allowed.cmp(&right.allowed))
}
