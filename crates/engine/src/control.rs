//! What a session knows and concludes: a state machine without a machine. It reads observations, and says what a journal
//! must learn, what the policy may know, and what a plan changes.

use crate::{
    characterise::{Characteriser, Context, DryRun, Processor, Span},
    irqs::{self, KnownIrqs},
    limiter::Limiter,
    observer::{IrqMove, Move, SettingMove},
    ownership::{Noticed, Ownership},
    plan_check,
    settings::{self, KnownSettings},
    ways::{self, KnownWays},
    weights::{self, KnownNices, NiceNoticed},
};
use perch_core::{
    Observation, Outcome, Plan, ProcessId, PuSet, Remark, Setting, Snapshot, ThreadId, Topology,
    UnitDomains,
};
use rustc_hash::FxHashSet;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// Nanoseconds for which a process that ended is remembered: its children may be reported late.
const LINGER: u64 = 3_000_000_000;
/// And at least this many observations, as they may be far apart.
const LINGER_OBSERVATIONS: u64 = 3;

/// Changes found in an observation that belong into the journals.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Masks and programs.
    pub noticed: Vec<Noticed>,
    /// Processes that were not known before, or of which no thread had been sampled.
    pub processes: Vec<ProcessId>,
    /// Processes that were not known before and of which no thread is sampled yet.
    pub unsampled: Vec<ProcessId>,
    /// Threads that were seen first, and whose masks no process has set.
    pub seen: Vec<ThreadId>,
    /// Processes of which no thread is left.
    pub ended: Vec<ProcessId>,
    /// Processes of which nothing can be reported any more.
    pub departed: Vec<ProcessId>,
    /// Targets of which no process is left.
    pub emptied: Vec<u32>,
    /// Nice values.
    pub nices: Vec<NiceNoticed>,
    /// Settings whose values are not perch's any more, each with whether another process has changed it.
    pub settings: Vec<(Setting, bool)>,
    /// Interrupts whose masks are not perch's any more, each with what has become of it.
    pub irqs: Vec<(u32, Outcome)>,
}

/// A process that has ended lately.
#[derive(Debug, Clone, Copy)]
struct Departing {
    process: ProcessId,
    target: u32,
    /// The observation and the time after which every thread that inherited from it is known.
    observations: u64,
    at: u64,
}

/// The state of a session.
pub(crate) struct Control {
    processor: Box<dyn Processor>,
    pub pus: Option<PuSet>,
    pub dry_run: Option<DryRun>,
    pub topology: Arc<Topology>,
    /// The PUs of the machine on which threads run that they may use.
    machine_usable: PuSet,
    /// The PUs on which perch may put threads.
    usable: PuSet,
    units: Arc<UnitDomains>,
    pub ownership: Ownership,
    pub irqs: KnownIrqs,
    pub settings: KnownSettings,
    pub nices: KnownNices,
    pub ways: KnownWays,
    /// The PUs to which interrupts may be sent.
    irq_pus: PuSet,
    pub processes: BTreeMap<i32, ProcessId>,
    /// Those of which no thread has been sampled yet, each with the observation that reported it first.
    unsampled: BTreeMap<i32, u64>,
    departing: VecDeque<Departing>,
    characteriser: Characteriser,
    /// Number of decisions that were requested so far.
    decisions: u64,
    /// Observations since the last decision, if it takes more than one.
    pending: Option<Observation>,
    outcomes: Vec<(ThreadId, Outcome)>,
    /// Threads whose mask was not the one that perch knew.
    refused: FxHashSet<ThreadId>,
    pub limiter: Limiter,
    pub observations: u64,
}

impl Control {
    /// `topologies` are that of the machine on which threads run, and that on which they are placed, if it is another.
    pub fn new(
        processor: Box<dyn Processor>,
        ownership: Ownership,
        pus: Option<PuSet>,
        dry_run: Option<DryRun>,
        topologies: (&Arc<Topology>, Option<Arc<Topology>>),
    ) -> Self {
        let (machine, other) = topologies;
        let mut control = Self {
            processor,
            pus,
            dry_run,
            topology: Arc::clone(machine),
            machine_usable: PuSet::new(),
            usable: PuSet::new(),
            units: Arc::default(),
            irqs: KnownIrqs::new(ownership.takes_over()),
            settings: KnownSettings::default(),
            nices: KnownNices::default(),
            ways: KnownWays::default(),
            irq_pus: PuSet::new(),
            ownership,
            processes: BTreeMap::new(),
            unsampled: BTreeMap::new(),
            departing: VecDeque::new(),
            characteriser: Characteriser::default(),
            decisions: 0,
            pending: None,
            outcomes: Vec::new(),
            refused: FxHashSet::default(),
            limiter: Limiter::default(),
            observations: 0,
        };
        control.learn_topology(machine, other);
        control
    }

