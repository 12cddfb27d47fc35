//! Timelines for Perfetto: they hold what happened, and a replay writes the same one.

use crate::common::{Decide, Heard, Kernel, Op, Scripted, Step, now, options, set};
use perch_core::{Binding, Machine, Plan, PuSet, Reason, Snapshot, metric::names};
use perch_engine::{
    Acting, Reader, RecordedMachine, Recorder, Session, SessionSink, StateDir,
    timeline::{Timeline, join},
};
use serde_json::Value;
use std::sync::{Arc, RwLock};

/// Each thread on a PU of its own, and all of them on the next one in every third period.
fn rotate() -> impl FnMut(&Snapshot) -> Plan {
    let mut asked = 0;
    move |snapshot| {
        asked += 1;
        let mut plan = Plan::default();
        for (at, thread) in snapshot.threads.iter().enumerate() {
            let pus = PuSet::single((at as u32 + asked / 3) % 8);
            if thread.unmanaged.is_none() && pus.is_subset(&thread.allowed) {
                let reason = Reason::new("its \"turn\" <1>").with(names::FP_SHARE, 0.5);
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

/// Runs a session to its end: its timeline, its recording, and what was observed.
fn traced<M: Machine>(session: &mut Session<M>) -> (Vec<u8>, Vec<u8>, Heard) {
    let mut timeline = Timeline::new(Vec::new());
    let mut recorder = Recorder::new(Vec::new(), "a test", &["app".to_owned()]);
    let mut heard = Heard::default();
    let mut observers: Vec<&mut dyn SessionSink> = vec![&mut timeline, &mut recorder, &mut heard];
    session.run(&mut observers).unwrap();
    timeline.finish().unwrap();
    recorder.finish().unwrap();
    (timeline.into_inner(), recorder.into_inner(), heard)
}

fn live() -> (Vec<u8>, Vec<u8>, Heard) {
    let mut kernel = Kernel::new(8);
    let all = kernel.pus.clone();
    for fp in [0.0, 0.5, 0.9, 0.01] {
        kernel.spawn(None, &all, fp);
    }
    kernel.spawn(None, &set("1,2"), 0.5);
    let before = |op: Op| Step {
        before: vec![op],
        race: Vec::new(),
    };
    let steps = vec![
        Step::default(),
        before(Op::Spawn { fp: 0.3 }),
        Step::default(),
        before(Op::End { of: 1 }),
        Step::default(),
        Step::default(),
    ];
    let dir = tempfile::tempdir().unwrap();
    let acting = Acting::Live(StateDir::open(dir.path()).unwrap());
    let kernel = Arc::new(RwLock::new(kernel));
    let machine = Scripted::new(&kernel, 4, steps);
    let mut session = Session::new(machine, options(Decide(rotate()), acting)).unwrap();
    session.set_clock(now);
    traced(&mut session)
}

fn events(timeline: &[u8]) -> Vec<Value> {
    let file: Value = serde_json::from_slice(timeline).unwrap();
    file["traceEvents"].as_array().unwrap().clone()
}

fn of<'a>(events: &'a [Value], ph: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["ph"] == ph)
}

#[test]
fn moves_places_and_counters_are_in_the_file() {
    let (timeline, _, heard) = live();
    let events = events(&timeline);
    let moves: usize = heard.moves.iter().map(Vec::len).sum();
    assert!(moves > 5, "{moves}");
    assert_eq!(of(&events, "i").count(), moves);
    for made in of(&events, "i") {
        assert_eq!(made["args"]["reason"], "its \"turn\" <1>");
        assert_eq!(made["args"][names::FP_SHARE], 0.5);
    }
    let name = |event: &Value| event["name"].as_str().unwrap().to_owned();
    let counted = |what: &str| of(&events, "C").any(|event| name(event).ends_with(what));
    assert!(counted(" CPU") && counted(" FP share"));
    let named = |what: &str| of(&events, "M").any(|event| event["args"]["name"] == what);
    assert!(named("core 3") && named("PU 7"));
    // On a track nothing begins before what is before it has ended.
    let mut tracks: Vec<(u64, u64, f64, f64)> = of(&events, "X")
        .map(|event| {
            let (ts, dur) = (
                event["ts"].as_f64().unwrap(),
                event["dur"].as_f64().unwrap(),
            );
            let number = |what: &str| event[what].as_u64().unwrap();
            (number("pid"), number("tid"), ts, ts + dur)
        })
        .collect();
    assert!(tracks.len() > 10, "{}", tracks.len());
    tracks.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)));
    for pair in tracks.windows(2) {
        let same = (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1);
        assert!(!same || pair[0].3 <= pair[1].2 + 1e-6, "{pair:?}");
    }
}

#[test]
fn a_replay_writes_the_file_that_the_run_wrote() {
    let (timeline, recording, heard) = live();
    let machine = RecordedMachine::new(Reader::new(&recording[..], "a recording").unwrap());
    let replayed = options(Decide(rotate()), Acting::DryRun(None));
    let (again, _, heard_again) = traced(&mut Session::new(machine, replayed).unwrap());
    let count = |heard: &Heard| heard.moves.iter().map(Vec::len).sum::<usize>();
    assert_eq!(count(&heard), count(&heard_again));
    assert_eq!(events(&timeline), events(&again));
    assert_eq!(timeline, again);
}

#[test]
fn several_sessions_make_one_file() {
    let part = |number: u32| {
        let (_, recording, _) = live();
        let machine = RecordedMachine::new(Reader::new(&recording[..], "a recording").unwrap());
        let replayed = options(Decide(rotate()), Acting::DryRun(None));
        let mut part = Timeline::part(number, "a: ");
        Session::new(machine, replayed)
            .unwrap()
            .run(&mut part)
            .unwrap();
        part.into_part()
    };
    let file = events(&join(&[part(0), Vec::new(), part(1)]));
    let numbers = |late: bool| {
        let pids = file.iter().map(|event| event["pid"].as_u64().unwrap());
        pids.filter(|pid| (*pid >= 20_000_000) == late).count()
    };
    assert_eq!(numbers(false), numbers(true));
    assert!(
        file.iter()
            .any(|event| event["args"]["name"] == "a: core 0")
    );
}
