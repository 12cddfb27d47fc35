//! CPU weights in a session: nice values are journaled before they are changed, restored with those that were inherited,
//! and never set where another process has set them since.

mod common;

use common::{TestProcessor, live, set, topology};
use perch_core::{
    Action, ActionKind, Affinity, EventPlan, Machine, MachineError, MaskChange, MaskError, Metrics,
    NiceChange, NiceSample, Observation, Origin, Outcome, Plan, Policy, ProcessId, ProcessState,
    PuSet, Reason, Snapshot, Source, ThreadId, ThreadInfo, ThreadSample, Topology, Wake, Weight,
    Weights, affinity::Relative,
};
use perch_engine::{
    Acting, Journal, Observer, Options, Period, Reader, RecordedMachine, Recorder, Session, restore,
};
use proptest::prelude::*;
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, RwLock},
    time::Duration,
};

const SECOND: u64 = 1_000_000_000;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

fn now() -> u64 {
    NOW.get()
}

/// Each thing happens at a moment of its own.
fn tick() -> u64 {
    NOW.set(now() + 1);
    now()
}

#[derive(Debug, Clone)]
struct Task {
    pid: i32,
    parent: i32,
    nice: i32,
    /// The value that it would have if there were no perch.
    fair: i32,
}

/// What happens to threads; `of` counts those that live.
#[derive(Debug, Clone)]
enum Op {
    Fork { of: usize, own_process: bool },
    Renice { of: usize, nice: i32 },
    End { of: usize },
}

/// What happens before perch looks, and between its look and its deed.
type Step = (Vec<Op>, Vec<Op>);

#[derive(Default)]
struct Kernel {
    tasks: BTreeMap<ThreadId, Task>,
    ended: Vec<ThreadId>,
    origins: Vec<Origin>,
    /// Threads of which there is no way back for perch.
    refused: BTreeSet<ThreadId>,
    changes: usize,
    kill: Option<(usize, bool, PathBuf)>,
    /// The journals on disk when perch was killed: nothing that it does later counts.
    killed: Option<Vec<Vec<u8>>>,
}

impl Kernel {
    fn spawn(&mut self, pid: Option<i32>, parent: i32, nice: i32, fair: i32) -> ThreadId {
        let start = tick();
        let tid = 1000 + start as i32;
        let pid = pid.unwrap_or(tid);
        let id = ThreadId { tid, start };
        self.tasks.insert(
            id,
            Task {
                pid,
                parent,
                nice,
                fair,
            },
        );
        id
    }

    fn nth(&self, of: usize) -> Option<ThreadId> {
        let count = self.tasks.len();
        self.tasks.keys().nth(of % count.max(1)).copied()
    }

    fn run(&mut self, op: &Op) {
        let (Op::Fork { of, .. } | Op::Renice { of, .. } | Op::End { of }) = op;
        let Some(id) = self.nth(*of) else { return };
        let task = self.tasks[&id].clone();
        match op {
            Op::Fork { own_process, .. } => {
                let (pid, parent) = match own_process {
                    true => (None, task.pid),
                    false => (Some(task.pid), task.parent),
                };
                let child = self.spawn(pid, parent, task.nice, task.fair);
                self.origins.push(Origin {
                    thread: child,
                    from: Source::Thread(id),
                    exec: false,
                    at: None,
                });
            }
            Op::Renice { nice, .. } => {
                let task = self.tasks.get_mut(&id).unwrap();
                (task.nice, task.fair) = (*nice, *nice);
            }
            // Processes live as long as their first thread, which others may descend from.
            Op::End { .. } if id.tid == task.pid => {}
            Op::End { .. } => {
                self.tasks.remove(&id);
                self.ended.push(id);
            }
        }
    }

    fn die(&mut self) {
        let Some((.., dir)) = self.kill.take() else {
            return;
        };
        let entries = std::fs::read_dir(dir).unwrap();
        let journals = entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
        self.killed = Some(journals.collect());
    }
}

/// Kernel and actuator.
#[derive(Clone, Default)]
struct Niced(Arc<RwLock<Kernel>>);

impl Weights for Niced {
    fn nice(&self, thread: ThreadId) -> Result<i32, MaskError> {
        let kernel = self.0.read().unwrap();
        let task = kernel.tasks.get(&thread);
        task.map(|task| task.nice).ok_or(MaskError::Gone)
    }

