//! The speeds at which threads go on side by side: each one's delays depend on how fast the others go, so the whole is
//! solved until it no longer changes. What was solved once is remembered.

use super::{
    contention::{Alone, Delay, Delays, alone, play, share},
    demand::{Class, Demand},
    layout::Layout,
    traffic::{Fate, Running, fates},
};
use crate::{
    model::{MachineModel, Op},
    workload::WorkloadModel,
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Changes of speeds below this end the search.
const STILL: f64 = 3e-4;

/// Steps at most.
const STEPS: usize = 100;

/// A channel's queue is that of a channel used to this part at most: beyond, threads slow down until it is.
const FULL: f64 = 0.98;

/// One thread beside others.
#[derive(Debug, Clone, Default)]
pub(super) struct Speed {
    /// Instructions in a picosecond.
    pub speed: f64,
    /// What its accesses meet.
    pub fate: Fate,
    /// Cycles by which loads are delayed, by one instruction, each load by itself.
    pub memory_cycles: f64,
    /// What a miss of each cache costs it: picoseconds for data and for code, by cache.
    pub costs: Vec<(usize, f64, f64)>,
}

/// Threads on PUs: for each PU the class of its thread, a number.
type Key = Box<[u32]>;

/// Everything that is known of a machine and a workload.
pub(super) struct Solver {
    machine: Arc<MachineModel>,
    workload: Arc<WorkloadModel>,
    pub layout: Layout,
    classes: Vec<(Class, Demand)>,
    numbers: FxHashMap<Class, u32>,
    known: FxHashMap<Key, Arc<[Speed]>>,
    /// By kind, mix and number of busy contexts.
    alone: FxHashMap<(usize, usize, usize), Alone>,
    /// By sort of core ([`Layout::alike`]) and classes of its contexts, sorted: by how much the closed formula is wrong.
    corrections: FxHashMap<(usize, Key), Arc<[f64]>>,
}

/// No thread.
pub(super) const IDLE: u32 = u32::MAX;

impl Solver {
    pub fn new(machine: Arc<MachineModel>, workload: Arc<WorkloadModel>) -> Self {
        Self {
            layout: Layout::new(&machine),
            machine,
            workload,
            classes: Vec::new(),
            numbers: FxHashMap::default(),
            known: FxHashMap::default(),
            alone: FxHashMap::default(),
            corrections: FxHashMap::default(),
        }
    }

    /// The number of a class.
    pub fn class(&mut self, class: Class) -> u32 {
        if let Some(number) = self.numbers.get(&class) {
            return *number;
        }
        let mix = &self.workload.mixes[class.mix];
        let demand = Demand::new(mix, class, self.layout.line, self.layout.page);
        let number = self.classes.len() as u32;
        self.classes.push((class, demand));
        self.numbers.insert(class, number);
        number
    }

    /// What a class asks for.
    pub fn demand(&self, class: u32) -> &Demand {
        &self.classes[class as usize].1
    }

    /// The speeds of threads on all PUs; [`IDLE`] for a PU without.
    pub fn speeds(&mut self, on_pus: &[u32]) -> Vec<Speed> {
        let order = self.in_order(on_pus);
        let key: Key = order.iter().map(|pu| on_pus[*pu as usize]).collect();
        // Positions in the sorted order are PUs of their own right: those that would hold the same in that order.
        let known = match self.known.get(&key) {
            Some(known) => Arc::clone(known),
            None => {
                let solved: Arc<[Speed]> = self.solve(&key).into();
                self.known.insert(key, Arc::clone(&solved));
                solved
            }
        };
        let mut speeds = vec![Speed::default(); on_pus.len()];
        for (place, pu) in order.iter().enumerate() {
            speeds[*pu as usize] = known[place].clone();
        }
        speeds
    }

    /// The PUs in an order in which machines that are the same but for the names of like cores and contexts look the
    /// same: place n of the order stands for PU n.
    fn in_order(&self, on_pus: &[u32]) -> Vec<u32> {
        let cores = self.machine.cores.len();
        let mut of_core: Vec<Vec<u32>> = vec![Vec::new(); cores];
        for (pu, at) in self.layout.pus.iter().enumerate() {
            of_core[at.core].push(pu as u32);
        }
        for pus in &mut of_core {
            pus.sort_by_key(|pu| on_pus[*pu as usize]);
        }
        let content = |core: usize| -> Vec<u32> {
            of_core[core]
                .iter()
                .map(|pu| on_pus[*pu as usize])
                .collect()
        };
        let mut taken = vec![false; cores];
        let mut order = Vec::with_capacity(on_pus.len());
        for core in 0..cores {
            // The least of the cores that could stand here.
            let alike = |other: &usize| {
                !taken[*other] && self.layout.alike[*other] == self.layout.alike[core]
            };
            let least = (0..cores).filter(alike).min_by_key(|other| content(*other));
            if let Some(least) = least {
                taken[least] = true;
                order.extend(&of_core[least]);
            }
        }
        order
    }

    /// The speeds, in the order of PUs.
    fn solve(&mut self, on_pus: &[u32]) -> Vec<Speed> {
        let mut of_core: Vec<Vec<usize>> = vec![Vec::new(); self.machine.cores.len()];
        for (pu, class) in on_pus.iter().enumerate() {
            if *class != IDLE {
                of_core[self.layout.pus[pu].core].push(pu);
            }
        }
        for (core, pus) in of_core.iter().enumerate() {
            if !pus.is_empty() {
                let kind = self.machine.cores[core].kind;
                let mut classes: Vec<u32> = pus.iter().map(|pu| on_pus[*pu]).collect();
                classes.sort_unstable();
                self.correct(core, kind, classes.into());
            }
        }
        let mut speeds = vec![Speed::default(); on_pus.len()];
        for (pu, speed) in self.settle(on_pus, &of_core) {
            speeds[pu] = speed;
        }
        speeds
    }

    /// Finds out how wrong the closed formula is for these threads on a core of this kind, with nobody elsewhere.
    fn correct(&mut self, core: usize, kind: usize, classes: Key) {
        let key = (self.layout.alike[core], classes);
        if self.corrections.contains_key(&key) {
            return;
        }
        let classes = key.1.clone();
        let own: Vec<usize> = (0..self.layout.pus.len())
            .filter(|pu| self.layout.pus[*pu].core == core)
            .collect();
        let mut on_pus = vec![IDLE; self.layout.pus.len()];
        for (pu, class) in own.iter().zip(classes.iter()) {
            on_pus[*pu] = *class;
        }
        let pus: Vec<usize> = own[..classes.len()].to_vec();
        let mut of_core = vec![Vec::new(); self.machine.cores.len()];
        of_core[core] = pus.clone();
        self.corrections
            .insert(key.clone(), vec![1.0; classes.len()].into());
        for class in classes.iter() {
            self.find_alone(kind, *class, classes.len(), core);
        }
        for _ in 0..2 {
            let settled = self.settle(&on_pus, &of_core);
            let now: Vec<f64> = self.corrections[&key].to_vec();
            let machine = Arc::clone(&self.machine);
            let kind = &machine.kinds[kind];
            let members: Vec<_> = pus
                .iter()
                .zip(&settled)
                .map(|(pu, (_, speed))| {
                    let (class, demand) = &self.classes[on_pus[*pu] as usize];
                    let mix = &self.workload.mixes[class.mix];
                    let (delays, _) = self.delays(*pu, demand, &speed.fate, class.home, 0.0);
                    (mix, delays)
                })
                .collect();
            let played = play(kind, &members, self.layout.line);
            let cycle = kind.cycle as f64 / kind.duty;
            let mut corrected: Vec<f64> = now
                .iter()
                .zip(settled.iter().zip(&played))
                .map(|(now, ((_, speed), played))| now / (played * speed.speed * cycle))
                .collect();
            level(&classes, &mut corrected);
            self.corrections.insert(key.clone(), corrected.into());
        }
    }

    /// How a class does alone on a core with so many busy contexts.
    fn find_alone(&mut self, kind: usize, class: u32, busy: usize, core: usize) {
        let (class, demand) = &self.classes[class as usize];
        let key = (kind, class.mix, busy);
        if self.alone.contains_key(&key) {
            return;
        }
        let pu = (0..self.layout.pus.len())
            .find(|pu| self.layout.pus[*pu].core == core)
            .unwrap_or(0);
        let running = [Running {
            pu,
            demand,
            home: class.home,
        }];
        let model = &self.machine.kinds[kind];
        let speed = 0.3 / (model.cycle as f64 / model.duty);
        let fate = &fates(&self.layout, &running, &[speed])[0];
        let (delays, _) = self.delays(pu, demand, fate, class.home, 0.0);
        let mix = &self.workload.mixes[class.mix];
        let found = alone(model, mix, busy, &delays, self.layout.line);
        self.alone.insert(key, found);
    }

    /// The delays of a thread's accesses, and what a miss of each cache costs, data and code apart.
    fn delays(
        &self,
        pu: usize,
        demand: &Demand,
        fate: &Fate,
        home: usize,
        wait: f64,
    ) -> (Delays, Vec<(usize, f64, f64)>) {
        let layout = &self.layout;
        let at = &layout.pus[pu];
        let accesses = demand.ops[Op::Load as usize] + demand.ops[Op::Store as usize];
        let fetches: f64 = demand
            .lines
            .iter()
            .filter(|lines| lines.code)
            .map(|lines| lines.visits)
            .sum();
        let memory = layout.latency(pu, home) + wait;
        let mut costs: Vec<(usize, f64, f64)> = Vec::new();
        let mut along = |path: &[usize], misses: &[f64], visits: f64, code: bool| {
            let mut delays = Vec::new();
            let mut sum = 0.0;
            for (step, cache) in path.iter().enumerate() {
                let next = path.get(step + 1).map(|next| &layout.caches[*next]);
                let cost = next.map_or(memory, |next| next.latency as f64);
                match costs.iter_mut().find(|(known, ..)| known == cache) {
                    Some((_, _, of_code)) if code => *of_code = cost,
                    _ => costs.push((*cache, cost, if code { cost } else { 0.0 })),
                }
                sum += cost;
                let here = misses[layout.caches[*cache].level];
                let further = next.map_or(0.0, |next| misses[next.level]);
                delays.push(Delay {
                    chance: ((here - further).max(0.0) / visits.max(1e-30)).min(1.0),
                    time: sum,
                });
            }
            if path.is_empty() {
                delays.push(Delay {
                    chance: 1.0,
                    time: memory,
                });
            }
            delays
        };
        let load = along(&at.data, &fate.data, accesses, false);
        let fetch = along(&at.fetch, &fate.fetch, fetches, true);
        let walk = Delay {
            chance: (fate.tlb / accesses.max(1e-30)).min(1.0),
            time: layout.tlb.map_or(0.0, |(_, miss)| miss),
        };
        costs.push((layout.caches.len() + at.tlb, walk.time, 0.0));
        (Delays { load, fetch, walk }, costs)
    }

    /// Speeds that agree with the delays that they cause.
    fn settle(&self, on_pus: &[u32], of_core: &[Vec<usize>]) -> Vec<(usize, Speed)> {
        let busy: Vec<usize> = of_core.iter().flatten().copied().collect();
        let running: Vec<Running<'_>> = busy
            .iter()
            .map(|pu| {
                let (class, demand) = &self.classes[on_pus[*pu] as usize];
                Running {
                    pu: *pu,
                    demand,
                    home: class.home,
                }
            })
            .collect();
        let cycle = |pu: usize| {
            let kind = &self.machine.kinds[self.machine.cores[self.layout.pus[pu].core].kind];
            kind.cycle as f64 / kind.duty
        };
        let mut speeds: Vec<f64> = busy.iter().map(|pu| 0.3 / cycle(*pu)).collect();
        let mut press = vec![1.0; self.layout.nodes];
        let mut result: Vec<Speed> = vec![Speed::default(); busy.len()];
        for _ in 0..STEPS {
            let fates = fates(&self.layout, &running, &speeds);
            let waits = self.waits(&running, &speeds, &fates, &mut press);
            let mut change = 0.0f64;
            let mut first = 0;
            for (core, pus) in of_core
                .iter()
                .enumerate()
                .filter(|(_, pus)| !pus.is_empty())
            {
                let here = first..first + pus.len();
                first += pus.len();
                let number = self.machine.cores[core].kind;
                let kind = &self.machine.kinds[number];
                let cycle = kind.cycle as f64 / kind.duty;
                let mut own = Vec::new();
                for at in here.clone() {
                    let who = &running[at];
                    let wait = waits[at];
                    let (delays, costs) =
                        self.delays(who.pu, who.demand, &fates[at], who.home, wait);
                    let (class, _) = &self.classes[on_pus[who.pu] as usize];
                    let alone = self.alone[&(number, class.mix, pus.len())];
                    let loads = who.demand.ops[Op::Load as usize] * delays.of_load() / cycle;
                    let visits = who.demand.lines.iter().filter(|lines| lines.code);
                    let fetches: f64 = visits.map(|lines| lines.visits).sum();
                    let fetches = fetches * delays.of_fetch() / cycle;
                    own.push(alone.base + alone.exposed * loads + fetches);
                    result[at].memory_cycles = loads;
                    result[at].costs = costs;
                    for (_, data, _) in &mut result[at].costs {
                        *data *= alone.exposed * self.loads_of(who.demand);
                    }
                }
                let demands: Vec<&Demand> = here.clone().map(|at| running[at].demand).collect();
                let mut shared = share(kind, &demands, &own);
                let mut classes: Vec<u32> = pus.iter().map(|pu| on_pus[*pu]).collect();
                let unsorted = classes.clone();
                classes.sort_unstable();
                let factors =
                    &self.corrections[&(self.layout.alike[core], classes.as_slice().into())];
                for (speed, class) in shared.iter_mut().zip(unsorted) {
                    let at = classes
                        .iter()
                        .position(|other| *other == class)
                        .unwrap_or(0);
                    *speed *= factors[at];
                }
                for (at, speed) in here.zip(shared) {
                    let speed = speed / cycle;
                    change = change.max((speed / speeds[at]).ln().abs());
                    speeds[at] = speeds[at].powf(0.4) * speed.powf(0.6);
                }
            }
            for (result, (fate, speed)) in result.iter_mut().zip(fates.into_iter().zip(&speeds)) {
                result.fate = fate;
                result.speed = *speed;
            }
            if change < STILL {
                break;
            }
        }
        busy.into_iter().zip(result).collect()
    }

    /// Share of a thread's accesses that somebody waits for.
    fn loads_of(&self, demand: &Demand) -> f64 {
        let (loads, stores) = (
            demand.ops[Op::Load as usize],
            demand.ops[Op::Store as usize],
        );
        match loads + stores > 0.0 {
            true => loads / (loads + stores),
            false => 1.0,
        }
    }

    /// How long each thread's transfers wait for the channel: M/D/1. One that waits for each of its loads does not wait
    /// for itself.
    fn waits(
        &self,
        running: &[Running<'_>],
        speeds: &[f64],
        fates: &[Fate],
        press: &mut [f64],
    ) -> Vec<f64> {
        let service = self.layout.service;
        let used = |at: usize| speeds[at] * fates[at].transfers * service;
        let mut total = vec![0.0; self.layout.nodes];
        for (at, who) in running.iter().enumerate() {
            total[who.home.min(self.layout.nodes - 1)] += used(at);
        }
        for (press, used) in press.iter_mut().zip(&total) {
            *press = (*press * (used / FULL).sqrt()).max(1.0);
        }
        (0..running.len())
            .map(|at| {
                let who = &running[at];
                let node = who.home.min(self.layout.nodes - 1);
                let kind =
                    &self.machine.kinds[self.machine.cores[self.layout.pus[who.pu].core].kind];
                let own = match kind.window <= 1 {
                    true => used(at) * self.loads_of(who.demand),
                    false => 0.0,
                };
                let used = (total[node] - own).clamp(0.0, FULL);
                press[node] * service * used / (2.0 * (1.0 - used))
            })
            .collect()
    }
}

/// Gives threads of the same class the same: their mean.
fn level(classes: &[u32], values: &mut [f64]) {
    for at in 0..classes.len() {
        let same: Vec<usize> = (0..classes.len())
            .filter(|other| classes[*other] == classes[at])
            .collect();
        if same[0] == at {
            let mean = same.iter().map(|at| values[*at]).sum::<f64>() / same.len() as f64;
            same.iter().for_each(|at| values[*at] = mean);
        }
    }
}
