//! What the report says of threads that end, of CPU time that was not measured, and of changes that were refused.

use crate::common::{set, topology};
use perch_core::{
    Metric, MetricKind, MetricSource, Observation, Outcome, PuSet, Reading, Reason, Snapshot,
    Subject, ThreadId, ThreadInfo, ThreadSample, ThreadState, metric::names,
};
use perch_engine::{
    Collector, Move, Period, Report, SessionSink,
    report::{MetricReport, ThreadStats},
};
use std::sync::Arc;

const SECOND: u64 = 1_000_000_000;

fn id(tid: i32) -> ThreadId {
    ThreadId { tid, start: 7 }
}

fn info(tid: i32) -> ThreadInfo {
    ThreadInfo {
        id: id(tid),
        pid: 1,
        name: format!("t{tid}").into(),
        process: "app".into(),
        work: perch_core::Work::default(),
    }
}

fn sample(tid: i32, cpu_time: u64, switches: Option<u64>) -> ThreadSample {
    ThreadSample {
        info: info(tid),
        interval: SECOND,
        cpu_time,
        wait_time: 0,
        switches,
        migrations: None,
        last_pu: Some(0),
        mask: None,
        counts: Vec::new(),
        event_set: None,
        metrics: Default::default(),
    }
}

fn state(tid: i32, bound: Option<PuSet>) -> ThreadState {
    ThreadState {
        info: info(tid),
        target: 0,
        allowed: set("0-1"),
        bound,
        unmanaged: None,
        last_pu: Some(0),
        activity: 0.5,
        waiting: 0.0,
        metrics: Default::default(),
    }
}

/// Lets the collector see one period.
fn see(
    collector: &mut Collector,
    observation: Observation,
    states: Vec<ThreadState>,
    moves: &[Move],
) {
    let snapshot = Snapshot {
        settings: Vec::new(),
        period: 0,
        at: observation.at,
        interval: SECOND,
        topology: Arc::new(topology(2, &set("0-1"))),
        units: Arc::default(),
        thresholds: Default::default(),
        threads: states,
        pus: Vec::new(),
        irqs: Vec::new(),
        sharing: Vec::new(),
        energy: None,
        last_outcomes: Vec::new(),
    };
    collector.period(&Period {
        observation: Arc::new(observation),
        snapshot: Arc::new(snapshot),
        decision: None,
        moves: moves.to_vec(),
        irq_moves: Vec::new(),
        setting_moves: Vec::new(),
        actions: Vec::new(),
        remarks: Vec::new(),
        last: false,
    });
}

fn observation(number: u64, threads: Vec<ThreadSample>) -> Observation {
    Observation {
        at: number * SECOND,
        interval: SECOND,
        threads,
        ..Observation::default()
    }
}

/// A thread that is half busy and bound, and ends within the second period without being read.
fn ended() -> Report {
    let mut collector = Collector::new(&["app".to_owned()]);
    let first = observation(1, vec![sample(1, SECOND / 2, Some(3))]);
    see(&mut collector, first, vec![state(1, Some(set("1")))], &[]);
    let mut last = observation(2, vec![sample(1, 0, None)]);
    last.ended = vec![id(1)];
    last.unmeasured = SECOND / 4;
    see(&mut collector, last, vec![], &[]);
    collector.report()
}

#[test]
fn a_thread_s_unread_last_moments_do_not_make_it_idle() {
    let report = ended();
    let thread = &report.threads[0];
    assert!(thread.ended);
    assert!((thread.stats.activity() - 0.5).abs() < 1e-9, "{thread:?}");
    assert_eq!(thread.bound, Some(set("1")));
}

#[test]
fn unmeasured_time_is_part_of_all_time() {
    let report = ended();
    assert_eq!(report.unmeasured, SECOND / 4);
    assert!((report.trust.unmeasured - 1.0 / 3.0).abs() < 1e-9);
}

