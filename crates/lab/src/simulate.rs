//! One simulation: a machine, a workload, a placer for the threads, and a seed.

use crate::{
    experiment::{Span, Times},
    placement::Placement,
    sample::{Mark, Sample, Seen, ThreadStats},
    session::{Decider, SimSession},
    settled::settle,
};
use perch_core::{Outcome, Policy, PuSet, ThreadId, ThreadSample};
use perch_engine::{Period, SessionSink};
use perch_policy::{Inputs, registry};
use perch_sim::{
    detail::Detail,
    events::{Deed, EVENTS},
    model::MachineModel,
    os::{SchedulerModel, Served},
    system::{SimError, System},
    units::{Ps, SECOND},
    workload::{ThreadModel, WorkloadModel},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Who places the threads.
#[derive(Debug, Clone, PartialEq)]
pub enum Placer {
    /// The model of the default scheduler.
    Default,
    /// This placement, from the beginning.
    Fixed(Placement),
    /// A policy.
    Policy {
        /// Its name.
        name: String,
        /// Its options.
        options: toml::Table,
        /// What it is built from besides.
        inputs: Inputs,
        /// How often it decides.
        period: Option<Duration>,
    },
}

/// A simulation that is to be done.
#[derive(Debug, Clone)]
pub struct Job {
    /// The machine.
    pub machine: Arc<MachineModel>,
    /// The workload.
    pub workload: Arc<WorkloadModel>,
    /// The level of detail of the simulation.
    pub detail: Detail,
    /// Who places its threads.
    pub placer: Placer,
    /// When it counts.
    pub times: Times,
    /// The seed of all that is chance.
    pub seed: u64,
    /// Whether it is kept how far threads were at each moment.
    pub marked: bool,
    /// Whether caches are as they are after long; not under a policy. The cycle level fills them, and then runs until they
    /// have settled, or for [`SETTLE`].
    pub warm: bool,
}

/// Simulates. The same job always has the same result.
///
/// # Errors
/// In words: a deadlock, a policy that cannot be run, a workload that ends before it is counted.
pub fn simulate(job: &Job) -> Result<Sample, String> {
    simulate_seen(job, false)
}

/// Simulates; a policy sees only what `sampled` instructions tell, or all counts.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_seen(job: &Job, sampled: bool) -> Result<Sample, String> {
    let system = System::at(
        &job.detail,
        Arc::clone(&job.machine),
        Arc::clone(&job.workload),
        SchedulerModel::default(),
        job.seed,
    );
    let sample = match &job.placer {
        Placer::Default => without_policy(system, job, None),
        Placer::Fixed(placement) => without_policy(system, job, Some(placement)),
        Placer::Policy {
            name,
            options,
            inputs,
            period,
        } => {
            let policy = registry::build(name, options, inputs);
            let policy = policy.map_err(|error| error.to_string())?;
            with_policy(system, job, policy, *period, sampled)
        }
    }?;
    match sample.cycles > 0.0 {
        true => Ok(sample),
        false => Err(
            "the workload ended before anything was counted: a shorter warm-up is needed"
                .to_owned(),
        ),
    }
}

/// After this moment the threads that start at once exist.
pub(crate) const FIRST_MOMENT: Ps = 1;

/// Runs the system's first moment and puts its programs' threads, in the order in which they start, on the PUs of the
/// placement.
///
/// # Errors
/// A deadlock; a thread that is pinned to other PUs.
pub(crate) fn begin_at(system: &mut System, placement: &[u32]) -> Result<(), SimError> {
    system.run(FIRST_MOMENT)?;
    let threads: Vec<usize> = system.program_threads().map(|(thread, _)| thread).collect();
    for (thread, pu) in threads.into_iter().zip(placement) {
        let its = &system.threads()[thread];
        if !its.mask.contains(*pu) {
            return Err(SimError::PinnedElsewhere {
                thread: its.identity.name.clone(),
                pus: its.mask.to_string(),
                pu: *pu,
            });
        }
        system.set_mask(thread, PuSet::single(*pu));
    }
    Ok(())
}

/// A span in the machine's time.
fn on_machine(span: Span, machine: &MachineModel) -> Ps {
    match span {
        Span::Cycles(cycles) => cycles * machine.first_cycle(),
        Span::Time(time) => machine.machine_time(time.as_nanos() as u64),
    }
}

/// For how many cycles of the first kind of core the cycle level runs at most until its caches have settled.
const SETTLE: u64 = 20_000_000;

