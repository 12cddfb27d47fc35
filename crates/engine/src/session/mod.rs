//! One run of perch over one machine: wait, observe, conclude, decide, journal, apply, publish.
//!
//! What is concluded is the work of `control`, what is changed that of `reconcile`; this file puts them in order.

mod commands;
mod options;
mod ramp;
mod wants;

pub use options::{Acting, Options};

use crate::{
    characterise::DryRun,
    command::{Handle, Queued, queue},
    control::Control,
    decider::{Decider, Deciding},
    journal::state_dir::StateDirError,
    observer::{
        ActionTaken, Cause, Decision, IrqMove, Move, Period, SessionEnd, SessionSink, SettingMove,
        Start,
    },
    ownership::Ownership,
    publish::{Published, Publisher},
    reconcile::Reconciler,
    restore::RestoreReport,
};
use perch_core::{Machine, MachineError, Observation, PuSet, Remark, Snapshot, Wake};
use ramp::Ramp;
use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{Arc, mpsc::Receiver},
    time::Duration,
};
use wants::Wants;

/// A session that cannot go on. What it had changed is undone.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The machine cannot go on.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The machine failed, and some masks could not be restored, so the journal is kept.
    #[error(
        "{error}\nNot everything that perch set could be restored: {}. Run `perch restore` as root",
        names(left)
    )]
    LeftBehind {
        /// The error that ended the session.
        error: MachineError,
        /// What was restored and what was not.
        left: Box<RestoreReport>,
    },
    /// The directory of the journal cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
}

/// The threads, interrupts and settings of a report that could not be restored, and why.
fn names(left: &RestoreReport) -> String {
    let threads = left.masks.failed.iter().chain(&left.weights.failed);
    let threads = threads.map(|(thread, why)| match thread {
        Some(thread) => format!("thread {thread} ({why})"),
        None => why.clone(),
    });
    let irqs = left.irqs.failed.iter().map(|(irq, why)| match irq {
        Some(irq) => format!("IRQ {irq} ({why})"),
        None => why.clone(),
    });
    let settings = left.settings.failed.iter();
    let settings = settings.map(|(setting, why)| match setting {
        Some(setting) => format!("{setting} ({why})"),
        None => why.clone(),
    });
    let all = threads.chain(irqs).chain(settings);
    all.collect::<Vec<_>>().join(", ")
}

/// What a decision changed.
#[derive(Default)]
struct Changed {
    moves: Vec<Move>,
    irqs: Vec<IrqMove>,
    settings: Vec<SettingMove>,
    actions: Vec<ActionTaken>,
}

/// One run of perch over one machine.
///
/// [`Session::run`] drives it to its end. Others may drive it themselves, with [`Session::begin`], [`Session::step`] for
/// each observation, [`Session::obey`] for commands, and [`Session::finish`].
pub struct Session<M: Machine> {
    machine: M,
    control: Control,
    /// `None` in a dry run.
    reconciler: Option<Reconciler>,
    decider: Decider,
    deciding: Deciding,
    period: Duration,
    /// Whether the period stays what it is under another policy.
    given_period: bool,
    interval: Duration,
    /// The interval that was asked for, if any.
    given_interval: Option<Duration>,
    /// What the machine observes for the policy.
    wants: Wants,
    ramp: Ramp,
    take_over: bool,
    paused: bool,
    /// When the policy was last asked, in nanoseconds since the machine was opened, and the number of the observation.
    decided: u64,
    asked_in: u64,
    /// What commands have to tell, for the next period.
    remarks: Vec<Remark>,
    publisher: Publisher,
    /// Attached processes, each with its target, in the order in which they were attached: the first one of a target is
    /// its root.
    attached: Vec<(i32, u32)>,
    handle: Handle,
    commands: Receiver<Queued>,
}

impl<M: Machine> Session<M> {
    /// Prepares a session and configures what the machine counts. Programs are launched or attached on
    /// [`Session::machine`] before it runs, or by [`Command::Attach`](crate::Command::Attach) while it does.
    ///
    /// # Errors
    /// A machine that cannot count, a /proc that cannot be read.
    pub fn new(mut machine: M, options: Options) -> Result<Self, SessionError> {
        let wants = Wants::of(&*options.policy, &*options.processor);
        wants.configure(&mut machine)?;
        let default = machine.default_mask();
        let (reconciler, dry_run, other) = match options.acting {
            Acting::Live(dir) => (Some(Reconciler::new(dir, default.clone())?), None, None),
            Acting::DryRun(other) => {
                let dry_run = DryRun {
                    elsewhere: other.is_some(),
                    ..DryRun::default()
                };
                (None, Some(dry_run), other)
            }
        };
        let ownership = Ownership::new(default, options.take_over);
        let topology = machine.topology();
        let control = Control::new(
            options.processor,
            ownership,
            options.pus,
            dry_run,
            (&topology, other),
        );
        let period = options.period.unwrap_or_else(|| options.policy.period());
        let (handle, commands) = queue();
        Ok(Self {
            machine,
            control,
            reconciler,
            decider: Decider::new(options.policy, options.deciding),
            deciding: options.deciding,
            period,
            given_period: options.period.is_some(),
            interval: options.interval.unwrap_or(period).min(period),
            given_interval: options.interval,
            ramp: Ramp::of(&wants),
            wants,
            take_over: options.take_over,
            paused: false,
            decided: 0,
            asked_in: 0,
            remarks: Vec::new(),
            publisher: Publisher::default(),
            attached: Vec::new(),
            handle,
            commands,
        })
    }

