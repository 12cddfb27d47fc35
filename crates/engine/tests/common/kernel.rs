//! A kernel in memory, as far as affinity masks go.

use super::killer::Killer;
use perch_core::{MaskChange, Origin, PuSet, Source, ThreadId};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, RwLock},
};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// Nanoseconds in one of these: nothing happens at nearly the same time.
pub(super) const TICK: u64 = 1_000_000_000;

/// The kernel's clock, in ticks.
pub fn now() -> u64 {
    NOW.get()
}

/// Lets time go on.
pub(super) fn pass(ticks: u64) {
    NOW.set(now() + ticks);
}

/// Starts the clock anew, as another machine's.
pub(super) fn boot() {
    NOW.set(100);
}

/// A thread as the kernel sees it.
#[derive(Debug, Clone)]
pub struct Task {
    pub pid: i32,
    /// The CPU set that it is in, and with it the target to which its process belongs.
    pub group: usize,
    /// The mask that was last asked for (the kernel's `user_cpus_ptr`).
    pub requested: PuSet,
    /// The one that would have been asked for if there were no perch.
    pub fair: PuSet,
    /// FP share of what it runs.
    pub fp: f64,
    pub cpu_share: f64,
    pub seen: Seen,
    /// The mask that perch asked for last, on it or on the one that it has its mask from.
    pub asked: Option<PuSet>,
    /// Another thread had its number when perch looked last.
    pub taken_over: bool,
}

/// Whether perch can see that another process set a thread's mask. While the thread's CPU set allows none of that mask,
/// the thread looks as if its affinity was not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// No other process set one, or perch has seen it.
    Told,
    /// Given lately: perch has seen it so often, which is not enough to be sure that the kernel did not make it.
    NotYet(u32),
    /// Perch has looked and could not see it.
    Veiled,
}

/// Whether a mask that another process set is visible in this CPU set.
pub fn shows(mask: &PuSet, cpuset: &PuSet) -> bool {
    mask.is_subset(cpuset) && mask != cpuset
}

/// The kernel.
#[derive(Debug, Default)]
pub struct Kernel {
    pub tasks: BTreeMap<ThreadId, Task>,
    pub ended: Vec<(ThreadId, Task)>,
    /// Threads that are in other CPU sets than their processes (cgroup v1), with these PUs.
    pub own_cpusets: BTreeMap<ThreadId, PuSet>,
    /// The PUs of each group.
    pub cpusets: Vec<PuSet>,
    /// Who was created by whom or was whom before execve, since perch last looked.
    pub origins: Vec<Origin>,
    /// Which program each process executes.
    pub images: BTreeMap<i32, u64>,
    /// Whether all programs have the same addresses, as without address space randomization.
    pub same_images: bool,
    /// For how many moments a process that called execve(2) still shows the program that it had before.
    pub loading: u32,
    /// Who started each process.
    pub parents: BTreeMap<i32, i32>,
    /// Whether the kernel remembers the masks that were asked for when CPU sets change, as since Linux 6.2.
    pub remembers: bool,
    pub pus: PuSet,
    pub next: i32,
    pub killer: Killer,
    /// The group of each process that there ever was.
    pub groups: BTreeMap<i32, usize>,
    /// When each of them started.
    pub started: BTreeMap<i32, u64>,
    /// Processes that have left their family, so that only the machine knows whose they are.
    pub daemons: BTreeSet<i32>,
    /// A thread that is creating a process, which gets this mask.
    pub creating: Option<(ThreadId, PuSet)>,
    /// The process that leads the group of some processes.
    pub leaders: BTreeMap<i32, i32>,
}

impl Kernel {
    pub fn new(pus: u32) -> Self {
        boot();
        let all: PuSet = (0..pus).collect();
        Self {
            cpusets: vec![all.clone(); 2],
            remembers: true,
            pus: all,
            next: 1000,
            ..Self::default()
        }
    }

    pub fn effective(&self, requested: &PuSet, group: usize) -> PuSet {
        let rest = requested.and(&self.cpusets[group]);
        if rest.is_empty() {
            self.cpusets[group].clone()
        } else {
            rest
        }
    }

    pub fn mask(&self, thread: ThreadId) -> Option<PuSet> {
        let task = self.tasks.get(&thread)?;
        let Some(own) = self.own_cpusets.get(&thread) else {
            return Some(self.effective(&task.requested, task.group));
        };
        let rest = task.requested.and(own);
        Some(if rest.is_empty() { own.clone() } else { rest })
    }

    /// The administrator changes the PUs of a group.
    pub fn set_cpuset(&mut self, group: usize, pus: &PuSet) {
        self.cpusets[group] = pus.clone();
        for task in self.tasks.values_mut().filter(|task| task.group == group) {
            // Perch may ask for the CPU set at any moment, not only when it looks.
            if matches!(task.seen, Seen::NotYet(_)) && !shows(&task.fair, pus) {
                task.seen = Seen::Veiled;
            }
        }
        if !self.remembers {
            for task in self.tasks.values_mut().filter(|task| task.group == group) {
                task.requested = pus.clone();
                task.fair = pus.clone();
            }
        }
    }

    /// Perch has looked at all masks, for the last time.
    pub fn veil(&mut self) {
        let cpusets = self.cpusets.clone();
        for task in self.tasks.values_mut() {
            if matches!(task.seen, Seen::NotYet(_)) && !shows(&task.fair, &cpusets[task.group]) {
                task.seen = Seen::Veiled;
            }
        }
    }

    /// A thread of a new process (`pid` none) or of one that is there, in the first group.
    pub fn spawn(&mut self, pid: Option<i32>, mask: &PuSet, fp: f64) -> ThreadId {
        self.spawn_in(0, pid, mask, fp)
    }

