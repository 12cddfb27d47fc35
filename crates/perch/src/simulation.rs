//! One simulation under one policy, and what came of it.

use crate::{
    args::SimArgs,
    command::place,
    config::Settings,
    render::{explain::Explain, live::Live},
};
use anyhow::{Context, Result};
use perch_core::Policy;
use perch_engine::{
    Acting, Observer, Options, Session, StateDir,
    recording::Recorder,
    report::{Collector, Report},
};
use perch_lab::processor::SimProcessor;
use perch_policy::registry;
use perch_sim::{
    machine::SimMachine,
    model::MachineModel,
    os::SchedulerModel,
    system::{Outcome, System},
    thread::Thread,
    timeline,
    workload::{ProgramModel, Step, ThreadModel, WorkloadModel},
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// The policy of the operating system alone.
pub const DEFAULT: &str = "default";

/// What came of one simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulated {
    /// The policy.
    pub policy: String,
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

/// Instructions a second of life of each kind of threads, by program and name: one thread alone on the machine; where
/// threads wait for each other, in the program alone.
pub type Alone = BTreeMap<(String, String), f64>;

/// Plays every kind of threads alone.
///
/// # Errors
/// A deadlock.
pub fn alone(
    machine: &Arc<MachineModel>,
    workload: &Arc<WorkloadModel>,
    args: &SimArgs,
) -> Result<Alone> {
    let mut rates = Alone::new();
    for program in &workload.programs {
        let mut model = program.clone();
        (model.count, model.start, model.restart) = (1, 0, false);
        let models: Vec<ProgramModel> = match wait_for_each_other(program) {
            true => vec![model],
            false => {
                let one = |kind: &ThreadModel| ProgramModel {
                    threads: vec![ThreadModel {
                        count: 1,
                        ..kind.clone()
                    }],
                    ..model.clone()
                };
                program.threads.iter().map(one).collect()
            }
        };
        for model in models {
            let only = WorkloadModel {
                programs: vec![model],
                ..(**workload).clone()
            };
            let only = Arc::new(only);
            let until = on_machine(args.time, machine);
            // Alone it would run on the kind of cores that suits it best.
            for kind in &perch_sim::topology::topology(machine).kinds {
                let (machine, only) = (Arc::clone(machine), Arc::clone(&only));
                let mut system = System::new(machine, only, SchedulerModel::default(), args.seed);
                system.run(1)?;
                for thread in 0..system.threads().len() {
                    system.set_mask(thread, kind.pus.clone());
                }
                system.run(until)?;
                for thread in system.threads() {
                    let kind = kind_of(&program.threads, &thread.identity.name);
                    let rate = rate_of(thread, &system);
                    let best = rates.entry((program.name.clone(), kind)).or_insert(rate);
                    *best = best.max(rate);
                }
            }
        }
    }
    Ok(rates)
}

fn wait_for_each_other(program: &ProgramModel) -> bool {
    let mut steps = program.threads.iter().flat_map(|thread| &thread.steps);
    steps.any(|step| !matches!(step, Step::Compute { .. } | Step::Sleep(_)))
}

/// Instructions in a picosecond of a thread's life.
fn rate_of(thread: &Thread, system: &System) -> f64 {
    let life = thread.ended.unwrap_or(system.now()) - thread.identity.started;
    thread.counters.instructions() as f64 / life.max(1) as f64
}

/// The name of a thread's kind: without the number that each of several has.
fn kind_of(kinds: &[ThreadModel], name: &str) -> String {
    let kind = kinds.iter().find(|kind| {
        let number = name
            .strip_prefix(&kind.name)
            .and_then(|rest| rest.strip_prefix('-'));
        kind.name == name || number.is_some_and(|number| number.parse::<u32>().is_ok())
    });
    kind.map_or(name, |kind| kind.name.as_str()).to_owned()
}

/// Time of the operating system as picoseconds of the machine.
fn on_machine(time: Duration, machine: &MachineModel) -> u64 {
    (time.as_nanos() as f64 * perch_sim::units::NANOSECOND as f64 / machine.scale).round() as u64
}

/// A policy and its settings.
///
/// # Errors
/// A policy that is not there, settings that do not fit it or the machine.
pub fn decider(
    policy: &str,
    machine: &MachineModel,
    args: &SimArgs,
) -> Result<(Box<dyn Policy>, Settings)> {
    let settings = Settings::new(&args.place(policy))?;
    let decides = match policy {
        DEFAULT => registry::build("observe", &toml::Table::new())?,
        _ => place::policy(&settings, &perch_sim::topology::topology(machine))?,
    };
    Ok((decides, settings))
}

/// Plays the workload under a policy; the result, and the report that `perch run` would print.
///
/// # Errors
/// A policy that is not there or does not fit, a deadlock, a file that cannot be written.
pub fn play(
    machine: &Arc<MachineModel>,
    workload: &Arc<WorkloadModel>,
    policy: &str,
    args: &SimArgs,
    alone: &Alone,
) -> Result<(Simulated, Report)> {
    let (decides, settings) = decider(policy, machine, args)?;
    let mut system = System::new(
        Arc::clone(machine),
        Arc::clone(workload),
        SchedulerModel::default(),
        args.seed,
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
    let command = [format!("{} on {}", workload.name, machine.name)];
    let mut collector = Collector::new(&command);
    let mut recorder = match &args.log {
        Some(path) => Some(Recorder::create(path, &command)?.with_configuration(settings.told())),
        None => None,
    };
    let (mut live, mut explain) = (Live::default(), Explain::default());
    let mut observers: Vec<&mut dyn Observer> = vec![&mut collector];
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
    let start = Instant::now();
    session.run(&mut observers)?;
    let host_seconds = start.elapsed().as_secs_f64();
    if let Some(recorder) = &mut recorder {
        recorder.finish()?;
    }
    let system = session.machine().system();
    if let Some(path) = &args.timeline {
        std::fs::write(path, timeline::trace(system)?)
            .with_context(|| format!("{}: the timeline cannot be written", path.display()))?;
    }
    let result = simulated(policy, system, workload, alone, host_seconds);
    Ok((result, collector.report()))
}

fn simulated(
    policy: &str,
    system: &System,
    workload: &WorkloadModel,
    alone: &Alone,
    host_seconds: f64,
) -> Simulated {
    let machine = system.machine();
    let cycle = machine.kinds[machine.cores[0].kind].cycle as f64;
    let threads: Vec<SimulatedThread> = system
        .threads()
        .iter()
        .map(|thread| {
            let process = &system.processes()[thread.identity.process];
            let program = &workload.programs[process.program];
            let life = (thread.ended.unwrap_or(system.now()) - thread.identity.started).max(1);
            let instructions = thread.counters.instructions();
            let kind = program.threads[thread.identity.kind].name.clone();
            let rate = rate_of(thread, system);
            let best = alone
                .get(&(program.name.clone(), kind))
                .copied()
                .unwrap_or(rate);
            SimulatedThread {
                name: thread.identity.name.clone(),
                program: program.name.clone(),
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
        policy: policy.to_owned(),
        seconds: system.now() as f64 * machine.scale / perch_sim::units::SECOND as f64,
        throughput: instructions as f64 / (system.now() as f64 / cycle),
        unfairness: largest / smallest,
        slowdown: slowdowns().sum::<f64>() / slowdowns().count().max(1) as f64,
        migrations: threads.iter().map(|thread| thread.migrations).sum(),
        instructions,
        host_seconds,
        outcome: system.outcome(),
        threads,
    }
}