    fn permitted(&self, change: &NiceChange) -> Result<(), String> {
        match self.0.read().unwrap().refused.contains(&change.thread) {
            true => Err("no way back".to_owned()),
            false => Ok(()),
        }
    }

    fn change_nice(&mut self, change: &NiceChange) -> Outcome {
        let mut kernel = self.0.write().unwrap();
        tick();
        kernel.changes += 1;
        let changes = kernel.changes;
        let dies = |kernel: &Kernel, when: bool| {
            let kill = kernel.kill.as_ref();
            kill.is_some_and(|(at, after, _)| *at == changes && *after == when)
        };
        if dies(&kernel, false) {
            kernel.die();
        }
        if kernel.killed.is_some() {
            return Outcome::Applied;
        }
        let outcome = match kernel.tasks.get_mut(&change.thread) {
            None => Outcome::Gone,
            Some(task) if task.nice != change.expect => Outcome::ChangedByOthers,
            Some(task) => {
                task.nice = change.set;
                Outcome::Applied
            }
        };
        if dies(&kernel, true) {
            kernel.die();
        }
        outcome
    }
}

impl Affinity for Niced {
    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        self.nice(thread).map(|_| set("0-3"))
    }

    fn change(&mut self, _: &MaskChange) -> Outcome {
        Outcome::NotPermitted
    }

    fn weights(&mut self) -> Option<&mut dyn Weights> {
        Some(self)
    }

    fn allowed(&self, _: ThreadId) -> Option<PuSet> {
        Some(set("0-3"))
    }

    fn relatives(
        &self,
        _: &str,
        _: &[ProcessId],
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Relative>, MaskError> {
        let kernel = self.0.read().unwrap();
        let tasks = kernel.tasks.iter().filter(|(id, _)| !known(**id));
        let relative = |(id, task): (&ThreadId, &Task)| Relative {
            thread: *id,
            process: ProcessId {
                pid: task.pid,
                start: 0,
            },
            parent: task.parent,
            mask: set("0-3"),
        };
        Ok(tasks.map(relative).collect())
    }
}

/// A machine on that kernel which follows a script.
struct Scripted {
    kernel: Niced,
    steps: Vec<Step>,
    at: usize,
    has_records: bool,
    watches: bool,
    told: BTreeSet<i32>,
}

impl Machine for Scripted {
    fn topology(&self) -> Arc<Topology> {
        Arc::new(topology(2, &set("0-3")))
    }

    fn configure(&mut self, _: &EventPlan) -> Result<(), MachineError> {
        Ok(())
    }

