//! Recordings: they are read as they were written, and a replay leads to the same plans.

use crate::common::{
    Decide, Heard, Kernel, Op, Scripted, Step, now, options, recorded, replay, set,
};
use perch_core::{Binding, Plan, PuSet, Reason, Snapshot, metric::names};
use perch_engine::{Acting, Collector, Reader, Session, StateDir, recording::Record};
use proptest::prelude::*;
use std::sync::{Arc, RwLock};

/// FP-heavy threads to even PUs in turn, others to odd ones; remembers how often it was asked.
fn interleave() -> impl FnMut(&Snapshot) -> Plan {
    let mut turn = 0;
    move |snapshot| {
        turn += 1;
        let mut next = [0, 1];
        let mut plan = Plan::default();
        for thread in &snapshot.threads {
            let fp = thread.metrics.value(names::FP_SHARE).unwrap_or(0.0);
            let kind = usize::from(!snapshot.thresholds.reached(names::FP_SHARE, fp));
            let pu = next[kind] % 8;
            next[kind] += 2;
            let stays = thread.bound.is_some() && turn % 3 != 0;
            let pus = if stays {
                thread.bound.clone().unwrap()
            } else {
                PuSet::single(pu)
            };
            if thread.unmanaged.is_none() && pus.is_subset(&thread.allowed) {
                let reason = Reason::new(format!("turn {turn}")).with(names::FP_SHARE, fp);
                plan.bindings.push(Binding {
                    thread: thread.info.id,
                    pus,
                    reason,
                });
            }
        }
        plan
    }
}

fn kernel() -> Arc<RwLock<Kernel>> {
    let mut kernel = Kernel::new(8);
    let all = kernel.pus.clone();
    for fp in [0.0, 0.5, 0.9, 0.01] {
        kernel.spawn(None, &all, fp);
    }
    kernel.spawn(None, &set("1,2"), 0.5);
    Arc::new(RwLock::new(kernel))
}

fn record(steps: Vec<Step>, acting: Acting) -> (Vec<u8>, Heard) {
    let mut session = Session::new(
        Scripted::new(&kernel(), 4, steps),
        options(Decide(interleave()), acting),
    )
    .unwrap();
    session.set_clock(now);
    recorded(&mut session)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0.0..1.0).prop_map(|fp| Op::Spawn { fp }),
        (any::<usize>(), any::<bool>()).prop_map(|(of, own_process)| Op::Fork { of, own_process }),
        any::<usize>().prop_map(|of| Op::End { of }),
        any::<usize>().prop_map(|of| Op::Taskset {
            of,
            mask: set("0,3")
        }),
        prop::sample::select(vec!["0-7", "0-5"]).prop_map(|mask| Op::Cpuset {
            group: 0,
            mask: set(mask)
        }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop::collection::vec(op(), 0..4).prop_map(|before| Step {
        before,
        race: Vec::new(),
    });
    prop::collection::vec(step, 1..8)
}

/// The lines but for the clock and what only the machine knows.
fn periods(recording: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(recording).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_dry_run_played_back_with_its_policy_is_the_same(steps in steps()) {
        let (recording, first) = record(steps, Acting::DryRun(None));
        let (again, second) = replay(&recording, Decide(interleave()));
        prop_assert_eq!(first.plans, second.plans);
        prop_assert_eq!(first.moves, second.moves);
        prop_assert_eq!(first.snapshots, second.snapshots);
        prop_assert_eq!(periods(&recording), periods(&again));
    }

    #[test]
    fn a_live_session_played_back_shows_threads_as_without_perch(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let acting = Acting::Live(StateDir::open(dir.path()).unwrap());
        let (recording, live) = record(steps, acting);
        let (_, replayed) = replay(&recording, Decide(interleave()));
        prop_assert_eq!(live.snapshots.len(), replayed.snapshots.len());
        for (live, replayed) in live.snapshots.iter().zip(&replayed.snapshots) {
            for (live, replayed) in live.threads.iter().zip(&replayed.threads) {
                prop_assert_eq!(live.info.id, replayed.info.id);
                prop_assert_eq!(live.unmanaged.is_some(), replayed.unmanaged.is_some());
                // Of one that is given up for now it is not known.
                if live.unmanaged.is_none() {
                    prop_assert_eq!(&live.allowed, &replayed.allowed);
                }
                prop_assert_eq!(&live.metrics, &replayed.metrics);
            }
        }
    }

    #[test]
    fn a_recording_that_was_cut_short_is_read_to_there(cut in 0.0..1.0f64) {
        let (recording, whole) = record(vec![Step::default(); 4], Acting::DryRun(None));
        let header = recording.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let end = header + ((recording.len() - header) as f64 * cut) as usize;
        let (_, seen) = replay(&recording[..end], Decide(interleave()));
        let lines = recording[header..end].iter().filter(|byte| **byte == b'\n').count();
        let plans = lines.min(whole.plans.len() - 1);
        prop_assert!(seen.plans[..plans].iter().eq(&whole.plans[..plans]));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(mut reader) = Reader::new(&bytes[..], "bytes") {
            while let Ok(Some(_)) = reader.read() {}
        }
    }
}

