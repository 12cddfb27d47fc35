//! The placement that knows: threads go where the loss is least that this machine's own calibration predicts.
//!
//! `perch calibrate` measures how small co-running kernels slow each other down at each level of sharing. From that and
//! from each thread's metrics the policy predicts what every thread would do to every other, finds the placement in
//! which all together are fastest, and moves threads there if the gain is above the noise. What came of it corrects the
//! prediction.
//!
//! The constants in these files are chosen, not from a source, unless a comment names one; each comment gives the
//! effect and the unit. Costs of sharing are not constants: they come from the calibration.

mod cold;
mod config;
mod cost;
mod large;
mod learned;
mod loss;
mod memory;
mod noise;
mod outcome;
mod predict;
mod scene;
mod search;
mod uses;

pub use config::SymbiosisConfig;

use crate::{
    PolicyError, WorkOver, WorkOverConfig, calibration::Calibration, error::not_read,
    history::PerThread, nothing::nothing_to_place,
};
use cold::ColdCost;
use cost::Costs;
use large::Classes;
use loss::{Pairs, Placed};
use memory::Memory;
use noise::Noise;
use perch_core::{Binding, Plan, Policy, PuSet, Reason, Remark, Snapshot, ThreadId};
use scene::Scene;
use std::time::Duration;
use uses::believed;

/// The policy's name.
const NAME: &str = "symbiosis";

/// A gain is above the noise if it is this many times as large.
const ABOVE: f64 = 1.0;

/// The reason that is printed when no thread is moved.
const NOTHING: &str = "no placement promises enough more than the present one (options gain and move_cost; chance; what earlier moves brought)";

/// The same where the calibration gives nothing to choose by.
const NO_SLOWDOWN: &str =
    "the calibration shows no slowdown that is more than noise: nothing that placement could use";

/// Periods after a change before anything is concluded: one in which threads moved, one in which caches fill.
const SETTLE: u64 = 2;

/// Periods after a thread entered another phase before any thread is moved.
const CALM: u64 = 1;

/// Where no measurement corrects the prediction, a gain must be at least this fraction of the prediction's error.
const UNCORRECTED: f64 = 0.5;

/// If a search gained nothing, the next one comes after twice as many periods, up to this many.
const LONGEST_REST: u64 = 16;

/// The policy `symbiosis`: placement by calibrated slowdowns, corrected by measured speeds.
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
    /// A gain must be above this: gains of this size did not come true with these threads.
    bar: f64,
    /// The period in which threads came or went last, and that in which one entered another phase.
    changed: u64,
    phase: u64,
    busy: Vec<ThreadId>,
    /// How much all together vary from period to period while nothing changes.
    noise: Noise,
    /// What moves cost as far as that was seen.
    cold: ColdCost,
    /// Whether the last search found nothing better than the present placement.
    nothing: bool,
    /// No search before this period, and how long the last rest was.
    rest: (u64, u64),
}

#[derive(Debug, Clone)]
struct Moved {
    period: u64,
    predicted: f64,
    /// How fast each busy thread went on.
    before: Vec<f64>,
    /// The units on which the busy threads were.
    from: Vec<usize>,
}

impl Symbiosis {
    /// A policy without a calibration: it places as `workover` does.
    ///
    /// # Errors
    /// An option out of range, or options that ask for a calibration ([`Symbiosis::with_calibration`]).
    pub fn new(config: SymbiosisConfig) -> Result<Self, PolicyError> {
        match config.calibration.as_str() {
            "" => Self::of(config, None),
            file => Err(not_read(NAME, file)),
        }
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
            && !calibration.tells_of_kernels()
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
            bar: 0.0,
            changed: 0,
            phase: 0,
            busy: Vec::new(),
            noise: Noise::default(),
            cold: ColdCost::default(),
            nothing: false,
            rest: (0, 1),
        })
    }

    /// The best placement that is found, from the placement as it is and from the best pairs.
    fn best<'a>(&self, scene: &'a Scene, pairs: &'a Pairs) -> (f64, Placed<'a>) {
        let of_move = self.config.move_cost.max(self.cold.part());
        let mut starts = vec![here(scene)];
        starts.extend(search::matched(scene, pairs));
        let improved = starts.into_iter().map(|start| {
            let mut placed = Placed::new(scene, pairs, start);
            search::improve(&mut placed, scene);
            let moves = placed.unit.iter().zip(&scene.runners);
            let moves = moves.filter(|(unit, runner)| **unit != runner.unit);
            let cost = moves.map(|(_, runner)| runner.present).sum::<f64>() * of_move;
            (placed.value() - cost, placed)
        });
        let mut best: Option<(f64, Placed<'a>)> = None;
        for (value, placed) in improved {
            if best.as_ref().is_none_or(|(known, _)| value > *known) {
                best = Some((value, placed));
            }
        }
        best.unwrap_or_else(|| (0.0, Placed::new(scene, pairs, here(scene))))
    }

    /// The plan that binds every thread to its unit.
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
        if plan.bindings.is_empty() && self.nothing {
            let shown = self.calibration.as_ref();
            let shows = shown.is_none_or(Calibration::shows_slowdowns);
            let why = if shows { NOTHING } else { NO_SLOWDOWN };
            plan.remarks.push(nothing_to_place(why));
        }
        plan
    }

    fn fall_back(&mut self, snapshot: &Snapshot, why: &str) -> Plan {
        let mut plan = self.fallback.decide(snapshot);
        plan.remarks.push(Remark::warning(
            "policy-fallback",
            format!("symbiosis places as workover does: {why}"),
        ));
        plan
    }
}

fn bad(message: String) -> PolicyError {
    PolicyError::BadOption {
        policy: NAME,
        message,
    }
}

