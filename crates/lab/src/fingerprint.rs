//! A short number for all that the simulator computes. Pages whose tables take too long to be made again by a test name
//! the one with which they were made: a change of the model or of a machine that may change them changes the number.
//!
//! It is made of results, not of sources, so that a change of names or of speed does not make a page stale.

use crate::{
    experiment::{self, Experiment},
    random, run, tournament,
};
use perch_sim::{
    config,
    detail::{Detail, Fidelity},
    model::{MachineModel, SchedulerKind},
    os::SchedulerModel,
    stream::Random,
    system::System,
    workload::WorkloadModel,
};
use std::{fmt::Write, path::Path, sync::Arc};

/// Cycles of each machine's first kind of core: in the operating system's time, some slices of its scheduler.
const CYCLES: u64 = 100_000;
/// The machine on which schedulers are compared: of few PUs, so that threads wait for them.
const SCHEDULED: &str = "core2-quad";
/// Threads on a machine, at most: half as many again as it has PUs.
const MOST: u32 = 24;

/// Policies at the cycle level: the tournament is of the interval level.
const POLICIES: &str = include_str!("../policies.toml");

/// The schedulers of operating systems.
const SCHEDULERS: [SchedulerKind; 4] = [
    SchedulerKind::Cfs,
    SchedulerKind::Eevdf,
    SchedulerKind::Linux2611,
    SchedulerKind::Linux24,
];

/// What the simulator computes, as hexadecimal numbers of eight digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// At the cycle level.
    pub cycle: String,
    /// At both levels: that of pages for which the interval level has computed something.
    pub both: String,
}

impl State {
    /// The number of an experiment: that of the cycle level if all of its runs are at that level.
    pub fn of(&self, experiment: &Experiment) -> &str {
        let mut runs = experiment.runs.iter();
        match runs.all(|run| run.fidelity == Fidelity::Cycle) {
            true => &self.cycle,
            false => &self.both,
        }
    }
}

/// Hashes of what both levels compute.
#[derive(Default)]
struct Hashes {
    cycle: crc32fast::Hasher,
    both: crc32fast::Hasher,
}

impl Hashes {
    /// What was computed at a level.
    fn update(&mut self, fidelity: Fidelity, what: &[u8]) {
        if fidelity == Fidelity::Cycle {
            self.cycle.update(what);
        }
        self.both.update(what);
    }

    fn finish(self) -> State {
        let text = |hash: crc32fast::Hasher| format!("{:08x}", hash.finalize());
        State {
            cycle: text(self.cycle),
            both: text(self.both),
        }
    }
}

/// The numbers of the levels of detail: a random workload of more threads than PUs on each shipped machine, and each
/// shipped workload under each scheduler.
///
/// # Errors
/// A shipped machine or workload with a mistake; a simulation that fails.
pub fn of_levels() -> Result<State, String> {
    let mut hash = Hashes::default();
    for shipped in config::shipped_machines() {
        let machine = config::find_machine(shipped.name).map_err(|error| error.to_string())?;
        let threads = (machine.pus() as u32 * 3).div_ceil(2).min(MOST);
        let mut chance = Random::new(1).part(u64::from(threads));
        let workload = Arc::new(random::workload(threads, &mut chance));
        add(&mut hash, &Arc::new(machine), &workload)?;
    }
    let machine = config::find_machine(SCHEDULED).map_err(|error| error.to_string())?;
    for shipped in config::shipped_workloads() {
        let workload = config::find_workload(shipped.name).map_err(|error| error.to_string())?;
        let workload = Arc::new(workload);
        for scheduler in SCHEDULERS {
            let machine = MachineModel {
                scheduler,
                ..machine.clone()
            };
            add(&mut hash, &Arc::new(machine), &workload)?;
        }
    }
    Ok(hash.finish())
}

/// Adds what the threads have done after some time.
fn add(
    hash: &mut Hashes,
    machine: &Arc<MachineModel>,
    workload: &Arc<WorkloadModel>,
) -> Result<(), String> {
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let detail = Detail::new(fidelity, machine, workload);
        let length = CYCLES * machine.first_cycle();
        let (machine, workload) = (Arc::clone(machine), Arc::clone(workload));
        let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
        system.run(length).map_err(|error| error.to_string())?;
        for thread in system.threads() {
            for number in [
                thread.counters.instructions(),
                thread.cpu_time,
                thread.migrations,
            ] {
                hash.update(fidelity, &number.to_le_bytes());
            }
        }
    }
    Ok(())
}

/// The numbers of experiments and the tournament: they cover the machines (`levels` is what [`of_levels`] returns), the
/// policies, the draw of the tournament's workloads and its score.
///
/// # Errors
/// As those of the tournament.
pub fn of_tournament(levels: &State) -> Result<State, String> {
    let mut rules = tournament::Rules::shipped();
    rules
        .machines
        .retain(|machine| machine.name == "core2-quad");
    rules
        .machines
        .iter_mut()
        .for_each(|machine| machine.workloads = 2);
    (rules.default_seeds, rules.policy_seeds, rules.judged_again) = (1, 1, 0);
    let outcome = tournament::play(&rules, |_, _| ())?;
    let mut placed = String::new();
    for found in &outcome.matches {
        for line in found.lines.iter().chain([&found.default]) {
            // Writing to a string cannot fail.
            let _ = write!(placed, "{:?} {:.6};", line.placement, line.speedup);
        }
    }
    let mut hash = Hashes::default();
    hash.cycle.update(levels.cycle.as_bytes());
    hash.both.update(levels.both.as_bytes());
    hash.update(Fidelity::Interval, placed.as_bytes());
    let policies = experiment::parse("policies", POLICIES, Path::new("policies.toml"), &|_| {
        Err("it has no other files".to_owned())
    });
    let policies = policies.map_err(|error| error.to_string())?;
    let results = run(&policies, &mut ()).map_err(|error| error.to_string())?;
    for measured in &results.measured {
        hash.update(Fidelity::Cycle, &measured.value.to_le_bytes());
    }
    Ok(hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheduler_has_a_number_of_its_own() {
        let machine = config::find_machine(SCHEDULED).unwrap();
        let workload = Arc::new(config::find_workload("web-server").unwrap());
        let mut numbers: Vec<String> = SCHEDULERS
            .map(|scheduler| {
                let mut hash = Hashes::default();
                let machine = MachineModel {
                    scheduler,
                    ..machine.clone()
                };
                add(&mut hash, &Arc::new(machine), &workload).unwrap();
                hash.finish().cycle
            })
            .into();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), SCHEDULERS.len());
    }
}
