//! A machine in memory whose threads have nice values.

use super::{
    kernel::{boot, now, pass},
    killer::{Kill, Killer},
    set, topology,
};
use perch_core::{
    Affinity, EventPlan, GroupChange, Machine, MachineError, MaskChange, MaskError, Metrics,
    NiceChange, NiceSample, Observation, Origin, Outcome, ProcessId, ProcessState, PuSet, Source,
    ThreadId, ThreadInfo, ThreadSample, Topology, Wake, Weight, WeightGroups, Weights,
    affinity::{Descendant, Image},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, RwLock},
    time::Duration,
};

/// How long a period is, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

#[derive(Debug, Clone)]
struct Task {
    pid: i32,
    parent: i32,
    nice: i32,
    /// The value that it would have if there were no perch.
    fair: i32,
    /// The control group below its own that it is in.
    group: Option<String>,
    /// How many programs its process has executed.
    image: u64,
}

/// What happens to threads; `of` counts those that live.
#[derive(Debug, Clone)]
pub enum NiceOp {
    Fork { of: usize, own_process: bool },
    Renice { of: usize, nice: i32 },
    End { of: usize },
    Exec { of: usize },
}

/// What happens before perch looks, and between its look and its deed.
pub type NiceStep = (Vec<NiceOp>, Vec<NiceOp>);

#[derive(Default)]
struct Tasks {
    tasks: BTreeMap<ThreadId, Task>,
    ended: Vec<ThreadId>,
    origins: Vec<Origin>,
    /// Threads of which there is no way back for perch.
    refused: BTreeSet<ThreadId>,
    /// No nice value may be changed, but there are control groups, with their weights.
    delegated: bool,
    /// Whether origins say when.
    timed: bool,
    groups: BTreeMap<String, Weight>,
    /// A thread that is creating a process, which gets this value.
    creating: Option<(ThreadId, i32)>,
    killer: Killer,
    /// Threads that another process has given a value since perch looked last, or that were born since: what happens to
    /// these once more shows nowhere.
    reniced: BTreeSet<ThreadId>,
    young: BTreeSet<ThreadId>,
    /// Those that had the right value when perch looked for the last time, or were born after that.
    right: BTreeSet<ThreadId>,
}

impl Tasks {
    fn spawn(&mut self, pid: Option<i32>, parent: i32, nice: i32, fair: i32) -> ThreadId {
        pass(1);
        let start = now();
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
                group: None,
                image: 0,
            },
        );
        self.young.insert(id);
        id
    }

    /// What a record of the kernel says is the time.
    fn time(&self) -> Option<u64> {
        pass(1);
        self.timed.then(now)
    }

    fn nth(&self, of: usize) -> Option<ThreadId> {
        let count = self.tasks.len();
        self.tasks.keys().nth(of % count.max(1)).copied()
    }

    /// execve(2): the caller becomes the first thread of its process, with what it has; the others end.
    fn exec(&mut self, caller: ThreadId) {
        let mut task = self.tasks[&caller].clone();
        task.image += 1;
        let all = self.tasks.iter().filter(|(_, of)| of.pid == task.pid);
        let all: Vec<ThreadId> = all.map(|(id, _)| *id).collect();
        let Some(first) = all.iter().copied().find(|id| id.tid == task.pid) else {
            return;
        };
        let mut replaced = all.iter().filter(|id| **id != caller);
        // What happened to these last would show nowhere.
        if replaced.any(|id| self.reniced.contains(id)) {
            return;
        }
        for set in [&mut self.reniced, &mut self.young] {
            match set.contains(&caller) {
                true => set.insert(first),
                false => set.remove(&first),
            };
        }
        let others = all.iter().filter(|id| **id != first);
        for id in others {
            self.tasks.remove(id);
            self.ended.push(*id);
        }
        self.tasks.insert(first, task);
        self.origins.push(Origin {
            thread: first,
            from: Source::Thread(caller),
            exec: true,
            at: self.time(),
        });
    }

    fn run(&mut self, op: &NiceOp) {
        let (NiceOp::Fork { of, .. }
        | NiceOp::Renice { of, .. }
        | NiceOp::End { of }
        | NiceOp::Exec { of }) = op;
        let Some(id) = self.nth(*of) else { return };
        let task = self.tasks[&id].clone();
        match op {
            NiceOp::Fork { own_process, .. } => {
                let (pid, parent) = match own_process {
                    true => (None, task.pid),
                    false => (Some(task.pid), task.parent),
                };
                let child = self.spawn(pid, parent, task.nice, task.fair);
                self.tasks.get_mut(&child).unwrap().group = task.group;
                self.origins.push(Origin {
                    thread: child,
                    from: Source::Thread(id),
                    exec: false,
                    at: self.time(),
                });
            }
            // Nor does it show if it is given what it has already.
            NiceOp::Renice { nice, .. } if *nice == task.nice || self.young.contains(&id) => {}
            NiceOp::Renice { nice, .. } if self.reniced.insert(id) => {
                let task = self.tasks.get_mut(&id).unwrap();
                (task.nice, task.fair) = (*nice, *nice);
            }
            NiceOp::Renice { .. } => {}
            NiceOp::Exec { .. } => self.exec(id),
            NiceOp::End { .. } if self.reniced.contains(&id) => {}
            // Processes live as long as their first thread, which others may descend from.
            NiceOp::End { .. } if id.tid == task.pid => {}
            NiceOp::End { .. } => {
                self.tasks.remove(&id);
                self.ended.push(id);
            }
        }
    }
}