fn without_policy(
    mut system: System,
    job: &Job,
    placement: Option<&Placement>,
) -> Result<Sample, String> {
    let machine = &job.machine;
    let start = on_machine(job.times.warm_up, machine);
    if let Some(placement) = placement {
        begin_at(&mut system, placement).map_err(|error| error.to_string())?;
        let there = system.program_threads().count();
        if there != placement.len() {
            return Err(format!(
                "{there} threads, but {} are placed",
                placement.len()
            ));
        }
    }
    let mut settled = true;
    if job.warm {
        system
            .run(FIRST_MOMENT)
            .map_err(|error| error.to_string())?;
        system.warm();
        if matches!(job.detail, Detail::Cycle) {
            settled = settle(&mut system, SETTLE).map_err(|error| error.to_string())?;
        }
    }
    let start = start.max(system.now());
    let end = start + on_machine(job.times.length, machine);
    system.run(start).map_err(|error| error.to_string())?;
    system.measure_energy_from(system.now());
    let (begun, before) = (system.now(), stats(&system, &job.workload));
    let marks = run_to(&mut system, end, job)?;
    let mut threads = stats(&system, &job.workload);
    for (thread, marks) in threads.iter_mut().zip(marks) {
        thread.marks = marks;
    }
    // Those that started meanwhile had done nothing before.
    for (thread, before) in threads.iter_mut().zip(before) {
        thread.leave_out(before);
    }
    Ok(Sample {
        cycles: (system.now() - begun) as f64 / machine.first_cycle() as f64,
        threads,
        moves: Vec::new(),
        seconds: seconds(system.now() - begun, machine),
        responses: responses(&system, begun),
        energy: system.energy(),
        settled,
    })
}

/// How often it is noted how far threads are, in the whole time that is counted.
const MARKS: u64 = 4_000;

/// Runs on to the end, and notes how far each thread is from time to time if the job asks for that.
fn run_to(system: &mut System, end: Ps, job: &Job) -> Result<Vec<Vec<Mark>>, String> {
    let mut marks: Vec<Vec<Mark>> = Vec::new();
    if job.marked {
        let begun = system.now();
        for step in 1..MARKS {
            if system.is_done() {
                break;
            }
            let next = begun + (end - begun) / MARKS * step;
            system.run(next).map_err(|error| error.to_string())?;
            note(system, &mut marks);
        }
    }
    system.run(end).map_err(|error| error.to_string())?;
    if job.marked {
        note(system, &mut marks);
    }
    Ok(marks)
}

/// Notes how far each thread is.
fn note(system: &System, marks: &mut Vec<Vec<Mark>>) {
    marks.resize(system.program_threads().count(), Vec::new());
    for ((_, thread), marks) in system.program_threads().zip(marks) {
        let at = thread.ended.unwrap_or(system.now());
        marks.push(Mark {
            at: seconds(at, system.machine()),
            instructions: thread.counters.instructions(),
        });
    }
}

/// A time of the machine in seconds of the operating system.
fn seconds(time: Ps, machine: &MachineModel) -> f64 {
    time as f64 * machine.scale / SECOND as f64
}

/// Seconds from arrival to reply of each request that was replied to from a moment on.
fn responses(system: &System, from: Ps) -> Vec<f64> {
    let processes = 0..system.processes().len();
    let served = processes.flat_map(|process| system.served(process));
    let counted = served.filter(|one| one.done >= from);
    let time = |one: &Served| seconds(one.done - one.arrived, system.machine());
    counted.map(time).collect()
}

/// What every thread has done so far, but for the operating system's.
fn stats(system: &System, workload: &WorkloadModel) -> Vec<ThreadStats> {
    let aliases = EVENTS.map(|(event, ..)| event.to_ascii_lowercase());
    let threads = system.program_threads().map(|(_, thread)| {
        let process = &system.processes()[thread.identity.process];
        let kind = &workload.programs[process.program].threads[thread.identity.kind];
        let since = |since| system.now().saturating_sub(since);
        let waits = thread.waiting_since.map_or(0, since);
        let seen = Seen {
            pu: Some(thread.last_pu),
            wanted: seconds(thread.cpu_time + thread.wait_time + waits, system.machine()),
            migrations: thread.migrations,
        };
        let deed = Deed {
            cycles: thread.cycles,
            counters: thread.counters,
            ..Deed::default()
        };
        let counts = aliases.iter().zip(EVENTS);
        let counts = counts.map(|(alias, (_, _, read))| (alias.as_str(), read(&deed)));
        let mut stats = ThreadStats::new(kind.name.clone(), process.name.clone());
        stats.add(seen, counts);
        stats
    });
    threads.collect()
}

/// The kind of a process's thread: its name without the number that each of several has.
pub(crate) fn kind(workload: &WorkloadModel, program: &str, name: &str) -> String {
    let program = workload.programs.iter().find(|model| model.name == program);
    let mut kinds = program.into_iter().flat_map(|program| &program.threads);
    let is_of = |kind: &&ThreadModel| {
        let rest = name.strip_prefix(&kind.name);
        let number = rest.and_then(|rest| rest.strip_prefix('-'));
        // A kind of one has no number, unless it was started by another.
        (kind.count == 1 && rest == Some("")) || number.is_some_and(|n| n.parse::<u32>().is_ok())
    };
    let kind = kinds.find(is_of);
    kind.map_or(name, |kind| kind.name.as_str()).to_owned()
}

