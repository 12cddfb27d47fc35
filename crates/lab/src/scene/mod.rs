//! A machine and a workload under one policy, or under several that are compared with each other and with the best and
//! the worst placement (`perch sim`).
//!
//! Simulations are independent and seeded, and done on several threads of the host: how many these are changes nothing
//! but the time it takes.

mod alone;
mod effort;
mod error;
mod meter;
mod play;
mod search;
mod shipped;

pub use error::SceneError;
pub use meter::Progress;
pub use play::{Played, Simulated, SimulatedThread, system};
pub use search::{Found, Seat};
pub use shipped::{Entry, Shipped};

use crate::{
    experiment::Take,
    measure::{bound, take},
    parallel,
    session::Decider,
};
use alone::{Alone, wait_for_each_other};
use meter::Meter;
use perch_core::{ThreadId, ThreadInfo};
use perch_policy::fixed::{Rule, WaysRule, WeightRule};
use perch_sim::{
    detail::Detail,
    model::MachineModel,
    units::Ps,
    workload::{Step, WorkloadModel},
};
use search::{Candidates, End};
use serde::Serialize;
use std::{sync::Arc, time::Duration};

/// Cycles within which a thread's first misses should be over.
const WARM: u64 = 50_000;

/// The policy of the operating system alone.
pub const DEFAULT: &str = "default";

/// The placement of the greatest throughput.
pub const BEST: &str = "best";

/// The placement of the least throughput.
pub const WORST: &str = "worst";

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Scene {
    /// The machine.
    pub machine: Arc<MachineModel>,
    /// The workload.
    pub workload: Arc<WorkloadModel>,
    /// The level of detail.
    pub detail: Detail,
    /// How long at most, in the operating system's time.
    pub time: Duration,
    /// The first seed.
    pub seed: u64,
    /// How many seeds, from the first one up.
    pub seeds: u32,
    /// From how many placements [`BEST`] and [`WORST`] choose at most.
    pub search: usize,
    /// The rules of the policy `fixed`, to note those that are for no thread.
    pub rules: Vec<Rule>,
    /// Its weights, likewise.
    pub weights: Vec<WeightRule>,
    /// Its rules of ways of caches, likewise.
    pub ways: Vec<WaysRule>,
    /// Whether systems remember which thread was on which PU when.
    pub stays: bool,
}

impl Scene {
    /// The end, in the machine's time.
    fn until(&self) -> Ps {
        self.machine.machine_time(self.time.as_nanos() as u64)
    }

    /// This part of the whole time, but as long as caches need to warm up, in the operating system's time.
    fn look(&self, part: u32) -> Duration {
        let least = Duration::from_nanos(self.machine.os_time(WARM * self.machine.first_cycle()));
        (self.time / part).max(least).min(self.time)
    }

    fn seeds(&self) -> Vec<u64> {
        let numbers = 0..u64::from(self.seeds);
        numbers
            .map(|number| self.seed.wrapping_add(number))
            .collect()
    }
}

/// What the names of policies stand for, and who watches them: the caller's part.
pub trait Caller: Sync {
    /// What can go wrong there.
    type Error: From<SceneError> + Send;
    /// What is kept of a run besides its [`Simulated`].
    type Kept: Send;

    /// The policy of this name, with its settings; not asked for [`BEST`] and [`WORST`].
    ///
    /// # Errors
    /// No such policy, settings that do not fit it or the machine.
    fn decider(&self, policy: &str) -> Result<Decider, Self::Error>;

    /// Runs what is ready to be played ([`Played::run`]), watched by the caller's own observers.
    ///
    /// # Errors
    /// A deadlock, a file that cannot be written.
    fn play(
        &self,
        policy: &str,
        seed: u64,
        played: &mut Played<'_>,
    ) -> Result<Self::Kept, Self::Error>;
}

/// What came of all simulations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The machine.
    pub machine: String,
    /// The workload.
    pub workload: String,
    /// The seeds: each policy was simulated with each.
    pub seeds: Vec<u64>,
    /// No placement has a greater throughput, in instructions / cycle; not known where threads depend on each other.
    pub bound: Option<f64>,
    /// What a reader must know: which policy decided nothing, how `best` and `worst` were found.
    pub notes: Vec<String>,
    /// One for each policy, in the order in which they were asked for.
    pub results: Vec<Outcome>,
}

