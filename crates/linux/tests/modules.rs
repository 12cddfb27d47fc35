//! Modules of a live machine: what they are told, and where what they know ends up.

mod common;

use common::{alone, launch};
use perch_core::{
    Machine, MachineError, Metric, MetricInfo, MetricKind, MetricScope, MetricSource, Module,
    ModuleContext, ModuleValues, Reading, Subject, Targets, ThreadEvent, Wake, WantedEvents,
};
use perch_linux::LinuxMachine;
use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Threads that started and exited, and threads that were switched.
#[derive(Debug, Default)]
struct Seen {
    started: Vec<i32>,
    exited: Vec<i32>,
    switched: u64,
}

/// Keeps what it is told, and counts its periods.
struct Listener(Arc<Mutex<Seen>>, f64);

impl Module for Listener {
    fn name(&self) -> &str {
        "listener"
    }

    fn provides(&self) -> Vec<MetricInfo> {
        let scope = MetricScope::Machine;
        vec![MetricInfo::new("periods", "", scope, MetricKind::Level, "")]
    }

    fn wants(&self) -> WantedEvents {
        WantedEvents {
            starts: true,
            exits: true,
            switches: true,
            ..WantedEvents::default()
        }
    }

    fn thread_event(&mut self, event: ThreadEvent<'_>) {
        let mut seen = self.0.lock().unwrap();
        match event {
            ThreadEvent::Started(info) => seen.started.push(info.id.tid),
            ThreadEvent::Exited(id) => seen.exited.push(id.tid),
            ThreadEvent::Switched(_, times) => seen.switched += times,
            ThreadEvent::Migrated(..) => panic!("it did not ask for this"),
        }
    }

    fn period(&mut self, _: &ModuleContext<'_>) -> Result<ModuleValues, MachineError> {
        self.1 += 1.0;
        let metric = Metric {
            value: self.1,
            confidence: 1.0,
            source: MetricSource::Sensor,
        };
        Ok(ModuleValues {
            threads: Vec::new(),
            readings: vec![Reading {
                subject: Subject::Machine,
                name: "periods".into(),
                kind: MetricKind::Level,
                metric,
            }],
        })
    }

    fn description(&self) -> String {
        "a listener".to_owned()
    }
}

#[test]
fn a_module_hears_of_threads_and_is_heard() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let enough = folder.path().join("enough");
    let script = format!("until [ -e {} ]; do sleep 0.2; done", enough.display());
    let seen = Arc::new(Mutex::new(Seen::default()));
    let listener = Listener(Arc::clone(&seen), 0.0);
    let builder = LinuxMachine::builder().module(Box::new(listener));
    let mut machine = builder.build().unwrap();
    let pid = machine.launch(&launch(&["sh", "-c", &script])).unwrap();
    // Before the program has done anything.
    assert_eq!(seen.lock().unwrap().started, [pid]);
    let mut periods = 0.0;
    for _ in 0..600 {
        let wake = machine.wait(Duration::from_millis(100)).unwrap();
        let observation = machine.observe().unwrap();
        periods += 1.0;
        assert_eq!(observation.readings.len(), 1);
        assert_eq!(observation.readings[0].metric.value, periods);
        if seen.lock().unwrap().started.len() > 1 {
            fs::write(&enough, "").unwrap();
        }
        if matches!(wake, Wake::Ended(_)) {
            break;
        }
    }
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen.started.iter().filter(|tid| **tid == pid).count(),
        1,
        "{seen:?}"
    );
    assert!(
        seen.started.len() > 1 && seen.exited.contains(&pid),
        "{seen:?}"
    );
    assert!(seen.switched > 0, "{seen:?}");
    assert!(machine.counting().contains("a listener"));
}