fn with_policy(
    mut system: System,
    job: &Job,
    policy: Box<dyn Policy>,
    period: Option<Duration>,
    sampled: bool,
) -> Result<Sample, String> {
    let machine = &job.machine;
    let os_time = |span: Span| Duration::from_nanos(machine.os_time(on_machine(span, machine)));
    let warm_up = os_time(job.times.warm_up);
    let given = period.unwrap_or_else(|| policy.period());
    let decider = Decider {
        period,
        sampled,
        ..Decider::new(policy)
    };
    let time = warm_up + os_time(job.times.length);
    // From the end of the last period that the watcher does not count.
    system.measure_energy_from(machine.machine_time(warm_up.as_nanos() as u64));
    let mut session = SimSession::new(system, time, decider).map_err(|error| error.to_string())?;
    let mut watcher = Watcher {
        warm_up: warm_up.as_nanos() as u64,
        time: 0,
        before: BTreeMap::new(),
        threads: BTreeMap::new(),
        moves: Vec::new(),
        workload: &job.workload,
    };
    session
        .run(&mut watcher)
        .map_err(|error| error.to_string())?;
    let system = session.system();
    if watcher.time == 0 && !system.is_done() {
        return Err(format!(
            "nothing was counted: no period of the policy ({}) began after the warm-up of {} and ended before the run did; \
             give the run a shorter `period`",
            humantime::format_duration(given),
            humantime::format_duration(warm_up)
        ));
    }
    let begun = system
        .now()
        .saturating_sub(machine.machine_time(watcher.time));
    Ok(Sample {
        cycles: machine.machine_time(watcher.time) as f64 / machine.first_cycle() as f64,
        threads: watcher.threads.into_values().collect(),
        moves: watcher.moves,
        seconds: watcher.time as f64 * 1e-9,
        responses: responses(system, begun),
        energy: system.energy(),
        settled: true,
    })
}

/// Adds up what threads do in the periods after the warm-up.
struct Watcher<'a> {
    warm_up: u64,
    time: u64,
    /// Instructions of each thread in periods that are not counted.
    before: BTreeMap<ThreadId, u64>,
    threads: BTreeMap<ThreadId, ThreadStats>,
    moves: Vec<String>,
    workload: &'a WorkloadModel,
}

/// How many instructions a thread did in a period.
fn instructions(sample: &ThreadSample) -> u64 {
    let counts = sample.counts.iter();
    let counts = counts.filter(|count| &*count.alias == "instructions");
    counts.map(|count| count.value as u64).sum()
}

impl SessionSink for Watcher<'_> {
    fn period(&mut self, period: &Period) {
        let observation = &period.observation;
        if observation.at - observation.interval < self.warm_up {
            for sample in &observation.threads {
                *self.before.entry(sample.info.id).or_default() += instructions(sample);
            }
            return;
        }
        self.time += observation.interval;
        let applied = period.moves.iter().filter(|moved| {
            moved.outcome == Outcome::Applied && moved.to.is_some() && moved.from != moved.to
        });
        self.moves
            .extend(applied.map(|moved| moved.reason.text.clone()));
        let programs = observation.threads.iter();
        for sample in programs.filter(|sample| sample.info.work.is_program()) {
            let info = &sample.info;
            let stats = self.threads.entry(info.id).or_insert_with(|| {
                let name = kind(self.workload, &info.process, &info.name);
                let mut stats = ThreadStats::new(name, info.process.to_string());
                stats.before = self.before.get(&info.id).copied().unwrap_or(0);
                stats
            });
            let seen = Seen {
                pu: sample.last_pu,
                wanted: (sample.cpu_time + sample.wait_time) as f64 * 1e-9,
                migrations: sample.migrations.unwrap_or(0),
            };
            let counts = sample.counts.iter();
            stats.add(
                seen,
                counts.map(|count| (&*count.alias, count.value as u64)),
            );
            // The interval of a thread that ended is over when it did.
            let begun = observation.at - observation.interval;
            stats.marks.push(Mark {
                at: (begun + sample.interval.min(observation.interval)) as f64 * 1e-9,
                instructions: stats.instructions,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_sim::config;
    use std::path::Path;

    /// One thread that waits for memory too often to be taken as settled at once, and seldom enough that it does not
    /// replace the last cache within [`SETTLE`].
    const SLOW: &str = r#"about = "one"
[mixes.m]
shares = { alu = 0.9, load = 0.1 }
working-sets = [{ size = "1 KiB", share = 0.99 }, { size = "64 MiB", share = 0.01 }]
[[programs]]
name = "p"
[[programs.threads]]
name = "t"
steps = [{ compute = "m", instructions = "forever" }]
"#;

    #[test]
    fn a_sample_says_whether_its_caches_had_settled() {
        let settled = |text: &str| {
            let machine = Arc::new(config::find_machine("cmt-4x4").unwrap());
            let workload = config::workload_from_text(text, Path::new("one.toml")).unwrap();
            let job = Job {
                machine,
                workload: Arc::new(workload),
                detail: Detail::Cycle,
                placer: Placer::Fixed(vec![0]),
                times: Times {
                    warm_up: Span::Cycles(0),
                    length: Span::Cycles(1_000),
                },
                seed: 1,
                marked: false,
                warm: true,
            };
            simulate(&job).unwrap().settled
        };
        assert!(!settled(SLOW));
        assert!(settled(&SLOW.replace("64 MiB", "2 KiB")));
    }
}
