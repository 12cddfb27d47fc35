//! A kernel in memory, as far as affinity masks go, and a machine on it that follows a script.
#![allow(dead_code)]

use perch_core::{
    Affinity, Count, CountQuality, EventPlan, EventSet, Launch, Machine, MachineError, MaskChange,
    MaskError, Metric, MetricSource, Metrics, Observation, Origin, Outcome, Plan, Policy,
    ProcessId, ProcessState, PuSample, PuSet, ShareLevel, SharingDomain, Snapshot, Source,
    ThreadId, ThreadInfo, ThreadSample, Topology, Wake,
    affinity::{Image, Relative},
    metric::names,
    topology::{Core, CoreKind, NumaNode, Package, Pu, PuState},
};
use perch_engine::{Observer, Period, Processor};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// Nanoseconds in one of these: nothing happens at nearly the same time.
const TICK: u64 = 1_000_000_000;

/// The kernel's clock, in ticks.
pub fn now() -> u64 {
    NOW.get()
}

pub fn set(text: &str) -> PuSet {
    text.parse().unwrap()
}

/// Cores of two PUs each: 0 and 1, 2 and 3, …
pub fn topology(cores: u32, usable: &PuSet) -> Topology {
    let pair = |core: u32| [2 * core, 2 * core + 1].into_iter().collect::<PuSet>();
    let all: PuSet = (0..2 * cores).collect();
    let state = |os| match usable.contains(os) {
        true => PuState::Usable,
        false => PuState::Disallowed,
    };
    Topology {
        source: "a test".to_owned(),
        packages: vec![Package {
            os: 0,
            pus: all.clone(),
            model: String::new(),
        }],
        numa_nodes: vec![NumaNode {
            os: 0,
            pus: all.clone(),
            memory: 0,
        }],
        caches: Vec::new(),
        cores: (0..cores)
            .map(|core| Core {
                pus: pair(core),
                package: 0,
                numa_node: 0,
                kind: 0,
            })
            .collect(),
        kinds: vec![CoreKind {
            name: "core".to_owned(),
            pus: all.clone(),
        }],
        pus: all
            .iter()
            .map(|os| Pu {
                os,
                core: os as usize / 2,
                state: state(os),
            })
            .collect(),
    }
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

/// Whether anybody can know of the mask that somebody gave to a thread: while its CPU set allows none of it, it looks like
/// one that nobody has placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nobody gave it one, or perch has seen it.
    Told,
    /// Given lately: perch has seen it so often, which is not enough to be sure that the kernel did not make it.
    NotYet(u32),
    /// Perch has looked and could not see it.
    Veiled,
}

/// Whether a mask that somebody gave to a thread can be told from none in this CPU set.
pub fn shows(mask: &PuSet, cpuset: &PuSet) -> bool {
    mask.is_subset(cpuset) && mask != cpuset
}

/// When perch is killed: at the nth change, before or after it is made.
#[derive(Debug, Clone, Copy)]
pub struct Kill {
    pub at: usize,
    pub after: bool,
}

/// The kernel.
#[derive(Debug, Default)]
pub struct Kernel {
    pub tasks: BTreeMap<ThreadId, Task>,
    pub ended: Vec<(ThreadId, Task)>,
    /// The PUs of each group.
    pub cpusets: Vec<PuSet>,
    /// Who was created by whom or was whom before execve, since perch last looked.
    pub origins: Vec<Origin>,
    /// Which program each process executes.
    pub images: BTreeMap<i32, u64>,
    /// Who started each process.
    pub parents: BTreeMap<i32, i32>,
    /// Whether the kernel remembers the masks that were asked for when CPU sets change, as since Linux 6.2.
    pub remembers: bool,
    pub pus: PuSet,
    pub next: i32,
    /// Calls of `change`.
    pub changes: usize,
    pub kill: Option<Kill>,
    /// The journals on disk when perch was killed: nothing that it does later counts.
    pub killed: Option<Vec<Vec<u8>>>,
    pub dir: PathBuf,
    /// The group of each process that there ever was.
    pub groups: BTreeMap<i32, usize>,
    /// Processes that have left their family, so that only the machine knows whose they are.
    pub daemons: BTreeSet<i32>,
}

