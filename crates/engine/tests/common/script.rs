//! A machine on the kernel in memory that follows a script.

use super::{
    kernel::{Kernel, TICK, Task, now, pass},
    knob::Knob,
    topology,
};
use perch_core::{
    Affinity, Count, CountQuality, EventPlan, Launch, Machine, MachineError, Metric, MetricSource,
    Metrics, Observation, Origin, ProcessId, ProcessState, PuSample, PuSet, Source, Targets,
    ThreadId, ThreadInfo, ThreadSample, Topology, Wake, Work, metric::names,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, RwLock},
    time::Duration,
};

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

/// The group whose threads are the operating system's, if a policy asks for those.
const SYSTEM: usize = 1;

/// A machine on the kernel that follows a script.
pub struct Scripted {
    pub kernel: Arc<RwLock<Kernel>>,
    pub knob: Knob,
    pub steps: Vec<Step>,
    pub at: usize,
    pub default: PuSet,
    pub cores: u32,
    pub end: Wake,
    /// Whether threads that ended in a period are reported with a last sample.
    pub report_ended: bool,
    /// From this period on modules say nothing.
    pub silent_from: usize,
    /// From this period on masks are read only if they are asked for.
    pub masks_until: usize,
    /// Whether events are counted.
    pub counts: bool,
    /// What it was configured to count.
    pub configured: EventPlan,
    /// Whether PUs are watched: each is busy for a tenth of its number, and counted in every other period.
    pub watches_pus: bool,
    /// Whether the kernel tells who created whom.
    pub has_records: bool,
    /// Whether its time goes on between observations; else a period takes a second of it.
    pub has_clock: bool,
    /// Whether new threads and their origins are reported one observation after their processes, as a live machine does
    /// while the record of a creation is still to come. The first observation reports all threads.
    pub late: bool,
    /// Threads that were there in the last observation.
    present: BTreeSet<ThreadId>,
    /// A thread that starts a process whenever the machine is asked for all of them.
    pub forks: Option<ThreadId>,
    /// Groups that are not followed.
    pub detached: BTreeSet<usize>,
    /// Whether the second group is followed as the operating system.
    system: bool,
    last_cpuset: PuSet,
    told: BTreeMap<i32, ProcessState>,
}

