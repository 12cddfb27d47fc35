//! When a simulation of threads that stay where they are is worth measuring: its caches no longer hold what they held at
//! first.

use perch_sim::{
    model::{Holds, MachineModel},
    system::{SimError, System},
};

/// Cycles of the first kind of core from one look at the caches to the next.
const STEP: u64 = 100_000;

/// How often everything in a last cache must have been replaced.
const TURN_OVERS: u64 = 1;

/// Threads that wait for memory for less than this part of their time are as fast whatever becomes of the cache.
const NEGLIGIBLE: f64 = 0.01;

/// A cache of the last level that holds data.
struct Cache {
    pus: Vec<u32>,
    lines: u64,
    /// Its level less one.
    level: usize,
}

/// Runs in steps until as many lines have come into each last cache as it holds, or its threads hardly wait for memory;
/// for `most` cycles of the first kind of core at most. Returns whether it got there.
///
/// # Errors
/// A deadlock.
pub fn settle(system: &mut System, most: u64) -> Result<bool, SimError> {
    let cycle = system.machine().first_cycle();
    let end = system.now() + most * cycle;
    let caches = last_caches(system.machine());
    let latency = system.machine().memory.latency as f64;
    let begun = missed(system, &caches);
    let mut before = begun.clone();
    loop {
        let from = system.now();
        if from >= end {
            return Ok(false);
        }
        system.run((from + STEP * cycle).min(end))?;
        let after = missed(system, &caches);
        let time = (system.now() - from) as f64;
        let is_settled = |at: usize| {
            let cache = &caches[at];
            let waited = (after[at] - before[at]) as f64 * latency;
            after[at] - begun[at] >= TURN_OVERS * cache.lines
                || waited < NEGLIGIBLE * time * threads(system, cache) as f64
        };
        if (0..caches.len()).all(is_settled) || system.is_done() {
            return Ok(true);
        }
        before = after;
    }
}

/// The caches of the highest level that hold data.
fn last_caches(machine: &MachineModel) -> Vec<Cache> {
    let data = || {
        let levels = machine.caches.iter();
        levels.filter(|cache| cache.holds != Holds::Instructions)
    };
    let last = data().map(|cache| cache.level).max();
    data()
        .filter(|cache| Some(cache.level) == last)
        .flat_map(|level| {
            let lines = level.size / u64::from(level.line.max(1));
            level.shared_by.iter().map(move |pus| Cache {
                pus: pus.clone(),
                lines,
                level: usize::from(level.level.clamp(1, 3)) - 1,
            })
        })
        .collect()
}

/// How many lines the PUs of each cache have brought in so far.
fn missed(system: &System, caches: &[Cache]) -> Vec<u64> {
    let of_cache = |cache: &Cache| {
        let counters = cache
            .pus
            .iter()
            .map(|pu| &system.pus()[*pu as usize].counters);
        counters
            .map(|counters| counters.data_misses[cache.level] + counters.fetch_misses[cache.level])
            .sum()
    };
    caches.iter().map(of_cache).collect()
}

/// How many threads are on a cache's PUs; one if none is, which then waits for nothing.
fn threads(system: &System, cache: &Cache) -> usize {
    let there = system.threads().iter().filter(|thread| {
        let place = thread.place.as_ref();
        place.is_some_and(|place| cache.pus.contains(&place.pu))
    });
    there.count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_sim::{config, detail::Detail, os::SchedulerModel};
    use std::{path::Path, sync::Arc};

    /// One thread of a machine with 1 MiB of last cache, with this much data.
    fn system(size: &str) -> System {
        let text = format!(
            r#"about = "one"
[mixes.m]
shares = {{ load = 1 }}
working-sets = [{{ size = "{size}" }}]
[[programs]]
name = "p"
[[programs.threads]]
name = "t"
steps = [{{ compute = "m", instructions = "forever" }}]
"#
        );
        let workload = config::workload_from_text(&text, Path::new("one.toml")).unwrap();
        let machine = Arc::new(config::find_machine("cmt-a").unwrap());
        System::at(
            &Detail::Cycle,
            machine,
            Arc::new(workload),
            SchedulerModel::default(),
            1,
        )
    }

    #[test]
    fn a_thread_without_misses_has_settled_after_a_step() {
        let mut system = system("1 KiB");
        assert_eq!(settle(&mut system, 20 * STEP), Ok(true));
        let steps = system.now() / (STEP * system.machine().first_cycle());
        assert!(steps <= 2, "{steps}");
    }

    #[test]
    fn a_cache_has_settled_once_all_of_it_was_replaced() {
        let mut short = system("64 MiB");
        assert_eq!(settle(&mut short, 2 * STEP), Ok(false));
        assert_eq!(short.now(), 2 * STEP * short.machine().first_cycle());
        let mut long = system("64 MiB");
        assert_eq!(settle(&mut long, 1_000 * STEP), Ok(true));
        let caches = last_caches(long.machine());
        let missed = missed(&long, &caches);
        let there = caches.iter().zip(missed);
        assert!(there.clone().all(|(cache, missed)| missed >= cache.lines));
        // It does not go on for long after that.
        let step = 2 * STEP;
        assert!(
            there
                .into_iter()
                .any(|(cache, missed)| missed < cache.lines + step)
        );
    }
}