    pub fn processor(&self) -> &dyn Processor {
        &*self.processor
    }

    /// The machine on which threads run, and the one on which they are placed, if that is another.
    fn learn_topology(&mut self, machine: &Arc<Topology>, other: Option<Arc<Topology>>) {
        self.machine_usable = machine.usable();
        // Interrupts know no CPU sets.
        self.irq_pus = match &self.pus {
            Some(pus) => machine.online().and(pus),
            None => machine.online(),
        };
        if self
            .dry_run
            .as_ref()
            .is_some_and(|dry_run| dry_run.elsewhere)
            && other.is_none()
        {
            return;
        }
        let topology = other.unwrap_or_else(|| Arc::clone(machine));
        let usable = topology.usable();
        self.usable = match &self.pus {
            Some(pus) => usable.and(pus),
            None => usable,
        };
        self.units = Arc::new(self.processor.unit_domains(&topology));
        self.topology = topology;
    }

    /// Threads whose masks must be read before an observation is taken in: perch could not change their masks, or knows
    /// none of them.
    pub fn unread(&self, observation: &Observation) -> Vec<ThreadId> {
        let ended: FxHashSet<ThreadId> = observation.ended.iter().copied().collect();
        let late: FxHashSet<ThreadId> = observation.read_late.iter().map(|(id, _)| *id).collect();
        let unread = observation.threads.iter().filter(|sample| {
            let id = sample.info.id;
            sample.mask.is_none()
                && (self.refused.contains(&id) || self.ownership.get(id).is_none())
                && !ended.contains(&id)
                && !late.contains(&id)
        });
        unread.map(|sample| sample.info.id).collect()
    }

    /// Brings topology, ownership and processes up to date. `allowed` asks for the PUs that are online and in a thread's
    /// own CPU set.
    pub fn take_in(
        &mut self,
        observation: &Observation,
        allowed: &dyn Fn(ThreadId) -> Option<PuSet>,
    ) -> Taken {
        if let Some(topology) = &observation.topology {
            self.learn_topology(topology, None);
        }
        if let Some(default) = &observation.default {
            self.ownership.set_default(default.clone());
        }
        self.refused.clear();
        self.irqs.observe(&observation.irqs);
        self.settings.observe(&observation.settings);
        self.ways.forget(&observation.ended);
        let mut taken = Taken {
            nices: self.nices.observe(observation),
            settings: self.settings.take_released(),
            irqs: self.irqs.take_released(),
            noticed: self
                .ownership
                .observe(observation, &self.machine_usable, allowed),
            ..Taken::default()
        };
        let mut pids: FxHashSet<i32> = FxHashSet::default();
        // The observation still lists them, with what they did last.
        let ended: FxHashSet<ThreadId> = observation.ended.iter().copied().collect();
        let mut first_sampled = Vec::new();
        let mut own = BTreeMap::new();
        for sample in &observation.threads {
            let (id, pid) = (sample.info.id, sample.info.pid);
            if !ended.contains(&id) {
                pids.insert(pid);
            }
            own.insert(id, pid);
            // Of one that came and went unseen, only what it did is known: there is nothing to restore in it.
            let unseen = ended.contains(&id) && sample.mask.is_none();
            if id.tid == pid && !unseen {
                let start = id.start;
                first_sampled.push(ProcessId { pid, start });
            }
        }
        for (id, mask) in &observation.read_late {
            let pid = own.get(id).copied().unwrap_or(0);
            let noticed = self.ownership.learn(*id, pid, mask, allowed);
            taken.noticed.extend(noticed);
        }
        self.take_in_reported(observation, &own, &mut taken);
        for process in first_sampled {
            if self.processes.insert(process.pid, process) != Some(process) {
                taken.processes.push(process);
            }
        }
        if let Some(dry_run) = &mut self.dry_run {
            observation.ended.iter().for_each(|thread| {
                dry_run.bound.remove(thread);
            });
        }
        if !observation.ended.is_empty() {
            pids.extend(self.unsampled.keys());
            taken.ended = self.part_with(&pids, observation.at);
        }
        taken.seen = self.ownership.take_seen();
        self.departed(observation.at, &mut taken);
        self.observations += 1;
        taken
    }

