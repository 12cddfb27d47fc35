//! A short number for all that the simulator computes. Pages whose tables take too long to be made again by a test name
//! the one with which they were made: a change of the model or of a machine that may change them changes the number.
//!
//! It is made of results, not of sources, so that a change of names or of speed does not make a page stale.

use crate::{random, tournament};
use perch_sim::{
    config,
    detail::{Detail, Fidelity},
    os::SchedulerModel,
    stream::Random,
    system::System,
};
use std::sync::Arc;

/// Cycles of each machine's first kind of core: in the operating system's time, some slices of its scheduler.
const CYCLES: u64 = 100_000;
/// Threads on a machine, at most: half as many again as it has PUs.
const MOST: u32 = 24;

/// The number for both levels of detail, on all shipped machines, with more threads than PUs.
///
/// # Errors
/// A shipped machine with a mistake; a simulation that fails.
pub fn of_levels() -> Result<String, String> {
    let mut hash = crc32fast::Hasher::new();
    for shipped in config::shipped_machines() {
        let machine = config::find_machine(shipped.name).map_err(|error| error.to_string())?;
        let machine = Arc::new(machine);
        let threads = (machine.pus() as u32 * 3).div_ceil(2).min(MOST);
        let mut chance = Random::new(1).part(u64::from(threads));
        let workload = Arc::new(random::workload(threads, &mut chance));
        for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
            let detail = Detail::new(fidelity, &machine, &workload);
            let (machine, workload) = (Arc::clone(&machine), Arc::clone(&workload));
            let length = CYCLES * machine.first_cycle();
            let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
            system.run(length).map_err(|error| error.to_string())?;
            for thread in system.threads() {
                hash.update(&thread.counters.instructions().to_le_bytes());
            }
        }
    }
    Ok(format!("{:08x}", hash.finalize()))
}

/// The number for the tournament: it covers the machines (`levels` is what [`of_levels`] returns), the policies, the draw
/// of the workloads and the score.
///
/// # Errors
/// As those of the tournament.
pub fn of_tournament(levels: &str) -> Result<String, String> {
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
    let mut hash = crc32fast::Hasher::new();
    hash.update(levels.as_bytes());
    for found in &outcome.matches {
        for line in found.lines.iter().chain([&found.default]) {
            hash.update(format!("{:?} {:.6};", line.placement, line.speedup).as_bytes());
        }
    }
    Ok(format!("{:08x}", hash.finalize()))
}
