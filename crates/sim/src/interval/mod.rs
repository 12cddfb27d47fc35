//! The interval level: between two events of the operating system every thread goes on at a steady speed, which is
//! solved for once for each combination of mixes and remembered.
//!
//! What threads take from each other is modelled resource by resource: pipelines ([`play`], [`alone`], [`contention`]),
//! caches and TLBs ([`reuse`], [`eviction`], [`traffic`]), memory's channels, and cold caches after a move or a switch
//! ([`warmth`], [`cold`], [`filling`]).
//! Each file names the sources of its formulas; `docs/fidelity.md` says how far they are from the cycle level.

mod alone;
mod channels;
mod cold;
mod contention;
mod delays;
mod demand;
mod eviction;
mod fate;
mod filling;
mod homes;
mod knowledge;
mod known;
mod layout;
mod links;
mod own_ports;
mod owner;
mod play;
mod ports;
mod prefetch;
mod recorded;
mod reuse;
mod running;
mod seats;
mod sets;
mod settle;
mod shared;
mod stops;
mod tally;
mod tlb;
mod traffic;
mod under_way;
mod victim;
mod wait;
mod warmth;
mod ways;

use crate::{
    core::Finished, counters::Counters, memory::Occupancy, model::OperatingPoint,
    processor::Processor, sharing::Shared, thread::Thread, units::Ps, workload::WorkloadModel,
};
pub use knowledge::Knowledge;

use cold::{Holding, arrive, cold, count_sharers, fill, holdings, keep_warm};
use demand::{Asked, Class};
use fate::Kept;
use filling::{Cold, done_in, time_of};
use homes::Homes;
use owner::Owner;
use rustc_hash::FxHashMap;
use settle::{Speed, mean_cycle};
use shared::Regions;
use std::{collections::BTreeMap, sync::Arc};
use tally::Tally;
use warmth::{Warmth, Whose};

/// Missing lines that cost less than this part of a picosecond an instruction are taken as there.
const NEGLIGIBLE: f64 = 1e-3;

/// A thread on a PU.
struct Run {
    thread: u32,
    pu: usize,
    asked: Arc<Asked>,
    /// Nothing is done before.
    from: Ps,
    /// Part of the next instruction that is done.
    begun: f64,
    speed: Arc<Speed>,
    /// The PU whose caches the speed names.
    like: usize,
    /// Misses of each cache of its own, and of its TLB, by one instruction.
    misses: Vec<(usize, f64)>,
    /// What it has in caches after a long time at this speed; nothing while the speed is not known yet.
    holdings: Vec<Holding>,
    cold: Vec<Cold>,
}

/// A machine at the interval level.
pub(crate) struct IntervalLevel {
    /// About the machine at its first operating points.
    first: Arc<Knowledge>,
    /// About the machine at its present ones.
    known: Arc<Knowledge>,
    runs: Vec<Option<Run>>,
    tallies: Vec<Tally>,
    /// With which program's code each program runs.
    code_of: Vec<usize>,
    /// The NUMA node of each thread's data: where it first executed anything.
    homes: Vec<Option<usize>>,
    /// Those of the processes' regions.
    region_homes: homes::Regions,
    warmth: Warmth,
    regions: Regions,
    /// Whether others run than when speeds were last found, or something else has changed them.
    stale: bool,
    /// Whether a region has got its home since then.
    moved_in: bool,
    now: Ps,
}

impl IntervalLevel {
    /// An idle machine with empty caches.
    pub(crate) fn new(known: Arc<Knowledge>, workload: &WorkloadModel) -> Self {
        let layout = &known.layout;
        let mut places: Vec<f64> = layout.caches.iter().map(|at| at.shape.places()).collect();
        places.extend(layout.tlbs.iter().map(|(shape, _)| shape.places()));
        let levels = layout.caches.iter().map(|at| at.level as u8 + 1).collect();
        let pus = layout.pus.len();
        Self {
            runs: (0..pus).map(|_| None).collect(),
            tallies: vec![Tally::default(); pus],
            homes: Vec::new(),
            region_homes: homes::Regions::default(),
            warmth: Warmth::new(places, levels),
            regions: Regions::default(),
            stale: false,
            moved_in: false,
            now: 0,
            code_of: (0..workload.programs.len())
                .map(|program| workload.code_of(program))
                .collect(),
            first: Arc::clone(&known),
            known,
        }
    }

    /// What a thread runs now, on a PU.
    fn class(&self, pu: usize, index: u32, thread: &Thread) -> Option<Arc<Asked>> {
        let mix = thread.mix()?;
        let node = self.known.layout.pus[pu].node;
        let home = self.homes.get(index as usize).copied().flatten();
        let shares = |set: &crate::workload::WorkingSet| set.region.is_some();
        let shares = self.known.mixes[mix].working_sets.iter().any(shares);
        let process = if shares { thread.identity.process } else { 0 };
        Some(self.known.asked(Class {
            mix,
            program: self.code_of[thread.identity.program],
            process,
            homes: Homes {
                own: home.unwrap_or(node),
                regions: if shares {
                    self.region_homes.of(process)
                } else {
                    0
                },
            },
            recorded: thread.recorded().map_or(0, |number| number + 1),
            ways: thread.ways,
        }))
    }