    /// Takes in the processes of which the observation reports the state: a process whose first thread has ended shows
    /// nowhere else. A state may come before any sample of the process, while nothing is known of its threads' masks.
    /// `sampled` are the threads with a sample, each with its process.
    fn take_in_reported(
        &mut self,
        observation: &Observation,
        sampled: &BTreeMap<ThreadId, i32>,
        taken: &mut Taken,
    ) {
        if observation.processes.is_empty() && self.unsampled.is_empty() {
            return;
        }
        let sampled: FxHashSet<i32> = sampled.values().copied().collect();
        for process in observation.processes.iter().map(|state| state.process) {
            if self.processes.insert(process.pid, process) != Some(process) {
                self.unsampled.insert(process.pid, self.observations);
                if !sampled.contains(&process.pid) {
                    taken.unsampled.push(process);
                }
            }
        }
        let (processes, observations) = (&self.processes, self.observations);
        self.unsampled.retain(|pid, told| {
            if sampled.contains(pid) {
                taken.processes.extend(processes.get(pid));
                return false;
            }
            // A process that no sample ever shows has ended.
            *told + LINGER_OBSERVATIONS > observations
        });
    }

    /// Whether a thread of this process has been sampled.
    pub fn is_sampled(&self, pid: i32) -> bool {
        !self.unsampled.contains_key(&pid)
    }

    /// Processes of which no thread is left are known for a while yet.
    fn part_with(&mut self, live: &FxHashSet<i32>, at: u64) -> Vec<ProcessId> {
        let mut ended = Vec::new();
        let (departing, ownership) = (&mut self.departing, &self.ownership);
        let observations = self.observations + LINGER_OBSERVATIONS;
        self.processes.retain(|pid, process| {
            let lives = live.contains(pid);
            if !lives {
                ended.push(*process);
                departing.push_back(Departing {
                    process: *process,
                    target: ownership.target(*pid),
                    observations,
                    at: at + LINGER,
                });
            }
            lives
        });
        ended
    }

    fn departed(&mut self, at: u64, taken: &mut Taken) {
        let mut targets = BTreeSet::new();
        while let Some(departing) = self.departing.front().copied()
            && departing.observations <= self.observations
            && departing.at <= at
        {
            self.departing.pop_front();
            self.ownership.forget_process(departing.process);
            taken.departed.push(departing.process);
            targets.insert(departing.target);
        }
        if !targets.is_empty() {
            let live = self.processes.keys().map(|pid| self.ownership.target(*pid));
            let departing = self.departing.iter().map(|departing| departing.target);
            let left: FxHashSet<u32> = live.chain(departing).collect();
            taken.emptied = targets
                .into_iter()
                .filter(|target| !left.contains(target))
                .collect();
        }
    }

    /// What is known after one observation.
    pub fn tick(&mut self, observation: &Observation, remarks: &mut Vec<Remark>) -> Snapshot {
        // Observations are counted when they are taken in.
        let number = self.observations.saturating_sub(1);
        self.characterise(observation, Span::One, number, remarks)
    }

    /// Keeps an observation for the next decision.
    pub fn keep(&mut self, observation: &Observation) {
        let pending = match &mut self.pending {
            Some(pending) => {
                pending.absorb(observation);
                pending
            }
            None => self.pending.insert(observation.clone()),
        };
        // A policy that never answers must not make perch grow.
        pending.retain_live();
    }

    /// What the policy may know: all observations since it was asked last, of which this is the last one, with its own
    /// snapshot. It counts how often it is asked.
    pub fn basis(
        &mut self,
        observation: &Observation,
        snapshot: &Arc<Snapshot>,
        remarks: &mut Vec<Remark>,
    ) -> Arc<Snapshot> {
        let number = self.decisions;
        self.decisions += 1;
        if let Some(mut pending) = self.pending.take() {
            pending.absorb(observation);
            return Arc::new(self.characterise(&pending, Span::Several, number, remarks));
        }
        let mut basis = Arc::clone(snapshot);
        if basis.period != number {
            Arc::make_mut(&mut basis).period = number;
        }
        basis
    }