/// What came of one policy: medians of its runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The policy.
    pub policy: String,
    /// Instructions of all threads / cycle of the machine's first kind of core.
    pub throughput: f64,
    /// (greatest throughput - least) / mean, of all seeds; 0 with one.
    pub spread: f64,
    /// Mean slowdown of the threads: the field's ANTT.
    pub slowdown: f64,
    /// Sum of the threads' speeds, each relative to its speed in isolation: the field's STP, or weighted speedup.
    pub speedup: f64,
    /// Largest slowdown / smallest; 1 is fair.
    pub unfairness: f64,
    /// Moves from one PU to another, of all threads.
    pub migrations: f64,
    /// Simulated time, in seconds of the operating system.
    pub seconds: f64,
    /// How long a run took here, in seconds.
    pub host_seconds: f64,
    /// How the placement was found, of `best` and `worst`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<Found>,
    /// One for each seed.
    pub runs: Vec<Simulated>,
}

/// Simulates with every policy and seed, on this many threads of the host; and what the caller kept of each run, policy by
/// policy.
///
/// # Errors
/// A policy that is not there, a deadlock, a workload that cannot be searched.
pub fn compare<C: Caller>(
    scene: &Scene,
    policies: &[String],
    caller: &C,
    threads: usize,
    progress: &dyn Progress,
) -> Result<(Comparison, Vec<C::Kept>), C::Error> {
    let ends: Vec<End> = policies.iter().filter_map(|policy| end(policy)).collect();
    // Before anything is simulated.
    let idle = idle(scene, policies, caller)?;
    let candidates = match ends.is_empty() {
        true => None,
        false => Some(Candidates::new(scene, scene.search)?),
    };
    let seeds = scene.seeds();
    let lone = alone::lone(scene);
    let runs = policies.len() * seeds.len();
    let mut steps = (lone.len() + runs) as u64 * meter::steps(scene.time);
    steps += candidates
        .as_ref()
        .map_or(0, |candidates| candidates.steps(scene, ends.len()));
    progress.begins(steps);
    progress.says("each kind in isolation");
    let alone = alone::alone(scene, &lone, threads, progress)?;
    progress.says("placements");
    let mut found = match &candidates {
        Some(candidates) => candidates.search(scene, &ends, threads, progress)?,
        None => Vec::new(),
    }
    .into_iter();
    let searched: Vec<Option<Found>> = policies
        .iter()
        .map(|policy| end(policy).and_then(|_| found.next()))
        .collect();
    progress.says(&policies.join(", "));
    let work = |at: usize| -> Result<(Simulated, C::Kept), C::Error> {
        let (policy, seed) = (at / seeds.len(), seeds[at % seeds.len()]);
        let meter = Meter::new(progress, scene.time);
        let name = &policies[policy];
        let mut played = match &searched[policy] {
            Some(found) => Played::placed(scene, &found.placement, seed, meter)?,
            None => Played::new(scene, caller.decider(name)?, seed, meter)?,
        };
        let kept = caller.play(name, seed, &mut played)?;
        Ok((played.result(scene, &alone), kept))
    };
    let done = parallel::each(runs, threads, work, |_| {}).map_err(|(_, error)| error)?;
    let (done, kept): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let bound = highest(scene, &alone);
    let results: Vec<Outcome> = policies
        .iter()
        .zip(done.chunks(seeds.len()))
        .zip(searched)
        .map(|((policy, runs), search)| outcome(policy, runs, search))
        .collect();
    let comparison = Comparison {
        machine: scene.machine.name.clone(),
        workload: scene.workload.name.clone(),
        notes: [idle, vain(scene, &results), notes(&results, bound)].concat(),
        seeds,
        bound,
        results,
    };
    Ok((comparison, kept))
}

/// A note of each policy that will not decide anything.
fn idle<C: Caller>(
    scene: &Scene,
    policies: &[String],
    caller: &C,
) -> Result<Vec<String>, C::Error> {
    let mut idle = Vec::new();
    for policy in policies.iter().filter(|policy| end(policy).is_none()) {
        let decider = caller.decider(policy)?;
        let period = decider.period.unwrap_or_else(|| decider.policy.period());
        let waits = policy != DEFAULT && policy != "observe" && !decider.policy.decides_at_once();
        if waits && period >= scene.time {
            idle.push(format!(
                "{policy}: decides nothing, as its period ({}) is no shorter than the whole time; see --period and --time",
                humantime::format_duration(period)
            ));
        }
    }
    idle.dedup();
    Ok(idle)
}

fn end(policy: &str) -> Option<End> {
    match policy {
        BEST => Some(End::Best),
        WORST => Some(End::Worst),
        _ => None,
    }
}

