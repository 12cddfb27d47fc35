//! Counters of real threads, with events that every kernel counts.

mod support;

use perch_core::{CountQuality, EventChoice, EventPlan, EventSet};
use perch_linux::perf::{Counters, Privilege, ThreadCounts};
use perch_skip::skip;
use std::{fs, thread, time::Duration};
use support::{Work, Worker};

fn event(alias: &str, spellings: &[&str]) -> EventChoice {
    EventChoice {
        alias: alias.into(),
        spellings: spellings.iter().map(|s| (*s).to_owned()).collect(),
        pmu: None,
    }
}

fn set(name: &str, events: Vec<EventChoice>) -> EventSet {
    EventSet::new(name, events)
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc").count()
}

const PID: i32 = 0;

#[test]
fn sets_take_turns_and_count() {
    let plan = EventPlan {
        limits: None,
        sets: vec![
            set(
                "time",
                vec![
                    event("clock", &["cpu/no_such=1/", "task-clock"]),
                    event("switches", &["context-switches"]),
                ],
            ),
            set("faults", vec![event("faults", &["page-faults"])]),
        ],
    };
    let mut counters = Counters::open(&plan).expect("software events count everywhere");
    assert!(
        counters
            .description()
            .contains("3 events in 2 multiplexed sets")
    );
    let busy = Worker::start(Work::Integer);
    counters.attach(busy.id, PID).expect("one's own thread");
    for turn in 0..4 {
        thread::sleep(Duration::from_millis(200));
        let ThreadCounts { counts, set, .. } = counters.read(busy.id);
        let set = set.expect("a set was counted");
        assert!(set.number == turn % 2 && set.enabled > 0, "{set:?}");
        let names: Vec<&str> = counts.iter().map(|count| &*count.alias).collect();
        if turn % 2 == 0 {
            assert_eq!(names, ["clock", "switches"]);
            assert!(counts[0].value > 1e6, "{counts:?}");
        } else {
            assert_eq!(names, ["faults"]);
        }
        assert!(counts.iter().all(|c| c.quality == CountQuality::Exact));
    }
    assert!(counters.remarks().is_empty());
}

#[test]
fn what_cannot_be_counted_is_said() {
    let plan = EventPlan {
        limits: None,
        sets: vec![set(
            "set",
            vec![
                event("clock", &["task-clock"]),
                event("fp", &["no_such_pmu::FP", "nowhere/event=1/"]),
            ],
        )],
    };
    let mut counters = Counters::open(&plan).expect("one event is left");
    let remarks = counters.remarks();
    assert_eq!(remarks.len(), 1);
    assert!(
        remarks[0].text.contains("event `fp` cannot be counted"),
        "{remarks:?}"
    );
    assert!(remarks[0].text.contains("no_such_pmu::FP") && remarks[0].text.contains("nowhere"));
    let nothing = EventPlan {
        limits: None,
        sets: vec![set("set", vec![event("fp", &["nowhere/event=1/"])])],
    };
    let error = Counters::open(&nothing).err().expect("nothing to count");
    assert!(
        error.to_string().contains("no PMU `nowhere` here"),
        "{error}"
    );
}

#[test]
fn a_thousand_threads_leave_no_descriptor() {
    let plan = EventPlan {
        limits: None,
        sets: vec![set("set", vec![event("clock", &["task-clock"])])],
    };
    let mut counters = Counters::open(&plan).expect("software events count everywhere");
    let before = descriptors();
    for _ in 0..10 {
        let workers: Vec<Worker> = (0..100).map(|_| Worker::start(Work::Sleep)).collect();
        for worker in &workers {
            counters.attach(worker.id, PID).expect("one's own thread");
        }
        assert_eq!(counters.len(), 100);
        for worker in workers {
            let id = worker.id;
            drop(worker);
            counters.read(id);
            counters.detach(id);
        }
    }
    assert!(counters.is_empty());
    // other tests of this program may hold a few
    assert!(descriptors() < before + 50);
}

#[test]
fn a_thread_that_is_gone_is_no_error() {
    let plan = EventPlan {
        limits: None,
        sets: vec![set("set", vec![event("clock", &["task-clock"])])],
    };
    let mut counters = Counters::open(&plan).expect("software events count everywhere");
    let worker = Worker::start(Work::Integer);
    let id = worker.id;
    drop(worker);
    counters.attach(id, PID).expect("gone is no error");
    let read = counters.read(id);
    assert!(read.counts.is_empty() && read.set.is_none(), "{read:?}");
    counters.detach(id);
}

#[test]
fn whole_pus_are_counted_in_turns_where_that_is_permitted() {
    let plan = EventPlan {
        limits: None,
        sets: vec![
            set("time", vec![event("clock", &["cpu-clock"])]),
            set("switches", vec![event("switches", &["context-switches"])]),
        ],
    };
    let mut counters = Counters::open(&plan).expect("software events count everywhere");
    let pus: Vec<u32> = perch_linux::perf::limits::online_cpus().iter().collect();
    let permitted = Privilege::detect().is_ok_and(|privilege| privilege.system_wide);
    let mut of_pus = match counters.of_pus(&pus) {
        Ok(of_pus) => of_pus,
        Err(error) => {
            assert!(!permitted, "{error}");
            assert!(error.to_string().contains("whole PUs"), "{error}");
            return skip!(SystemWidePerf, "{error}");
        }
    };
    assert!(permitted && of_pus.is_counting());
    assert!(of_pus.pus().eq(pus.iter().copied()));
    for turn in 0..4 {
        thread::sleep(Duration::from_millis(200));
        for pu in &pus {
            let (counts, _) = of_pus.read(*pu);
            let [count] = &counts[..] else {
                panic!("{counts:?}")
            };
            assert_eq!(&*count.alias, ["clock", "switches"][turn % 2]);
            // The clock runs on idle PUs too: at least as long as this slept, and since the last turn no longer.
            if turn % 2 == 0 {
                assert!(count.value > 1.5e8, "{count:?}");
            }
        }
    }
    of_pus.remove(pus[0]);
    assert_eq!(of_pus.read(pus[0]), (Vec::new(), None));
    of_pus.add(pus[0]).expect("as before");
    thread::sleep(Duration::from_millis(20));
    assert_eq!(&*of_pus.read(pus[0]).0[0].alias, "clock");
}