#[test]
fn a_damaged_line_is_named() {
    let (recording, _) = record(vec![Step::default(); 3], Acting::DryRun(None));
    let mut lines: Vec<&[u8]> = recording.split_inclusive(|byte| *byte == b'\n').collect();
    lines[2] = b"{\"record\":\"period\"}\n";
    let damaged = lines.concat();
    let mut reader = Reader::new(&damaged[..], "run.log").unwrap();
    reader.read().unwrap();
    let error = reader.read().unwrap_err().to_string();
    let told = "run.log:3: a damaged line: missing field";
    assert!(
        error.starts_with(told) && error.contains("head -n 2"),
        "{error}"
    );
    let error = Reader::new(&b"hello\n"[..], "run.log")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "run.log:1: not a recording: it does not begin with a header"
    );
}

/// The examples in the documentation are what is written and read.
#[test]
fn the_documented_lines_are_right() {
    let text = include_str!("../../../docs/recording.md");
    let blocks: Vec<&str> = text.split("```json\n").skip(1).collect();
    assert!(blocks.len() >= 4);
    let mut records = Vec::new();
    for block in blocks {
        let json = block.split("```").next().unwrap();
        let given: serde_json::Value = serde_json::from_str(json).unwrap();
        if given.get("trust").is_some() {
            let report: perch_engine::Report = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_value(&report).unwrap(), given);
            records.push("report");
            continue;
        }
        let record: Record = serde_json::from_str(json).unwrap();
        assert_eq!(
            serde_json::to_value(&record).unwrap(),
            given,
            "nothing is left out"
        );
        records.push(match record {
            Record::Header(_) => "header",
            Record::Period(_) => "period",
            Record::End(_) => "end",
        });
    }
    assert_eq!(records, ["header", "period", "end", "report"]);
}

#[test]
fn a_report_adds_up() {
    let mut machine = Scripted::new(&kernel(), 4, vec![Step::default(); 300]);
    machine.has_clock = false;
    let mut session =
        Session::new(machine, options(Decide(interleave()), Acting::DryRun(None))).unwrap();
    let mut collector = Collector::new(&["app".to_owned()]);
    session.run(&mut collector).unwrap();
    let report = collector.report();
    let second = 1_000_000_000;
    assert_eq!((report.periods, report.duration), (301, 301 * second));
    let cpu: u64 = report
        .threads
        .iter()
        .map(|thread| thread.stats.cpu_time)
        .sum();
    assert_eq!(cpu, 5 * 301 * second);
    assert_eq!(report.trust.known, 1.0);
    assert!((report.own.share - 0.001).abs() < 1e-9);
    let heavy = report
        .threads
        .iter()
        .filter(|thread| thread.stats.fp_time > 0)
        .count();
    assert_eq!(heavy, 3);
    assert!(report.placements.columns.len() <= 128);
    assert!(
        report
            .placements
            .rows
            .iter()
            .all(|row| row.cells.len() == report.placements.columns.len())
    );
    assert_eq!(report.moves.bound, 4);
    assert_eq!(report.unmanaged.len(), 1);
}

#[test]
fn ten_thousand_short_lived_threads_need_little_room() {
    let spawn = || Op::Spawn { fp: 0.5 };
    let steps = (0..100).map(|_| Step {
        before: (0..100)
            .map(|_| spawn())
            .chain((0..100).map(|_| Op::End { of: 5 }))
            .collect(),
        race: Vec::new(),
    });
    let mut machine = Scripted::new(&kernel(), 4, steps.collect());
    machine.report_ended = true;
    let policy = Decide(|_: &Snapshot| Plan::default());
    let mut session = Session::new(machine, options(policy, Acting::DryRun(None))).unwrap();
    let mut collector = Collector::new(&[]);
    session.run(&mut collector).unwrap();
    let report = collector.report();
    assert!(report.threads.len() < 1000, "{}", report.threads.len());
    let folded: u64 = report.groups.iter().map(|group| group.threads).sum();
    assert_eq!(folded + report.threads.len() as u64, 10_005);
    assert_eq!(report.groups.len(), 1, "all are called worker-#");
    assert!(serde_json::to_string(&report).unwrap().len() < 2_000_000);
}
