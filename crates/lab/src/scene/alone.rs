//! How fast each kind of thread is in isolation: slowdowns are relative to that.
//!
//! A kind runs its own steps from its start, with cold caches, as long as the workload does at most. The tournament's
//! measure of the same name is of each mix by itself with warm caches, since its workloads are counted after a warm-up.

use super::{
    Scene, SceneError,
    meter::{Meter, Progress},
};
use crate::{parallel, simulate::FIRST_MOMENT};
use perch_core::PuSet;
use perch_sim::{
    os::SchedulerModel,
    system::System,
    thread::Thread,
    topology::topology,
    workload::{ProgramModel, Step, ThreadModel, WorkloadModel},
};
use std::{collections::BTreeMap, sync::Arc};

/// How fast a kind of threads is in isolation, in instructions per picosecond.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Over its life, with the first misses: caches are cold in the beginning.
    pub life: f64,
    /// The greatest that is to be expected: that over its life, or that at the end if that is greater.
    pub most: f64,
}

/// The speeds of each kind of threads, by program and name, on the kind of cores that suits it best: one thread in
/// isolation; where threads wait for each other, their program in isolation.
pub type Alone = BTreeMap<Kind, Speed>;

/// The names of a program and of a kind of its threads.
type Kind = (String, String);

/// The first look at a thread's speed is after this part of the whole time; each further one after twice the time.
const FIRST: u32 = 64;

/// A speed is steady if it differs from that of the window before, half as long, by no more than this part.
const STEADY: f64 = 0.005;

/// How often a thread must have done its steps before its speed is called steady.
const ROUNDS: u64 = 2;

/// Something that is to be simulated in isolation.
#[derive(Debug)]
pub struct Lone {
    program: ProgramModel,
    pus: PuSet,
}

