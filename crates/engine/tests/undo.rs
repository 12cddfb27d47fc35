//! Whatever happens, every thread ends with the mask that it would have had without perch.

use crate::common::{
    Decide, Heard, Kernel, Kill, Knob, Op, Scripted, Seen, Step, Task, now, options, set, shows,
};
use perch_core::{Binding, Plan, PuSet, Reason, Snapshot, ThreadId};
use perch_engine::{Acting, Journal, RestoreReport, Session, StateDir, journal::Kept, restore};
use proptest::{prelude::*, test_runner::RngSeed};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, RwLock},
};

const CORES: u32 = 4;

/// Masks that others set: single PUs, as the policy sets them, among them.
fn foreign() -> impl Strategy<Value = PuSet> {
    prop::sample::select(vec![
        "0,2", "1-3", "0-2", "1,3", "0-7", "0", "1", "2", "3", "5", "6",
    ])
    .prop_map(set)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0.0..1.0).prop_map(|fp| Op::Spawn { fp }),
        4 => (any::<usize>(), any::<bool>())
            .prop_map(|(of, own_process)| Op::Fork { of, own_process }),
        2 => any::<usize>().prop_map(|of| Op::End { of }),
        2 => (any::<usize>(), foreign()).prop_map(|(of, mask)| Op::Taskset { of, mask }),
        1 => any::<usize>().prop_map(|of| Op::Exec { of }),
        1 => (0..2usize, prop::sample::select(vec!["0-7", "0-3", "0-5", "3-4", "6"]))
            .prop_map(|(group, mask)| Op::Cpuset { group, mask: set(mask) }),
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
            .filter(|thread| thread.unmanaged.is_none());
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
fn run(
    steps: &[Step],
    salt: u64,
    remembers: bool,
    kill: Option<Kill>,
) -> (Arc<RwLock<Kernel>>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut kernel = Kernel::new(2 * CORES);
    if let Some(kill) = kill {
        kernel.killer.arm(kill, dir.path());
    }
    kernel.remembers = remembers;
    let all = kernel.pus.clone();
    for fp in [0.0, 0.5, 0.9] {
        kernel.spawn(None, &all, fp);
    }
    let placed = kernel.spawn(None, &set("0,2"), 0.5);
    kernel.spawn(Some(placed.tid), &all, 0.0);
    // A second process that perch is attached to, in a CPU set of its own.
    kernel.set_cpuset(1, &set("2-7"));
    let other = kernel.spawn_in(1, None, &all, 0.9);
    kernel.spawn_in(1, Some(other.tid), &all, 0.3);
    let kernel = Arc::new(RwLock::new(kernel));
    let machine = Scripted::new(&kernel, CORES, steps.to_vec());
    let acting = Acting::Live(StateDir::open(dir.path()).unwrap());
    let mut session = Session::new(machine, options(Decide(restless(salt)), acting)).unwrap();
    session.set_clock(now);
    let mut seen = Heard::default();
    session.run(&mut seen).unwrap();
    assert!(
        !seen.remarks.iter().any(|remark| remark.contains("bug")),
        "{:?}",
        seen.remarks
    );
    (kernel, dir)
}

/// The mask that a thread has which asked for this one, and those that it will have as CPU sets change.
fn all_futures(kernel: &Kernel, requested: &PuSet, group: usize) -> Vec<PuSet> {
    let now = kernel.effective(requested, group);
    if !kernel.remembers {
        return vec![now];
    }
    let later = ["0-7", "0-3", "6", "1,4"].map(|cpuset| {
        let rest = requested.and(&set(cpuset));
        if rest.is_empty() { set(cpuset) } else { rest }
    });
    [now].into_iter().chain(later).collect()
}

type Masks = BTreeMap<i32, Vec<PuSet>>;

/// The masks that threads should have, and those that they have.
fn compare(kernel: &Kernel) -> (Masks, Masks) {
    let knowable = |task: &Task| match task.seen {
        Seen::Told => true,
        Seen::NotYet(_) => shows(&task.fair, &kernel.cpusets[task.group]),
        Seen::Veiled => false,
    };
    let tasks = || kernel.tasks.iter().filter(|(_, task)| knowable(task));
    let fair = tasks().map(|(id, task)| (id.tid, all_futures(kernel, &task.fair, task.group)));
    let real = tasks().map(|(id, task)| (id.tid, all_futures(kernel, &task.requested, task.group)));
    (fair.collect(), real.collect())
}

