//! What PUs did gets to the policy that wants to know it, and into recordings.

use crate::common::{Heard, Kernel, Scripted, Step, options, set};
use perch_core::{Plan, Policy, Snapshot};
use perch_engine::{
    Acting, Session,
    recording::{Reader, Recorder},
    replay::RecordedMachine,
};
use std::sync::{Arc, RwLock};

/// A policy that needs metrics and may want to know of PUs.
struct Curious(bool);

impl Policy for Curious {
    fn name(&self) -> &'static str {
        "curious"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["l2_load"]
    }

    fn wants_pu_loads(&self) -> bool {
        self.0
    }

    fn decide(&mut self, _: &Snapshot) -> Plan {
        Plan::default()
    }
}

fn session(curious: bool) -> Session<Scripted> {
    let kernel = Arc::new(RwLock::new(Kernel::new(4)));
    kernel.write().unwrap().spawn(None, &set("0-3"), 0.5);
    let machine = Scripted::new(&kernel, 2, vec![Step::default(); 3]);
    Session::new(machine, options(Curious(curious), Acting::DryRun(None))).unwrap()
}

#[test]
fn a_policy_gets_what_it_needs_counted_and_pus_watched_only_if_it_asks() {
    for curious in [false, true] {
        let mut session = session(curious);
        let machine = session.machine();
        assert_eq!(machine.watches_pus, curious);
        let sets: Vec<&str> = machine
            .configured
            .sets
            .iter()
            .map(|set| &*set.name)
            .collect();
        assert_eq!(sets, ["l2_load"]);
        let mut seen = Heard::default();
        session.run(&mut seen).unwrap();
        let told = seen.snapshots.iter().map(|snapshot| snapshot.pus.len());
        assert!(
            told.into_iter()
                .all(|pus| pus == if curious { 4 } else { 0 })
        );
    }
}

#[test]
fn loads_of_pus_are_shares_and_metrics_of_this_period() {
    let mut seen = Heard::default();
    session(true).run(&mut seen).unwrap();
    for (period, snapshot) in seen.snapshots.iter().enumerate() {
        for (number, load) in (0u32..).zip(&snapshot.pus) {
            assert_eq!(load.pu, number);
            assert!(
                (load.busy - f64::from(number) / 10.0).abs() < 1e-9,
                "{load:?}"
            );
            assert!(
                (load.interrupts - f64::from(number) / 100.0).abs() < 1e-9,
                "{load:?}"
            );
            // Counted in every other period. Counts from before the session may include other processes.
            let counted = period.is_multiple_of(2).then_some(f64::from(number));
            assert_eq!(load.metrics.value("load"), counted);
        }
    }
}

#[test]
fn a_recording_carries_what_pus_did() {
    let (mut seen, mut played) = (Heard::default(), Heard::default());
    let mut recorder = Recorder::new(Vec::new(), "memory", &[]);
    {
        let mut observers: Vec<&mut dyn perch_engine::SessionSink> = vec![&mut seen, &mut recorder];
        session(true).run(&mut observers).unwrap();
    }
    recorder.finish().unwrap();
    let text = recorder.into_inner();
    let reader = Reader::new(&text[..], "memory").unwrap();
    let mut replay = Session::new(
        RecordedMachine::new(reader),
        options(Curious(true), Acting::DryRun(None)),
    )
    .unwrap();
    replay.run(&mut played).unwrap();
    let pus = |seen: &Heard| -> Vec<_> { seen.snapshots.iter().map(|s| s.pus.clone()).collect() };
    assert_eq!(pus(&played), pus(&seen));
    assert!(pus(&played).iter().all(|pus| pus.len() == 4));
}