    /// Finds the speeds of those who run now.
    fn refresh(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        for run in self.runs.iter().flatten() {
            keep_warm(&mut self.warmth, run);
        }
        if std::mem::take(&mut self.moved_in) {
            for run in self.runs.iter_mut().flatten() {
                let mut class = run.asked.class;
                let shares = |lines: &demand::Lines| matches!(lines.owner, Owner::Region(..));
                if run.asked.demand.lines.iter().any(shares) {
                    class.homes.regions = self.region_homes.of(class.process);
                    run.asked = self.known.asked(class);
                }
            }
        }
        let of_run = |run: &Option<Run>| run.as_ref().map(|run| Arc::clone(&run.asked));
        let on_pus: Vec<_> = self.runs.iter().map(of_run).collect();
        let speeds = self.known.speeds(&on_pus);
        // Threads that share lines bring them for each other.
        let mut sharers: FxHashMap<(usize, Whose), f64> = FxHashMap::default();
        for (run, speed) in self.runs.iter_mut().zip(speeds) {
            let Some(run) = run else { continue };
            (run.speed, run.like) = speed;
            let layout = &self.known.layout;
            let own = |kept: &Kept| {
                let cache = layout.counterpart(kept.cache, run.like, run.pu);
                (cache, kept.misses)
            };
            run.misses = run.speed.fate.kept.iter().map(own).collect();
            run.holdings = holdings(layout, run);
            arrive(&mut self.warmth, run);
            count_sharers(run, &mut sharers);
        }
        for run in self.runs.iter_mut().flatten() {
            run.cold = cold(&self.warmth, &self.known.layout, run, &sharers);
        }
    }

    /// Lets everybody go on up to a moment.
    fn advance(&mut self, to: Ps, threads: &mut [Thread]) {
        for (pu, run) in self.runs.iter_mut().enumerate() {
            let Some(run) = run else { continue };
            let time = to.saturating_sub(run.from.max(self.now)) as f64;
            let done = done_in(time, run.speed.speed, &run.cold);
            if done > 0.0 {
                settle_down(&mut self.homes, run);
            }
            let thread = &mut threads[run.thread as usize];
            // An end that was computed is not missed by a rounding.
            let whole = (run.begun + done + 1e-6).floor();
            run.begun = (run.begun + done - whole).max(0.0);
            thread.pass(whole as u64);
            let demand = &run.asked.demand;
            let ways = run.asked.class.ways;
            let here = (to - self.now) as f64
                / mean_cycle(&self.known.machine, self.known.layout.pus[pu].core);
            self.tallies[pu].add(done, whole as u64, here, demand, &run.speed);
            for (cache, misses) in &run.misses {
                self.warmth.take_in(*cache, misses * done, ways);
            }
            for (which, lines) in demand.lines.iter().enumerate() {
                if lines.written > 0.0 && lines.owner == Owner::Thread {
                    let whose = Whose::Thread(run.thread, which);
                    self.warmth
                        .write(whose, lines.stores() * done / lines.lines);
                }
                if matches!(lines.owner, Owner::Region(..)) {
                    self.regions.visit(run.thread, lines, done);
                    let node = self.known.layout.pus[pu].node;
                    // On one node there is nothing to be told apart.
                    if self.known.layout.nodes > 1 {
                        let visits = lines.visits * done;
                        let homes = &mut self.region_homes;
                        homes.touch(lines.owner, node, visits, lines.pages);
                    }
                }
            }
            for cold in &mut run.cold {
                let (missed, brought) = (cold.missed(done), cold.brought(done));
                cold.passed += done;
                self.warmth.take_in(cold.cache, brought, ways);
                let caches = &self.known.layout.caches;
                let level = caches.get(cold.cache).map(|at| at.level);
                self.tallies[pu].bring(level, cold.code, missed);
                if cold.last {
                    self.tallies[pu].transfer(brought);
                }
            }
            let negligible = |cold: &Cold| cold.costs_less(NEGLIGIBLE);
            if run.cold.iter().any(negligible) {
                for cold in run.cold.extract_if(.., |cold| negligible(cold)) {
                    self.warmth
                        .remember(cold.cache, cold.whose, cold.keeps, ways);
                }
            }
        }
        self.regions.settle();
        self.moved_in |= self.region_homes.settle();
        self.stale |= self.moved_in;
        self.now = to;
    }

