//! CPU weights in a session: nice values are journaled before they are changed, restored with those that were inherited,
//! and never set where another process has set them since.

use crate::common::{
    Heard, Kill, NiceMachine, NiceOp, NiceStep, Niced, live, now, options, recorded, replay, set,
};
use perch_core::{
    Action, ActionKind, Affinity, MaskChange, MaskError, Outcome, Plan, Policy, ProcessId, PuSet,
    Reason, Snapshot, ThreadId, Weight, Weights, affinity::Descendant,
};
use perch_engine::{
    Acting, ActionTaken, Journal, Period, Session, SessionSink,
    journal::{NiceRecord, ProcessRecord, Record, state_dir},
    restore,
};
use proptest::prelude::*;

/// Weights that others never lead to: nice 5, 10 and 16.
const WEIGHTS: [u32; 3] = [33, 10, 3];

/// Gives each thread a weight or none, another one now and then.
struct Restless(u64);

impl Policy for Restless {
    fn name(&self) -> &'static str {
        "restless"
    }

    fn wants_weights(&self) -> bool {
        true
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let mut plan = Plan::default();
        for thread in &snapshot.threads {
            let id = thread.info.id;
            let mut state = self.0 ^ ((id.tid as u64) << 8) ^ (snapshot.period / 2);
            state = (state ^ (state >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if let Some(weight) = WEIGHTS.get((state >> 61) as usize % 4) {
                let what = ActionKind::CpuWeight(Weight::new(*weight).unwrap());
                plan.actions.push(Action {
                    thread: id,
                    what,
                    reason: Reason::new("a test"),
                });
            }
        }
        plan
    }
}

fn session(
    kernel: &Niced,
    steps: &[NiceStep],
    has_records: bool,
    policy: impl Policy + 'static,
    acting: Acting,
) -> Session<NiceMachine> {
    let machine = NiceMachine::new(kernel, steps, has_records);
    let mut session = Session::new(machine, options(policy, acting)).unwrap();
    session.set_clock(now);
    session
}

/// Everything at nice 10.
struct Light;

impl Policy for Light {
    fn name(&self) -> &'static str {
        "light"
    }

    fn wants_weights(&self) -> bool {
        true
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let action = |thread: &perch_core::ThreadState| Action {
            thread: thread.info.id,
            what: ActionKind::CpuWeight(Weight::new(10).unwrap()),
            reason: Reason::new("a test"),
        };
        Plan {
            actions: snapshot.threads.iter().map(action).collect(),
            ..Plan::default()
        }
    }
}

fn outcomes(heard: &Heard) -> Vec<Vec<(ThreadId, Outcome)>> {
    let outcome = |taken: &ActionTaken| (taken.thread, taken.outcome);
    let periods = heard.actions.iter();
    periods
        .map(|actions| actions.iter().map(outcome).collect())
        .collect()
}