#[test]
fn a_thread_that_came_and_went_is_in_the_report_beside_one_that_was_let_go() {
    let mut collector = Collector::new(&["app".to_owned()]);
    let first = observation(1, vec![sample(1, SECOND / 2, Some(3))]);
    see(&mut collector, first, vec![state(1, None)], &[]);
    let mut last = observation(2, vec![sample(2, SECOND / 8, Some(5))]);
    last.ended = vec![id(2)];
    see(&mut collector, last, vec![], &[]);
    let report = collector.report();
    let told: Vec<_> = report
        .threads
        .iter()
        .map(|of| (of.thread, of.ended, of.stats.cpu_time))
        .collect();
    assert_eq!(told, [(id(1), true, SECOND / 2), (id(2), true, SECOND / 8)]);
    assert_eq!((report.threads_seen, report.unseen), (2, 0));
}

#[test]
fn what_was_refused_has_not_happened() {
    let mut collector = Collector::new(&["app".to_owned()]);
    let made = |tid, outcome| Move {
        thread: id(tid),
        from: None,
        to: Some(set("0")),
        reason: Reason::default(),
        outcome,
        span: None,
        rest: None,
    };
    let moves = [
        made(1, Outcome::Applied),
        made(2, Outcome::NotPermitted),
        made(3, Outcome::Gone),
    ];
    let threads = (1..4).map(|tid| sample(tid, 5, Some(0))).collect();
    let states = (1..4).map(|tid| state(tid, None)).collect();
    see(&mut collector, observation(1, threads), states, &moves);
    let report = collector.report();
    assert_eq!(report.moves.bound, 1);
    assert_eq!(report.moves.outcomes.len(), 3);
}

/// What threads did together, whatever the order in which they are added, and though of some it is not known.
#[test]
fn a_mean_over_threads_leaves_out_those_of_which_it_is_not_known() {
    let stats = |seconds: u64, share: Option<f64>| ThreadStats {
        cpu_time: seconds * SECOND,
        metrics: Vec::from_iter(share.map(|value| MetricReport {
            name: names::FP_SHARE.into(),
            value,
            confidence: 1.0,
            source: MetricSource::Sampling,
        })),
        ..ThreadStats::default()
    };
    let threads = [stats(100, None), stats(50, Some(1.0)), stats(1, Some(0.0))];
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut all = ThreadStats::default();
        order.iter().for_each(|at| all.merge(&threads[*at]));
        let share = all.metric(names::FP_SHARE).unwrap();
        assert!(
            (share.value - 50.0 / 51.0).abs() < 1e-9,
            "{order:?}: {share:?}"
        );
        assert!(
            (share.confidence - 51.0 / 151.0).abs() < 1e-9,
            "{order:?}: {share:?}"
        );
    }
}

/// Ticks are longer than many threads live.
#[test]
fn no_thread_is_busy_or_waits_for_more_than_its_life() {
    let mut collector = Collector::new(&["app".to_owned()]);
    let mut short = sample(1, 2_000_000, Some(3));
    (short.interval, short.wait_time) = (1_000_000, 6_000_000);
    see(
        &mut collector,
        observation(1, vec![short]),
        vec![state(1, None)],
        &[],
    );
    let stats = &collector.report().threads[0].stats;
    assert_eq!((stats.lifetime, stats.activity()), (8_000_000, 0.25));
}

#[test]
fn energy_of_packages_is_added_up_as_far_as_it_is_known() {
    let reading = |package: u32, name: &str, value: f64| Reading {
        subject: Subject::Package(package),
        name: name.into(),
        kind: MetricKind::Amount,
        metric: Metric {
            value,
            confidence: 1.0,
            source: MetricSource::Sensor,
        },
    };
    let mut collector = Collector::new(&["app".to_owned()]);
    let mut first = observation(1, Vec::new());
    first.readings = vec![
        reading(0, "energy_pkg", 20.0),
        reading(0, "energy_dram", 3.0),
        reading(1, "energy_pkg", 40.0),
    ];
    see(&mut collector, first, Vec::new(), &[]);
    let mut second = observation(2, Vec::new());
    second.readings = vec![reading(1, "energy_pkg", 41.5)];
    see(&mut collector, second, Vec::new(), &[]);
    let used = collector.report().energy;
    let used: Vec<_> = used
        .iter()
        .map(|used| (used.package, used.energy, used.time / SECOND))
        .collect();
    assert_eq!(used, [(0, 20.0, 1), (1, 81.5, 2)]);
}
