//! The loop: wait, observe, characterise, decide, check, journal, apply.

use crate::{
    act::JournalPlace,
    characterise::{Characteriser, Context, Paper, Processor},
    journal::{
        Kept, Record,
        state_dir::{self, StateDir, StateDirError},
    },
    observer::{Cause, Move, Observer, Period, SessionEnd, Start},
    ownership::{Noticed, Ownership},
    plan_check,
    restore::RestoreReport,
    said::Said,
};
use perch_core::{
    Affinity, Machine, MachineError, MaskError, Observation, Outcome, Plan, Policy, ProcessId,
    PuSet, Snapshot, ThreadId, Topology, UnitDomains, Wake,
};
use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Periods for which a process that ended is remembered: its children may be reported late.
const LINGER: u64 = 3;
/// And at least this many nanoseconds, as periods may be short.
const LINGER_TIME: u64 = 3_000_000_000;

/// Whether masks are changed.
pub enum Acting {
    /// They are, and journaled in this directory first.
    Live(StateDir),
    /// Nothing is changed: a dry run, on a what-if topology if one is given.
    Paper(Option<Arc<Topology>>),
}

/// What a session is to do.
pub struct Options {
    /// Who decides.
    pub policy: Box<dyn Policy>,
    /// What is known of the processor.
    pub processor: Box<dyn Processor>,
    /// How long a period is; the policy's own if not given.
    pub period: Option<Duration>,
    /// Whether masks are changed.
    pub acting: Acting,
    /// Whether threads that others have placed are placed all the same.
    pub take_over: bool,
    /// The only PUs on which threads are put, if given.
    pub pus: Option<PuSet>,
}

/// A session that cannot go on. What it had changed is undone.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The machine failed, and some masks could not be restored, so the journal is kept.
    #[error(
        "{error}\nThese threads keep the masks that perch set: {}. Run `perch restore` as root",
        names(left)
    )]
    LeftBehind {
        /// Why the session cannot go on.
        error: MachineError,
        /// What came of giving masks back.
        left: Box<RestoreReport>,
    },
    /// The journal's place.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
}

/// The threads of a report that could not be restored, and why.
fn names(left: &RestoreReport) -> String {
    let failed = left.failed.iter();
    let failed = failed.map(|(thread, why)| format!("{thread} ({why})"));
    failed.collect::<Vec<_>>().join(", ")
}

/// One run of perch over one machine.
pub struct Session<M: Machine> {
    pub(crate) machine: M,
    policy: Box<dyn Policy>,
    processor: Box<dyn Processor>,
    period: Duration,
    take_over: bool,
    pus: Option<PuSet>,
    pub(crate) journal: Option<JournalPlace>,
    paper: Option<Paper>,
    topology: Arc<Topology>,
    usable: PuSet,
    units: Arc<UnitDomains>,
    pub(crate) ownership: Ownership,
    characteriser: Characteriser,
    pub(crate) processes: BTreeMap<i32, ProcessId>,
    outcomes: Vec<(ThreadId, Outcome)>,
    /// Processes that have ended lately. Each has the period and the time after which every thread that inherited from
    /// it is known.
    departed: VecDeque<(u64, u64, ProcessId)>,
    said: Said,
    periods: u64,
}

impl<M: Machine> Session<M> {
    /// Prepares a session and tells the machine what to count. Programs are launched or attached on
    /// [`Session::machine`] before it runs.
    ///
    /// # Errors
    /// A machine that cannot count, a /proc that cannot be read.
    pub fn new(mut machine: M, options: Options) -> Result<Self, SessionError> {
        machine.watch_pus(options.policy.wants_pu_loads());
        machine.configure(&options.processor.event_plan_with(options.policy.needs()))?;
        let default = machine.default_mask();
        let (journal, paper, topology) = match options.acting {
            Acting::Live(dir) => {
                let place = JournalPlace {
                    dir,
                    header: state_dir::header(default.clone())?,
                    files: BTreeMap::new(),
                    failed: None,
                    clock: state_dir::boot_ticks,
                };
                (Some(place), None, machine.topology())
            }
            Acting::Paper(other) => {
                let paper = Paper {
                    elsewhere: other.is_some(),
                    ..Paper::default()
                };
                (
                    None,
                    Some(paper),
                    other.unwrap_or_else(|| machine.topology()),
                )
            }
        };
        let mut session = Self {
            period: options.period.unwrap_or_else(|| options.policy.period()),
            take_over: options.take_over,
            ownership: Ownership::new(default, options.take_over),
            machine,
            policy: options.policy,
            processor: options.processor,
            pus: options.pus,
            journal,
            paper,
            topology: Arc::clone(&topology),
            usable: PuSet::new(),
            units: Arc::default(),
            characteriser: Characteriser::default(),
            processes: BTreeMap::new(),
            outcomes: Vec::new(),
            departed: VecDeque::new(),
            said: Said::default(),
            periods: 0,
        };
        session.learn_topology(topology);
        Ok(session)
    }

