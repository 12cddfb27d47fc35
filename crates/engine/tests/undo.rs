//! Whatever happens, every thread ends with the mask that it would have had without perch.

mod common;

use common::{Decide, Kernel, Kill, Knob, Op, Scripted, Seen, Step, TestProcessor, now, set};
use perch_core::{Binding, Plan, PuSet, Reason, Snapshot};
use perch_engine::{Acting, Journal, Options, Session, StateDir, restore};
use proptest::prelude::*;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

const CORES: u32 = 4;

/// Masks that others set: never one that the policy sets, so that it is known who set what.
fn foreign() -> impl Strategy<Value = PuSet> {
    prop::sample::select(vec!["0,2", "1-3", "0-2", "1,3", "0-7"]).prop_map(set)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0.0..1.0).prop_map(|fp| Op::Spawn { fp }),
        4 => (any::<usize>(), any::<bool>())
            .prop_map(|(of, own_process)| Op::Fork { of, own_process }),
        2 => any::<usize>().prop_map(|of| Op::End { of }),
        2 => (any::<usize>(), foreign()).prop_map(|(of, mask)| Op::Taskset { of, mask }),
        1 => prop::sample::select(vec!["0-7", "0-3", "0-5"])
            .prop_map(|mask| Op::Cpuset { mask: set(mask) }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ops = || prop::collection::vec(op(), 0..5);
    let step = (ops(), ops()).prop_map(|(before, race)| Step { before, race });
    prop::collection::vec(step, 1..10)
}

/// Puts about half of the threads on some allowed PU, others each period.
fn restless(salt: u64) -> impl FnMut(&Snapshot) -> Plan {
    move |snapshot| {
        let free = snapshot
            .threads
            .iter()
            .filter(|thread| thread.hands_off.is_none());
        let bindings = free.filter_map(|thread| {
            let mut state = salt ^ ((thread.info.id.tid as u64) << 8) ^ (snapshot.period / 2);
            state = (state ^ (state >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let pus: Vec<u32> = thread.allowed.iter().collect();
            let pu = pus.get((state >> 40) as usize % pus.len().max(1))?;
            ((state >> 60) & 1 == 0).then(|| Binding {
                thread: thread.info.id,
                pus: PuSet::single(*pu),
                reason: Reason::new("a test"),
            })
        });
        Plan {
            bindings: bindings.collect(),
            ..Plan::default()
        }
    }
}

/// Runs a session over a script; returns the kernel as it was left.
fn run(steps: &[Step], salt: u64, kill: Option<Kill>) -> (Rc<RefCell<Kernel>>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut kernel = Kernel::new(2 * CORES);
    kernel.dir = dir.path().to_owned();
    kernel.kill = kill;
    let all = kernel.pus.clone();
    for fp in [0.0, 0.5, 0.9] {
        kernel.spawn(None, &all, fp);
    }
    let placed = kernel.spawn(None, &set("0,2"), 0.5);
    kernel.spawn(Some(placed.tid), &all, 0.0);
    let kernel = Rc::new(RefCell::new(kernel));
    let machine = Scripted::new(&kernel, CORES, steps.to_vec());
    let options = Options {
        policy: Box::new(Decide(restless(salt))),
        processor: Box::new(TestProcessor),
        period: None,
        acting: Acting::Live(StateDir::open(dir.path()).unwrap()),
        take_over: false,
        pus: None,
    };
    let mut session = Session::new(machine, options).unwrap();
    session.set_clock(now);
    let mut seen = Seen::default();
    session.run(&mut seen).unwrap();
    assert!(
        !seen.remarks.iter().any(|remark| remark.contains("bug")),
        "{:?}",
        seen.remarks
    );
    (kernel, dir)
}

/// The masks that threads should have, and those that they have.
fn compare(kernel: &Kernel) -> (BTreeMap<i32, PuSet>, BTreeMap<i32, PuSet>) {
    let fair = kernel
        .tasks
        .iter()
        .map(|(id, task)| (id.tid, kernel.effective(&task.fair)));
    let real = kernel
        .tasks
        .iter()
        .map(|(id, task)| (id.tid, kernel.effective(&task.requested)));
    (fair.collect(), real.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_session_that_ends_leaves_no_trace(steps in steps(), salt: u64) {
        let (kernel, dir) = run(&steps, salt, None);
        let (fair, real) = compare(&kernel.borrow());
        prop_assert_eq!(fair, real);
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_session_that_is_killed_is_undone_by_the_journal(
        steps in steps(), salt: u64, at in 1usize..40, after: bool,
        later in prop::collection::vec(op(), 0..4),
    ) {
        let (kernel, _dir) = run(&steps, salt, Some(Kill { at, after }));
        let killed = kernel.borrow_mut().killed.take();
        kernel.borrow_mut().kill = None;
        if let Some(journals) = killed {
            let all = kernel.borrow().pus.clone();
            later.iter().for_each(|op| op.run(&mut kernel.borrow_mut(), &all));
            prop_assert_eq!(journals.len(), 1);
            let journal = Journal::parse(&journals[0]).unwrap();
            prop_assert_eq!(journal.damaged, 0);
            let usable = kernel.borrow().cpuset.clone();
            let report = restore(&mut Knob(Rc::clone(&kernel)), &journal, &usable);
            prop_assert!(report.failed.is_empty());
        }
        let (fair, real) = compare(&kernel.borrow());
        prop_assert_eq!(fair, real);
    }
}