    fn characterise(
        &mut self,
        observation: &Observation,
        span: Span,
        number: u64,
        remarks: &mut Vec<Remark>,
    ) -> Snapshot {
        let context = Context {
            processor: &*self.processor,
            ownership: &self.ownership,
            topology: &self.topology,
            usable: &self.usable,
            units: &self.units,
            dry_run: self.dry_run.as_ref(),
            irqs: &self.irqs,
            irq_pus: &self.irq_pus,
            settings: &self.settings,
            last_outcomes: self.outcomes.clone(),
            number,
            span,
        };
        let (snapshot, noticed) = self.characteriser.snapshot(observation, context);
        remarks.extend(noticed);
        snapshot
    }

    /// The policy has been told of all outcomes so far.
    pub fn told(&mut self) {
        self.outcomes.clear();
    }

    /// What a plan changes, with what is wrong in it taken out. `basis` is what the policy knew, `present` what is known
    /// now, if that is later.
    pub fn moves(
        &self,
        plan: &mut Plan,
        policy: &str,
        basis: &Snapshot,
        present: Option<&Snapshot>,
        remarks: &mut Vec<Remark>,
    ) -> Vec<Move> {
        remarks.extend(plan_check::check(plan, basis, policy));
        remarks.extend(irqs::check(plan, basis, policy));
        remarks.extend(weights::check(plan, basis, policy));
        remarks.extend(ways::check(plan, basis, policy));
        remarks.extend(settings::check(plan, basis, policy));
        if let Some(present) = present {
            plan_check::drop_outdated(plan, present);
            irqs::drop_outdated(plan, present);
            settings::drop_outdated(plan, present);
        }
        plan_check::difference(plan, present.unwrap_or(basis))
    }

    /// What a plan that [`Control::moves`] has checked changes of interrupts.
    pub fn irq_moves(&self, plan: &Plan, present: &Snapshot) -> Vec<IrqMove> {
        irqs::difference(plan, present)
    }

    /// What a plan that [`Control::moves`] has checked changes of settings.
    pub fn setting_moves(&self, plan: &Plan, present: &Snapshot) -> Vec<SettingMove> {
        settings::difference(plan, present)
    }

    /// Takes in what became of moves of interrupts.
    pub fn irqs_moved(&mut self, moves: &[IrqMove]) {
        let dry_run = self.dry_run.is_some();
        for made in moves {
            self.irqs.moved(made, dry_run);
        }
    }

    /// Takes in what became of changes of settings.
    pub fn settings_moved(&mut self, moves: &[SettingMove]) {
        let dry_run = self.dry_run.is_some();
        for made in moves {
            self.settings.moved(made, dry_run);
        }
    }

    /// Takes in what became of a plan's moves.
    pub fn moved(&mut self, moves: &[Move]) {
        if let Some(dry_run) = &mut self.dry_run {
            for made in moves {
                match &made.to {
                    Some(pus) => dry_run.bound.insert(made.thread, pus.clone()),
                    None => dry_run.bound.remove(&made.thread),
                };
            }
        }
        for made in moves {
            self.outcomes.push((made.thread, made.outcome));
            if made.outcome == Outcome::ChangedByOthers {
                self.refused.insert(made.thread);
            }
        }
    }

    /// Forgets all that belongs to a target.
    pub fn forget_target(&mut self, target: u32) {
        let of_target: Vec<ProcessId> = self
            .processes
            .values()
            .filter(|process| self.ownership.target(process.pid) == target)
            .copied()
            .collect();
        self.ownership.forget_target(target);
        let pids: FxHashSet<i32> = of_target.iter().map(|process| process.pid).collect();
        self.nices.forget(&pids);
        if let Some(pending) = &mut self.pending {
            pending
                .threads
                .retain(|sample| !pids.contains(&sample.info.pid));
        }
        for process in of_target {
            self.processes.remove(&process.pid);
            self.unsampled.remove(&process.pid);
            self.ownership.forget_process(process);
        }
    }
}