impl Kernel {
    pub fn new(pus: u32) -> Self {
        NOW.set(100);
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
        Some(self.effective(&task.requested, task.group))
    }

    /// Somebody gives a group other PUs.
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
        NOW.set(now() + 1);
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
        *self.images.entry(task.pid).or_default() += 1;
        let taken_over = caller != first;
        self.tasks.insert(first, Task { taken_over, ..task });
        self.origins.push(Origin {
            thread: first,
            from: Source::Thread(caller),
            exec: true,
            at: Some(now() * TICK),
        });
        NOW.set(now() + 1);
    }

    pub fn end(&mut self, thread: ThreadId) {
        if let Some(task) = self.tasks.remove(&thread) {
            self.ended.push((thread, task));
        }
    }

    /// Somebody else sets a mask. That it is the one which perch has in force on this very thread, nobody can see.
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
    fn look(&mut self) {
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

    fn is_out_of_reach(&self, change: &MaskChange) -> bool {
        let task = self.tasks.get(&change.thread);
        task.is_some_and(|task| change.set.is_disjoint(&self.cpusets[task.group]))
    }

    fn die(&mut self) {
        let entries = std::fs::read_dir(&self.dir).unwrap();
        let journals = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "journal"))
            .map(|path| std::fs::read(path).unwrap());
        self.killed = Some(journals.collect());
    }
}

/// The knob on that kernel.
pub struct Knob(pub Rc<RefCell<Kernel>>);

impl Affinity for Knob {
    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        self.0.borrow().mask(thread).ok_or(MaskError::Gone)
    }

    fn change(&mut self, change: &MaskChange) -> Outcome {
        let mut kernel = self.0.borrow_mut();
        kernel.changes += 1;
        NOW.set(now() + 1);
        let kill = kernel.kill.filter(|kill| kill.at == kernel.changes);
        if kill.is_some_and(|kill| !kill.after) && kernel.killed.is_none() {
            kernel.die();
        }
        if kernel.killed.is_some() {
            return Outcome::Applied;
        }
        let outcome = match kernel.mask(change.thread) {
            None => Outcome::Gone,
            Some(mask) if mask != change.expect => Outcome::ChangedByOthers,
            Some(_) if !change.to_default && kernel.is_out_of_reach(change) => Outcome::NoUsablePu,
            Some(_) => {
                let set = if change.to_default {
                    kernel.pus.clone()
                } else {
                    change.set.clone()
                };
                let task = kernel.tasks.get_mut(&change.thread).unwrap();
                task.asked = (!change.to_default).then(|| change.set.clone());
                task.requested = set;
                if task.taken_over && matches!(task.seen, Seen::NotYet(_)) {
                    // It had the very mask that perch expected of the thread that had its number before.
                    task.seen = Seen::Veiled;
                }
                Outcome::Applied
            }
        };
        if kill.is_some_and(|kill| kill.after) {
            kernel.die();
        }
        outcome
    }

    fn allowed(&self, thread: ThreadId) -> Option<PuSet> {
        let kernel = self.0.borrow();
        let group = kernel.tasks.get(&thread)?.group;
        Some(kernel.cpusets[group].clone())
    }

    fn image(&self, process: ProcessId) -> Option<Image> {
        let kernel = self.0.borrow();
        let code = kernel.images.get(&process.pid).copied().unwrap_or_default();
        Some(Image { code, stack: 0 })
    }

    /// All processes of this kernel descend from the session's, which shows of all but the daemons.
    fn relatives(
        &self,
        _: &str,
        processes: &[ProcessId],
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Relative>, MaskError> {
        let kernel = self.0.borrow();
        let shows = |pid: &i32| {
            !kernel.daemons.contains(pid) || processes.iter().any(|known| known.pid == *pid)
        };
        let of_these = |task: &Task| {
            let target = |known: &ProcessId| kernel.group_of(known.pid) == Some(task.group);
            processes.is_empty() || processes.iter().any(target)
        };
        let tasks = kernel.tasks.iter();
        let tasks = tasks.filter(|(id, task)| shows(&task.pid) && of_these(task) && !known(**id));
        let relatives = tasks.map(|(thread, task)| Relative {
            thread: *thread,
            process: ProcessId {
                pid: task.pid,
                start: 0,
            },
            parent: kernel.parent(task.pid),
            mask: kernel.effective(&task.requested, task.group),
        });
        Ok(relatives.collect())
    }
}

