//! One simulation and what came of it.

use super::{
    Scene, SceneError,
    alone::{Alone, rate_of},
    meter::Meter,
};
use crate::{
    placement::{Placement, shuffled},
    session::{Decider, SimSession},
    simulate::{begin_at, kind},
};
use perch_engine::{Period, SessionSink};
use perch_policy::Observe;
use perch_sim::{
    detail::Detail,
    model::MachineModel,
    os::SchedulerModel,
    stream::Random,
    system::{Outcome, System},
    workload::WorkloadModel,
};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc, time::Instant};

/// What came of one simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulated {
    /// The seed.
    pub seed: u64,
    /// Simulated time, in seconds of the operating system.
    pub seconds: f64,
    /// Instructions of all threads / cycle of the machine's first kind of core.
    pub throughput: f64,
    /// Largest slowdown / smallest; 1 is fair.
    pub unfairness: f64,
    /// Mean slowdown: the field's ANTT.
    pub slowdown: f64,
    /// Sum of the threads' speeds, each relative to its speed in isolation and weighted by the part of the time in which it
    /// lives: the field's STP, or weighted speedup.
    pub speedup: f64,
    /// Moves from one PU to another, of all threads.
    pub migrations: u64,
    /// Simulated instructions.
    pub instructions: u64,
    /// How long it took here, in seconds.
    pub host_seconds: f64,
    /// Requests, devices and energy, if there were any.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The threads, in the order in which they started, but for the operating system's.
    pub threads: Vec<SimulatedThread>,
}

/// What became of one thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulatedThread {
    /// Its name.
    pub name: String,
    /// Its program.
    pub program: String,
    /// Instructions.
    pub instructions: u64,
    /// Instructions / cycle while it was on a PU.
    pub ipc: f64,
    /// Share of its life on a PU.
    pub busy: f64,
    /// Instructions in a second of its life, alone on the machine (or in its program alone, where threads wait for each
    /// other) / here.
    pub slowdown: f64,
    /// Moves from one PU to another.
    pub migrations: u64,
    /// The PU where it was last.
    pub pu: u32,
}

/// The machine at its first moment, with the workload's threads in the order of a seed.
pub fn system(
    detail: &Detail,
    machine: &Arc<MachineModel>,
    workload: &WorkloadModel,
    seed: u64,
) -> System {
    System::at(
        detail,
        Arc::clone(machine),
        Arc::new(in_order_of_chance(workload, seed)),
        SchedulerModel::default(),
        seed,
    )
}

/// The workload under a policy, ready to be played, its threads started in the order of a seed.
pub struct Played<'a> {
    session: SimSession,
    meter: Meter<'a>,
    seed: u64,
    host_seconds: f64,
}

impl Scene {
    /// The workload under a policy, its threads started in the order of a seed: for those who watch it. It is what
    /// [`compare`](super::compare) plays, without what that measures.
    ///
    /// # Errors
    /// A journal that cannot be kept.
    pub fn session(&self, decider: Decider, seed: u64) -> Result<SimSession, SceneError> {
        Ok(SimSession::new(self.system(seed), self.time, decider)?)
    }

    fn system(&self, seed: u64) -> System {
        system(&self.detail, &self.machine, &self.workload, seed)
    }
}

impl<'a> Played<'a> {
    pub(super) fn new(
        scene: &Scene,
        decider: Decider,
        seed: u64,
        meter: Meter<'a>,
    ) -> Result<Self, SceneError> {
        Self::of(scene.system(seed), scene, decider, seed, meter)
    }

    /// With each thread, in the order of the workload's file, on the PU that the placement says, and watched only.
    pub(super) fn placed(
        scene: &Scene,
        placement: &Placement,
        seed: u64,
        meter: Meter<'a>,
    ) -> Result<Self, SceneError> {
        let system = placed(scene, placement, seed)?;
        let decider = Decider::new(Box::new(Observe));
        Self::of(system, scene, decider, seed, meter)
    }

    fn of(
        mut system: System,
        scene: &Scene,
        decider: Decider,
        seed: u64,
        meter: Meter<'a>,
    ) -> Result<Self, SceneError> {
        if scene.stays {
            system.remember_stays();
        }
        Ok(Self {
            session: SimSession::new(system, scene.time, decider)?,
            meter,
            seed,
            host_seconds: 0.0,
        })
    }

