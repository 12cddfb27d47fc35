//! When a simulation of threads that stay where they are is worth measuring: what its caches held at first has gone.

use perch_sim::{
    model::{Holds, MachineModel},
    system::{SimError, System},
    units::Ps,
};

/// How often everything in a last cache must have been replaced.
const TURN_OVERS: u64 = 1;

/// Threads that wait for memory for less than this part of their time are as fast whatever becomes of the cache.
const NEGLIGIBLE: f64 = 0.01;

/// A last cache: its PUs, and how many lines it has.
struct Cache {
    pus: Vec<u32>,
    lines: u64,
}

/// Runs in steps until every last cache has been filled once with lines that came in since, or its threads hardly wait
/// for memory; at most up to the moment `most`. Whether that was reached before it.
///
/// # Errors
/// A deadlock.
pub fn settle(system: &mut System, step: Ps, most: Ps) -> Result<bool, SimError> {
    let caches = last_caches(system.machine());
    let latency = system.machine().memory.latency as f64;
    let begun = missed(system, &caches);
    let mut before = begun.clone();
    loop {
        let from = system.now();
        if from >= most {
            return Ok(false);
        }
        system.run((from + step).min(most))?;
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
            })
        })
        .collect()
}

/// How many lines the PUs of each cache have brought in so far.
fn missed(system: &System, caches: &[Cache]) -> Vec<u64> {
    let levels = system.machine().caches.iter();
    let last = levels.map(|cache| cache.level).max().unwrap_or(1);
    let of_pu = |pu: &u32| {
        let counters = &system.pus()[*pu as usize].counters;
        let level = usize::from(last.clamp(1, 3)) - 1;
        counters.data_misses[level] + counters.fetch_misses[level]
    };
    let of_cache = |cache: &Cache| cache.pus.iter().map(of_pu).sum();
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
