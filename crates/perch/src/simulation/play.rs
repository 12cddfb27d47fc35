//! One simulation and what came of it.

use super::{
    BEST, DEFAULT, Scene, WORST,
    alone::{Alone, kind_of, rate_of},
    meter::Meter,
};
use crate::{
    args::SimArgs,
    command::place::{self, Output},
    config::Settings,
    render::{explain::Explain, live::Live},
};
use anyhow::{Context, Result, anyhow, bail};
use perch_core::{Policy, PuSet};
use perch_engine::{
    Acting, Observer, Options, Period, Session, StateDir,
    recording::Recorder,
    report::{Collector, Report},
};
use perch_lab::{
    calibrate,
    placement::{Placement, shuffled},
    processor::SimProcessor,
};
use perch_policy::{Inputs, registry};
use perch_sim::{
    machine::SimMachine,
    model::MachineModel,
    os::SchedulerModel,
    stream::Random,
    system::{Outcome, System},
    timeline,
    workload::WorkloadModel,
};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc, time::Instant};

/// Into how many parts a simulation is cut to tell how far it is.
const PARTS: u64 = 20;

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
    /// Mean slowdown.
    pub slowdown: f64,
    /// Moves from one PU to another, of all threads.
    pub migrations: u64,
    /// Simulated instructions.
    pub instructions: u64,
    /// How long it took here, in seconds.
    pub host_seconds: f64,
    /// Requests, devices and energy, if there were any.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The threads, in the order in which they started.
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
}

/// A policy and its settings.
///
/// # Errors
/// A policy that is not there, settings that do not fit it or the machine.
pub fn decider(
    policy: &str,
    machine: &Arc<MachineModel>,
    args: &SimArgs,
) -> Result<(Box<dyn Policy>, Settings)> {
    if [BEST, WORST].contains(&policy) {
        bail!("`{policy}` is no policy: give it to --compare, together with others");
    }
    let mut settings = Settings::new(&args.place(policy))?;
    if settings.lacks_calibration() {
        settings.calibrated_with(machine.name.clone(), calibrated(machine)?);
    }
    if args.log.is_some() {
        settings.keep_calibration(None);
    }
    let decides = match policy {
        DEFAULT => registry::build("observe", &toml::Table::new(), &Inputs::default())?,
        _ => place::policy(&settings, &perch_sim::topology::topology(machine)).map_err(|error| {
            match registry::names().any(|known| known == policy) {
                true => error,
                // Those who misspell may have meant what is none.
                false => error.context(format!("`{policy}` is neither {DEFAULT}, nor {BEST} or {WORST} (of --compare), nor a policy")),
            }
        })?,
    };
    Ok((decides, settings))
}

/// The text of the calibration of a simulated machine, measured again as `perch calibrate` does.
fn calibrated(machine: &Arc<MachineModel>) -> Result<String> {
    let how = calibrate::How::new("as it was simulated".to_owned());
    let measured = calibrate::simulated(machine, &how, |_, _| ());
    let measured =
        measured.map_err(|why| anyhow!("{}: cannot be calibrated: {why}", machine.name))?;
    Ok(measured.to_toml()?)
}

