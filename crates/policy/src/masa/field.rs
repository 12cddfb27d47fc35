//! One period: who runs on which PU, and the loads of PUs and of the groups that share something.

use super::{MasaConfig, Variant, load::LoadMetric, load::Loads};
use crate::{
    busy::{is_busy, reachable},
    calibration::Share,
};
use perch_core::{PuSet, Snapshot, ThreadState, topology::PuState};
use std::cmp::Ordering;

const NOWHERE: u32 = u32::MAX;

/// A busy thread on its PU. Its loads are [`Field::load`].
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    /// Its place in the snapshot.
    pub at: usize,
    /// Its place among the busy threads.
    row: usize,
    /// Where it is, or will be after the moves so far.
    pub pu: u32,
    /// Whether it may be moved.
    pub ours: bool,
    /// Whether it took part in a move of this period.
    pub moved: bool,
}

/// The loads of all busy threads, a row each, in one piece of memory: at ten thousand threads a small one for each takes
/// longer than the decision.
#[derive(Debug, Clone)]
struct Table {
    /// Metrics.
    width: usize,
    loads: Vec<Option<f64>>,
}

impl Table {
    /// From what threads do while they are on a PU, by metric.
    fn new(threads: &[&ThreadState], rates: &[Vec<Option<f64>>]) -> Self {
        let mut loads = Vec::with_capacity(threads.len() * rates.len());
        for (row, thread) in threads.iter().enumerate() {
            let load = |rate: f64| rate * thread.activity;
            loads.extend(rates.iter().map(|rates| rates[row].map(load)));
        }
        Self {
            width: rates.len(),
            loads,
        }
    }

    fn row(&self, row: usize) -> &[Option<f64>] {
        &self.loads[row * self.width..(row + 1) * self.width]
    }
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
    table: Table,
    /// By metric.
    pub levels: Vec<Level>,
    /// By PU, the runners there; empty vectors where a PU cannot be used.
    pub on_pu: Vec<Vec<usize>>,
    /// By PU, how many of them are tied to it.
    tied_to: Vec<u32>,
    /// The PUs that can be used and that some busy thread of ours may use, and those where others are.
    pub usable: PuSet,
}

impl<'a> Field<'a> {
    pub fn new(snapshot: &'a Snapshot, loads: &mut Loads, config: &MasaConfig) -> Self {
        let busy: Vec<usize> = (0..snapshot.threads.len())
            .filter(|at| is_busy(&snapshot.threads[*at], config.min_activity))
            .collect();
        let threads: Vec<&ThreadState> = busy.iter().map(|at| &snapshot.threads[*at]).collect();
        let present = loads.present(&threads, snapshot.interval, config);
        let table = Table::new(&threads, &present.rates);
        let topology = &snapshot.topology;
        let all_usable = topology.usable();
        let mut usable = reachable(snapshot, config.min_activity).and(&all_usable);
        let mut runners = Vec::with_capacity(threads.len());
        for (row, (&at, thread)) in busy.iter().zip(&threads).enumerate() {
            let Some(pu) = pu_of(thread).filter(|pu| all_usable.contains(*pu)) else {
                continue;
            };
            usable.insert(pu);
            runners.push(Runner {
                at,
                row,
                pu,
                ours: thread.unmanaged.is_none() && thread.allowed.contains(pu),
                moved: false,
            });
        }
        // Sums of floating-point numbers and ties depend on the order: it must not be that of the threads' numbers.
        runners.sort_by(|a, b| in_order(a, b, &table, snapshot));
        let highest = topology.pus.iter().map(|pu| pu.os as usize + 1).max();
        let mut on_pu = vec![Vec::new(); highest.unwrap_or(0)];
        let mut tied_to = vec![0; on_pu.len()];
        for (place, runner) in runners.iter().enumerate() {
            on_pu[runner.pu as usize].push(place);
            tied_to[runner.pu as usize] += u32::from(is_tied(runner, snapshot));
        }
        let mut field = Self {
            snapshot,
            levels: Vec::new(),
            metrics: present.metrics,
            missing: present.missing,
            runners,
            table,
            on_pu,
            tied_to,
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
        for (at, runner) in self.runners.iter().enumerate() {
            if let Some(group) = level.of(runner.pu)
                && !measured[runner.pu as usize]
            {
                level.load[group] += self.load(at, metric);
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

    /// A runner's load; 0 where it is not known.
    pub fn load(&self, runner: usize, metric: usize) -> f64 {
        self.known(runner, metric).unwrap_or(0.0)
    }

    /// A runner's load, if it is known.
    pub fn known(&self, runner: usize, metric: usize) -> Option<f64> {
        self.table.row(self.runners[runner].row)[metric]
    }

    /// Whether a runner is tied to its PU: by us, in this period or before, or by others.
    pub fn tied(&self, runner: usize) -> bool {
        is_tied(&self.runners[runner], self.snapshot)
    }

    /// Whether a PU has a tied runner other than `but`: then no second one is tied to it.
    pub fn held(&self, pu: u32, but: Option<usize>) -> bool {
        let own = but.filter(|at| self.runners[*at].pu == pu && self.tied(*at));
        self.tied_to[pu as usize] > u32::from(own.is_some())
    }

    /// Puts a runner on another PU.
    pub fn put(&mut self, runner: usize, pu: u32) {
        let was_tied = self.tied(runner);
        let from = std::mem::replace(&mut self.runners[runner].pu, pu);
        self.runners[runner].moved = true;
        self.on_pu[from as usize].retain(|other| *other != runner);
        self.on_pu[pu as usize].push(runner);
        self.tied_to[from as usize] -= u32::from(was_tied);
        self.tied_to[pu as usize] += 1;
        let loads = self.table.row(self.runners[runner].row);
        for (level, load) in self.levels.iter_mut().zip(loads) {
            let load = load.unwrap_or(0.0);
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
    let pinned = || match thread.unmanaged {
        Some(_) => single(&thread.allowed),
        None => None,
    };
    bound.and_then(single).or_else(pinned).or(thread.last_pu)
}

fn is_tied(runner: &Runner, snapshot: &Snapshot) -> bool {
    let thread = &snapshot.threads[runner.at];
    runner.moved || thread.bound.is_some() || thread.unmanaged.is_some()
}

fn in_order(a: &Runner, b: &Runner, table: &Table, snapshot: &Snapshot) -> Ordering {
    let (left, right) = (&snapshot.threads[a.at], &snapshot.threads[b.at]);
    (table.row(a.row).iter().zip(table.row(b.row)))
        .map(|(a, b)| a.unwrap_or(0.0).total_cmp(&b.unwrap_or(0.0)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
        .then_with(|| {
            let known = |row| table.row(row).iter().map(Option::is_some);
            known(a.row).cmp(known(b.row))
        })
        .then(a.pu.cmp(&b.pu))
        .then_with(|| left.activity.total_cmp(&right.activity))
        .then(a.ours.cmp(&b.ours))
        .then_with(|| left.bound.cmp(&right.bound))
        .then_with(|| left.allowed.cmp(&right.allowed))
}