/// What must be simulated in isolation: each kind of threads on each kind of cores.
pub fn lone(scene: &Scene) -> Vec<Lone> {
    let kinds = topology(&scene.machine).kinds;
    let mut all = Vec::new();
    let programs = scene.workload.programs.iter();
    for program in programs.filter(|program| !program.system) {
        let mut model = program.clone();
        (model.count, model.start, model.restart) = (1, 0, false);
        let models = match wait_for_each_other(program) {
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
        for program in models {
            all.extend(kinds.iter().map(|kind| Lone {
                program: program.clone(),
                pus: kind.pus.clone(),
            }));
        }
    }
    all
}

/// Simulates all of them, on this many threads of the host.
///
/// # Errors
/// A deadlock.
pub fn alone(
    scene: &Scene,
    all: &[Lone],
    threads: usize,
    progress: &dyn Progress,
) -> Result<Alone, SceneError> {
    let work = |at: usize| rates(scene, &all[at], Meter::new(progress, scene.time));
    let found = parallel::each(all.len(), threads, work, |_| {}).map_err(|(_, error)| error)?;
    let mut best = Alone::new();
    for (key, speed) in found.into_iter().flat_map(means) {
        let known = best.entry(key).or_insert(speed);
        known.life = known.life.max(speed.life);
        known.most = known.most.max(speed.most);
    }
    Ok(best)
}

/// The mean speed of each kind in one simulation: of threads that wait for each other, some are quicker by chance.
fn means(speeds: Vec<(Kind, Speed)>) -> BTreeMap<Kind, Speed> {
    let mut sums: BTreeMap<Kind, (Speed, f64)> = BTreeMap::new();
    for (kind, speed) in speeds {
        let none = Speed {
            life: 0.0,
            most: 0.0,
        };
        let (sum, threads) = sums.entry(kind).or_insert((none, 0.0));
        sum.life += speed.life;
        sum.most += speed.most;
        *threads += 1.0;
    }
    let mean = |(kind, (sum, threads)): (Kind, (Speed, f64))| {
        let mean = Speed {
            life: sum.life / threads,
            most: sum.most / threads,
        };
        (kind, mean)
    };
    sums.into_iter().map(mean).collect()
}

/// Plays until speeds are steady, at most for the whole time, for which the rest is then added at these speeds.
fn rates(
    scene: &Scene,
    lone: &Lone,
    mut meter: Meter<'_>,
) -> Result<Vec<(Kind, Speed)>, SceneError> {
    let only = WorkloadModel {
        programs: vec![lone.program.clone()],
        ..(*scene.workload).clone()
    };
    let mut system = System::at(
        &scene.detail,
        Arc::clone(&scene.machine),
        Arc::new(only),
        SchedulerModel::default(),
        scene.seed,
    );
    system.run(FIRST_MOMENT)?;
    for thread in 0..system.threads().len() {
        system.set_mask(thread, lone.pus.clone());
    }
    let until = scene.until();
    let kind = |thread: &Thread| &lone.program.threads[thread.identity.kind];
    let (mut before, mut speeds) = (Vec::new(), Vec::<f64>::new());
    let first = scene.look(FIRST).as_nanos() as u64;
    let mut at = scene.machine.machine_time(first).max(1);
    loop {
        let begun = system.now();
        system.run(at.clamp(1, until))?;
        meter.is_at(scene.machine.os_time(system.now()));
        let counts: Vec<u64> = system
            .threads()
            .iter()
            .map(|thread| thread.counters.instructions())
            .collect();
        let window = (system.now() - begun).max(1) as f64;
        let now: Vec<f64> = counts
            .iter()
            .enumerate()
            .map(|(thread, count)| (count - before.get(thread).unwrap_or(&0)) as f64 / window)
            .collect();
        let steady = speeds.len() == now.len()
            && now
                .iter()
                .zip(&speeds)
                .all(|(now, then)| (now - then).abs() <= STEADY * now);
        let seen = system.threads().iter().all(|thread| {
            thread.counters.instructions() >= once_through(kind(thread)).saturating_mul(ROUNDS)
        });
        (before, speeds) = (counts, now);
        if system.is_done() || at >= until || (steady && seen) {
            break;
        }
        at *= 2;
    }
    let rest = until.saturating_sub(system.now()) as f64;
    let rates = system.threads().iter().zip(speeds).map(|(thread, speed)| {
        let life = match thread.ended {
            Some(_) => rate_of(thread, &system),
            None => {
                let life = (until - thread.identity.started).max(1) as f64;
                (thread.counters.instructions() as f64 + speed * rest) / life
            }
        };
        let most = life.max(speed);
        let key = (lone.program.name.clone(), kind(thread).name.clone());
        (key, Speed { life, most })
    });
    Ok(rates.collect())
}

/// Instructions of a thread's steps, once; without those that go on for ever.
fn once_through(kind: &ThreadModel) -> u64 {
    let finite = kind.steps.iter().filter_map(|step| match step {
        Step::Compute { instructions, .. } if *instructions != u64::MAX => Some(*instructions),
        _ => None,
    });
    finite.fold(0, u64::saturating_add)
}

/// Whether how fast a thread is depends on others of its program.
pub fn wait_for_each_other(program: &ProgramModel) -> bool {
    let mut steps = program.threads.iter().flat_map(|thread| &thread.steps);
    steps.any(|step| !matches!(step, Step::Compute { .. } | Step::Sleep(_)))
}

/// Instructions in a picosecond of a thread's life.
pub fn rate_of(thread: &Thread, system: &System) -> f64 {
    let life = thread.ended.unwrap_or(system.now()) - thread.identity.started;
    thread.counters.instructions() as f64 / life.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_as_fast_as_its_threads_are_on_the_average() {
        let speed = |life: f64, most: f64| Speed { life, most };
        let kind = |name: &str| ("program".to_owned(), name.to_owned());
        let found = means(vec![
            (kind("worker"), speed(1.0, 2.0)),
            (kind("master"), speed(5.0, 5.0)),
            (kind("worker"), speed(3.0, 4.0)),
        ]);
        assert_eq!(found[&kind("worker")], speed(2.0, 3.0));
        assert_eq!(found[&kind("master")], speed(5.0, 5.0));
    }
}