    pub fn spawn_in(&mut self, group: usize, pid: Option<i32>, mask: &PuSet, fp: f64) -> ThreadId {
        let id = ThreadId {
            tid: self.next,
            start: now(),
        };
        self.next += 1;
        let task = Task {
            pid: pid.unwrap_or(id.tid),
            group,
            requested: mask.clone(),
            fair: mask.clone(),
            fp,
            cpu_share: 1.0,
            seen: if *mask == self.pus {
                Seen::Told
            } else {
                Seen::NotYet(0)
            },
            asked: None,
            taken_over: false,
        };
        self.groups.insert(task.pid, group);
        self.started.entry(task.pid).or_insert(id.start);
        self.tasks.insert(id, task);
        id
    }

    pub fn fork(&mut self, parent: ThreadId, own_process: bool) -> Option<ThreadId> {
        let task = self.tasks.get(&parent)?.clone();
        let pid = (!own_process).then_some(task.pid);
        let child = self.spawn_in(task.group, pid, &task.requested, task.fp);
        let new = self.tasks.get_mut(&child)?;
        (new.fair, new.seen, new.asked) = (task.fair, task.seen, task.asked);
        if own_process {
            self.parents.insert(child.tid, task.pid);
        }
        self.origins.push(Origin {
            thread: child,
            from: Source::Thread(parent),
            exec: false,
            at: Some(now() * TICK),
        });
        pass(1);
        Some(child)
    }

    /// A thread calls execve: it alone is left of its process, under the first thread's number.
    pub fn exec(&mut self, caller: ThreadId) {
        let Some(task) = self.tasks.get(&caller).cloned() else {
            return;
        };
        let of_it = |(_, other): &(&ThreadId, &Task)| other.pid == task.pid;
        let all: Vec<ThreadId> = self.tasks.iter().filter(of_it).map(|(id, _)| *id).collect();
        let first = all.iter().copied().find(|id| id.tid == task.pid);
        // Processes of this kernel whose first thread has ended do not execute others.
        let Some(first) = first else { return };
        for other in all.into_iter().filter(|id| *id != first) {
            if other == caller {
                // Its number goes without an end of its own.
                self.ended.push((caller, task.clone()));
                self.tasks.remove(&caller);
            } else {
                self.end(other);
            }
        }
        *self.images.entry(task.pid).or_default() += u64::from(!self.same_images);
        let taken_over = caller != first;
        self.tasks.insert(first, Task { taken_over, ..task });
        self.origins.push(Origin {
            thread: first,
            from: Source::Thread(caller),
            exec: true,
            at: Some(now() * TICK),
        });
        pass(1);
    }

    pub fn end(&mut self, thread: ThreadId) {
        if let Some(task) = self.tasks.remove(&thread) {
            self.ended.push((thread, task));
        }
    }

    /// Another process sets a mask. If that is the mask that perch has in force on this very thread, perch cannot see
    /// it.
    pub fn taskset(&mut self, thread: ThreadId, mask: &PuSet) {
        let Some(task) = self.tasks.get(&thread) else {
            return;
        };
        let unseen = task.asked.as_ref() == Some(mask);
        // Nor one that looks like what the kernel has made of perch's.
        let unseen = unseen
            || task.fair != task.requested
                && self.effective(&task.requested, task.group) == self.effective(mask, task.group);
        if unseen || mask.is_disjoint(&self.cpusets[task.group]) {
            return;
        }
        if let Some(task) = self.tasks.get_mut(&thread) {
            task.requested = mask.clone();
            task.fair = mask.clone();
            task.seen = Seen::NotYet(0);
        }
    }

    /// Perch looks at all masks.
    pub(super) fn look(&mut self) {
        let cpusets = self.cpusets.clone();
        for task in self.tasks.values_mut() {
            let shows = shows(&task.fair, &cpusets[task.group]);
            task.taken_over = false;
            task.seen = match task.seen {
                Seen::NotYet(_) if !shows => Seen::Veiled,
                // By then the CPU set, for which perch asks after it has looked, is no excuse any more.
                Seen::NotYet(4) => Seen::Told,
                Seen::NotYet(looks) => Seen::NotYet(looks + 1),
                seen => seen,
            };
        }
    }

    pub fn nth(&self, n: usize) -> Option<ThreadId> {
        let count = self.tasks.len();
        self.tasks.keys().nth(n % count.max(1)).copied()
    }

    pub fn group_of(&self, pid: i32) -> Option<usize> {
        self.groups.get(&pid).copied()
    }

    /// Who looks after a process: who has started it, if that one is still there.
    pub fn parent(&self, pid: i32) -> i32 {
        let parent = self.parents.get(&pid).copied().unwrap_or(1);
        let lives = self.tasks.values().any(|task| task.pid == parent);
        if lives { parent } else { 1 }
    }

    /// The process or the nearest one above it that is `known`, as long as parents live.
    pub fn home(&self, pid: i32, known: &dyn Fn(i32) -> bool) -> Option<i32> {
        let mut at = pid;
        while !known(at) {
            at = self.parent(at);
            if at == 1 {
                return None;
            }
        }
        Some(at)
    }

    pub(super) fn is_out_of_reach(&self, change: &MaskChange) -> bool {
        let task = self.tasks.get(&change.thread);
        task.is_some_and(|task| change.set.is_disjoint(&self.cpusets[task.group]))
    }
}

/// The masks of all live threads.
pub fn masks(kernel: &Arc<RwLock<Kernel>>) -> BTreeMap<ThreadId, PuSet> {
    let kernel = kernel.read().unwrap();
    let threads: BTreeSet<ThreadId> = kernel.tasks.keys().copied().collect();
    threads
        .into_iter()
        .filter_map(|thread| Some((thread, kernel.mask(thread)?)))
        .collect()
}