    /// When the first thread comes to the end of its instructions.
    fn first_end(&self, threads: &[Thread]) -> Option<Ps> {
        let end = |run: &Run| {
            let left = threads[run.thread as usize].left()?;
            let left = (left as f64 - run.begun).max(0.0);
            let time = time_of(left, run.speed.speed, &run.cold);
            Some(run.from.max(self.now) + time.ceil() as Ps)
        };
        self.runs.iter().flatten().filter_map(end).min()
    }
}

/// Memory is taken from the node where it is touched first, not from where the thread was put before it did anything.
fn settle_down(homes: &mut Vec<Option<usize>>, run: &Run) {
    let thread = run.thread as usize;
    if homes.len() <= thread {
        homes.resize(thread + 1, None);
    }
    homes[thread].get_or_insert(run.asked.class.homes.own);
}

impl Processor for IntervalLevel {
    fn assign(&mut self, pu: usize, thread: Option<u32>, at: Ps, threads: &mut [Thread]) {
        if let Some(before) = self.runs[pu].take() {
            keep_warm(&mut self.warmth, &before);
            threads[before.thread as usize].set_begun(before.begun);
        }
        self.stale = true;
        let Some(index) = thread else { return };
        let Some(asked) = self.class(pu, index, &threads[index as usize]) else {
            return;
        };
        self.runs[pu] = Some(Run {
            thread: index,
            pu,
            asked,
            from: at.max(self.now),
            begun: threads[index as usize].begun(),
            speed: Arc::default(),
            like: pu,
            misses: Vec::new(),
            holdings: Vec::new(),
            cold: Vec::new(),
        });
    }

    fn thread(&self, pu: usize) -> Option<u32> {
        self.runs[pu].as_ref().map(|run| run.thread)
    }

    fn take_counters(&mut self, pu: usize) -> Counters {
        self.tallies[pu].take()
    }

    fn cycle_time(&self, pu: usize) -> Ps {
        let machine = &self.known.machine;
        let kind = machine.kind(&machine.cores[self.known.layout.pus[pu].core]);
        kind.pace().mean_cycle().round() as Ps
    }

    fn set_points(&mut self, _: Ps, points: &[OperatingPoint]) {
        self.known = match self.first.machine.first_points() == points {
            true => Arc::clone(&self.first),
            false => self.first.at_points(points),
        };
        self.stale = true;
    }

    fn set_ways(&mut self, index: u32, thread: &Thread) {
        let caches = self.known.layout.caches.iter();
        self.warmth.confine(caches.map(|at| at.shape.ways));
        for run in self.runs.iter_mut().flatten() {
            if run.thread == index {
                keep_warm(&mut self.warmth, run);
                let class = Class {
                    ways: thread.ways,
                    ..run.asked.class
                };
                run.asked = self.known.asked(class);
                self.stale = true;
            }
        }
    }

    fn warm(&mut self, _: &[Thread]) {
        self.refresh();
        for run in self.runs.iter_mut().flatten() {
            run.cold.clear();
            fill(&mut self.warmth, run);
        }
    }

    fn run(
        &mut self,
        from: Ps,
        until: Ps,
        threads: &mut [Thread],
        finished: &mut Vec<Finished>,
    ) -> Ps {
        self.now = from;
        self.warmth
            .sweep(|thread| threads[thread as usize].ended.is_some());
        self.refresh();
        let end = self.first_end(threads).unwrap_or(Ps::MAX);
        let to = end.clamp(from + 1, until);
        self.advance(to, threads);
        for context in 0..self.runs.len() {
            let over = |run: &mut Run| threads[run.thread as usize].left() == Some(0);
            if let Some(run) = self.runs[context].take_if(over) {
                keep_warm(&mut self.warmth, &run);
                self.stale = true;
                finished.push(Finished {
                    thread: run.thread,
                    context,
                    at: to,
                });
            }
        }
        to
    }

    fn plays_long_spans(&self) -> bool {
        true
    }

    fn occupancy(&self, level: u8) -> Vec<Occupancy> {
        let caches = self.known.layout.caches.iter().enumerate();
        let of_level = caches.filter(|(_, cache)| cache.level + 1 == usize::from(level));
        of_level
            .map(|(number, cache)| {
                let mut lines: BTreeMap<u32, f64> = BTreeMap::new();
                for (thread, there) in self.warmth.of_threads(number) {
                    *lines.entry(thread).or_default() += there;
                }
                Occupancy {
                    holds: cache.holds,
                    pus: cache.pus.clone(),
                    lines: lines
                        .into_iter()
                        .map(|(thread, lines)| (thread, lines.round() as u64))
                        .filter(|(_, lines)| *lines > 0)
                        .collect(),
                }
            })
            .collect()
    }

    fn watch(&mut self, _: u64, _: u64) {
        // What mixes share is known by the names of their regions.
    }

    fn take_shared(&mut self, threads: &[Thread]) -> Vec<Shared> {
        self.regions
            .take(|thread| threads[thread as usize].ended.is_some())
    }
}