/// Threads whose masks cannot be attributed after perch was killed.
#[derive(Default)]
struct Undecidable {
    /// Another process gave these threads the very mask that perch, when it was killed, was about to set on them, or
    /// had set on threads from which they may have inherited it. To a later restore they look like perch's.
    like_perchs: BTreeSet<i32>,
    /// Threads that have their masks from perch, but may as well have inherited them from a thread that another process
    /// has placed. They may be left as they are, with these masks asked for.
    like_foreign: BTreeMap<i32, PuSet>,
}

fn undecidable(kernel: &Kernel, journals: &[Vec<u8>]) -> Undecidable {
    let journals = journals.iter().map(|bytes| Journal::parse(bytes).unwrap());
    let journals: Vec<Journal> = journals.collect();
    let kept = |id: &ThreadId| journals.iter().find_map(|journal| journal.thread(*id));
    let looked_at: BTreeSet<i32> = journals.iter().flat_map(Journal::looked_at).collect();
    let used = |mask: &PuSet| {
        journals
            .iter()
            .any(|journal| journal.masks().any(|known| known.set == *mask))
    };
    let like_perchs = |(id, task): &(&ThreadId, &Task)| match kept(id) {
        Some(Kept::Held(held)) => held.asked().any(|asked| *asked == task.fair),
        Some(Kept::Free { .. } | Kept::Placed { .. }) => false,
        None => used(&task.fair),
    };
    // Or to the first thread of a process in which a bound one may have called execve.
    let like_a_callers = |(id, task): &(&ThreadId, &Task)| {
        let mut masks = journals.iter().flat_map(Journal::masks);
        id.tid == task.pid && masks.any(|known| known.process == task.pid && known.set == task.fair)
    };
    let tasks = kernel.tasks.iter();
    let looks_like_perchs = tasks.filter(|task| like_perchs(task) || like_a_callers(task));
    // Those that perch had not seen when it was killed, or that have called execve since.
    let tasks = kernel.tasks.iter();
    let unseen = tasks.filter(|(id, task)| kept(id).is_none() || id.tid == task.pid);
    let like_foreign = unseen.filter(|(_, task)| {
        let shown = kernel.effective(&task.requested, task.group);
        // A process that was reparented may descend from any process of its target.
        let home = kernel.home(task.pid, &|pid| looked_at.contains(&pid));
        let related = |pid: i32, group: usize| {
            home.map_or(group == task.group, |home| pid == home || pid == task.pid)
        };
        let known = kernel.tasks.iter().filter(|(id, _)| kept(id).is_some());
        let placed_now = known.filter(|(_, other)| {
            let placed = other.fair == other.requested && other.fair != kernel.pus;
            placed && related(other.pid, other.group)
        });
        let mut placed_now = placed_now.map(|(_, other)| &other.fair);
        let told = journals.iter().flat_map(|journal| {
            let group = journal.header.target as usize;
            journal.threads().map(move |(_, kept)| (group, kept))
        });
        let mut placed_then = told.filter_map(|(group, kept)| match kept {
            Kept::Placed { process, mask } if related(*process, group) => Some(mask),
            _ => None,
        });
        let alike = |mask: &PuSet| kernel.effective(mask, task.group) == shown;
        task.fair != task.requested && (placed_now.any(alike) || placed_then.any(alike))
    });
    Undecidable {
        like_perchs: looks_like_perchs.map(|(id, _)| id.tid).collect(),
        like_foreign: like_foreign
            .map(|(id, task)| (id.tid, task.requested.clone()))
            .collect(),
    }
}

