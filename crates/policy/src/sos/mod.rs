//! Sample, optimise, symbiosis: try some schedules and keep the best.
//!
//! A. Snavely and D. Tullsen, Symbiotic Jobscheduling for a Simultaneous Multithreading Machine (ASPLOS IX, 2000); the
//! approach against which Fedorova et al. argue (section 2), since the schedules are too many and the bad ones cost
//! while they are tried. Each search tries `samples` random schedules, then runs the best for `steady_periods`, and
//! begins anew, at once when busy threads come or go. With `candidates = "cpi"` the schedules are drawn only from those
//! for which the CPI model predicts nearly the best throughput.

mod config;
mod schedule;
mod search;

pub use config::{Candidates, Score, SosConfig};

use crate::{
    busy::{Census, NOTHING_BUSY, is_busy},
    cpi::{
        balance::{self, Item, Pipeline},
        core_of,
        cores::{Cores, reaches},
    },
    history::PerThread,
    matching,
    nothing::nothing_to_place,
};
use perch_core::{
    Binding, Plan, Policy, PuSet, Reason, Snapshot, ThreadId, ThreadState, metric::names,
};
use schedule::{Random, Schedule};
use search::Search;

/// The policy `sos` (Snavely and Tullsen 2000: sample, optimise, symbiosis).
#[derive(Debug)]
pub struct Sos {
    config: SosConfig,
    random: Random,
    search: Option<Search>,
    /// The most instructions a cycle that each thread was seen to do.
    best: PerThread<f64>,
    /// The most that any core was seen to do, at least 1.
    width: f64,
}

impl Default for Sos {
    fn default() -> Self {
        Self::new(SosConfig::default())
    }
}

/// A period's threads and cores.
struct View<'a> {
    snapshot: &'a Snapshot,
    cores: Cores,
    /// Places of the busy threads that may be placed.
    threads: Vec<usize>,
    /// How many threads that are not ours are pinned to each core, and where.
    fixed: Vec<usize>,
    taken: PuSet,
}

impl<'a> View<'a> {
    fn new(snapshot: &'a Snapshot, min_activity: f64) -> Self {
        let busy = |_, thread: &ThreadState| is_busy(thread, min_activity);
        let census = Census::new(snapshot, busy, |_, _| Some(()));
        let cores = Cores::new(&snapshot.topology, &census.reachable);
        let mut view = Self {
            fixed: vec![0; cores.len()],
            cores,
            snapshot,
            threads: census.ranked.iter().map(|thread| thread.at).collect(),
            taken: PuSet::new(),
        };
        for at in census.unmanaged {
            let allowed = &snapshot.threads[at].allowed;
            if let Some(core) = view.cores.of_all(allowed) {
                view.fixed[core] += 1;
                if let (Some(pu), 1) = (allowed.first(), allowed.len()) {
                    view.taken.insert(pu);
                }
            }
        }
        view
    }

    fn state(&self, thread: usize) -> &ThreadState {
        &self.snapshot.threads[self.threads[thread]]
    }

    fn ids(&self) -> Vec<ThreadId> {
        let threads = 0..self.threads.len();
        threads.map(|at| self.state(at).info.id).collect()
    }

    /// Why there is nothing to try.
    fn nothing_to_do(&self) -> Option<String> {
        let busy = self.threads.len() + self.fixed.iter().sum::<usize>();
        let cores = self.cores.len();
        if cores > 0 && !self.cores.iter().any(|core| core.pus.len() > 1) {
            Some(
                "no two usable PUs share a core: there is nothing to try, so nothing is bound"
                    .to_owned(),
            )
        } else if busy == 0 {
            Some(NOTHING_BUSY.to_owned())
        } else if busy < cores || cores == 0 {
            Some(format!(
                "{busy} busy threads for {cores} cores: the kernel has room to give each its own, so nothing is bound"
            ))
        } else if (0..self.threads.len()).all(|at| ipc(self.state(at)).is_none()) {
            Some("the instructions a cycle of the busy threads are not known (yet), so nothing is bound".to_owned())
        } else {
            None
        }
    }