/// Threads with nice values, which a test and its machine share: kernel and actuator.
#[derive(Clone, Default)]
pub struct Niced(Arc<RwLock<Tasks>>);

impl Niced {
    /// Two threads of one process, with the threads' ids.
    pub fn new() -> (Self, Vec<ThreadId>) {
        boot();
        let niced = Self::default();
        let ids = {
            let mut kernel = niced.0.write().unwrap();
            let first = kernel.spawn(None, 1, 0, 0);
            let second = kernel.spawn(Some(first.tid), 1, 0, 0);
            vec![first, second]
        };
        (niced, ids)
    }

    /// Gives perch no way back for a thread.
    pub fn refuse(&self, thread: ThreadId) {
        self.0.write().unwrap().refused.insert(thread);
    }

    /// Makes what others have done so far old, as if it had been long ago.
    pub fn settle(&self) {
        let mut kernel = self.0.write().unwrap();
        (kernel.reniced, kernel.young) = Default::default();
    }

    /// Has the kernel say when threads are created and call execve(2).
    pub fn tell_times(&self) {
        self.0.write().unwrap().timed = true;
    }

    /// Gives perch control groups instead of nice values.
    pub fn delegate(&self) {
        self.0.write().unwrap().delegated = true;
    }

    /// Makes a change, before or after which perch may be killed.
    fn change_tasks(&self, change: impl FnOnce(&mut Tasks) -> Outcome) -> Outcome {
        let mut kernel = self.0.write().unwrap();
        pass(1);
        if kernel.killer.before_change() {
            return Outcome::Applied;
        }
        let outcome = change(&mut kernel);
        kernel.killer.after_change();
        outcome
    }

    /// The weight that a thread has by its group.
    pub fn weight(&self, thread: ThreadId) -> Option<u32> {
        let kernel = self.0.read().unwrap();
        let group = kernel.tasks.get(&thread)?.group.as_ref()?;
        kernel.groups.get(group).map(|weight| weight.get())
    }

    /// The groups that there are.
    pub fn groups(&self) -> usize {
        self.0.read().unwrap().groups.len()
    }

    pub fn kill(&self, kill: Kill, dir: &Path) {
        self.0.write().unwrap().killer.arm(kill, dir);
    }

    /// The journals that a killed perch left; it is dead from now on, and others may change values again.
    pub fn take_killed(&self) -> Option<Vec<Vec<u8>>> {
        self.0.write().unwrap().killer.take()
    }

    /// Threads that had the right value when perch looked for the last time and have another one now.
    pub fn harmed(&self) -> Vec<(ThreadId, i32, i32)> {
        let right = &self.0.read().unwrap().right;
        let mut wrong = self.wrong();
        wrong.retain(|(thread, ..)| right.contains(thread));
        wrong
    }

    /// A thread is creating a process, which gets this value.
    pub fn is_creating(&self, creator: ThreadId, nice: i32) {
        self.0.write().unwrap().creating = Some((creator, nice));
    }

    /// The value of the thread that was created last.
    pub fn newest(&self) -> i32 {
        let kernel = self.0.read().unwrap();
        kernel.tasks.values().next_back().unwrap().nice
    }

    pub fn run(&self, op: &NiceOp) {
        self.0.write().unwrap().run(op);
    }

    /// Threads with another value than if there were no perch: that value, and what it would be.
    pub fn wrong(&self) -> Vec<(ThreadId, i32, i32)> {
        let kernel = self.0.read().unwrap();
        let tasks = kernel.tasks.iter();
        let wrong = tasks.filter(|(_, task)| task.nice != task.fair);
        wrong
            .map(|(id, task)| (*id, task.nice, task.fair))
            .collect()
    }
}

impl Weights for Niced {
    fn nice(&self, thread: ThreadId) -> Result<i32, MaskError> {
        let kernel = self.0.read().unwrap();
        let task = kernel.tasks.get(&thread);
        task.map(|task| task.nice).ok_or(MaskError::Gone)
    }