/// What happens to the kernel's threads.
#[derive(Debug, Clone)]
pub enum Op {
    Spawn { fp: f64 },
    Fork { of: usize, own_process: bool },
    End { of: usize },
    Exec { of: usize },
    Taskset { of: usize, mask: PuSet },
    Cpuset { group: usize, mask: PuSet },
}

impl Op {
    pub fn run(&self, kernel: &mut Kernel, default: &PuSet) {
        let pick = |kernel: &Kernel, of: usize| kernel.nth(of);
        match self {
            Op::Spawn { fp } => {
                kernel.spawn(None, default, *fp);
            }
            Op::Fork { of, own_process } => {
                if let Some(parent) = pick(kernel, *of) {
                    kernel.fork(parent, *own_process);
                }
            }
            Op::End { of } => {
                if let Some(thread) = pick(kernel, *of) {
                    kernel.end(thread);
                }
            }
            Op::Taskset { of, mask } => {
                if let Some(thread) = pick(kernel, *of) {
                    kernel.taskset(thread, mask);
                }
            }
            Op::Exec { of } => {
                if let Some(thread) = pick(kernel, *of) {
                    kernel.exec(thread);
                }
            }
            Op::Cpuset { group, mask } => kernel.set_cpuset(*group, mask),
        }
    }
}

/// One period of the script.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// What happens before perch looks.
    pub before: Vec<Op>,
    /// What happens between perch's look and its deed.
    pub race: Vec<Op>,
}

/// A machine on the kernel that follows a script.
pub struct Scripted {
    pub kernel: Rc<RefCell<Kernel>>,
    pub knob: Knob,
    pub steps: Vec<Step>,
    pub at: usize,
    pub default: PuSet,
    pub cores: u32,
    pub end: Wake,
    /// Whether threads that ended in a period are told with a last sample.
    pub report_ended: bool,
    /// From this period on modules say nothing.
    pub silent_from: usize,
    /// Whether events are counted.
    pub counts: bool,
    /// What it was told to count.
    pub configured: EventPlan,
    /// Whether PUs are watched: each is busy for a tenth of its number, and counted in every other period.
    pub watches_pus: bool,
    /// Whether the kernel tells who created whom.
    pub has_records: bool,
    /// Whether its time goes on between observations; else a period takes a second of it.
    pub has_clock: bool,
    last_cpuset: PuSet,
    told: BTreeMap<i32, ProcessState>,
}

impl Scripted {
    pub fn new(kernel: &Rc<RefCell<Kernel>>, cores: u32, steps: Vec<Step>) -> Self {
        let cpuset = kernel.borrow().cpusets[0].clone();
        Self {
            kernel: Rc::clone(kernel),
            knob: Knob(Rc::clone(kernel)),
            steps,
            at: 0,
            default: cpuset.clone(),
            cores,
            end: Wake::Ended(Some(0)),
            report_ended: false,
            silent_from: usize::MAX,
            counts: false,
            configured: EventPlan::default(),
            watches_pus: false,
            has_records: true,
            has_clock: true,
            last_cpuset: cpuset,
            told: BTreeMap::new(),
        }
    }
}

impl Machine for Scripted {
    fn topology(&self) -> Arc<Topology> {
        // As of the last observation, like a live machine's.
        Arc::new(topology(self.cores, &self.last_cpuset))
    }

    fn configure(&mut self, plan: &EventPlan) -> Result<(), MachineError> {
        self.configured = plan.clone();
        Ok(())
    }

    fn watch_pus(&mut self, watch: bool) {
        self.watches_pus = watch;
    }

    fn launch(&mut self, _: &Launch) -> Result<i32, MachineError> {
        let mut kernel = self.kernel.borrow_mut();
        Ok(kernel.spawn(None, &self.default, 0.0).tid)
    }