    /// PUs for a schedule: each thread's own where it is on its core already.
    fn pus(&self, schedule: &Schedule) -> Vec<Option<PuSet>> {
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); self.cores.len()];
        for (thread, core) in schedule.iter().enumerate() {
            if let Some(core) = *core {
                members[core].push(thread);
            }
        }
        let mut pus = vec![None; schedule.len()];
        for ((core, members), fixed) in self.cores.iter().zip(&members).zip(&self.fixed) {
            let free: Vec<u32> = (core.pus.iter().copied())
                .filter(|pu| !self.taken.contains(*pu))
                .collect();
            if members.len() + fixed > core.pus.len() {
                for &thread in members {
                    pus[thread] = Some(self.state(thread).allowed.and(&core.set));
                }
                continue;
            }
            let wish = |thread: &usize| {
                let state = self.state(*thread);
                let bound = state.bound.as_ref().filter(|pus| pus.len() == 1);
                let pu = bound.and_then(PuSet::first).or(state.last_pu);
                free.iter().position(|free| Some(*free) == pu)
            };
            let wishes: Vec<Option<usize>> = members.iter().map(wish).collect();
            let slots = matching::assign(&wishes, free.len(), |member, slot| {
                self.state(members[member]).allowed.contains(free[slot])
            });
            for (thread, slot) in members.iter().zip(slots) {
                pus[*thread] = slot.map(|slot| PuSet::single(free[slot]));
            }
        }
        pus
    }
}

/// Instructions a cycle, if they were counted.
fn ipc(thread: &ThreadState) -> Option<f64> {
    let metric = thread.metrics.get(names::IPC)?;
    let sound = metric.confidence > 0.0 && metric.value.is_finite() && metric.value >= 0.0;
    sound.then_some(metric.value)
}

impl Sos {
    /// A policy with these options.
    pub fn new(config: SosConfig) -> Self {
        Self {
            random: Random::new(u64::from(config.seed)),
            config,
            search: None,
            best: PerThread::default(),
            width: 1.0,
        }
    }

    /// Takes the period into the memory: what the threads and the cores have shown to be able to do.
    fn learn(&mut self, view: &View<'_>) {
        self.best.follow(&view.snapshot.threads);
        let mut sums = vec![0.0; view.cores.len()];
        for (at, thread) in view.snapshot.threads.iter().enumerate() {
            let Some(ipc) = ipc(thread) else { continue };
            self.best[at] = self.best[at].max(ipc);
            if let Some(core) = core_of(thread, &view.cores) {
                sums[core] += ipc * thread.activity.clamp(0.0, 1.0);
            }
        }
        self.width = sums.into_iter().fold(self.width, f64::max);
    }

    fn score(&self, view: &View<'_>) -> f64 {
        let threads = view.threads.iter().map(|&at| {
            let thread = &view.snapshot.threads[at];
            let done = ipc(thread).unwrap_or(0.0) * thread.activity;
            match self.config.score {
                Score::Throughput => done,
                Score::Speedup if self.best[at] > 0.0 => done / self.best[at],
                Score::Speedup => 0.0,
            }
        });
        threads.sum()
    }

    /// The schedules of one search, no two of them the same but for the cores' names.
    fn draw(&mut self, view: &View<'_>) -> Vec<Schedule> {
        let count = view.threads.len();
        let masks = (0..count).map(|at| &view.state(at).allowed);
        let (reach, reached) = reaches(&view.cores, masks);
        let allowed = |thread: usize, core: usize| reached[reach[thread]][core];
        let sizes: Vec<usize> = view.cores.iter().map(|core| core.pus.len()).collect();
        let tries = match self.config.candidates {
            Candidates::Random => self.config.samples,
            Candidates::Cpi => self.config.tries,
        };
        let mut seen = std::collections::HashSet::new();
        let mut schedules = Vec::new();
        // Few threads have few schedules: drawing the same again and again must end.
        for _ in 0..tries.saturating_mul(2) {
            if schedules.len() >= tries as usize {
                break;
            }
            let next = schedule::random(count, &view.cores, &view.fixed, allowed, &mut self.random);
            if seen.insert(schedule::company(&next, &sizes)) {
                schedules.push(next);
            }
        }
        if self.config.candidates == Candidates::Cpi {
            let predicted: Vec<f64> = self.predict(view, &reach, &reached, &schedules);
            let best = predicted.iter().copied().fold(0.0, f64::max);
            let good = |value: &f64| *value >= best * (1.0 - self.config.within);
            let kept = schedules.into_iter().zip(predicted);
            schedules = kept.filter(|(_, v)| good(v)).map(|(s, _)| s).collect();
            schedules.truncate(self.config.samples as usize);
        }
        schedules
    }