    fn watch_weights(&mut self, watch: bool) -> Result<(), MachineError> {
        self.watches = watch;
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> Result<Wake, MachineError> {
        let Some((before, _)) = self.steps.get(self.at) else {
            return Ok(Wake::Ended(None));
        };
        let mut kernel = self.kernel.0.write().unwrap();
        before.iter().for_each(|op| kernel.run(op));
        Ok(Wake::Period)
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        let mut kernel = self.kernel.0.write().unwrap();
        let sample = |(id, task): (&ThreadId, &Task)| ThreadSample {
            info: ThreadInfo {
                id: *id,
                pid: task.pid,
                name: "worker".into(),
                process: "app".into(),
            },
            interval: SECOND,
            cpu_time: SECOND,
            wait_time: 0,
            switches: None,
            migrations: None,
            last_pu: None,
            mask: Some(set("0-3")),
            counts: Vec::new(),
            metrics: Metrics::default(),
        };
        let nice = |(id, task): (&ThreadId, &Task)| NiceSample {
            thread: *id,
            pid: task.pid,
            nice: task.nice,
        };
        let mut origins = std::mem::take(&mut kernel.origins);
        if !self.has_records {
            for origin in &mut origins {
                let task = kernel.tasks.get(&origin.thread);
                let of = task.map_or(0, |task| match origin.thread.tid == task.pid {
                    true => task.parent,
                    false => task.pid,
                });
                origin.from = Source::Process(of);
            }
        }
        let told = &mut self.told;
        let new = kernel.tasks.keys().filter(|id| told.insert(id.tid));
        let processes: Vec<ProcessState> = new
            .filter(|id| kernel.tasks[id].pid == id.tid)
            .map(|id| ProcessState {
                process: ProcessId {
                    pid: id.tid,
                    start: id.start,
                },
                target: 0,
                default: set("0-3"),
                whole: true,
                allowed: set("0-3"),
            })
            .collect();
        let observation = Observation {
            at: (self.at as u64 + 1) * SECOND,
            interval: SECOND,
            threads: kernel.tasks.iter().map(sample).collect(),
            nices: kernel
                .tasks
                .iter()
                .filter(|_| self.watches)
                .map(nice)
                .collect(),
            ended: std::mem::take(&mut kernel.ended),
            origins,
            processes,
            ..Observation::default()
        };
        if let Some((_, race)) = self.steps.get(self.at) {
            race.iter().for_each(|op| kernel.run(op));
        }
        self.at += 1;
        Ok(observation)
    }

    fn processes(&mut self) -> Vec<(ProcessId, u32)> {
        let kernel = self.kernel.0.read().unwrap();
        let first = kernel.tasks.iter().filter(|(id, task)| id.tid == task.pid);
        let process = |(id, _): (&ThreadId, &Task)| ProcessId {
            pid: id.tid,
            start: id.start,
        };
        first.map(|task| (process(task), 0)).collect()
    }

    fn default_mask(&self) -> PuSet {
        set("0-3")
    }

    fn affinity(&mut self) -> &mut dyn Affinity {
        &mut self.kernel
    }

    fn counting(&self) -> String {
        "a script".to_owned()
    }
}

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

fn kernel() -> (Niced, Vec<ThreadId>) {
    NOW.set(100);
    let niced = Niced::default();
    let ids = {
        let mut kernel = niced.0.write().unwrap();
        let first = kernel.spawn(None, 1, 0, 0);
        let second = kernel.spawn(Some(first.tid), 1, 0, 0);
        vec![first, second]
    };
    (niced, ids)
}

fn session(
    kernel: &Niced,
    steps: &[Step],
    has_records: bool,
    policy: impl Policy + 'static,
    acting: Acting,
) -> Session<Scripted> {
    let machine = Scripted {
        kernel: kernel.clone(),
        steps: steps.to_vec(),
        at: 0,
        has_records,
        watches: false,
        told: BTreeSet::new(),
    };
    let options = Options::new(Box::new(policy), Box::new(TestProcessor), acting);
    let mut session = Session::new(machine, options).unwrap();
    session.set_clock(now);
    session
}

fn wrong(kernel: &Niced) -> Vec<(ThreadId, i32, i32)> {
    let kernel = kernel.0.read().unwrap();
    let tasks = kernel
        .tasks
        .iter()
        .filter(|(_, task)| task.nice != task.fair);
    tasks
        .map(|(id, task)| (*id, task.nice, task.fair))
        .collect()
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

#[derive(Default)]
struct Kept {
    plans: Vec<Option<Plan>>,
    outcomes: Vec<Vec<(ThreadId, Outcome)>>,
    remarks: Vec<String>,
}

impl Observer for Kept {
    fn period(&mut self, period: &Period) {
        self.plans.push(period.plan().cloned());
        let actions = period.actions.iter();
        let outcomes = actions.map(|taken| (taken.thread, taken.outcome));
        self.outcomes.push(outcomes.collect());
        let texts = period.remarks.iter().map(|remark| remark.text.clone());
        self.remarks.extend(texts);
    }
}

#[test]
fn a_weight_is_set_once_inherited_and_given_back() {
    let (kernel, ids) = kernel();
    let (dir, acting) = live();
    let fork = Op::Fork {
        of: 0,
        own_process: true,
    };
    let steps = [
        (vec![], vec![]),
        (vec![fork.clone()], vec![]),
        (vec![], vec![fork]),
    ];
    let mut kept = Kept::default();
    let mut session = session(&kernel, &steps, true, Light, acting);
    let end = session.run(&mut kept).unwrap();
    let applied = ids.iter().map(|id| (*id, Outcome::Applied)).collect();
    assert_eq!(kept.outcomes[..3], [applied, vec![], vec![]]);
    assert_eq!(wrong(&kernel), []);
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
    let (kernel, ids) = kernel();
    kernel.0.write().unwrap().refused.insert(ids[1]);
    let (_dir, acting) = live();
    let renice = Op::Renice { of: 0, nice: 7 };
    let steps = [(vec![], vec![]), (vec![renice], vec![]), (vec![], vec![])];
    let mut kept = Kept::default();
    let mut session = session(&kernel, &steps, true, Light, acting);
    let end = session.run(&mut kept).unwrap();
    let first = vec![(ids[0], Outcome::Applied), (ids[1], Outcome::NotPermitted)];
    assert_eq!(kept.outcomes[..3], [first, vec![], vec![]]);
    assert_eq!(kept.remarks, ["no way back"]);
    let nices = ids.map_nice(&kernel);
    assert_eq!(nices, [7, 0]);
    assert_eq!(end.restored.weights.restored, 0);
}

trait MapNice {
    fn map_nice(&self, kernel: &Niced) -> Vec<i32>;
}

impl MapNice for Vec<ThreadId> {
    fn map_nice(&self, kernel: &Niced) -> Vec<i32> {
        self.iter().map(|id| kernel.nice(*id).unwrap()).collect()
    }
}

fn forks() -> impl Strategy<Value = Op> {
    let of = any::<usize>();
    prop_oneof![
        3 => (of, any::<bool>()).prop_map(|(of, own_process)| Op::Fork { of, own_process }),
        1 => of.prop_map(|of| Op::End { of }),
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let nice = prop::sample::select(vec![0, 3, 7, 12]);
    prop_oneof![
        2 => forks(),
        1 => (any::<usize>(), nice).prop_map(|(of, nice)| Op::Renice { of, nice }),
    ]
}

fn racing() -> impl Strategy<Value = Vec<Step>> {
    let some = || prop::collection::vec(forks(), 0..3);
    prop::collection::vec((some(), some()), 1..8)
}

fn calm() -> impl Strategy<Value = Vec<Step>> {
    let some = prop::collection::vec(ops(), 0..4);
    prop::collection::vec(some.prop_map(|ops| (ops, Vec::new())), 1..8)
}

fn kill(kernel: &Niced, at: usize, after: bool, dir: &Path) {
    kernel.0.write().unwrap().kill = Some((at, after, dir.to_owned()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// With the kernel's records, whoever renices whom: at the end all have what they would have without perch.
    #[test]
    fn all_is_as_without_perch(steps in calm(), salt: u64) {
        let (kernel, _) = kernel();
        let (dir, acting) = live();
        let mut session = session(&kernel, &steps, true, Restless(salt), acting);
        let end = session.run(&mut ()).unwrap();
        prop_assert!(!end.restored.has_failed());
        prop_assert_eq!(wrong(&kernel), []);
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Whenever threads are born, and with or without records: none keeps a value of perch's.
    #[test]
    fn no_heir_is_forgotten(steps in racing(), salt: u64, records: bool) {
        let (kernel, _) = kernel();
        let (_dir, acting) = live();
        let mut session = session(&kernel, &steps, records, Restless(salt), acting);
        session.run(&mut ()).unwrap();
        prop_assert_eq!(wrong(&kernel), []);
    }

    /// The same after a kill at any moment, when the journal alone is left; others are born after that.
    #[test]
    fn killed_at_any_moment_all_comes_back(
        steps in racing(),
        later in prop::collection::vec(forks(), 0..4),
        salt: u64,
        at in 1usize..20,
        after: bool,
    ) {
        let (kernel, _) = kernel();
        let (dir, acting) = live();
        kill(&kernel, at, after, dir.path());
        let mut session = session(&kernel, &steps, true, Restless(salt), acting);
        session.run(&mut ()).unwrap();
        let killed = kernel.0.write().unwrap().killed.take();
        later.iter().for_each(|op| kernel.0.write().unwrap().run(op));
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
        prop_assert_eq!(wrong(&kernel), []);
    }

    #[test]
    fn a_recording_leads_to_the_same_plans(steps in racing(), salt: u64) {
        let (kernel, _) = kernel();
        let (_dir, acting) = live();
        let mut recorder = Recorder::new(Vec::new(), "a test", &[]);
        let (mut first, mut second) = (Kept::default(), Kept::default());
        let mut observers: Vec<&mut dyn Observer> = vec![&mut recorder, &mut first];
        session(&kernel, &steps, true, Restless(salt), acting).run(&mut observers).unwrap();
        let recording = recorder.into_inner();
        let machine = RecordedMachine::new(Reader::new(&recording[..], "a recording").unwrap());
        let policy = Box::new(Restless(salt));
        let options = Options::new(policy, Box::new(TestProcessor), Acting::Paper(None));
        Session::new(machine, options).unwrap().run(&mut second).unwrap();
        prop_assert_eq!(first.plans, second.plans);
    }
}
