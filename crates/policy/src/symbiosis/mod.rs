//! The placement that knows: threads go where the loss is least that this machine's own calibration predicts.
//!
//! `perch calibrate` measures what small kernels suffer beside each other at each level of sharing. From that and from
//! each thread's metrics the policy predicts what every thread would do to every other, finds the placement in which all
//! together are fastest, and moves threads there if the gain is above the noise. What came of it corrects the prediction.

mod config;
mod cost;
mod large;
mod learned;
mod loss;
mod memory;
mod scene;
mod search;
mod uses;

pub use config::SymbiosisConfig;

use crate::{
    PolicyError, WorkOver, WorkOverConfig,
    calibration::{Calibration, Share},
    history::PerThread,
};
use cost::Costs;
use large::Classes;
use learned::Seen;
use loss::{Pairs, Placed, Talk};
use memory::Memory;
use perch_core::{Binding, Plan, Policy, PuSet, Reason, Snapshot, ThreadId, metric::names};
use scene::Scene;
use std::{collections::HashMap, path::Path, time::Duration};
use uses::{Basis, Values, believed, of_kernel};

/// Periods after a change before anything is concluded: one in which threads moved, one in which caches fill.
const SETTLE: u64 = 2;

/// A gain that came true by less than this part of it is a disappointment.
const CAME_TRUE: f64 = 0.3;

/// No thread is taken to have lost more than this (logarithm) when its speed alone is guessed: half of it.
const MOST_LOST: f64 = 0.7;

/// How often the speed alone of a new thread is guessed again with what it is then predicted to lose.
const FIRST_GUESSES: usize = 4;

/// Weight of a new guess of a speed alone.
const GUESS: f64 = 0.3;

/// So much of the prediction's error must be gained where nothing corrects it.
const UNCORRECTED: f64 = 0.5;

/// A loss by more than this part is no chance: threads go back.
const WORSE: f64 = 0.003;

/// Each disappointment doubles the gain that is needed, up to so many.
const MOST_DISAPPOINTED: u32 = 6;

/// Where nothing was gained by a search the next one comes after twice as many periods, up to so many.
const LONGEST_REST: u64 = 16;

/// Talk below this confidence is not believed, and never takes more than this part of a thread's time.
const TALK: (f64, f64) = (0.3, 0.9);

/// The policy.
#[derive(Debug)]
pub struct Symbiosis {
    config: SymbiosisConfig,
    calibration: Option<Calibration>,
    /// Where nothing was measured.
    fallback: WorkOver,
    costs: Option<Costs>,
    memory: PerThread<Memory>,
    /// When threads were moved last, what was predicted to come of it, and what had been measured before.
    moved: Option<Moved>,
    /// How often a gain did not come true with these threads.
    disappointed: u32,
    /// The period in which threads came or went last, and that in which one entered another phase.
    changed: u64,
    phase: u64,
    busy: Vec<ThreadId>,
    /// No search before this period, and how long the last rest was.
    rest: (u64, u64),
}

#[derive(Debug, Clone)]
struct Moved {
    period: u64,
    predicted: f64,
    before: f64,
    /// The units on which the busy threads were.
    from: Vec<usize>,
}

impl Symbiosis {
    /// A policy with these options; reads the calibration file if they name one.
    ///
    /// # Errors
    /// An option out of range, a calibration that cannot be read or that measured no kernels.
    pub fn new(config: SymbiosisConfig) -> Result<Self, PolicyError> {
        let calibration = match config.calibration.as_str() {
            "" => None,
            path => Some(Calibration::read(Path::new(path)).map_err(|e| bad(e.to_string()))?),
        };
        Self::of(config, calibration)
    }

    /// A policy with these options and this calibration, whatever file the options name.
    ///
    /// # Errors
    /// An option out of range, a calibration that measured no kernels.
    pub fn with_calibration(
        config: SymbiosisConfig,
        calibration: Calibration,
    ) -> Result<Self, PolicyError> {
        Self::of(config, Some(calibration))
    }