    fn attach(&mut self, _: i32) -> Result<(), MachineError> {
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> Result<Wake, MachineError> {
        NOW.set(NOW.get() + 100);
        let Some(step) = self.steps.get(self.at) else {
            return Ok(self.end);
        };
        let mut kernel = self.kernel.borrow_mut();
        step.before
            .iter()
            .for_each(|op| op.run(&mut kernel, &self.default));
        Ok(Wake::Period)
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        let second = 1_000_000_000;
        let mut shared = self.kernel.borrow_mut();
        let kernel = &mut *shared;
        let ended = std::mem::take(&mut kernel.ended);
        if kernel.killed.is_none() {
            kernel.look();
        }
        let sample = |id: &ThreadId, task: &Task| ThreadSample {
            info: ThreadInfo {
                id: *id,
                pid: task.pid,
                name: format!("worker-{}", id.tid),
                process: "app".to_owned(),
            },
            interval: second,
            cpu_time: (second as f64 * task.cpu_share) as u64,
            wait_time: 0,
            switches: Some(3),
            migrations: Some(0),
            last_pu: kernel.effective(&task.requested, task.group).first(),
            mask: Some(kernel.effective(&task.requested, task.group)),
            counts: self.counts.then(|| fp_count(id)).into_iter().collect(),
            metrics: match self.at < self.silent_from {
                true => sampled(task.fp),
                false => Metrics::default(),
            },
        };
        let told = ended
            .iter()
            .filter(|_| self.report_ended)
            .map(|(id, task)| (id, task));
        let threads = kernel.tasks.iter().chain(told);
        let pu = |pu: u32| PuSample {
            pu,
            interval: second,
            busy: u64::from(pu) * second / 10,
            interrupts: u64::from(pu) * second / 100,
            counts: (self.at.is_multiple_of(2))
                .then(|| pu_count(pu))
                .into_iter()
                .collect(),
        };
        let pus = kernel.pus.iter().filter(|_| self.watches_pus);
        let observation = Observation {
            at: self.now().unwrap_or((self.at as u64 + 1) * second),
            interval: second,
            threads: threads.map(|(id, task)| sample(id, task)).collect(),
            pus: pus.map(pu).collect(),
            ended: ended.iter().map(|(id, _)| *id).collect(),
            own_cpu_time: 1_000_000,
            topology_changed: kernel.cpusets[0] != self.last_cpuset,
            processes: news(&mut self.told, kernel),
            origins: origins(kernel, self.has_records),
            ..Observation::default()
        };
        self.last_cpuset = kernel.cpusets[0].clone();
        NOW.set(NOW.get() + 1);
        if let Some(step) = self.steps.get(self.at) {
            step.race
                .iter()
                .for_each(|op| op.run(kernel, &self.default));
        }
        self.at += 1;
        Ok(observation)
    }

    fn now(&self) -> Option<u64> {
        self.has_clock.then(|| now() * TICK)
    }

    fn processes(&mut self) -> Vec<(ProcessId, u32)> {
        let kernel = self.kernel.borrow();
        let first = kernel.tasks.iter().filter(|(id, task)| id.tid == task.pid);
        let processes = first.map(|(id, task)| {
            let (pid, start) = (task.pid, id.start);
            (ProcessId { pid, start }, task.group as u32)
        });
        processes.collect()
    }

    fn default_mask(&self) -> PuSet {
        self.default.clone()
    }

    fn affinity(&mut self) -> &mut dyn Affinity {
        &mut self.knob
    }

    fn counting(&self) -> String {
        "a script".to_owned()
    }
}

/// Processes that are new or may use other PUs than before.
fn news(told: &mut BTreeMap<i32, ProcessState>, kernel: &Kernel) -> Vec<ProcessState> {
    let mut news = Vec::new();
    for (id, task) in &kernel.tasks {
        let cpuset = &kernel.cpusets[task.group];
        let start = told
            .get(&task.pid)
            .map_or(id.start, |state| state.process.start);
        let state = ProcessState {
            process: ProcessId {
                pid: task.pid,
                start,
            },
            target: task.group as u32,
            default: cpuset.clone(),
            whole: true,
            allowed: cpuset.clone(),
        };
        if told.insert(task.pid, state.clone()).as_ref() != Some(&state) {
            news.push(state);
        }
    }
    news
}

/// Where masks come from, as far as the kernel tells.
fn origins(kernel: &mut Kernel, has_records: bool) -> Vec<Origin> {
    let mut origins = std::mem::take(&mut kernel.origins);
    if !has_records {
        for origin in &mut origins {
            let pid = kernel.tasks.get(&origin.thread).map_or(0, |task| task.pid);
            let of = match kernel.parents.get(&pid) {
                Some(parent) if pid == origin.thread.tid && !origin.exec => *parent,
                _ => pid,
            };
            origin.from = Source::Process(of);
            origin.at = None;
        }
    }
    origins
}

fn sampled(fp: f64) -> Metrics {
    let metric = |value| Metric {
        value,
        confidence: 1.0,
        source: MetricSource::Sampling,
    };
    Metrics::from_iter([
        (names::FP_SHARE.into(), metric(fp)),
        (names::SAMPLES.into(), metric(20.0)),
    ])
}

fn fp_count(thread: &ThreadId) -> Count {
    Count {
        alias: names::FP_SHARE.into(),
        value: 0.75,
        quality: CountQuality::Implausible(format!("{} counted 395 instructions", thread.tid)),
    }
}

fn pu_count(pu: u32) -> Count {
    Count {
        alias: "load".into(),
        value: f64::from(pu),
        quality: CountQuality::Exact,
    }
}

/// A processor whose cores' PUs share floating-point units.
pub struct TestProcessor;

impl Processor for TestProcessor {
    fn name(&self) -> &str {
        "test"
    }

