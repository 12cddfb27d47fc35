//! A kernel in memory, as far as affinity masks go, and a machine on it that follows a script.
#![allow(dead_code)]

use perch_core::{
    Affinity, Count, CountQuality, EventPlan, EventSet, Launch, Machine, MachineError, MaskChange,
    MaskError, Metric, MetricSource, Metrics, Observation, Outcome, Plan, Policy, ProcessId,
    PuSample, PuSet, ShareLevel, SharingDomain, Snapshot, ThreadId, ThreadInfo, ThreadSample,
    Topology, Wake,
    affinity::Relative,
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
    /// The mask that was last asked for (the kernel's `user_cpus_ptr`).
    pub requested: PuSet,
    /// The one that would have been asked for if there were no perch.
    pub fair: PuSet,
    /// FP share of what it runs.
    pub fp: f64,
    pub cpu_share: f64,
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
    pub cpuset: PuSet,
    pub pus: PuSet,
    pub next: i32,
    /// Calls of `change`.
    pub changes: usize,
    pub kill: Option<Kill>,
    /// The journals on disk when perch was killed: nothing that it does later counts.
    pub killed: Option<Vec<Vec<u8>>>,
    pub dir: PathBuf,
    /// Processes that have left their family, so that only the machine knows whose they are.
    pub daemons: BTreeSet<i32>,
}

impl Kernel {
    pub fn new(pus: u32) -> Self {
        NOW.set(100);
        let all: PuSet = (0..pus).collect();
        Self {
            cpuset: all.clone(),
            pus: all,
            next: 1000,
            ..Self::default()
        }
    }

    pub fn effective(&self, requested: &PuSet) -> PuSet {
        let rest = requested.and(&self.cpuset);
        if rest.is_empty() {
            self.cpuset.clone()
        } else {
            rest
        }
    }

    pub fn mask(&self, thread: ThreadId) -> Option<PuSet> {
        let task = self.tasks.get(&thread)?;
        Some(self.effective(&task.requested))
    }

    /// A thread of a new process (`pid` none) or of one that is there.
    pub fn spawn(&mut self, pid: Option<i32>, mask: &PuSet, fp: f64) -> ThreadId {
        let id = ThreadId {
            tid: self.next,
            start: now(),
        };
        self.next += 1;
        let task = Task {
            pid: pid.unwrap_or(id.tid),
            requested: mask.clone(),
            fair: mask.clone(),
            fp,
            cpu_share: 1.0,
        };
        self.tasks.insert(id, task);
        id
    }

    pub fn fork(&mut self, parent: ThreadId, own_process: bool) -> Option<ThreadId> {
        let task = self.tasks.get(&parent)?.clone();
        let pid = (!own_process).then_some(task.pid);
        let child = self.spawn(pid, &task.requested, task.fp);
        self.tasks.get_mut(&child)?.fair = task.fair;
        Some(child)
    }

    pub fn end(&mut self, thread: ThreadId) {
        if let Some(task) = self.tasks.remove(&thread) {
            self.ended.push((thread, task));
        }
    }

    /// Somebody else sets a mask.
    pub fn taskset(&mut self, thread: ThreadId, mask: &PuSet) {
        if mask.is_disjoint(&self.cpuset) {
            return;
        }
        if let Some(task) = self.tasks.get_mut(&thread) {
            task.requested = mask.clone();
            task.fair = mask.clone();
        }
    }

    pub fn nth(&self, n: usize) -> Option<ThreadId> {
        let count = self.tasks.len();
        self.tasks.keys().nth(n % count.max(1)).copied()
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
            Some(_) if change.set.is_disjoint(&kernel.cpuset) => Outcome::NoUsablePu,
            Some(_) => {
                let set = if change.to_default {
                    kernel.pus.clone()
                } else {
                    change.set.clone()
                };
                kernel.tasks.get_mut(&change.thread).unwrap().requested = set;
                Outcome::Applied
            }
        };
        if kill.is_some_and(|kill| kill.after) {
            kernel.die();
        }
        outcome
    }

    /// All processes of this kernel descend from the session's, which shows of all but the daemons.
    fn relatives(&self, _: &str, processes: &[ProcessId]) -> Vec<Relative> {
        let kernel = self.0.borrow();
        let shows = |pid: &i32| {
            !kernel.daemons.contains(pid) || processes.iter().any(|known| known.pid == *pid)
        };
        let tasks = kernel.tasks.iter().filter(|(_, task)| shows(&task.pid));
        let relatives = tasks.map(|(thread, task)| Relative {
            thread: *thread,
            process: ProcessId {
                pid: task.pid,
                start: 0,
            },
            mask: kernel.effective(&task.requested),
        });
        relatives.collect()
    }
}

/// What happens to the kernel's threads.
#[derive(Debug, Clone)]
pub enum Op {
    Spawn { fp: f64 },
    Fork { of: usize, own_process: bool },
    End { of: usize },
    Taskset { of: usize, mask: PuSet },
    Cpuset { mask: PuSet },
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
            Op::Cpuset { mask } => kernel.cpuset = mask.clone(),
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
    last_cpuset: PuSet,
}

impl Scripted {
    pub fn new(kernel: &Rc<RefCell<Kernel>>, cores: u32, steps: Vec<Step>) -> Self {
        let cpuset = kernel.borrow().cpuset.clone();
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
            last_cpuset: cpuset,
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
            last_pu: kernel.effective(&task.requested).first(),
            mask: Some(kernel.effective(&task.requested)),
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
            at: (self.at as u64 + 1) * second,
            interval: second,
            threads: threads.map(|(id, task)| sample(id, task)).collect(),
            pus: pus.map(pu).collect(),
            ended: ended.iter().map(|(id, _)| *id).collect(),
            own_cpu_time: 1_000_000,
            topology_changed: kernel.cpuset != self.last_cpuset,
            ..Observation::default()
        };
        self.last_cpuset = kernel.cpuset.clone();
        NOW.set(NOW.get() + 1);
        if let Some(step) = self.steps.get(self.at) {
            step.race
                .iter()
                .for_each(|op| op.run(kernel, &self.default));
        }
        self.at += 1;
        Ok(observation)
    }

    fn processes(&mut self) -> Vec<ProcessId> {
        let kernel = self.kernel.borrow();
        let first = kernel.tasks.iter().filter(|(id, task)| id.tid == task.pid);
        let processes = first.map(|(id, task)| ProcessId {
            pid: task.pid,
            start: id.start,
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
pub struct Seen {
    pub snapshots: Vec<Snapshot>,
    pub plans: Vec<Plan>,
    pub moves: Vec<Vec<perch_engine::Move>>,
    pub remarks: Vec<String>,
}

impl Observer for Seen {
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