impl Scripted {
    pub fn new(kernel: &Arc<RwLock<Kernel>>, cores: u32, steps: Vec<Step>) -> Self {
        let cpuset = kernel.read().unwrap().cpusets[0].clone();
        Self {
            kernel: Arc::clone(kernel),
            knob: Knob(Arc::clone(kernel)),
            steps,
            at: 0,
            default: cpuset.clone(),
            cores,
            end: Wake::Ended(Some(0)),
            report_ended: false,
            silent_from: usize::MAX,
            masks_until: usize::MAX,
            counts: false,
            configured: EventPlan::default(),
            watches_pus: false,
            has_records: true,
            has_clock: true,
            late: false,
            present: BTreeSet::new(),
            forks: None,
            detached: BTreeSet::new(),
            system: false,
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

    fn watch_pus(&mut self, watch: bool) -> Result<(), MachineError> {
        self.watches_pus = watch;
        Ok(())
    }

    fn watch_system(&mut self, watch: bool) -> Result<(), MachineError> {
        if watch {
            self.detached.remove(&SYSTEM);
        } else if self.system {
            self.detach(SYSTEM as u32);
        }
        self.system = watch;
        Ok(())
    }

    fn system_target(&self) -> Option<u32> {
        self.system.then_some(SYSTEM as u32)
    }

    fn targets(&mut self) -> Option<&mut dyn Targets> {
        Some(self)
    }

    fn wait(&mut self, _: Duration) -> Result<Wake, MachineError> {
        pass(100);
        let Some(step) = self.steps.get(self.at) else {
            return Ok(self.end);
        };
        let mut kernel = self.kernel.write().unwrap();
        step.before
            .iter()
            .for_each(|op| op.run(&mut kernel, &self.default));
        Ok(Wake::Period)
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        let second = 1_000_000_000;
        let mut shared = self.kernel.write().unwrap();
        let kernel = &mut *shared;
        let ended = std::mem::take(&mut kernel.ended);
        if !kernel.killer.is_dead() {
            kernel.look();
        }
        let sample = |id: &ThreadId, task: &Task| ThreadSample {
            info: ThreadInfo {
                id: *id,
                pid: task.pid,
                name: format!("worker-{}", id.tid).into(),
                process: "app".into(),
                work: match self.system && task.group == SYSTEM {
                    true => Work::System,
                    false => Work::Program,
                },
            },
            interval: second,
            cpu_time: (second as f64 * task.cpu_share) as u64,
            wait_time: 0,
            switches: Some(3),
            migrations: Some(0),
            last_pu: kernel.effective(&task.requested, task.group).first(),
            mask: (self.at < self.masks_until)
                .then(|| kernel.effective(&task.requested, task.group)),
            counts: self.counts.then(|| fp_count(id)).into_iter().collect(),
            event_set: None,
            metrics: match self.at < self.silent_from {
                true => sampled(task.fp),
                false => Metrics::default(),
            },
        };
        let told = ended
            .iter()
            .filter(|_| self.report_ended)
            .map(|(id, task)| (id, task));
        let tasks = kernel.tasks.keys().copied();
        let held: BTreeSet<ThreadId> = tasks
            .filter(|id| self.late && self.at > 0 && !self.present.contains(id))
            .collect();
        let followed = kernel
            .tasks
            .iter()
            .filter(|(id, task)| !self.detached.contains(&task.group) && !held.contains(id));
        let threads = followed.chain(told);
        let pu = |pu: u32| PuSample {
            pu,
            interval: second,
            busy: u64::from(pu) * second / 10,
            interrupts: u64::from(pu) * second / 100,
            counts: (self.at.is_multiple_of(2))
                .then(|| pu_count(pu))
                .into_iter()
                .collect(),
            event_set: None,
        };
        let pus = kernel.pus.iter().filter(|_| self.watches_pus);
        let observation = Observation {
            at: self.now().unwrap_or((self.at as u64 + 1) * second),
            interval: second,
            threads: threads.map(|(id, task)| sample(id, task)).collect(),
            pus: pus.map(pu).collect(),
            ended: ended.iter().map(|(id, _)| *id).collect(),
            own_cpu_time: 1_000_000,
            topology: (kernel.cpusets[0] != self.last_cpuset)
                .then(|| Arc::new(topology(self.cores, &kernel.cpusets[0]))),
            processes: news(&mut self.told, kernel, &self.detached),
            origins: origins(kernel, self.has_records, &held),
            ..Observation::default()
        };
        self.present = kernel.tasks.keys().copied().collect();
        self.last_cpuset = kernel.cpusets[0].clone();
        pass(1);
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
        let mut kernel = self.kernel.write().unwrap();
        if let Some(parent) = self.forks {
            kernel.fork(parent, true);
        }
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

impl Targets for Scripted {
    fn launch(&mut self, _: &Launch) -> Result<i32, MachineError> {
        let mut kernel = self.kernel.write().unwrap();
        Ok(kernel.spawn(None, &self.default, 0.0).tid)
    }

    fn attach(&mut self, pid: i32) -> Result<u32, MachineError> {
        let group = self.kernel.read().unwrap().group_of(pid);
        let group = group.ok_or(MachineError::NoSuchProcess(pid))?;
        self.detached.remove(&group);
        Ok(group as u32)
    }

    fn detach(&mut self, target: u32) {
        self.told.retain(|_, state| state.target != target);
        self.detached.insert(target as usize);
    }
}

/// Processes that are new or may use other PUs than before.
fn news(
    told: &mut BTreeMap<i32, ProcessState>,
    kernel: &Kernel,
    detached: &BTreeSet<usize>,
) -> Vec<ProcessState> {
    let mut news = Vec::new();
    for (id, task) in &kernel.tasks {
        if detached.contains(&task.group) {
            continue;
        }
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

/// Where masks come from, as far as the kernel tells; not those of threads that are `held`, which come later.
fn origins(kernel: &mut Kernel, has_records: bool, held: &BTreeSet<ThreadId>) -> Vec<Origin> {
    let all = std::mem::take(&mut kernel.origins).into_iter();
    let (later, mut origins): (Vec<Origin>, _) =
        all.partition(|origin| held.contains(&origin.thread));
    kernel.origins = later;
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