    fn permitted(&self, change: &NiceChange) -> Result<(), String> {
        let kernel = self.0.read().unwrap();
        match kernel.delegated || kernel.refused.contains(&change.thread) {
            true => Err("no way back".to_owned()),
            false => Ok(()),
        }
    }

    fn may_be_lowered(&self, thread: ThreadId, _: i32) -> bool {
        !self.0.read().unwrap().refused.contains(&thread)
    }

    fn change_nice(&mut self, change: &NiceChange) -> Outcome {
        self.change_tasks(|kernel| match kernel.tasks.get_mut(&change.thread) {
            None => Outcome::Gone,
            Some(task) if task.nice != change.expect => Outcome::ChangedByOthers,
            Some(task) => {
                task.nice = change.set;
                Outcome::Applied
            }
        })
    }

    fn groups(&mut self) -> Option<&mut dyn WeightGroups> {
        let delegated = self.0.read().unwrap().delegated;
        delegated.then_some(self)
    }
}

impl WeightGroups for Niced {
    fn group_for(&self, thread: ThreadId, _: i32) -> Result<String, String> {
        Ok(format!("perch-{}", thread.tid))
    }

    fn enter(&mut self, change: &GroupChange) -> Outcome {
        self.change_tasks(|kernel| match kernel.tasks.get_mut(&change.thread) {
            None => Outcome::Gone,
            Some(task) => {
                task.group = Some(change.group.clone());
                kernel.groups.insert(change.group.clone(), change.weight);
                Outcome::Applied
            }
        })
    }

    fn dissolve(&mut self, group: &str, _: Option<u32>) -> Outcome {
        self.change_tasks(|kernel| {
            for task in kernel.tasks.values_mut() {
                task.group.take_if(|of| of == group);
            }
            match kernel.groups.remove(group) {
                Some(_) => Outcome::Applied,
                None => Outcome::Gone,
            }
        })
    }
}

impl Affinity for Niced {
    fn settle(&self) {}

    fn settle_births(&self) {
        let mut kernel = self.0.write().unwrap();
        if let Some((creator, nice)) = kernel.creating.take() {
            let (parent, fair) = (kernel.tasks[&creator].pid, kernel.tasks[&creator].fair);
            kernel.spawn(None, parent, nice, fair);
        }
    }

    fn belongs_to(&self, _: ThreadId, _: u32) -> bool {
        true
    }

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

    fn image(&self, process: ProcessId) -> Option<Image> {
        let kernel = self.0.read().unwrap();
        let ProcessId { pid, start } = process;
        let code = kernel.tasks.get(&ThreadId { tid: pid, start })?.image;
        Some(Image { code, stack: 0 })
    }

    fn descendants(
        &self,
        _: &str,
        _: &[ProcessId],
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError> {
        let kernel = self.0.read().unwrap();
        let tasks = kernel.tasks.iter().filter(|(id, _)| !known(**id));
        let relative = |(id, task): (&ThreadId, &Task)| Descendant {
            thread: *id,
            process: ProcessId {
                pid: task.pid,
                // As `Tasks::spawn` numbers them.
                start: (task.pid - 1000) as u64,
            },
            parent: task.parent,
            by_group: None,
            mask: set("0-3"),
        };
        Ok(tasks.map(relative).collect())
    }
}

/// A machine on that kernel which follows a script.
pub struct NiceMachine {
    kernel: Niced,
    steps: Vec<NiceStep>,
    at: usize,
    has_records: bool,
    watches: bool,
    told: BTreeSet<i32>,
    /// What happens after the last look.
    last: Vec<NiceOp>,
}

impl NiceMachine {
    /// `has_records`: whether the kernel records which thread created which.
    pub fn new(kernel: &Niced, steps: &[NiceStep], has_records: bool) -> Self {
        Self {
            kernel: kernel.clone(),
            steps: steps.to_vec(),
            at: 0,
            has_records,
            watches: false,
            told: BTreeSet::new(),
            last: Vec::new(),
        }
    }

    /// This happens after the last look.
    pub fn and_last(mut self, last: Vec<NiceOp>) -> Self {
        self.last = last;
        self
    }
}

impl Machine for NiceMachine {
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
                work: perch_core::Work::default(),
            },
            interval: SECOND,
            cpu_time: SECOND,
            wait_time: 0,
            switches: None,
            migrations: None,
            last_pu: None,
            mask: Some(set("0-3")),
            counts: Vec::new(),
            event_set: None,
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
        (kernel.reniced, kernel.young) = Default::default();
        match self.steps.get(self.at) {
            Some((_, race)) => race.iter().for_each(|op| kernel.run(op)),
            None => {
                self.last.iter().for_each(|op| kernel.run(op));
                let right = kernel.tasks.iter();
                let right = right.filter(|(_, task)| task.nice == task.fair);
                kernel.right = right.map(|(id, _)| *id).collect();
            }
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