/// Plays the workload under a policy, its threads started in the order of this seed; the result, and the report that
/// `perch run` would print.
///
/// # Errors
/// A policy that is not there or does not fit, a deadlock, a file that cannot be written.
pub fn play(
    scene: &Scene<'_>,
    policy: &str,
    seed: u64,
    alone: &Alone,
    meter: Meter<'_>,
) -> Result<(Simulated, Report)> {
    let (machine, args) = (scene.machine, scene.args);
    let (decides, settings) = decider(policy, machine, args)?;
    let mut system = System::at(
        &scene.detail,
        Arc::clone(machine),
        Arc::new(in_order_of_chance(scene.workload, seed)),
        SchedulerModel::default(),
        seed,
    );
    if args.timeline.is_some() {
        system.remember_stays();
    }
    let state = tempfile::tempdir().context("a folder for the simulated journal")?;
    let processor = SimProcessor::new(machine)
        .with_metrics(&args.metrics)
        .with_metrics(decides.needs());
    let mut session = Session::new(
        SimMachine::new(system, Some(args.time)),
        Options {
            policy: decides,
            processor: Box::new(processor),
            period: settings.period,
            acting: Acting::Live(StateDir::open(state.path())?),
            take_over: false,
            pus: settings.pus.clone(),
        },
    )?;
    session.set_clock(|| 0);
    let command = [format!("{} on {}", scene.workload.name, machine.name)];
    let mut collector = Collector::new(&command);
    let mut recorder = match &args.log {
        Some(path) => {
            let recorder = Recorder::create(path, &command)?.with_configuration(settings.told());
            Some(recorder.with_calibration(settings.calibration))
        }
        None => None,
    };
    let (mut live, mut explain) = (Live::default(), Explain::default());
    let mut told = Told(meter);
    let mut observers: Vec<&mut dyn Observer> = vec![&mut collector, &mut told];
    observers.extend(
        recorder
            .as_mut()
            .map(|recorder| recorder as &mut dyn Observer),
    );
    if args.explain {
        observers.push(&mut explain);
    }
    if args.live {
        observers.push(&mut live);
    }
    let drawing = args.timeline.as_deref().map(Output::open).transpose()?;
    let start = Instant::now();
    session.run(&mut observers)?;
    let host_seconds = start.elapsed().as_secs_f64();
    if let Some(recorder) = &mut recorder {
        recorder.finish()?;
    }
    let system = session.machine().system();
    if let Some(file) = drawing {
        file.write(&timeline::trace(system)?)?;
    }
    let mut result = simulated(system, scene.workload, alone);
    (result.seed, result.host_seconds) = (seed, host_seconds);
    Ok((result, collector.report()))
}

/// Plays the workload with each thread, in the order of its file, on the PU that the placement says.
///
/// # Errors
/// A deadlock.
pub fn play_placed(
    scene: &Scene<'_>,
    placement: &Placement,
    seed: u64,
    alone: &Alone,
    mut meter: Meter<'_>,
) -> Result<Simulated> {
    let start = Instant::now();
    let until = scene.until();
    let mut system = placed(scene, placement, seed)?;
    for part in 1..=PARTS {
        system.run(until / PARTS * part)?;
        meter.is_at(scene.machine.os_time(system.now()));
    }
    system.run(until)?;
    let mut result = simulated(&system, scene.workload, alone);
    (result.seed, result.host_seconds) = (seed, start.elapsed().as_secs_f64());
    Ok(result)
}

/// The system at its first moment with all threads placed.
///
/// # Errors
/// None that a first moment could have.
pub fn placed(scene: &Scene<'_>, placement: &Placement, seed: u64) -> Result<System> {
    let mut system = System::at(
        &scene.detail,
        Arc::clone(scene.machine),
        Arc::clone(scene.workload),
        SchedulerModel::default(),
        seed,
    );
    // Threads exist after the first moment.
    system.run(1)?;
    for (thread, pu) in placement.iter().enumerate() {
        system.set_mask(thread, PuSet::single(*pu));
    }
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
struct Told<'a>(Meter<'a>);

impl Observer for Told<'_> {
    fn period(&mut self, period: &Period<'_>) {
        self.0.is_at(period.snapshot.at);
    }
}

fn simulated(system: &System, workload: &WorkloadModel, alone: &Alone) -> Simulated {
    let machine = system.machine();
    let cycle = machine.kinds[machine.cores[0].kind].cycle as f64;
    let threads: Vec<SimulatedThread> = system
        .threads()
        .iter()
        .map(|thread| {
            let process = &system.processes()[thread.identity.process];
            let kinds = workload.programs.iter().find(|p| p.name == process.name);
            let kinds = kinds.map_or(&[][..], |program| &program.threads);
            let life = (thread.ended.unwrap_or(system.now()) - thread.identity.started).max(1);
            let instructions = thread.counters.instructions();
            let kind = kind_of(kinds, &thread.identity.name);
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
            }
        })
        .collect();
    let slowdowns = || {
        threads
            .iter()
            .map(|thread| thread.slowdown)
            .filter(|s| s.is_finite())
    };
    let largest = slowdowns().fold(f64::NAN, f64::max);
    let smallest = slowdowns().fold(f64::NAN, f64::min);
    let instructions: u64 = threads.iter().map(|thread| thread.instructions).sum();
    Simulated {
        seed: 0,
        seconds: machine.os_time(system.now()) as f64 / 1e9,
        throughput: instructions as f64 / (system.now() as f64 / cycle),
        unfairness: largest / smallest,
        slowdown: slowdowns().sum::<f64>() / slowdowns().count().max(1) as f64,
        migrations: threads.iter().map(|thread| thread.migrations).sum(),
        instructions,
        host_seconds: 0.0,
        outcome: system.outcome(),
        threads,
    }
}