    /// Plays it to its end.
    ///
    /// # Errors
    /// A deadlock.
    pub fn run(&mut self, observer: &mut dyn SessionSink) -> Result<(), SceneError> {
        let start = Instant::now();
        let mut told = Told(&mut self.meter);
        let mut observers: Vec<&mut dyn SessionSink> = vec![observer, &mut told];
        self.session.run(&mut observers)?;
        self.host_seconds = start.elapsed().as_secs_f64();
        Ok(())
    }

    /// The system as it is now.
    pub fn system(&mut self) -> &System {
        self.session.system()
    }

    pub(super) fn result(&mut self, scene: &Scene, alone: &Alone) -> Simulated {
        let mut result = simulated(self.session.system(), &scene.workload, alone);
        (result.seed, result.host_seconds) = (self.seed, self.host_seconds);
        result
    }
}

/// The system after its first moment with all threads placed.
///
/// # Errors
/// A deadlock.
pub(super) fn placed(
    scene: &Scene,
    placement: &Placement,
    seed: u64,
) -> Result<System, SceneError> {
    let mut system = System::at(
        &scene.detail,
        Arc::clone(&scene.machine),
        Arc::clone(&scene.workload),
        SchedulerModel::default(),
        seed,
    );
    begin_at(&mut system, placement)?;
    Ok(system)
}

/// The workload with its programs and their threads in an order of chance, as they would start. Threads keep the names
/// that they have in the order of the file, but for their numbers.
fn in_order_of_chance(workload: &WorkloadModel, seed: u64) -> WorkloadModel {
    let mut shuffled = shuffled(workload, &mut Random::new(seed));
    for program in &mut shuffled.programs {
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let original = workload.programs.iter().find(|p| p.name == program.name);
        let several = |name: &str| {
            let mut kinds = original.iter().flat_map(|program| &program.threads);
            kinds.any(|kind| kind.name == name && kind.count > 1)
        };
        for thread in &mut program.threads {
            if several(&thread.name) {
                let number = seen.entry(thread.name.clone()).or_default();
                *number += 1;
                thread.name = format!("{}-{number}", thread.name);
            }
        }
    }
    shuffled
}

/// Tells the meter how far a session is.
struct Told<'a, 'b>(&'a mut Meter<'b>);

impl SessionSink for Told<'_, '_> {
    fn period(&mut self, period: &Period) {
        self.0.is_at(period.snapshot.at);
    }
}

fn simulated(system: &System, workload: &WorkloadModel, alone: &Alone) -> Simulated {
    let machine = system.machine();
    let cycle = machine.first_cycle() as f64;
    let threads: Vec<SimulatedThread> = system
        .program_threads()
        .map(|(_, thread)| {
            let process = &system.processes()[thread.identity.process];
            let life = (thread.ended.unwrap_or(system.now()) - thread.identity.started).max(1);
            let instructions = thread.counters.instructions();
            let kind = kind(workload, &process.name, &thread.identity.name);
            let rate = rate_of(thread, system);
            let best = alone
                .get(&(process.name.clone(), kind))
                .map_or(rate, |speed| speed.life);
            SimulatedThread {
                name: thread.identity.name.clone(),
                program: process.name.clone(),
                instructions,
                ipc: instructions as f64 / thread.cycles.max(1) as f64,
                busy: thread.cpu_time as f64 / life as f64,
                slowdown: if rate > 0.0 {
                    best / rate
                } else {
                    f64::INFINITY
                },
                migrations: thread.migrations,
                pu: thread.last_pu,
            }
        })
        .collect();
    let slowdowns = || {
        threads
            .iter()
            .map(|thread| thread.slowdown)
            .filter(|s| s.is_finite())
    };
    // One that lives for half of the time does half as much.
    let lives = system.program_threads().map(|(_, thread)| {
        let life = thread.ended.unwrap_or(system.now()) - thread.identity.started;
        life as f64 / system.now().max(1) as f64
    });
    let speedup = threads
        .iter()
        .zip(lives)
        .map(|(thread, life)| life / thread.slowdown)
        .sum();
    let largest = slowdowns().fold(f64::NAN, f64::max);
    let smallest = slowdowns().fold(f64::NAN, f64::min);
    let instructions: u64 = threads.iter().map(|thread| thread.instructions).sum();
    Simulated {
        seed: 0,
        seconds: machine.os_time(system.now()) as f64 / 1e9,
        throughput: instructions as f64 / (system.now() as f64 / cycle),
        unfairness: largest / smallest,
        slowdown: slowdowns().sum::<f64>() / slowdowns().count().max(1) as f64,
        speedup,
        migrations: threads.iter().map(|thread| thread.migrations).sum(),
        instructions,
        host_seconds: 0.0,
        outcome: system.outcome(),
        threads,
    }
}