    /// What the CPI model predicts for each schedule, from the most that each thread was seen to do.
    fn predict(
        &self,
        view: &View<'_>,
        reach: &[usize],
        reaches: &[Vec<bool>],
        schedules: &[Schedule],
    ) -> Vec<f64> {
        let threads = view.threads.iter().zip(reach);
        let items = threads.map(|(&at, &reach)| Item {
            demand: self.best[at],
            reach,
            home: None,
            settled: false,
        });
        let items: Vec<Item> = items.collect();
        let width = if self.config.width > 0.0 {
            self.config.width
        } else {
            self.width
        };
        let cores = view.cores.iter().zip(&view.fixed);
        let field = balance::Field {
            cores: cores
                .map(|(core, fixed)| Pipeline {
                    width,
                    contexts: core.pus.len(),
                    fixed: *fixed,
                    fixed_demand: 0.0,
                })
                .collect(),
            reaches: reaches.to_vec(),
        };
        let predicted = schedules
            .iter()
            .map(|s| balance::throughput(&items, s, &field));
        predicted.collect()
    }

    fn bind(view: &View<'_>, schedule: &Schedule, why: &str) -> Vec<Binding> {
        let mut on = vec![0usize; view.cores.len()];
        for core in schedule.iter().flatten() {
            on[*core] += 1;
        }
        let pus = view.pus(schedule).into_iter().zip(schedule).enumerate();
        pus.filter_map(|(thread, (pus, core))| {
            let (pus, core, state) = (pus?, (*core)?, view.state(thread));
            let others = on[core] - 1;
            let text = format!(
                "{why}: PU {pus} of core {}, with {others} others",
                view.cores[core].index
            );
            let reason = Reason::new(text).with("activity", state.activity);
            Some(Binding {
                thread: state.info.id,
                pus,
                reason: match ipc(state) {
                    Some(ipc) => reason.with(names::IPC, ipc),
                    None => reason,
                },
            })
        })
        .collect()
    }
}

impl Policy for Sos {
    fn name(&self) -> &'static str {
        "sos"
    }

    fn needs(&self) -> &'static [&'static str] {
        &[names::IPC]
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let view = View::new(snapshot, self.config.min_activity);
        self.learn(&view);
        let nothing = view.nothing_to_do();
        let mut plan = Plan::default();
        if nothing.is_some() {
            self.search = None;
        } else {
            let ids = view.ids();
            let score = self.score(&view);
            let held = self
                .search
                .take()
                .filter(|search| search.is_about(&ids, &view.cores));
            let advanced = held.and_then(|search| search.advance(score, &self.config));
            let search = match advanced {
                Some(search) => search,
                None => Search::new(ids, &view.cores, self.draw(&view)),
            };
            plan.bindings = Self::bind(&view, search.schedule(), &search.explain());
            self.search = Some(search);
        }
        let mut bound = plan.bindings.iter().map(|b| b.thread).peekable();
        for thread in &snapshot.threads {
            let stays = bound.next_if_eq(&thread.info.id).is_some();
            if !stays && thread.bound.is_some() && thread.unmanaged.is_none() {
                let why = nothing.clone().unwrap_or_else(|| {
                    let runnable = 100.0 * thread.wanted();
                    format!("idle or without room: runnable for {runnable:.0} % of the period")
                });
                plan.released.push((thread.info.id, Reason::new(why)));
            }
        }
        plan.remarks.extend(nothing.map(nothing_to_place));
        plan
    }
}