#[test]
fn a_weight_is_set_once_inherited_and_given_back() {
    let (kernel, ids) = Niced::new();
    let (dir, acting) = live();
    let fork = NiceOp::Fork {
        of: 0,
        own_process: true,
    };
    let steps = [
        (vec![], vec![]),
        (vec![fork.clone()], vec![]),
        (vec![], vec![fork]),
    ];
    let mut kept = Heard::default();
    let mut session = session(&kernel, &steps, true, Light, acting);
    let end = session.run(&mut kept).unwrap();
    let applied = ids.iter().map(|id| (*id, Outcome::Applied)).collect();
    assert_eq!(outcomes(&kept)[..3], [applied, vec![], vec![]]);
    assert_eq!(kernel.wrong(), []);
    let weights = end.restored.weights;
    // The one that was born in the race was never observed before the end.
    assert_eq!(
        (weights.restored, weights.left_alone),
        (4, 0),
        "{weights:?}"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_others_set_and_what_cannot_be_undone_is_left_alone() {
    let (kernel, ids) = Niced::new();
    kernel.refuse(ids[1]);
    let (_dir, acting) = live();
    let renice = NiceOp::Renice { of: 0, nice: 7 };
    let steps = [(vec![], vec![]), (vec![renice], vec![]), (vec![], vec![])];
    let mut kept = Heard::default();
    let mut session = session(&kernel, &steps, true, Light, acting);
    let end = session.run(&mut kept).unwrap();
    let first = vec![(ids[0], Outcome::Applied), (ids[1], Outcome::NotPermitted)];
    assert_eq!(outcomes(&kept)[..3], [first, vec![], vec![]]);
    assert_eq!(kept.remarks, ["no way back"]);
    let nices = ids.iter().map(|id| kernel.nice(*id));
    assert_eq!(nices.collect::<Vec<_>>(), [Ok(7), Ok(0)]);
    assert_eq!(end.restored.weights.restored, 0);
}

/// The weights that threads have by groups after each period, and how many groups there are.
struct Groups {
    kernel: Niced,
    seen: Vec<(Vec<Option<u32>>, usize)>,
}

impl SessionSink for Groups {
    fn period(&mut self, period: &Period) {
        assert!(period.actions.iter().all(|taken| taken.by_group));
        let threads = period.observation.threads.iter();
        let weights = threads.map(|sample| self.kernel.weight(sample.info.id));
        self.seen.push((weights.collect(), self.kernel.groups()));
    }
}

#[test]
fn where_no_nice_value_could_be_restored_a_control_group_gives_the_weight() {
    let kernel = kernel(true);
    let (dir, acting) = live();
    let end_second = NiceOp::End { of: 1 };
    let steps = [(vec![], vec![]), (vec![end_second], vec![])];
    let mut session = session(&kernel, &steps, true, Light, acting);
    let mut watched = Groups {
        kernel: kernel.clone(),
        seen: Vec::new(),
    };
    let end = session.run(&mut watched).unwrap();
    // The group of the one that ended is removed.
    assert_eq!(watched.seen[0], (vec![Some(10); 2], 2));
    assert_eq!(watched.seen[1], (vec![Some(10)], 1));
    assert_eq!(kernel.groups(), 0);
    assert_eq!(end.restored.weights.restored, 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Everything at nice 10 for two periods, and no weights after that: as if a rule did not match new names.
struct Early;

impl Policy for Early {
    fn name(&self) -> &'static str {
        "early"
    }

    fn wants_weights(&self) -> bool {
        true
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let mut plan = Light.decide(snapshot);
        plan.actions.retain(|_| snapshot.period < 2);
        plan
    }
}

#[test]
fn a_program_that_a_thread_executes_has_its_group_and_loses_it() {
    let kernel = kernel(true);
    let exec = NiceOp::Exec { of: 0 };
    let steps = [
        (vec![], vec![]),
        (vec![], vec![]),
        (vec![exec], vec![]),
        (vec![], vec![]),
    ];
    let (_dir, acting) = live();
    let mut groups = Groups {
        kernel: kernel.clone(),
        seen: Vec::new(),
    };
    session(&kernel, &steps, true, Early, acting)
        .run(&mut groups)
        .unwrap();
    let counts: Vec<usize> = groups.seen.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts[..4], [2, 2, 0, 0]);
}

#[test]
fn a_value_of_which_it_is_unknown_whose_it_is_stays() {
    for exec in [true, false] {
        let (kernel, ids) = Niced::new();
        let [first, second] = ids[..] else { panic!() };
        let mut journal = Journal::new(state_dir::header(set("0-3")).unwrap());
        let (pid, start) = (first.tid, first.start);
        journal.add(&Record::Process(ProcessRecord {
            id: ProcessId { pid, start },
            image: None,
            unseen: false,
            first_ended: false,
            ended: None,
        }));
        journal.add(&Record::Nice(NiceRecord {
            thread: second,
            process: pid,
            before: 0,
            from: 0,
            set: 5,
            at: 0,
        }));
        kernel.settle();
        kernel.run(&NiceOp::Renice { of: 1, nice: 5 });
        kernel.settle();
        // What another look could decide fails a restore, so that the journal is kept.
        let (thread, failed) = if exec {
            // It may be the second under its number, or others have set its value.
            kernel.run(&NiceOp::Exec { of: 1 });
            (first, vec![Some(first)])
        } else {
            // The new one may have it from either: no later look can tell.
            journal.add(&Record::NicePlaced {
                thread: first,
                process: pid,
                nice: Some(5),
            });
            let own_process = false;
            kernel.run(&NiceOp::Fork { of: 1, own_process });
            let all = kernel.descendants("", &[], &|thread| ids.contains(&thread));
            (all.unwrap()[0].thread, Vec::new())
        };
        let report = restore(&mut kernel.clone(), &journal, None).weights;
        let named: Vec<_> = report.failed.iter().map(|(thread, _)| *thread).collect();
        assert_eq!(named, failed, "{report:?}");
        assert_eq!(kernel.nice(thread), Ok(5));
    }
}

#[test]
fn a_user_s_journal_gives_no_thread_more_than_its_user_may_have() {
    let (kernel, ids) = Niced::new();
    let mut journal = Journal::new(state_dir::header(set("0-3")).unwrap());
    for (at, thread) in ids.iter().enumerate() {
        journal.add(&Record::Nice(NiceRecord {
            thread: *thread,
            process: ids[0].tid,
            before: -20,
            from: 0,
            set: 0,
            at: at as u64,
        }));
    }
    kernel.refuse(ids[0]);
    let weights = restore(&mut kernel.clone(), &journal, Some(1000)).weights;
    assert_eq!((weights.restored, weights.failed.len()), (1, 1));
    assert_eq!(weights.failed[0].0, Some(ids[0]));
    assert_eq!([0, 1].map(|of| kernel.nice(ids[of])), [Ok(0), Ok(-20)]);
}

#[test]
fn a_group_in_another_cgroup_namespace_is_not_taken_for_one_that_is_gone() {
    let kernel = kernel(true);
    let (dir, acting) = live();
    let kill = Kill { at: 2, after: true };
    kernel.kill(kill, dir.path());
    let mut session = session(&kernel, &[(vec![], vec![])], true, Light, acting);
    session.run(&mut ()).unwrap();
    let killed = kernel.take_killed().unwrap();
    let mut journal = Journal::parse(&killed[0]).unwrap();
    journal.header.namespaces.cgroup += 1;
    let report = restore(&mut kernel.clone(), &journal, None);
    assert_eq!((report.weights.failed.len(), kernel.groups()), (2, 2));
    journal.header.namespaces.cgroup -= 1;
    let report = restore(&mut kernel.clone(), &journal, None);
    assert_eq!((report.weights.restored, kernel.groups()), (2, 0));
}

/// A kernel on which all threads belong to another user, and one ends when it is asked whose it is.
struct Strangers(Niced, ThreadId);

impl Affinity for Strangers {
    fn settle(&self) {}

    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        self.0.mask(thread)
    }

    fn change(&mut self, change: &MaskChange) -> Outcome {
        self.0.change(change)
    }

    fn weights(&mut self) -> Option<&mut dyn Weights> {
        self.0.weights()
    }

    fn allowed(&self, thread: ThreadId) -> Option<PuSet> {
        self.0.allowed(thread)
    }

    fn belongs_to(&self, thread: ThreadId, _: u32) -> bool {
        if thread == self.1 {
            self.0.run(&NiceOp::End { of: 1 });
        }
        false
    }

    fn descendants(
        &self,
        session: &str,
        processes: &[ProcessId],
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError> {
        self.0.descendants(session, processes, known)
    }
}

#[test]
fn what_was_being_created_during_a_restore_has_its_value_back_too() {
    let (kernel, ids) = Niced::new();
    let (dir, acting) = live();
    let kill = Kill { at: 2, after: true };
    kernel.kill(kill, dir.path());
    let mut session = session(&kernel, &[(vec![], vec![])], true, Light, acting);
    session.run(&mut ()).unwrap();
    let killed = kernel.take_killed().unwrap();
    let journal = Journal::parse(&killed[0]).unwrap();
    kernel.is_creating(ids[0], 10);
    let weights = restore(&mut kernel.clone(), &journal, None).weights;
    assert_eq!((weights.restored, weights.inherited), (3, 1), "{weights:?}");
    assert_eq!(kernel.newest(), 0);
    assert_eq!(kernel.nice(ids[0]), Ok(0));
}

#[test]
fn a_thread_that_ends_while_it_is_restored_is_no_stranger() {
    let (kernel, ids) = Niced::new();
    let (dir, acting) = live();
    let kill = Kill { at: 2, after: true };
    kernel.kill(kill, dir.path());
    let mut session = session(&kernel, &[(vec![], vec![])], true, Light, acting);
    session.run(&mut ()).unwrap();
    let killed = kernel.take_killed().unwrap();
    let journal = Journal::parse(&killed[0]).unwrap();
    let mut strangers = Strangers(kernel.clone(), ids[1]);
    let weights = restore(&mut strangers, &journal, Some(1000)).weights;
    let failed: Vec<_> = weights.failed.iter().map(|(thread, _)| *thread).collect();
    assert_eq!((weights.gone, failed), (1, vec![Some(ids[0])]));
}

#[test]
fn a_value_that_an_execve_after_a_kill_has_brought_to_another_number_comes_back() {
    // What another process gives the caller before perch: nothing, or the value that perch sets on the first thread.
    for (given, left) in [(None, 0), (Some(10), 10)] {
        let (kernel, ids) = Niced::new();
        if let Some(nice) = given {
            kernel.settle();
            kernel.run(&NiceOp::Renice { of: 1, nice });
            kernel.settle();
        }
        let (dir, acting) = live();
        let first = NiceOp::Exec { of: 1 };
        let at = 2 - usize::from(given.is_some());
        kernel.kill(Kill { at, after: true }, dir.path());
        let mut session = session(&kernel, &[(vec![], vec![])], true, Light, acting);
        session.run(&mut ()).unwrap();
        let killed = kernel.take_killed().unwrap();
        kernel.run(&first);
        assert_eq!(kernel.nice(ids[0]), Ok(10));
        assert_eq!(kernel.nice(ids[1]), Err(MaskError::Gone));
        let journal = Journal::parse(&killed[0]).unwrap();
        let weights = restore(&mut kernel.clone(), &journal, None).weights;
        assert_eq!(kernel.nice(ids[0]), Ok(left), "{weights:?}");
        assert_eq!(weights.left_alone, usize::from(given.is_some()));
    }
}

/// One thread at nice 10, others as they are.
struct Only(ThreadId);

impl Policy for Only {
    fn name(&self) -> &'static str {
        "only"
    }

    fn wants_weights(&self) -> bool {
        true
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let mut plan = Light.decide(snapshot);
        plan.actions.retain(|action| action.thread == self.0);
        plan
    }
}

/// The second thread of a process calls execve(2), before or after a thread of the first one's number creates a child.
/// Others have given one of the two the value that perch gives the other.
#[test]
fn a_child_is_that_of_the_thread_that_had_its_creator_s_number_then() {
    let fork = NiceOp::Fork {
        of: 0,
        own_process: true,
    };
    let exec = NiceOp::Exec { of: 1 };
    let cases = (0..8).map(|at| [at & 1, at >> 1 & 1, at >> 2]);
    for [others, creator, timed] in cases {
        let (kernel, ids) = Niced::new();
        if timed == 1 {
            kernel.tell_times();
        }
        let renice = NiceOp::Renice {
            of: others,
            nice: 10,
        };
        let mut both = vec![fork.clone(), exec.clone()];
        both.rotate_left(creator);
        let steps = [vec![], vec![renice], both, vec![]].map(|step| (step, vec![]));
        let (_dir, acting) = live();
        session(&kernel, &steps, true, Only(ids[1 - others]), acting)
            .run(&mut ())
            .unwrap();
        let caller = if others == 1 { 10 } else { 0 };
        assert_eq!(kernel.nice(ids[0]), Ok(caller));
        // Without times nothing tells whose child it is: it keeps what it has.
        let child = if timed == 1 && creator != others {
            0
        } else {
            10
        };
        assert_eq!(kernel.newest(), child, "{:?}", [others, creator, timed]);
    }
}

fn forks() -> impl Strategy<Value = NiceOp> {
    let of = any::<usize>();
    prop_oneof![
        3 => (of, any::<bool>()).prop_map(|(of, own_process)| NiceOp::Fork { of, own_process }),
        1 => of.prop_map(|of| NiceOp::End { of }),
    ]
}

fn ops() -> impl Strategy<Value = NiceOp> {
    let nice = prop::sample::select(vec![0, 3, 7, 12]);
    prop_oneof![
        2 => forks(),
        1 => (any::<usize>(), nice).prop_map(|(of, nice)| NiceOp::Renice { of, nice }),
        1 => any::<usize>().prop_map(|of| NiceOp::Exec { of }),
    ]
}

/// One where threads have weights by nice values or by control groups.
fn kernel(delegated: bool) -> Niced {
    let (kernel, _) = Niced::new();
    if delegated {
        kernel.delegate();
    }
    kernel
}

fn racing() -> impl Strategy<Value = Vec<NiceStep>> {
    let some = || prop::collection::vec(forks(), 0..3);
    prop::collection::vec((some(), some()), 1..8)
}

/// Threads are given the values of [`WEIGHTS`] by others too.
fn alike() -> impl Strategy<Value = Vec<NiceStep>> {
    let nice = prop::sample::select(vec![0, 5, 10, 16]);
    let op = prop_oneof![
        2 => forks(),
        2 => (any::<usize>(), nice).prop_map(|(of, nice)| NiceOp::Renice { of, nice }),
        1 => any::<usize>().prop_map(|of| NiceOp::Exec { of }),
    ];
    let some = prop::collection::vec(op, 0..4);
    prop::collection::vec(some.prop_map(|ops| (ops, Vec::new())), 1..8)
}

fn calm() -> impl Strategy<Value = Vec<NiceStep>> {
    let some = prop::collection::vec(ops(), 0..4);
    prop::collection::vec(some.prop_map(|ops| (ops, Vec::new())), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// With the kernel's records, whichever threads are reniced: at the end all have what they would have without perch.
    #[test]
    fn all_is_as_without_perch(steps in calm(), salt: u64, delegated: bool) {
        let kernel = kernel(delegated);
        kernel.tell_times();
        let (dir, acting) = live();
        let mut session = session(&kernel, &steps, true, Restless(salt), acting);
        let end = session.run(&mut ()).unwrap();
        prop_assert!(!end.restored.has_failed());
        prop_assert_eq!((kernel.wrong(), kernel.groups()), (vec![], 0));
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Whenever threads are born, and with or without records: none keeps a value of perch's.
    #[test]
    fn no_heir_is_forgotten(steps in racing(), salt: u64, records: bool, delegated: bool) {
        let kernel = kernel(delegated);
        let (_dir, acting) = live();
        let mut session = session(&kernel, &steps, records, Restless(salt), acting);
        session.run(&mut ()).unwrap();
        prop_assert_eq!((kernel.wrong(), kernel.groups()), (vec![], 0));
    }

    /// Others may choose the very values that perch sets. A thread that has the right value when the session ends keeps
    /// it, where the kernel tells which thread created it.
    #[test]
    fn no_thread_loses_a_value_that_is_not_from_perch(
        steps in alike(),
        last in prop::collection::vec(forks(), 0..4),
        salt: u64,
    ) {
        let kernel = kernel(false);
        kernel.tell_times();
        let (_dir, acting) = live();
        let machine = NiceMachine::new(&kernel, &steps, true).and_last(last);
        let mut session = Session::new(machine, options(Restless(salt), acting)).unwrap();
        session.set_clock(now);
        session.run(&mut ()).unwrap();
        prop_assert_eq!(kernel.harmed(), vec![]);
    }

    /// The same after a kill at any moment, when the journal alone is left; others are born after that.
    #[test]
    fn killed_at_any_moment_all_comes_back(
        steps in racing(),
        later in prop::collection::vec(forks(), 0..4),
        exec in prop::option::of(any::<usize>()),
        salt: u64,
        at in 1usize..20,
        after: bool,
        delegated: bool,
    ) {
        let kernel = kernel(delegated);
        let (dir, acting) = live();
        kernel.kill(Kill { at, after }, dir.path());
        let mut session = session(&kernel, &steps, true, Restless(salt), acting);
        session.run(&mut ()).unwrap();
        let killed = kernel.take_killed();
        exec.iter().for_each(|of| kernel.run(&NiceOp::Exec { of: *of }));
        later.iter().for_each(|op| kernel.run(op));
        for bytes in killed.into_iter().flatten() {
            let journal = Journal::parse(&bytes).unwrap();
            prop_assert_eq!(journal.damaged, 0);
            // Made shorter it says the same.
            let mut shortened = Journal::new(journal.header.clone());
            journal.records().iter().for_each(|record| shortened.add(record));
            prop_assert_eq!(journal.records(), shortened.records());
            let report = restore(&mut kernel.clone(), &shortened, None);
            prop_assert!(!report.has_failed());
        }
        prop_assert_eq!((kernel.wrong(), kernel.groups()), (vec![], 0));
    }

    #[test]
    fn a_recording_leads_to_the_same_plans(steps in racing(), salt: u64, delegated: bool) {
        let kernel = kernel(delegated);
        let (_dir, acting) = live();
        let mut session = session(&kernel, &steps, true, Restless(salt), acting);
        let (recording, first) = recorded(&mut session);
        let (_, second) = replay(&recording, Restless(salt));
        prop_assert_eq!(first.plans, second.plans);
    }
}
