//! Policies compared on a machine and a workload of one's own, by a caller that is not the command.

use perch_core::Policy;
use perch_lab::{
    scene::{
        BEST, Caller, Comparison, DEFAULT, Played, Progress, Scene, SceneError, WORST, compare,
    },
    session::Decider,
};
use perch_policy::{Cpi, CpiConfig, Observe};
use perch_sim::{
    config::{find_machine, find_workload},
    detail::{Detail, Fidelity},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Knows one policy besides the default, and remembers what it was asked for.
#[derive(Default)]
struct Mine(Mutex<Vec<(String, u64)>>);

impl Caller for Mine {
    type Error = SceneError;
    type Kept = usize;

    fn decider(&self, policy: &str) -> Result<Decider, SceneError> {
        let policy: Box<dyn Policy> = match policy {
            "cpi" => Box::new(Cpi::new(CpiConfig::default())),
            _ => Box::new(Observe),
        };
        Ok(Decider {
            period: Some(Duration::from_millis(20)),
            ..Decider::new(policy)
        })
    }

    fn play(&self, policy: &str, seed: u64, played: &mut Played<'_>) -> Result<usize, SceneError> {
        played.run(&mut ())?;
        self.0.lock().unwrap().push((policy.to_owned(), seed));
        Ok(played.system().threads().len())
    }
}

#[derive(Default)]
struct Steps {
    all: AtomicU64,
    done: AtomicU64,
}

impl Progress for Steps {
    fn begins(&self, steps: u64) {
        self.all.store(steps, Ordering::Relaxed);
    }

    fn says(&self, _what: &str) {}

    fn adds(&self, steps: u64) {
        self.done.fetch_add(steps, Ordering::Relaxed);
    }
}

fn scene(machine: &str, workload: &str, seeds: u32) -> Scene {
    let machine = Arc::new(find_machine(machine).unwrap());
    let workload = Arc::new(find_workload(workload).unwrap());
    Scene {
        detail: Detail::new(Fidelity::Interval, &machine, &workload),
        machine,
        workload,
        time: Duration::from_millis(100),
        seed: 7,
        seeds,
        search: 50,
        rules: Vec::new(),
        weights: Vec::new(),
        ways: Vec::new(),
        stays: false,
    }
}

/// Without what the host has to do with it.
fn played(scene: &Scene, policies: &[&str], threads: usize) -> (Comparison, Vec<usize>, Mine) {
    let policies: Vec<String> = policies.iter().map(|name| (*name).to_owned()).collect();
    let caller = Mine::default();
    let steps = Steps::default();
    let (mut told, kept) = compare(scene, &policies, &caller, threads, &steps).unwrap();
    // Whatever ended early was added at its end: a person who waits sees the whole.
    let [all, done] = [&steps.all, &steps.done].map(|steps| steps.load(Ordering::Relaxed));
    assert_eq!(all, done);
    for result in &mut told.results {
        result.host_seconds = 0.0;
        result
            .runs
            .iter_mut()
            .for_each(|run| run.host_seconds = 0.0);
    }
    (told, kept, caller)
}

#[test]
fn the_hosts_threads_change_nothing_and_the_ends_hold_the_others() {
    let scene = scene("cmt-4x4", "cmt-table1", 2);
    let policies = [DEFAULT, "cpi", BEST, WORST];
    let (one, kept, caller) = played(&scene, &policies, 1);
    assert_eq!(one, played(&scene, &policies, 3).0);
    // Four policies by two seeds.
    assert_eq!(kept, [16; 8]);
    let asked = caller.0.into_inner().unwrap();
    let expected = [DEFAULT, "cpi", BEST, WORST];
    let expected = expected
        .into_iter()
        .flat_map(|policy| [(policy, 7), (policy, 8)]);
    assert!(
        asked
            .iter()
            .map(|(name, seed)| (name.as_str(), *seed))
            .eq(expected)
    );
    let throughput: Vec<f64> = one.results.iter().map(|result| result.throughput).collect();
    assert!(
        throughput[..2].iter().all(|some| *some <= throughput[2]),
        "{throughput:?}"
    );
    assert!(
        throughput[..2].iter().all(|some| *some >= throughput[3]),
        "{throughput:?}"
    );
    assert_eq!(one.seeds, [7, 8]);
    assert_eq!(one.results[2].search.as_ref().unwrap().placement.len(), 16);
}

#[test]
fn what_the_caller_keeps_of_a_run_comes_back() {
    let (told, kept, _) = played(&scene("cmt-4x4", "cmt-table1", 1), &["cpi"], 2);
    assert_eq!(kept, [16]);
    assert_eq!(told.results[0].runs[0].threads.len(), 16);
}

#[test]
fn threads_that_start_later_have_no_best_placement() {
    let scene = scene("cmt-b", "phases", 1);
    let policies = [BEST.to_owned()];
    let error = compare(&scene, &policies, &Mine::default(), 1, &()).unwrap_err();
    assert!(matches!(error, SceneError::StartsLater { .. }), "{error}");
}

/// Of five threads at a time no more than five can be worth one each, however often one of them starts again.
#[test]
fn threads_count_for_the_time_that_they_live() {
    let mut scene = scene("smt2-zen", "phases", 1);
    scene.time = Duration::from_millis(1_500);
    let (told, kept, _) = played(&scene, &[DEFAULT], 1);
    assert!(kept[0] > 8, "{kept:?}: it did not start again");
    let result = &told.results[0];
    let (speedup, slowdown) = (result.speedup, result.slowdown);
    assert!(speedup > 0.5 && speedup < 5.1, "{speedup}, {slowdown}");
}
