//! How well `perch stat` detects that a thread's behaviour has changed: threads of known phases, simulated instruction by
//! instruction, counted with event sets in rotation.
//!
//! What is known: a phase is a number of instructions of one mix, and every row has the exact number of instructions, so the
//! rows in which a phase ends are known exactly. A change counts if instructions per cycle differ by [`LEAST`] before and
//! after it; smaller ones are counted apart.

mod course;
mod score;

pub use course::{Course, Phase};
pub use score::Score;

use crate::{
    parallel::{each, host_threads},
    processor::SimProcessor,
};
use perch_core::{CountedSet, Machine, MachineError, Observation};
use perch_sim::{
    detail::{Detail, Fidelity},
    machine::SimMachine,
    model::MachineModel,
    os::SchedulerModel,
    stream::Random,
    system::System,
};
use perch_stat::{By, Collector, Options, Request, Row, Space, phases::Method};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// A change of instructions per cycle by less than this part is a small one: the deviation at which PMCTrack's heuristic
/// (section 4.1.2) is set off here.
pub const LEAST: f64 = 0.1;

/// Cycles of a row. Few, so that a simulation takes seconds; real rows have thousands of times as many and scatter less.
const ROW: u64 = 40_000;

/// Rows of a thread, about.
const ROWS: u64 = 400;

/// Event sets in rotation.
const SETS: usize = 4;

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Threads at a time, each on a core of its own if there are as many cores.
    pub threads: u32,
    /// The seed of phases and instructions.
    pub seed: u64,
}

/// What came of one trial, by method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was simulated.
    pub trial: Trial,
    /// By the method's name on the command line.
    pub scores: BTreeMap<String, Score>,
}

/// Simulates and judges trials on all of the host's cores. Reports to `done` how many are done.
///
/// # Errors
/// None with the threads that are drawn here: they never wait for each other.
pub fn judge(
    machine: &Arc<MachineModel>,
    trials: &[Trial],
    done: impl FnMut(usize),
) -> Result<Vec<Outcome>, MachineError> {
    let one = |at: usize| outcome(machine, trials[at]);
    each(trials.len(), host_threads(), one, done).map_err(|(_, error)| error)
}

fn outcome(machine: &Arc<MachineModel>, trial: Trial) -> Result<Outcome, MachineError> {
    let mut random = Random::new(trial.seed);
    let courses: Vec<Course> = (0..trial.threads)
        .map(|_| Course::drawn(ROW, ROWS, &mut random))
        .collect();
    let observations = observe(machine, trial, &courses)?;
    let mut scores = BTreeMap::new();
    for (name, method) in Method::ALL {
        if method == Method::Off {
            continue;
        }
        let mut score = Score::default();
        for (thread, rows) in rows(machine, method, &observations) {
            let number: usize = thread
                .trim_start_matches('t')
                .parse()
                .map_err(|_| MachineError::Other(format!("a thread called {thread}")))?;
            score += Score::of(&courses[number], &rows, SETS);
        }
        scores.insert(name.to_owned(), score);
    }
    Ok(Outcome { trial, scores })
}

/// The series of a trial. A simulated machine counts all events at once; here the sets are in rotation, as on a real one.
fn observe(
    machine: &Arc<MachineModel>,
    trial: Trial,
    courses: &[Course],
) -> Result<Vec<Observation>, MachineError> {
    let workload = Arc::new(course::workload(courses));
    let detail = Detail::new(Fidelity::Cycle, machine, &workload);
    let system = System::at(
        &detail,
        Arc::clone(machine),
        workload,
        SchedulerModel::default(),
        trial.seed,
    );
    let mut simulated = SimMachine::new(system, None);
    let profile = SimProcessor::new(machine).profile().clone();
    let events = ["instructions,cycles".to_owned()];
    let request = Request::parse(&events, &profile, Space::All)
        .map_err(|error| MachineError::Other(error.0))?;
    simulated.configure(&request.plan(&profile))?;
    let cycle = machine.kind(&machine.cores[0]).cycle;
    let interval = Duration::from_nanos(machine.os_time(ROW * cycle));
    let mut observations = Vec::new();
    for number in 0..ROWS {
        let ended = simulated.wait(interval)?;
        let mut observation = simulated.observe()?;
        for sample in &mut observation.threads {
            sample.event_set = Some(CountedSet {
                number: (number % SETS as u64) as u32,
                enabled: sample.cpu_time,
            });
        }
        observations.push(observation);
        if !matches!(ended, perch_core::Wake::Period) {
            break;
        }
    }
    Ok(observations)
}

/// The rows of `perch stat`, by thread.
fn rows(
    machine: &Arc<MachineModel>,
    method: Method,
    observations: &[Observation],
) -> BTreeMap<String, Vec<Row>> {
    let profile = SimProcessor::new(machine).profile().clone();
    let options = Options {
        by: By::Thread,
        sets: SETS,
        derived: Vec::new(),
        of_profile: Vec::new(),
        given: Vec::new(),
        given_amounts: Vec::new(),
        phases: method,
        complete_rounds: false,
        windows: false,
    };
    let topology = perch_sim::topology::topology(machine);
    let mut collector = Collector::new(options, profile);
    let mut rows: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for observation in observations {
        for row in collector.take(observation, &topology) {
            rows.entry(row.name.to_string()).or_default().push(row);
        }
    }
    rows
}