    fn text(&self) -> &str {
        "a text"
    }

    fn event_plan(&self) -> EventPlan {
        EventPlan::default()
    }

    fn event_plan_with(&self, needs: &[&str]) -> EventPlan {
        let set = |name: &&str| EventSet {
            name: (*name).into(),
            events: Vec::new(),
        };
        EventPlan {
            sets: needs.iter().map(set).collect(),
        }
    }

    fn metrics(&self, counts: &[Count], _: u64) -> (Metrics, Vec<String>) {
        let source = MetricSource::Counters;
        let metrics = counts.iter().map(|count| {
            (
                count.alias.clone(),
                Metric {
                    value: count.value,
                    confidence: 1.0,
                    source,
                },
            )
        });
        let wrong = counts.iter().filter_map(|count| match &count.quality {
            CountQuality::Implausible(why) => Some(why.clone()),
            _ => None,
        });
        (metrics.collect(), wrong.collect())
    }

    fn fp_domains(&self, topology: &Topology) -> Vec<SharingDomain> {
        topology.domains(ShareLevel::Core)
    }

    fn fp_threshold(&self, source: MetricSource) -> f64 {
        if source == MetricSource::Sampling {
            0.05
        } else {
            0.5
        }
    }
}

/// A policy that is a function.
pub struct Decide<F>(pub F);

impl<F: FnMut(&Snapshot) -> Plan> Policy for Decide<F> {
    fn name(&self) -> &'static str {
        "test"
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        (self.0)(snapshot)
    }
}

/// Keeps what it is told.
#[derive(Default)]
pub struct Heard {
    pub snapshots: Vec<Snapshot>,
    pub plans: Vec<Plan>,
    pub moves: Vec<Vec<perch_engine::Move>>,
    pub remarks: Vec<String>,
}

impl Observer for Heard {
    fn period(&mut self, period: &Period<'_>) {
        self.snapshots.push(period.snapshot.clone());
        self.plans.push(period.plan.clone());
        self.moves.push(period.moves.to_vec());
        self.remarks.extend(period.remarks.iter().cloned());
    }
}

/// The masks of all live threads.
pub fn masks(kernel: &Rc<RefCell<Kernel>>) -> BTreeMap<ThreadId, PuSet> {
    let kernel = kernel.borrow();
    let threads: BTreeSet<ThreadId> = kernel.tasks.keys().copied().collect();
    threads
        .into_iter()
        .filter_map(|thread| Some((thread, kernel.mask(thread)?)))
        .collect()
}
