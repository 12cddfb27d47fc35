//! A week of a machine on which threads and attached processes come and go all the time: perch keeps nothing of them.

mod common;

use common::{live, options, topology};
use perch_core::{
    Affinity, Binding, EventPlan, Launch, Machine, MachineError, MaskChange, MaskError, Metric,
    MetricSource, Metrics, Observation, Outcome, Plan, Policy, ProcessId, ProcessState, PuSet,
    Reason, Snapshot, Targets, ThreadId, ThreadInfo, ThreadSample, Topology, Wake,
    affinity::Descendant, metric::names,
};
use perch_engine::{Cause, Collector, Command, Session, SessionSink};
use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

const SECOND: u64 = 1_000_000_000;

const PUS: u32 = 8;

/// In nanoseconds.
const PERIOD: u64 = 10 * SECOND;

/// A week.
const PERIODS: u64 = 7 * 24 * 360;

/// Threads that are born in each period: more than a million come and go in all.
const BORN: usize = 20;

/// How many periods they live, by turns.
const LIVES: [u64; 2] = [1, 3];

/// After this many periods another process is attached.
const ATTACH: u64 = 10;

/// Processes that are attached at a time.
const ATTACHED: usize = 5;

/// Periods after which everything has the size that it will keep.
const WARM: u64 = PERIODS / 8;

/// What a million threads may leave behind: about a byte each.
const GROWTH: u64 = 1 << 20;

fn all() -> PuSet {
    (0..PUS).collect()
}

/// The kernel's masks.
struct Masks(BTreeMap<ThreadId, PuSet>);

impl Affinity for Masks {
    fn settle(&self) {}

    fn belongs_to(&self, _: ThreadId, _: u32) -> bool {
        true
    }

    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        self.0.get(&thread).cloned().ok_or(MaskError::Gone)
    }

    fn change(&mut self, change: &MaskChange) -> Outcome {
        match self.0.get_mut(&change.thread) {
            None => Outcome::Gone,
            Some(mask) if *mask != change.expect => Outcome::ChangedByOthers,
            Some(mask) => {
                *mask = change.set.clone();
                Outcome::Applied
            }
        }
    }

    fn allowed(&self, _: ThreadId) -> Option<PuSet> {
        Some(all())
    }

    fn descendants(
        &self,
        _: &str,
        _: &[ProcessId],
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError> {
        let unknown = self.0.iter().filter(|(thread, _)| !known(**thread));
        let descendants = unknown.map(|(thread, mask)| Descendant {
            thread: *thread,
            process: process(*thread),
            parent: 1,
            by_group: None,
            mask: mask.clone(),
        });
        Ok(descendants.collect())
    }
}

/// Every other thread is a process of its own, the others are threads of the first.
fn process(thread: ThreadId) -> ProcessId {
    let (pid, start) = match thread.tid % 2 {
        0 => (thread.tid, thread.start),
        _ => (1, 0),
    };
    ProcessId { pid, start }
}

/// The machine, and how much memory perch had after it was warm and at the end.
struct Days {
    masks: Masks,
    /// Live threads by the period in which they end.
    ends: VecDeque<(u64, ThreadId)>,
    period: u64,
    born: u64,
    /// The processes of the targets.
    targets: BTreeMap<u32, ThreadId>,
    attached: u32,
    /// Those that are new.
    new: Vec<ProcessState>,
    state: PathBuf,
    memory: Vec<u64>,
    journal: Vec<u64>,
}

impl Days {
    fn new(state: &Path) -> Self {
        Self {
            masks: Masks(BTreeMap::new()),
            ends: VecDeque::new(),
            period: 0,
            born: 0,
            targets: BTreeMap::new(),
            attached: 0,
            new: Vec::new(),
            state: state.to_owned(),
            memory: Vec::new(),
            journal: Vec::new(),
        }
    }

    /// A thread with a number that wraps around, as the kernel's do; some inherit the mask of one that perch has bound,
    /// and some are placed by others.
    fn spawn(&mut self, lives: u64) {
        let id = ThreadId {
            tid: 1000 + (self.born % 30_000) as i32,
            start: 1_000 * self.period,
        };
        let mask = match self.born % 7 {
            0 => [(self.born / 7 % u64::from(PUS)) as u32]
                .into_iter()
                .collect(),
            1 | 2 => self.masks.0.values().next_back().cloned().unwrap_or(all()),
            _ => all(),
        };
        self.masks.0.insert(id, mask);
        self.ends.push_back((self.period + lives, id));
        self.born += 1;
    }

    /// An attached process exits without having been detached.
    fn end(&mut self, pid: i32) {
        let mut attached = self.targets.values();
        let id = attached.find(|id| id.tid == pid).expect("attached");
        self.ends.push_back((self.period, *id));
    }

    fn measure(&mut self) {
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
        self.memory.push(pages * rustix::param::page_size() as u64);
        let files = fs::read_dir(&self.state).unwrap().flatten();
        self.journal
            .push(files.map(|file| file.metadata().unwrap().len()).sum());
    }
}

impl Targets for Days {
    fn launch(&mut self, _: &Launch) -> Result<i32, MachineError> {
        unreachable!("nothing is launched here")
    }

    fn attach(&mut self, pid: i32) -> Result<u32, MachineError> {
        let id = ThreadId {
            tid: pid,
            start: 1_000 * self.period,
        };
        self.masks.0.insert(id, all());
        self.attached += 1;
        self.targets.insert(self.attached, id);
        self.new.push(ProcessState {
            process: process(id),
            target: self.attached,
            default: all(),
            whole: true,
            allowed: all(),
        });
        Ok(self.attached)
    }