/// The placement as it is.
fn here(scene: &Scene) -> Vec<usize> {
    scene.runners.iter().map(|runner| runner.unit).collect()
}

/// How fast each busy thread went on while it wanted a PU: what it did in a cycle, less the part that it waited where
/// threads time-share a PU. Elsewhere a thread waits only until the kernel has spread the threads of a unit, which no
/// placement is to blame for.
fn done(snapshot: &Snapshot, scene: &Scene, now: &[f64]) -> Vec<f64> {
    let runners = scene.runners.iter().zip(now);
    runners
        .map(|(runner, now)| {
            let thread = &snapshot.threads[runner.at];
            let wanted = thread.wanted();
            match scene.turns && wanted > 0.0 {
                true => now * thread.activity / wanted,
                false => *now,
            }
        })
        .collect()
}

impl Policy for Symbiosis {
    fn name(&self) -> &'static str {
        NAME
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
            plan.remarks.push(nothing_to_place(remark));
            return plan;
        };
        let busy = scene.runners.iter().map(|r| snapshot.threads[r.at].info.id);
        let busy: Vec<ThreadId> = busy.collect();
        if busy != self.busy {
            self.busy = busy;
            self.changed = snapshot.period;
            self.bar /= 2.0;
            self.moved = None;
            self.noise.pause(snapshot.period + SETTLE);
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
        if self.phase == snapshot.period {
            self.noise.pause(snapshot.period + 1);
        }
        let done = done(snapshot, &scene, &now);
        self.noise
            .take(snapshot.period, &scene, &pairs.speed, &done);
        if corrected {
            self.learn(snapshot, &scene, &mut pairs, &now);
            back = self.judge(snapshot, &scene, &pairs.speed, &done);
        }
        if self.changed.max(self.phase) == snapshot.period {
            self.rest.1 = 1;
        }
        let settling = self.moved.is_some()
            || snapshot.period < self.changed + SETTLE
            || snapshot.period < self.phase + CALM
            || corrected && !self.noise.is_known() && snapshot.period < self.changed + 2 * SETTLE;
        if let Some(from) = back {
            let placed = Placed::new(&scene, &pairs, from);
            self.adopt(snapshot, &scene, &placed, "back to where all were faster");
            self.rest = (snapshot.period + SETTLE, 1);
        } else if !settling && snapshot.period >= self.rest.0 {
            self.search(snapshot, &scene, &costs, &pairs, done);
        }
        self.plan(snapshot, &scene)
    }
}

impl Symbiosis {
    /// Places more threads than can be looked at pair by pair; adopts that if it is better by more than the noise.
    fn deal(&mut self, snapshot: &Snapshot, scene: &Scene, costs: &Costs) {
        if self.is_pointless(false) {
            return self.release(snapshot, scene);
        }
        let least = self.config.min_confidence;
        let mut uses = Vec::with_capacity(scene.runners.len());
        for of in &scene.runners {
            let metrics = &snapshot.threads[of.at].metrics;
            uses.push(costs.basis.read(&believed(metrics, least)));
        }
        let classes = Classes::new(costs, scene.levels[0], &uses);
        let current = classes.value(scene, &here(scene));
        let dealt = classes.deal(scene);
        let gain = classes.value(scene, &dealt) / current - 1.0;
        if current > 0.0 && gain > self.config.gain {
            let text = format!(
                "least predicted loss of classes, throughput +{:.1} %",
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

    /// Whether no placement can gain anything: co-running slows nothing down, and no two threads share memory (`talk`). What
    /// is left are numbers of threads, which the kernel evens out by itself.
    fn is_pointless(&self, talk: bool) -> bool {
        let calibration = self.calibration.as_ref();
        !talk && calibration.is_some_and(|calibration| !calibration.shows_slowdowns())
    }

    /// Binds no thread until the next search.
    fn release(&mut self, snapshot: &Snapshot, scene: &Scene) {
        for of in &scene.runners {
            self.memory[of.at].target = None;
        }
        self.nothing = true;
        self.rest(snapshot.period);
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
        done: Vec<f64>,
    ) {
        if self.is_pointless(!pairs.talk.is_empty()) {
            return self.release(snapshot, scene);
        }
        let current = Placed::new(scene, pairs, here(scene)).value();
        let (value, best) = self.best(scene, pairs);
        let gain = value / current - 1.0;
        let corrected = costs.basis.counted && self.config.learn;
        // A gain that cannot be distinguished from chance is no gain. Errors of the prediction that nothing will
        // correct are noise too; over many threads they even out.
        let noise = match corrected {
            true => self.noise.level() * ABOVE,
            false => costs.error() / (scene.runners.len() as f64).sqrt() * UNCORRECTED,
        };
        let needed = self.config.gain.max(noise).max(self.bar);
        if current > 0.0 && gain > needed {
            self.moved = corrected.then(|| Moved {
                period: snapshot.period,
                predicted: gain,
                before: done,
                from: here(scene),
            });
            let text = format!("least predicted loss, throughput +{:.1} %", 100.0 * gain);
            self.adopt(snapshot, scene, &best, &text);
            self.rest = (0, 1);
        } else {
            self.nothing = true;
            self.rest(snapshot.period);
        }
    }

    /// Remembers where threads shall be, and why.
    fn adopt(&mut self, snapshot: &Snapshot, scene: &Scene, best: &Placed<'_>, why: &str) {
        self.nothing = false;
        for (runner, of) in scene.runners.iter().enumerate().filter(|(_, of)| of.ours) {
            let unit = best.unit[runner];
            let others = best.members(unit).iter().filter(|other| **other != runner);
            let mut names: Vec<String> = others
                .map(|other| {
                    let info = &snapshot.threads[scene.runners[*other].at].info;
                    format!("{} ({})", info.name, info.id.tid)
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