    /// The machine, to launch or attach programs.
    pub fn machine(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Sends commands to this session, from any thread.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Every finished period from now on, for another thread; up to `capacity` of them wait, more are lost and counted.
    pub fn subscribe(&mut self, capacity: usize) -> Receiver<Published> {
        self.publisher.subscribe(capacity)
    }

    /// The session's mark, to be put into the launched program's environment; `None` where nothing is changed.
    pub fn mark(&self) -> Option<&str> {
        Some(self.reconciler.as_ref()?.session())
    }

    /// The clock by which threads' starts are counted, in ticks: for machines whose threads do not start on Linux.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        if let Some(reconciler) = &mut self.reconciler {
            reconciler.clock = clock;
        }
    }

    /// Runs until every thread has ended or the user stops it; then every thread has its mask back.
    ///
    /// # Errors
    /// A machine that cannot go on. Masks are restored before this returns.
    pub fn run(&mut self, observer: &mut dyn SessionSink) -> Result<SessionEnd, SessionError> {
        observer.start(&self.begin());
        let ended = self.periods(observer);
        let end = self.finish(ended)?;
        observer.end(&end);
        Ok(end)
    }

    /// Settings and machine of the session, for its sinks.
    pub fn begin(&mut self) -> Start {
        let start = Start {
            topology: Arc::clone(&self.control.topology),
            machine: self.machine.topology(),
            policy: self.decider.name().to_owned(),
            profile: self.control.processor().name().to_owned(),
            profile_text: self.control.processor().text().to_owned(),
            period: self.period,
            interval: self.interval,
            counting: self.machine.counting(),
            default_mask: self.control.ownership.default_mask().clone(),
            dry_run: self.reconciler.is_none(),
            take_over: self.take_over,
            pus: self.control.pus.clone(),
        };
        self.publisher.start(start.clone());
        start
    }

    fn periods(&mut self, observer: &mut dyn SessionSink) -> Result<Cause, MachineError> {
        loop {
            let wake = self.machine.wait(self.ramp.next(self.interval))?;
            let commanded = self.obey();
            let observation = self.machine.observe()?;
            let ending = match wake {
                Wake::Period => commanded,
                Wake::Ended(status) => Some(Cause::Ended(status)),
                Wake::Stop(signal) => Some(Cause::Stopped(signal)),
            };
            observer.period(&self.step(observation, ending.is_some()));
            if let Some(cause) = ending {
                return Ok(cause);
            }
        }
    }

    /// Gives every thread its mask back.
    ///
    /// # Errors
    /// The error with which the session ended, if there was one.
    pub fn finish(
        &mut self,
        ended: Result<Cause, MachineError>,
    ) -> Result<SessionEnd, SessionError> {
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
            periods: self.control.observations,
            counting: self.machine.counting(),
            restored,
        };
        self.publisher.end(&end);
        Ok(end)
    }

    /// Takes in one observation, which was made after the last [`Session::obey`], decides if a period is over, and makes the
    /// changes. The `last` observation of a session decides nothing, but for a dry run that has not yet told what it would do
    /// to the operating system's work.
    pub fn step(&mut self, mut observation: Observation, last: bool) -> Arc<Period> {
        let mut remarks = std::mem::take(&mut self.remarks);
        remarks.extend(observation.remarks.iter().cloned());
        self.take_in(&mut observation, &mut remarks);
        let observation = Arc::new(observation);
        let snapshot = Arc::new(self.control.tick(&observation, &mut remarks));
        let decides = !self.paused && (!last || self.owes_a_list());
        let mut decision = match decides {
            true => self.decide(&observation, &snapshot, &mut remarks),
            false => None,
        };
        let changed = match &mut decision {
            Some(decision) => self.act(decision, &snapshot, &mut remarks),
            None => Default::default(),
        };
        self.control.limiter.limit(observation.at, &mut remarks);
        let period = Arc::new(Period {
            observation,
            snapshot,
            decision,
            moves: changed.moves,
            irq_moves: changed.irqs,
            setting_moves: changed.settings,
            actions: changed.actions,
            remarks,
            last,
        });
        self.publisher.period(&period);
        period
    }

    /// Completes an observation with what must be asked for, concludes from it, and journals that. Everything that was
    /// concluded from is in the observation then.
    fn take_in(&mut self, observation: &mut Observation, remarks: &mut Vec<Remark>) {
        let affinity = &*self.machine.affinity();
        for thread in self.control.unread(observation) {
            if let Ok(mask) = affinity.mask(thread) {
                observation.read_late.push((thread, mask));
            }
        }
        let known: RefCell<BTreeMap<_, _>> = RefCell::new(
            std::mem::take(&mut observation.allowed)
                .into_iter()
                .collect(),
        );
        let allowed = |thread| {
            if let Some(pus) = known.borrow().get(&thread) {
                return Some(PuSet::clone(pus));
            }
            let pus = affinity.allowed(thread)?;
            known.borrow_mut().insert(thread, pus.clone());
            Some(pus)
        };
        let taken = self.control.take_in(observation, &allowed);
        observation.allowed = known.into_inner().into_iter().collect();
        if let Some(reconciler) = &mut self.reconciler {
            reconciler.note(&taken, &observation.ended, &self.control, affinity, remarks);
        }
        self.part_with(&taken.emptied);
    }

    /// What the policy asks for now, if anything.
    fn decide(
        &mut self,
        observation: &Observation,
        snapshot: &Arc<Snapshot>,
        remarks: &mut Vec<Remark>,
    ) -> Option<Decision> {
        let asked_in = self.asked_in;
        let late = self.decider.late().map(|(basis, plan)| Decision {
            basis,
            asked_in,
            plan,
        });
        if !self.is_due(observation.at) {
            self.control.keep(observation);
            return late;
        }
        if self.decider.is_busy() {
            let text = format!(
                "policy {} needs more than its period of {:?} to decide: threads are placed late; give it more time \
                 (--period)",
                self.decider.name(),
                self.period
            );
            remarks.push(Remark::warning("policy-slow", text));
            self.control.keep(observation);
            return late;
        }
        (self.decided, self.asked_in) = (observation.at, snapshot.period);
        let basis = self.control.basis(observation, snapshot, remarks);
        self.control.told();
        match self.decider.ask(&basis) {
            Some(plan) => Some(Decision {
                basis,
                asked_in: self.asked_in,
                plan,
            }),
            None => late,
        }
    }

    /// Whether this is a dry run of a policy for the operating system's work that was not yet asked: users want to know what
    /// it would move, however short the program is.
    fn owes_a_list(&self) -> bool {
        self.reconciler.is_none() && self.wants.system && self.decided == 0
    }

    /// Whether a period is over; where observations come a little early, with the one that is nearest.
    fn is_due(&self, at: u64) -> bool {
        let since = u128::from(at.saturating_sub(self.decided));
        self.ramp.was_short()
            || self.owes_a_list()
            || self.interval >= self.period
            || since + self.interval.as_nanos() / 2 >= self.period.as_nanos()
    }

    /// Makes the changes that a decision asks for.
    fn act(
        &mut self,
        decision: &mut Decision,
        snapshot: &Arc<Snapshot>,
        remarks: &mut Vec<Remark>,
    ) -> Changed {
        let present = (!Arc::ptr_eq(&decision.basis, snapshot)).then_some(&**snapshot);
        let name = self.decider.name();
        remarks.extend(decision.plan.remarks.iter().cloned());
        let (basis, plan) = (&decision.basis, &mut decision.plan);
        let mut moves = self.control.moves(plan, name, basis, present, remarks);
        let plan = &decision.plan;
        let mut irqs = self.control.irq_moves(plan, snapshot);
        let mut settings = self.control.setting_moves(plan, snapshot);
        let mut actions = self.control.actions(plan);
        if let Some(reconciler) = &mut self.reconciler {
            reconciler.apply(&mut self.control, &mut self.machine, &mut moves, remarks);
            let affinity = self.machine.affinity();
            affinity.place_own(plan.own.as_ref());
            reconciler.apply_irqs(&self.control.irqs, affinity, &mut irqs, remarks);
            let known = &self.control.settings;
            reconciler.apply_settings(known, affinity, &mut settings, remarks);
            let (control, machine) = (&mut self.control, &mut self.machine);
            reconciler.apply_actions(control, machine, &mut actions, remarks);
            let affinity = self.machine.affinity();
            self.control.ways.apply(affinity, &mut actions, remarks);
        } else {
            self.control.actions_in_dry_run(&actions);
        }
        self.control.moved(&moves);
        self.control.irqs_moved(&irqs);
        self.control.settings_moved(&settings);
        Changed {
            moves,
            irqs,
            settings,
            actions,
        }
    }

    fn give_back(&mut self) -> RestoreReport {
        let affinity = self.machine.affinity();
        affinity.place_own(None);
        self.control.ways.give_back(affinity, |_| true);
        match &mut self.reconciler {
            Some(reconciler) => reconciler.give_back(&mut self.machine),
            None => RestoreReport::default(),
        }
    }
}

/// A panic must not leave masks behind.
impl<M: Machine> Drop for Session<M> {
    fn drop(&mut self) {
        self.give_back();
    }
}