    fn of(config: SymbiosisConfig, calibration: Option<Calibration>) -> Result<Self, PolicyError> {
        config.check().map_err(bad)?;
        if let Some(calibration) = &calibration
            && (calibration.kernels.is_empty() || calibration.couplings.is_empty())
        {
            return Err(bad(format!(
                "the calibration of {} says nothing of kernels beside each other: run `perch calibrate` again",
                calibration.machine
            )));
        }
        Ok(Self {
            config,
            calibration,
            fallback: WorkOver::new(WorkOverConfig::default()),
            costs: None,
            memory: PerThread::default(),
            moved: None,
            disappointed: 0,
            changed: 0,
            phase: 0,
            busy: Vec::new(),
            rest: (0, 1),
        })
    }

    /// The costs for what these threads' metrics can tell.
    fn costs(&mut self, snapshot: &Snapshot) -> Option<Costs> {
        let calibration = self.calibration.as_ref()?;
        let least = self.config.min_confidence;
        let kernels: Vec<_> = calibration
            .kernels
            .iter()
            .map(|kernel| of_kernel(&kernel.metrics))
            .collect();
        let threads: Vec<_> = snapshot
            .threads
            .iter()
            .filter(|thread| crate::cpi::is_busy(thread, self.config.min_activity))
            .map(|thread| believed(&thread.metrics, least))
            .collect();
        let with = |name: &str| threads.iter().filter(|value| value(name).is_some()).count();
        let counted = 2 * with(names::IPC) > threads.len()
            && kernels.iter().all(|value| value(names::IPC).is_some());
        let main = if counted { names::IPC } else { names::FP_SHARE };
        let known = threads.iter().filter(|value| value(main).is_some());
        let all: Vec<&Values<'_>> = kernels
            .iter()
            .map(|value| value as &Values<'_>)
            .chain(known.map(|value| value as &Values<'_>))
            .collect();
        let basis = Basis::common(counted, &all);
        if basis.ways.is_empty() {
            return None;
        }
        if self.costs.as_ref().is_none_or(|costs| costs.basis != basis) {
            let topology = &snapshot.topology;
            let last = topology.llc_level().filter(|level| *level > 2);
            let caches = [
                topology.cache_size(1),
                topology.cache_size(2),
                last.and_then(|level| topology.cache_size(level)),
            ];
            self.costs = Some(Costs::fit(calibration, basis, &caches));
        }
        self.costs.clone()
    }

    /// What each busy thread does to each other, and how fast it is now.
    fn pairs(&mut self, snapshot: &Snapshot, scene: &Scene, costs: &Costs) -> (Pairs, Vec<f64>) {
        let threads = scene.runners.len();
        let least = self.config.min_confidence;
        let mut changed: Vec<ThreadId> = Vec::new();
        let mut speeds: Vec<Option<f64>> = Vec::with_capacity(threads);
        for runner in &scene.runners {
            let thread = &snapshot.threads[runner.at];
            let value = believed(&thread.metrics, least);
            let read = costs.basis.read(&value);
            if let Some(read) = &read
                && self.memory[runner.at].take(&costs.basis, read, &value)
            {
                changed.push(thread.info.id);
            }
            speeds.push(read.filter(|_| costs.basis.counted).map(|read| read[0]));
        }
        if !changed.is_empty() {
            self.phase = snapshot.period;
            for runner in &scene.runners {
                self.memory[runner.at].forget(&changed);
            }
        }
        let now = |runner: usize| speeds[runner].unwrap_or(1.0);
        // What a thread would do alone follows from what it does and what it is predicted to lose, which depends on it
        // in turn. Of one that is new this is followed a few times, for old ones once a period.
        let mut alone: Vec<f64> = (0..threads)
            .map(|runner| {
                let memory = &self.memory[scene.runners[runner].at];
                memory.alone.unwrap_or(now(runner))
            })
            .collect();
        let any_new = (scene.runners.iter()).any(|runner| self.memory[runner.at].alone.is_none());
        let mut pairs = self.predict(scene, costs, &alone);
        let rounds = match (costs.basis.counted, any_new) {
            (true, true) => FIRST_GUESSES,
            (true, false) => 1,
            (false, _) => 0,
        };
        let known: Vec<Option<f64>> = (scene.runners.iter())
            .map(|runner| self.memory[runner.at].alone)
            .collect();
        for _ in 0..rounds {
            let placed = Placed::new(scene, &pairs, here(scene));
            for runner in 0..threads {
                let guess = now(runner) * placed.lost(runner).min(MOST_LOST).exp();
                alone[runner] =
                    known[runner].map_or(guess, |known| known + GUESS * (guess - known));
            }
            drop(placed);
            pairs = self.predict(scene, costs, &alone);
        }
        if costs.basis.counted {
            for (runner, alone) in scene.runners.iter().zip(&alone) {
                self.memory[runner.at].alone = Some(*alone);
            }
        }
        pairs.talk = self.talk(snapshot, scene, costs);
        let now = (0..threads).map(now).collect();
        (pairs, now)
    }

    fn predict(&self, scene: &Scene, costs: &Costs, alone: &[f64]) -> Pairs {
        let threads = scene.runners.len();
        let known: Vec<Option<Vec<f64>>> = (0..threads)
            .map(|runner| {
                let memory = &self.memory[scene.runners[runner].at];
                memory.uses(&costs.basis, alone[runner])
            })
            .collect();
        // A thread of which nothing is known is like the mean of the others.
        let mut mean = vec![0.0; costs.basis.ways.len()];
        let count = known.iter().flatten().count().max(1) as f64;
        for uses in known.iter().flatten() {
            for (sum, value) in mean.iter_mut().zip(uses) {
                *sum += value / count;
            }
        }
        let mut terms = Vec::new();
        let uses = |runner: usize| known[runner].as_deref().unwrap_or(&mean);
        let levels = scene.levels.iter().map(|level| {
            let mut costs_of_level = vec![0.0; threads * threads];
            for one in 0..threads {
                for other in 0..threads {
                    if one != other {
                        let cost = costs.of(*level, uses(one), uses(other), &mut terms);
                        costs_of_level[one * threads + other] = cost;
                    }
                }
            }
            costs_of_level
        });
        // Threads that take turns on a PU do nothing to each other there.
        let turns = scene.turns.then(|| vec![0.0; threads * threads]);
        Pairs {
            threads,
            levels: turns.into_iter().chain(levels).collect(),
            talk: Vec::new(),
            speed: alone.to_vec(),
        }
    }

    /// What communication costs those who share memory.
    fn talk(&self, snapshot: &Snapshot, scene: &Scene, costs: &Costs) -> Vec<Talk> {
        let transfers = match &self.calibration {
            Some(calibration) => &calibration.transfers,
            None => return Vec::new(),
        };
        let longest = transfers.iter().map(|t| t.seconds).fold(0.0, f64::max);
        if longest <= 0.0 || snapshot.sharing.is_empty() {
            return Vec::new();
        }
        let seconds = |share: Share| {
            let of_level = transfers.iter().find(|t| t.share == share);
            of_level.map_or(longest, |transfer| transfer.seconds)
        };
        let mut levels: Vec<f64> = scene
            .levels
            .iter()
            .map(|level| seconds(costs.levels[*level].share))
            .collect();
        if scene.turns {
            levels.insert(0, 0.0);
        }
        levels.push(longest);
        let runner_of: HashMap<ThreadId, usize> = scene
            .runners
            .iter()
            .enumerate()
            .map(|(runner, of)| (snapshot.threads[of.at].info.id, runner))
            .collect();
        let (least, most) = TALK;
        let believed = snapshot.sharing.iter().filter(|s| s.confidence >= least);
        believed
            .filter_map(|sharing| {
                let one = *runner_of.get(&sharing.threads.0)?;
                let other = *runner_of.get(&sharing.threads.1)?;
                let cost = |seconds: &f64| (sharing.transfers * seconds).clamp(0.0, most);
                Some(Talk {
                    pair: (one, other),
                    cost: levels.iter().map(cost).collect(),
                })
            })
            .collect()
    }

    /// Remembers how fast threads are beside whom, and lets that correct what is predicted.
    fn learn(&mut self, snapshot: &Snapshot, scene: &Scene, pairs: &mut Pairs, now: &[f64]) {
        let id = |runner: usize| snapshot.threads[scene.runners[runner].at].info.id;
        let runner_of: HashMap<ThreadId, usize> =
            (0..scene.runners.len()).map(|r| (id(r), r)).collect();
        let class = self.classes(snapshot, scene);
        let placed = Placed::new(scene, pairs, here(scene));
        let settled = self
            .moved
            .as_ref()
            .is_none_or(|m| snapshot.period >= m.period + SETTLE);
        let mut changed = Vec::new();
        for (runner, of) in scene.runners.iter().enumerate() {
            let members = placed.members(of.unit);
            let mut beside: Vec<ThreadId> = members.iter().map(|other| id(*other)).collect();
            beside.retain(|other| *other != id(runner));
            beside.sort_unstable();
            let first = scene.units[of.unit].pus.first().unwrap_or(0);
            let width = scene.units[of.unit].width;
            let memory = &mut self.memory[of.at];
            let stayed = memory.stayed(first, &beside);
            // Where threads take turns, who ran beside whom is not known.
            if stayed && settled && now[runner] > 0.0 && members.len() <= width {
                let speed = now[runner].ln() + placed.lost_afar(runner);
                if memory.saw(beside, speed) {
                    changed.push(id(runner));
                }
            }
        }
        drop(placed);
        if !changed.is_empty() {
            self.phase = snapshot.period;
        }
        let mut seen = Vec::new();
        for (runner, of) in scene.runners.iter().enumerate() {
            let memory = &mut self.memory[of.at];
            if !changed.contains(&id(runner)) {
                memory.forget(&changed);
            }
            seen.extend(memory.seen.iter().filter_map(|known| {
                let beside = known.beside.iter();
                let beside = beside.map(|id| runner_of.get(id).map(|other| class[*other]));
                Some(Seen {
                    runner: class[runner],
                    beside: beside.collect::<Option<Vec<usize>>>()?,
                    speed: known.speed,
                })
            }));
        }
        learned::correct(pairs, &seen, &class);
    }

    /// Threads of one process that use the same are of one class.
    fn classes(&self, snapshot: &Snapshot, scene: &Scene) -> Vec<usize> {
        let mut first: Vec<usize> = Vec::new();
        let runners = scene.runners.iter().enumerate();
        let class = runners.map(|(runner, of)| {
            let pid = |at: usize| snapshot.threads[at].info.pid;
            let alike = first.iter().position(|other| {
                let other = &scene.runners[*other];
                pid(other.at) == pid(of.at) && self.memory[other.at].is_like(&self.memory[of.at])
            });
            alike.unwrap_or_else(|| {
                first.push(runner);
                first.len() - 1
            })
        });
        class.collect()
    }

    /// Whether the last move brought what was predicted. If it made things worse, the placement before.
    fn judge(&mut self, snapshot: &Snapshot, scene: &Scene, now: &[f64]) -> Option<Vec<usize>> {
        let settled = |moved: &&Moved| snapshot.period > moved.period + SETTLE;
        let moved = self.moved.as_ref().filter(settled)?;
        let gained = delivered(scene, now) / moved.before - 1.0;
        let came_true = gained >= CAME_TRUE * moved.predicted;
        let worse = gained < -WORSE;
        let back = worse.then(|| moved.from.clone());
        // What came of it is not known if the threads are no longer what they were: where they change faster than that can
        // be told, moving them does not pay.
        let same = self.changed.max(self.phase) < moved.period;
        self.moved = None;
        self.disappointed = match came_true && same {
            true => self.disappointed.saturating_sub(1),
            false => (self.disappointed + 1).min(MOST_DISAPPOINTED),
        };
        if !same {
            self.rest = (snapshot.period + LONGEST_REST / 2, LONGEST_REST);
            return None;
        }
        back.filter(|from| from.len() == scene.runners.len())
    }

    /// The best placement that is found, from the placement as it is and from the best pairs.
    fn best<'a>(&self, scene: &'a Scene, pairs: &'a Pairs) -> (f64, Placed<'a>) {
        let mut starts = vec![here(scene)];
        starts.extend(search::matched(scene, pairs));
        let improved = starts.into_iter().map(|start| {
            let mut placed = Placed::new(scene, pairs, start);
            search::improve(&mut placed, scene);
            let moves = placed.unit.iter().zip(&scene.runners);
            let moves = moves.filter(|(unit, runner)| **unit != runner.unit);
            let cost: f64 =
                moves.map(|(_, runner)| runner.present).sum::<f64>() * self.config.move_cost;
            let mean = placed.value() / scene.runners.len() as f64;
            (placed.value() - cost * mean, placed)
        });
        let mut best: Option<(f64, Placed<'a>)> = None;
        for (value, placed) in improved {
            if best.as_ref().is_none_or(|(known, _)| value > *known) {
                best = Some((value, placed));
            }
        }
        best.unwrap_or_else(|| (0.0, Placed::new(scene, pairs, here(scene))))
    }

    /// The plan that keeps everybody where they are to be.
    fn plan(&mut self, snapshot: &Snapshot, scene: &Scene) -> Plan {
        let mut plan = Plan::default();
        let mut busy = vec![false; snapshot.threads.len()];
        for runner in scene.runners.iter().filter(|runner| runner.ours) {
            busy[runner.at] = true;
            let thread = &snapshot.threads[runner.at];
            let memory = &mut self.memory[runner.at];
            let target = memory.target.as_ref();
            let usable = target.map(|(pus, reason)| (pus.and(&thread.allowed), reason.clone()));
            match usable {
                Some((pus, reason)) if !pus.is_empty() => plan.bindings.push(Binding {
                    thread: thread.info.id,
                    pus,
                    reason,
                }),
                _ => memory.target = None,
            }
        }
        for (at, _) in busy.iter().enumerate().filter(|(_, busy)| !**busy) {
            self.memory[at].target = None;
        }
        plan
    }

    fn fall_back(&mut self, snapshot: &Snapshot, why: &str) -> Plan {
        let mut plan = self.fallback.decide(snapshot);
        plan.remarks
            .push(format!("symbiosis places as workover does: {why}"));
        plan
    }
}

fn bad(message: String) -> PolicyError {
    PolicyError::BadOption {
        policy: "symbiosis",
        message,
    }
}

/// The placement as it is.
fn here(scene: &Scene) -> Vec<usize> {
    scene.runners.iter().map(|runner| runner.unit).collect()
}

/// What all threads do now.
fn delivered(scene: &Scene, now: &[f64]) -> f64 {
    let each = scene.runners.iter().zip(now);
    each.map(|(runner, speed)| runner.present * speed).sum()
}

impl Policy for Symbiosis {
    fn name(&self) -> &'static str {
        "symbiosis"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn needs(&self) -> &'static [&'static str] {
        uses::WANTED
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        if self.calibration.is_none() {
            return self.fall_back(
                snapshot,
                "what sharing costs on this machine is not known; run `perch calibrate`",
            );
        }
        self.memory.follow(&snapshot.threads);
        let Some(costs) = self.costs(snapshot) else {
            let why = "no metric of the threads is in the calibration; run `perch calibrate` again";
            return self.fall_back(snapshot, why);
        };
        let least = self.config.min_activity;
        let threads = snapshot.threads.iter().enumerate();
        let present: Vec<f64> = threads
            .map(|(at, thread)| self.memory[at].wanted(thread, least))
            .collect();
        let Some(scene) = Scene::new(snapshot, &costs, &present) else {
            let mut plan = Plan::default();
            let remark = "nothing to choose: the threads' PUs share all that was measured";
            plan.remarks.push(remark.to_owned());
            return plan;
        };
        let busy = scene.runners.iter().map(|r| snapshot.threads[r.at].info.id);
        let busy: Vec<ThreadId> = busy.collect();
        if busy != self.busy {
            self.busy = busy;
            self.changed = snapshot.period;
            self.disappointed /= 2;
            self.moved = None;
        }
        if scene.runners.len() > search::MATCHED {
            if snapshot.period >= self.rest.0.max(self.changed + SETTLE) {
                self.deal(snapshot, &scene, &costs);
            }
            return self.plan(snapshot, &scene);
        }
        let (mut pairs, now) = self.pairs(snapshot, &scene, &costs);
        let corrected = costs.basis.counted && self.config.learn;
        let mut back = None;
        if corrected {
            self.learn(snapshot, &scene, &mut pairs, &now);
            back = self.judge(snapshot, &scene, &now);
        }
        if self.changed.max(self.phase) == snapshot.period {
            self.rest.1 = 1;
        }
        let settling = self.moved.is_some() || snapshot.period < self.changed + SETTLE;
        if let Some(from) = back {
            let placed = Placed::new(&scene, &pairs, from);
            self.adopt(snapshot, &scene, &placed, "back to where all were faster");
            self.rest = (snapshot.period + SETTLE, 1);
        } else if !settling && snapshot.period >= self.rest.0 {
            self.search(snapshot, &scene, &costs, &pairs, &now);
        }
        self.plan(snapshot, &scene)
    }
}

impl Symbiosis {
    /// Places more threads than can be looked at pair by pair; adopts that if it is better by more than the noise.
    fn deal(&mut self, snapshot: &Snapshot, scene: &Scene, costs: &Costs) {
        let least = self.config.min_confidence;
        let mut uses = Vec::with_capacity(scene.runners.len());
        let mut speeds = Vec::with_capacity(scene.runners.len());
        for of in &scene.runners {
            let read = costs
                .basis
                .read(&believed(&snapshot.threads[of.at].metrics, least));
            let speed = read.as_ref().filter(|_| costs.basis.counted);
            speeds.push(speed.map_or(1.0, |read| read[0]));
            uses.push(read);
        }
        let classes = Classes::new(costs, scene.levels[0], &uses, &speeds);
        let current = classes.value(scene, &here(scene));
        let dealt = classes.deal(scene);
        let gain = classes.value(scene, &dealt) / current - 1.0;
        if current > 0.0 && gain > self.config.gain {
            let text = format!(
                "least predicted loss of classes, {:.1} % more in all",
                100.0 * gain
            );
            for (runner, of) in scene.runners.iter().enumerate().filter(|(_, of)| of.ours) {
                let reason = Reason::new(text.clone()).with("class", classes.of[runner] as f64);
                let pus: PuSet = scene.units[dealt[runner]].pus.clone();
                self.memory[of.at].target = Some((pus, reason));
            }
            self.rest = (snapshot.period + SETTLE, 1);
        } else {
            self.rest(snapshot.period);
        }
    }

    /// Nothing was gained by a search: the next one comes later.
    fn rest(&mut self, period: u64) {
        let rest = self.rest.1;
        self.rest = (period + rest, (2 * rest).min(LONGEST_REST));
    }

    /// Looks for a better placement and adopts it if it is better by more than the noise.
    fn search(
        &mut self,
        snapshot: &Snapshot,
        scene: &Scene,
        costs: &Costs,
        pairs: &Pairs,
        now: &[f64],
    ) {
        let current = Placed::new(scene, pairs, here(scene)).value();
        let (value, best) = self.best(scene, pairs);
        let gain = value / current - 1.0;
        let corrected = costs.basis.counted && self.config.learn;
        // Errors of the prediction that nothing will correct are noise; over many threads they even out.
        let noise = match corrected {
            true => 0.0,
            false => costs.error() / (scene.runners.len() as f64).sqrt() * UNCORRECTED,
        };
        let needed = self.config.gain.max(noise) * f64::from(1u32 << self.disappointed);
        if current > 0.0 && gain > needed {
            self.moved = corrected.then(|| Moved {
                period: snapshot.period,
                predicted: gain,
                before: delivered(scene, now),
                from: here(scene),
            });
            let text = format!("least predicted loss, {:.1} % more in all", 100.0 * gain);
            self.adopt(snapshot, scene, &best, &text);
            self.rest = (0, 1);
        } else {
            self.rest(snapshot.period);
        }
    }

    /// Remembers where threads shall be, and why.
    fn adopt(&mut self, snapshot: &Snapshot, scene: &Scene, best: &Placed<'_>, why: &str) {
        for (runner, of) in scene.runners.iter().enumerate().filter(|(_, of)| of.ours) {
            let unit = best.unit[runner];
            let others = best.members(unit).iter().filter(|other| **other != runner);
            let mut names: Vec<String> = others
                .map(|other| {
                    snapshot.threads[scene.runners[*other].at]
                        .info
                        .id
                        .to_string()
                })
                .collect();
            names.sort_unstable();
            names.truncate(4);
            let text = match names.is_empty() {
                true => format!("{why}: a place of its own"),
                false => format!("{why}: beside {}", names.join(", ")),
            };
            let lost = 1.0 - (-best.lost(runner)).exp();
            let reason = Reason::new(text).with("predicted loss", lost);
            let pus: PuSet = scene.units[unit].pus.clone();
            self.memory[of.at].target = Some((pus, reason));
        }
    }
}