fn outcome(policy: &str, runs: &[Simulated], search: Option<Found>) -> Outcome {
    let taken = |how, of: &dyn Fn(&Simulated) -> f64| {
        take(how, runs.iter().map(of).collect()).unwrap_or(f64::NAN)
    };
    Outcome {
        policy: policy.to_owned(),
        throughput: taken(Take::Median, &|run| run.throughput),
        spread: taken(Take::Spread, &|run| run.throughput),
        slowdown: taken(Take::Median, &|run| run.slowdown),
        speedup: taken(Take::Median, &|run| run.speedup),
        unfairness: taken(Take::Median, &|run| run.unfairness),
        migrations: taken(Take::Median, &|run| run.migrations as f64),
        seconds: taken(Take::Median, &|run| run.seconds),
        host_seconds: taken(Take::Median, &|run| run.host_seconds),
        search,
        runs: runs.to_vec(),
    }
}

/// What no placement can exceed; `None` where a thread may be faster co-running than in isolation.
fn highest(scene: &Scene, alone: &Alone) -> Option<f64> {
    let workload = &scene.workload;
    let kinds = || {
        let programs = workload.programs.iter().filter(|program| !program.system);
        programs.flat_map(|program| program.threads.iter().map(move |kind| (program, kind)))
    };
    let steps = || kinds().flat_map(|(_, kind)| &kind.steps);
    let shares = steps().any(|step| match step {
        Step::Compute { mix, .. } => {
            let mut sets = workload.mixes[*mix].working_sets.iter();
            sets.any(|set| set.region.is_some())
        }
        _ => false,
    });
    let sleeps = steps().any(|step| matches!(step, Step::Sleep(_)));
    let count: u64 = kinds()
        .map(|(program, kind)| u64::from(program.count) * u64::from(kind.count))
        .sum();
    // More threads than PUs that sleep in turn may all be as fast as they are alone.
    let in_turn = sleeps && count > scene.machine.pus() as u64;
    if shares || in_turn || workload.programs.iter().any(wait_for_each_other) {
        return None;
    }
    let cycle = scene.machine.first_cycle() as f64;
    let speeds = kinds().flat_map(|(program, kind)| {
        let speed = alone.get(&(program.name.clone(), kind.name.clone()));
        let count = program.count as usize * kind.count as usize;
        let most = speed.map_or(f64::INFINITY, |speed| speed.most * cycle);
        std::iter::repeat_n(most, count)
    });
    Some(bound(&scene.machine, speeds)).filter(|bound| bound.is_finite())
}

/// Rules of the policy `fixed` that were for no thread.
fn vain(scene: &Scene, results: &[Outcome]) -> Vec<String> {
    let threads = results
        .iter()
        .flat_map(|result| &result.runs)
        .flat_map(|run| &run.threads);
    let threads: Vec<ThreadInfo> = threads
        .map(|thread| ThreadInfo {
            id: ThreadId { tid: 0, start: 0 },
            pid: 0,
            name: thread.name.as_str().into(),
            process: thread.program.as_str().into(),
            work: perch_core::Work::default(),
        })
        .collect();
    let none = |matches: &dyn Fn(&ThreadInfo) -> bool| !threads.iter().any(matches);
    let rules = scene.rules.iter();
    let rules = rules.filter(|rule| none(&|thread| rule.matches(thread)));
    let weights = scene.weights.iter();
    let weights = weights.filter(|rule| none(&|thread| rule.matches(thread)));
    let ways = scene.ways.iter();
    let ways = ways.filter(|rule| none(&|thread| rule.matches(thread)));
    let names = rules
        .map(ToString::to_string)
        .chain(weights.map(ToString::to_string))
        .chain(ways.map(ToString::to_string));
    names
        .map(|rule| format!("fixed: no thread or program has a name for the rule {rule}"))
        .collect()
}

fn notes(results: &[Outcome], bound: Option<f64>) -> Vec<String> {
    let mut notes = Vec::new();
    let searched = results
        .iter()
        .filter_map(|result| Some((&result.policy, result.search.as_ref()?)));
    for (policy, found) in searched {
        notes.push(match found.exhaustive {
            true if found.tried == 1 => format!("{policy}: all placements are alike"),
            true => format!(
                "{policy}: by search through all {} placements that differ",
                found.tried
            ),
            false => format!(
                "{policy}: of {} placements drawn at random, out of too many to try all: there may be better and worse ones",
                found.tried
            ),
        });
    }
    if let Some(bound) = bound {
        notes.push(format!(
            "bound: no placement has a throughput above about {bound:.3}, by what the cores issue and what each thread does alone"
        ));
    }
    notes
}