/// The same 1,500 histories each time, so that a failure is a change's doing; or with PERCH_HISTORIES as many others.
fn config() -> ProptestConfig {
    let asked = std::env::var("PERCH_HISTORIES").ok();
    let asked: Option<u32> =
        asked.map(|number| number.parse().expect("PERCH_HISTORIES is a number"));
    ProptestConfig {
        failure_persistence: None,
        cases: asked.unwrap_or(1500),
        rng_seed: match asked {
            Some(_) => RngSeed::Random,
            None => RngSeed::Fixed(1),
        },
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_session_that_ends_leaves_no_trace(steps in steps(), salt: u64, remembers: bool) {
        ends(&steps, salt, remembers)?;
    }

    #[test]
    fn a_session_that_is_killed_is_undone_by_the_journal(
        steps in steps(), salt: u64, remembers: bool, at in 1usize..40, after: bool,
        later in prop::collection::vec(op(), 0..4),
    ) {
        is_killed(&steps, salt, remembers, Kill { at, after }, &later)?;
    }
}

fn ends(steps: &[Step], salt: u64, remembers: bool) -> Result<(), TestCaseError> {
    let (kernel, dir) = run(steps, salt, remembers, None);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        // It was kept because a CPU set hides whose some mask is.
        let journal = Journal::parse(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap();
        let report = restore(&mut Knob(Arc::clone(&kernel)), &journal, None);
        restore_later(&kernel, &journal, &report)?;
    }
    let (fair, real) = compare(&kernel.read().unwrap());
    prop_assert_eq!(fair, real);
    Ok(())
}

/// What a CPU set has hidden is undone when it allows all.
fn restore_later(
    kernel: &Arc<RwLock<Kernel>>,
    journal: &Journal,
    report: &RestoreReport,
) -> Result<(), TestCaseError> {
    let hidden = |(_, why): &(Option<ThreadId>, String)| why.contains("cpuset");
    // Left alone for good: this kernel has no subreapers, so others have set these masks.
    let adopted = |(_, why): &(Option<ThreadId>, String)| why.contains("adopted");
    prop_assert!(
        report
            .masks
            .failed
            .iter()
            .all(|failed| hidden(failed) || adopted(failed)),
        "{:?}",
        report.masks.failed
    );
    if report.masks.failed.iter().any(hidden) {
        let all = kernel.read().unwrap().pus.clone();
        kernel.write().unwrap().veil();
        for group in 0..2 {
            kernel.write().unwrap().set_cpuset(group, &all);
        }
        let report = restore(&mut Knob(Arc::clone(kernel)), journal, None);
        prop_assert!(
            report.masks.failed.iter().all(adopted),
            "{:?}",
            report.masks.failed
        );
    }
    Ok(())
}

fn is_killed(
    steps: &[Step],
    salt: u64,
    remembers: bool,
    kill: Kill,
    later: &[Op],
) -> Result<(), TestCaseError> {
    let (kernel, _dir) = run(steps, salt, remembers, Some(kill));
    let mut unknown = Undecidable::default();
    let mut text = String::new();
    let killed = kernel.write().unwrap().killer.take();
    if let Some(journals) = killed {
        let all = kernel.read().unwrap().pus.clone();
        later
            .iter()
            .for_each(|op| op.run(&mut kernel.write().unwrap(), &all));
        text = journals
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes))
            .collect();
        unknown = undecidable(&kernel.read().unwrap(), &journals);
        prop_assert!((1..=2).contains(&journals.len()));
        for journal in &journals {
            let journal = Journal::parse(journal).unwrap();
            prop_assert_eq!(journal.damaged, 0);
            let report = restore(&mut Knob(Arc::clone(&kernel)), &journal, None);
            restore_later(&kernel, &journal, &report)?;
        }
    }
    let (mut fair, mut real) = compare(&kernel.read().unwrap());
    let kernel = kernel.read().unwrap();
    let tasks = kernel.tasks.iter();
    let left: BTreeSet<i32> = tasks
        .filter(|(id, task)| unknown.like_foreign.get(&id.tid) == Some(&task.requested))
        .map(|(id, _)| id.tid)
        .collect();
    for masks in [&mut fair, &mut real] {
        masks.retain(|tid, _| !unknown.like_perchs.contains(tid) && !left.contains(tid));
    }
    prop_assert_eq!(fair, real, "{}", text);
    Ok(())
}