    fn detach(&mut self, target: u32) {
        let id = self.targets.remove(&target).expect("attached");
        if let Some(mask) = self.masks.0.remove(&id) {
            assert_eq!(mask, all(), "its mask is back");
        }
    }
}

impl Machine for Days {
    fn processes(&mut self) -> Vec<(ProcessId, u32)> {
        Vec::new()
    }

    fn targets(&mut self) -> Option<&mut dyn Targets> {
        Some(self)
    }

    fn topology(&self) -> Arc<Topology> {
        Arc::new(topology(PUS / 2, &all()))
    }

    fn configure(&mut self, _: &EventPlan) -> Result<(), MachineError> {
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> Result<Wake, MachineError> {
        if self.period == WARM {
            self.measure();
        }
        Ok(Wake::Period)
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        let mut ended = Vec::new();
        let period = self.period;
        let masks = &mut self.masks.0;
        self.ends.retain(|(end, id)| {
            let lives = *end > period;
            if !lives {
                masks.remove(id);
                ended.push(*id);
            }
            lives
        });
        for lives in LIVES.into_iter().cycle().take(BORN) {
            self.spawn(lives);
        }
        self.period += 1;
        let sample = |(id, mask): (&ThreadId, &PuSet)| ThreadSample {
            info: ThreadInfo {
                id: *id,
                pid: process(*id).pid,
                name: format!("worker-{}", id.tid % 100).into(),
                process: "app".into(),
                work: perch_core::Work::default(),
            },
            interval: PERIOD,
            cpu_time: PERIOD / 2,
            wait_time: PERIOD / 10,
            switches: Some(3),
            migrations: Some(1),
            last_pu: mask.iter().nth(id.tid as usize % mask.len()),
            mask: Some(mask.clone()),
            counts: Vec::new(),
            event_set: None,
            metrics: Metrics::from_iter([(
                names::FP_SHARE.into(),
                Metric {
                    value: f64::from(id.tid % 10) / 10.0,
                    confidence: 1.0,
                    source: MetricSource::Sampling,
                },
            )]),
        };
        Ok(Observation {
            at: self.period * PERIOD,
            interval: PERIOD,
            threads: self.masks.0.iter().map(sample).collect(),
            ended,
            processes: std::mem::take(&mut self.new),
            own_cpu_time: 1_000_000,
            ..Observation::default()
        })
    }

    fn default_mask(&self) -> PuSet {
        all()
    }

    fn affinity(&mut self) -> &mut dyn Affinity {
        &mut self.masks
    }

    fn counting(&self) -> String {
        "a script".to_owned()
    }
}

/// Binds every third thread by its number, to another PU in every period for some.
struct Scatter;

impl Policy for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let threads = snapshot.threads.iter();
        let chosen = threads.filter(|thread| thread.info.id.tid % 3 == 0);
        let binding = |thread: &perch_core::ThreadState| {
            let tid = thread.info.id.tid as u64;
            let turn = if tid.is_multiple_of(5) {
                snapshot.at / PERIOD
            } else {
                0
            };
            Binding {
                thread: thread.info.id,
                pus: PuSet::single(((tid + turn) % u64::from(PUS)) as u32),
                reason: Reason::new("scattered"),
            }
        };
        Plan {
            bindings: chosen.map(binding).collect(),
            ..Plan::default()
        }
    }
}

#[test]
fn a_million_threads_leave_nothing_behind() {
    let mut observer = Collector::new(&[]);
    let (dir, acting) = live();
    let mut session = Session::new(Days::new(dir.path()), options(Scatter, acting)).unwrap();
    let handle = session.handle();
    observer.start(&session.begin());
    let mut attached = VecDeque::new();
    for period in 0..PERIODS {
        if period.is_multiple_of(ATTACH) {
            let pid = 100_000 + 2 * i32::try_from(period / ATTACH).unwrap();
            attached.push_back(pid);
            let mut commands = vec![Command::Attach(pid)];
            // Every other one is detached, the others end.
            match (attached.len() > ATTACHED)
                .then(|| attached.pop_front())
                .flatten()
            {
                Some(pid) if pid % 4 == 0 => commands.push(Command::Detach(pid)),
                Some(pid) => session.machine().end(pid),
                None => {}
            }
            let replies: Vec<_> = commands
                .into_iter()
                .map(|command| handle.send(command).unwrap())
                .collect();
            assert_eq!(session.obey(), None);
            replies.into_iter().for_each(|reply| reply.wait().unwrap());
        }
        session.machine().wait(Duration::ZERO).unwrap();
        let observation = session.machine().observe().unwrap();
        let period = session.step(observation, false);
        observer.period(&period);
    }
    session.machine().measure();
    let followed = session.machine().targets.len();
    assert!(followed <= ATTACHED + 1, "{followed} targets");
    let journals = || fs::read_dir(dir.path()).unwrap().count();
    let some = 2..=ATTACHED + 1;
    assert!(
        some.contains(&journals()),
        "a journal for each target of which a thread was bound"
    );
    session.finish(Ok(Cause::Commanded)).unwrap();
    let machine = session.machine();
    assert!(machine.born >= 1_000_000 && machine.attached >= 6_000);
    eprintln!(
        "resident {:?}, journal {:?}",
        machine.memory, machine.journal
    );
    let [early, late] = machine.memory[..] else {
        panic!("measured twice")
    };
    assert!(
        late <= early + GROWTH,
        "{early} bytes after {WARM} periods, {late} after {PERIODS}"
    );
    // The journal is in proportion to the threads that are alive.
    assert!(
        machine.journal.iter().all(|bytes| *bytes < 1 << 20),
        "{:?}",
        machine.journal
    );
    assert_eq!(journals(), 0);
}