    /// The machine, to launch or attach programs.
    pub fn machine(&mut self) -> &mut M {
        &mut self.machine
    }

    /// The session's mark, to be put into the launched program's environment; `None` where nothing is changed.
    pub fn mark(&self) -> Option<&str> {
        let journal = self.journal.as_ref()?;
        Some(&journal.header.session)
    }

    /// The clock by which threads' starts are counted, in ticks: for machines whose threads do not start on Linux.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        if let Some(journal) = &mut self.journal {
            journal.clock = clock;
        }
    }

    /// Runs until every thread has ended or the user stops it; then every thread has its mask back.
    ///
    /// # Errors
    /// A machine that cannot go on. Masks are restored before this returns.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<SessionEnd, SessionError> {
        observer.start(&self.start());
        let ended = self.periods(observer);
        let restored = self.give_back();
        let cause = match ended {
            Ok(cause) => cause,
            Err(error) if restored.has_failed() => {
                return Err(SessionError::LeftBehind {
                    error,
                    left: Box::new(restored),
                });
            }
            Err(error) => return Err(error.into()),
        };
        let end = SessionEnd {
            cause,
            periods: self.periods,
            counting: self.machine.counting(),
            restored,
        };
        observer.end(&end);
        Ok(end)
    }

    fn start(&self) -> Start {
        Start {
            topology: Arc::clone(&self.topology),
            machine: self.machine.topology(),
            policy: self.policy.name().to_owned(),
            profile: self.processor.name().to_owned(),
            profile_text: self.processor.text().to_owned(),
            period: self.period,
            counting: self.machine.counting(),
            default_mask: self.ownership.default_mask().clone(),
            dry_run: self.paper.is_some(),
            take_over: self.take_over,
            pus: self.pus.clone(),
        }
    }

    fn periods(&mut self, observer: &mut dyn Observer) -> Result<Cause, MachineError> {
        loop {
            let wake = self.machine.wait(self.period)?;
            let observation = self.machine.observe()?;
            let ending = match wake {
                Wake::Period => None,
                Wake::Ended(status) => Some(Cause::Ended(status)),
                Wake::Stop(signal) => Some(Cause::Stopped(signal)),
            };
            self.step(&observation, ending.is_some(), observer);
            if let Some(cause) = ending {
                return Ok(cause);
            }
        }
    }

    /// One period; the last one decides nothing.
    fn step(&mut self, observation: &Observation, last: bool, observer: &mut dyn Observer) {
        let mut remarks = observation.remarks.clone();
        self.take_in(observation, &mut remarks);
        let context = Context {
            processor: &*self.processor,
            ownership: &self.ownership,
            topology: &self.topology,
            usable: &self.usable,
            units: &self.units,
            paper: self.paper.as_ref(),
            last_outcomes: std::mem::take(&mut self.outcomes),
        };
        let (snapshot, noticed) = self.characteriser.snapshot(observation, context);
        remarks.extend(noticed);
        let (plan, moves) = if last {
            (Plan::default(), Vec::new())
        } else {
            self.decide(&snapshot, &mut remarks)
        };
        remarks.extend(plan.remarks.iter().cloned());
        self.said.only_new(&mut remarks);
        self.outcomes = moves
            .iter()
            .map(|made| (made.thread, made.outcome))
            .collect();
        self.periods += 1;
        observer.period(&Period {
            observation,
            snapshot: &snapshot,
            plan: &plan,
            moves: &moves,
            remarks: &remarks,
            last,
        });
    }

    fn decide(&mut self, snapshot: &Snapshot, remarks: &mut Vec<String>) -> (Plan, Vec<Move>) {
        let mut plan = self.policy.decide(snapshot);
        remarks.extend(plan_check::check(&mut plan, snapshot, self.policy.name()));
        let mut moves = plan_check::difference(&plan, snapshot);
        if let Some(paper) = &mut self.paper {
            for made in &moves {
                match &made.to {
                    Some(pus) => paper.bound.insert(made.thread, pus.clone()),
                    None => paper.bound.remove(&made.thread),
                };
            }
        } else {
            self.apply(snapshot, &mut moves, remarks);
        }
        (plan, moves)
    }

    /// Brings topology, ownership and processes up to date.
    fn take_in(&mut self, observation: &Observation, remarks: &mut Vec<String>) {
        if observation.topology_changed {
            let elsewhere = self.paper.as_ref().is_some_and(|paper| paper.elsewhere);
            if !elsewhere {
                self.learn_topology(self.machine.topology());
            }
        }
        self.ownership.set_default(self.machine.default_mask());
        let noticed = self.judge(observation);
        let mut records = BTreeMap::<u32, Vec<Record>>::new();
        for noticed in &noticed {
            if let Some((target, record)) = self.record(noticed) {
                records.entry(target).or_default().push(record);
            }
        }
        let mut pids = HashSet::new();
        // Of a process whose first thread has ended only its state tells.
        let told = observation.processes.iter().map(|state| state.process);
        let mut processes: Vec<ProcessId> = told.collect();
        for sample in &observation.threads {
            let (id, pid) = (sample.info.id, sample.info.pid);
            pids.insert(pid);
            if id.tid == pid {
                let start = id.start;
                processes.push(ProcessId { pid, start });
            }
        }
        for process in processes {
            if self.processes.insert(process.pid, process) != Some(process) {
                // Journaled before anything is changed, so that a restore after perch was killed knows the process,
                // whatever it starts.
                let target = self.ownership.target(process.pid);
                if self.has_journal(target) {
                    let record = self.process_record(process);
                    records.entry(target).or_default().push(record);
                }
            }
        }
        if let Some(paper) = &mut self.paper {
            observation.ended.iter().for_each(|thread| {
                paper.bound.remove(thread);
            });
        }
        self.forget(&observation.ended, &pids, observation.at);
        if let Some(place) = &mut self.journal {
            place.conclude(records, remarks);
        }
    }

    pub(crate) fn has_journal(&self, target: u32) -> bool {
        let place = self.journal.as_ref();
        place.is_some_and(|place| place.files.contains_key(&target))
    }

    /// Whose the masks are that were read, and those of threads that could not be changed last time.
    fn judge(&mut self, observation: &Observation) -> Vec<Noticed> {
        let usable = self.machine.topology().usable();
        let affinity: &dyn Affinity = self.machine.affinity();
        let allowed = |thread| affinity.allowed(thread);
        let mut noticed = self.ownership.observe(observation, &usable, &allowed);
        let doubted = self
            .outcomes
            .iter()
            .filter(|(_, outcome)| *outcome == Outcome::ChangedByOthers);
        let doubted: HashSet<ThreadId> = doubted.map(|(thread, _)| *thread).collect();
        for sample in &observation.threads {
            let (id, pid) = (sample.info.id, sample.info.pid);
            if sample.mask.is_none()
                && doubted.contains(&id)
                && let Ok(mask) = affinity.mask(id)
            {
                noticed.extend(self.ownership.learn(id, pid, &mask, &allowed));
            }
        }
        noticed
    }

    /// Forgets what has ended: threads at once, but for those that only hide; processes when what they have started is
    /// known.
    fn forget(&mut self, ended: &[ThreadId], live: &HashSet<i32>, at: u64) {
        if !ended.is_empty() {
            let gone = self.processes.values();
            let gone: Vec<ProcessId> = gone
                .filter(|process| !live.contains(&process.pid))
                .copied()
                .collect();
            for process in gone {
                self.processes.remove(&process.pid);
                let due = (self.periods + LINGER, at + LINGER_TIME);
                self.departed.push_back((due.0, due.1, process));
            }
        }
        let hides = |machine: &mut M, thread| {
            matches!(machine.affinity().mask(thread), Err(MaskError::Hidden))
        };
        if let Some(place) = &mut self.journal {
            for file in place.files.values_mut() {
                for thread in ended {
                    let held = matches!(file.journal().thread(*thread), Some(Kept::Held(_)));
                    if !held || !hides(&mut self.machine, *thread) {
                        file.journal_mut().forget(*thread);
                    }
                }
            }
        }
        while let Some((period, time, process)) = self.departed.front().copied()
            && period <= self.periods
            && time <= at
        {
            self.departed.pop_front();
            self.ownership.forget_process(process);
            for file in self
                .journal
                .iter_mut()
                .flat_map(|place| place.files.values_mut())
            {
                file.journal_mut().forget_process(process);
            }
        }
    }

    fn learn_topology(&mut self, topology: Arc<Topology>) {
        let usable = topology.usable();
        self.usable = match &self.pus {
            Some(pus) => usable.and(pus),
            None => usable,
        };
        self.units = Arc::new(self.processor.unit_domains(&topology));
        self.topology = topology;
    }
}

/// A panic must not leave masks behind.
impl<M: Machine> Drop for Session<M> {
    fn drop(&mut self) {
        self.give_back();
    }
}
