//! PS-Sched-1 and PS-Sched-2: the work of the operating system goes to one PU or core, and that one, or all others, run
//! more slowly (R. E. Grant, A. Afsahi, "Improving energy efficiency of asymmetric chip multithreaded multiprocessors
//! through reduced OS noise scheduling", 2009, sections 5 and 6).
//!
//! The operating system's work is everything that does not belong to a program which was given to perch (section 5).

mod clocks;
mod config;
mod search;

pub use config::{Clock, PsSchedConfig};

use crate::{busy::is_busy, nothing::nothing_to_place};
use perch_core::{
    Binding, IrqBinding, Plan, Policy, PuSet, Reason, Remark, Setting, SettingBinding,
    SettingState, SettingValue, Snapshot, ThreadId, ThreadState, Unmanaged, Work, metric::names,
};
use search::{Search, Took};
use std::collections::BTreeMap;

/// Clocks of the paper's best results (section 8), as parts of its highest one of 2.8 GHz: 2.1 GHz for PS-Sched-1 and
/// 2.4 GHz for PS-Sched-2.
const BEST_CLOCK_1: Clock = Clock::Share(0.75);
const BEST_CLOCK_2: Clock = Clock::Share(0.86);

/// How many of the busiest threads that cannot be moved a remark names.
const NAMED: usize = 3;

/// Which of the two methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Programs keep off the operating system's PUs, which run more slowly (section 6.1).
    One,
    /// One thread of each program may run on them, and all other PUs run more slowly (section 6.2).
    Two,
}

/// PS-Sched-1 or PS-Sched-2.
#[derive(Debug, Clone)]
pub struct PsSched {
    method: Method,
    config: PsSchedConfig,
    clock: Clock,
    search: Search,
    /// The thread of each program that runs on the operating system's PUs, by target.
    beside: BTreeMap<u32, ThreadId>,
}

impl PsSched {
    /// The method with these options, which [`PsSchedConfig::check`] must accept.
    pub fn new(method: Method, config: PsSchedConfig) -> Self {
        let best = match method {
            Method::One => BEST_CLOCK_1,
            Method::Two => BEST_CLOCK_2,
        };
        let clock = config.clock().ok().flatten().unwrap_or(best);
        let goal = config.goal().unwrap_or(search::Goal::EnergyDelay);
        Self {
            method,
            clock,
            search: Search::new(goal, config.max_slowdown),
            config,
            beside: BTreeMap::new(),
        }
    }

    /// The clock for the PUs that are slowed down, and what the user should know of a search.
    fn clock(&mut self, snapshot: &Snapshot, slow: &PuSet) -> (Clock, Option<Remark>) {
        if self.clock != Clock::Search {
            return (self.clock, None);
        }
        let programs = snapshot.threads.iter();
        let mut programs = programs.filter(|thread| thread.info.work.is_program());
        if snapshot.energy.is_some() && programs.all(|thread| thread.activity == 0.0) {
            // Nothing ran, so nothing was counted: that says nothing of a clock.
            self.search.pause();
            return (Clock::Share(self.search.share()), None);
        }
        let (Some(energy), Some(work)) = (snapshot.energy, instructions(snapshot)) else {
            let lacks = match snapshot.energy {
                None => {
                    "the processor packages have no counter of energy that can be read (`perch modules energy`)"
                }
                Some(_) => {
                    "there are no hardware counters that count instructions (`perch events`)"
                }
            };
            let text = format!("clock = \"search\": {lacks}; clocks stay as they are");
            return (Clock::Keep, Some(Remark::warning("no-search", text)));
        };
        let took = Took {
            energy,
            work,
            time: snapshot.interval as f64 / 1e9,
        };
        let points = clocks::points(&snapshot.settings, slow);
        let remark = self.search.period(points, took);
        (Clock::Share(self.search.share()), remark)
    }

    /// Chooses threads that run beside the operating system: as many as have no PU of their own without that, but one of
    /// each program at most, the first busy one, for as long as it is busy.
    fn choose(&mut self, snapshot: &Snapshot, system: &PuSet, rest: &PuSet) {
        let least = self.config.min_activity;
        let busy = snapshot.threads.iter();
        let busy: Vec<&ThreadState> = busy
            .filter(|thread| thread.info.work.is_program() && is_busy(thread, least))
            .collect();
        let needed = busy.len().saturating_sub(rest.len());
        // One that leaves would have to share a PU with the next thread that wakes up.
        let kept = match busy.len() < rest.len() {
            true => 0,
            false => needed + 1,
        };
        let may = |thread: &&&ThreadState| {
            thread.unmanaged.is_none() && !thread.allowed.is_disjoint(system)
        };
        let present = std::mem::take(&mut self.beside);
        for thread in busy.iter().filter(may) {
            let id = thread.info.id;
            if present.get(&thread.target) == Some(&id) && self.beside.len() < kept {
                self.beside.insert(thread.target, id);
            }
        }
        for thread in busy.iter().filter(may) {
            if self.beside.len() < needed {
                self.beside.entry(thread.target).or_insert(thread.info.id);
            }
        }
    }

    /// Where a thread of a program shall run, and why.
    fn of_program(&self, thread: &ThreadState, system: &PuSet, rest: &PuSet) -> (PuSet, Reason) {
        if self.beside.get(&thread.target) == Some(&thread.info.id) {
            return (
                thread.allowed.and(system),
                Reason::new("runs beside the operating system, at full speed"),
            );
        }
        let text = match self.method {
            Method::One => "keeps off the PUs of the operating system",
            Method::Two => "leaves the PUs of the operating system to one thread of the program",
        };
        (thread.allowed.and(rest), Reason::new(text))
    }

    fn bindings(&self, snapshot: &Snapshot, system: &PuSet, rest: &PuSet) -> Vec<Binding> {
        let binding = |thread: &ThreadState| {
            if thread.unmanaged.is_some() || thread.info.work == Work::SystemFixed {
                return None;
            }
            let (pus, reason) = match thread.info.work.is_program() {
                true => self.of_program(thread, system, rest),
                false => (
                    thread.allowed.and(system),
                    Reason::new("work of the operating system"),
                ),
            };
            // One that may run only there anyway needs no binding.
            let gains = !pus.is_empty() && pus != thread.allowed;
            gains.then(|| Binding {
                thread: thread.info.id,
                pus,
                reason: reason.with("activity", thread.activity),
            })
        };
        snapshot.threads.iter().filter_map(binding).collect()
    }

    fn irqs(snapshot: &Snapshot, system: &PuSet) -> Vec<IrqBinding> {
        let irqs = snapshot.irqs.iter().filter_map(|load| {
            let pus = load.allowed.and(system);
            (!pus.is_empty() && pus != load.allowed).then(|| IrqBinding {
                irq: load.irq,
                pus,
                reason: Reason::new("interrupts are work of the operating system"),
                step: None,
            })
        });
        irqs.collect()
    }

    /// Work queues and new interrupts run on the operating system's PUs, unless an administrator has said where.
    fn queues(snapshot: &Snapshot, system: &PuSet) -> Vec<SettingBinding> {
        let online = snapshot.topology.online();
        let free = |state: &&SettingState| {
            let holds = matches!(state.setting, Setting::WorkQueues | Setting::NewIrqs);
            let whole = matches!(&state.before, SettingValue::Pus(pus) if online.is_subset(pus));
            holds && whole && !state.foreign && online != *system
        };
        let states = snapshot.settings.iter().filter(free);
        states
            .map(|state| SettingBinding {
                setting: state.setting.clone(),
                value: SettingValue::Pus(system.clone()),
                reason: Reason::new(match state.setting {
                    Setting::NewIrqs => "interrupts are work of the operating system",
                    _ => "work queues are work of the operating system",
                }),
            })
            .collect()
    }

    /// What stays on the programs' PUs, and what it costs there.
    fn left(snapshot: &Snapshot, system: &PuSet, rest: &PuSet) -> Vec<Remark> {
        let mut remarks = Vec::new();
        let elsewhere = |thread: &ThreadState| {
            !thread.info.work.is_program()
                && (thread.unmanaged.is_some()
                    || thread.info.work == Work::SystemFixed
                    || thread.allowed.is_disjoint(system))
                && thread.last_pu.is_some_and(|pu| rest.contains(pu))
                && thread.activity > 0.0
        };
        let mut left: Vec<&ThreadState> = snapshot
            .threads
            .iter()
            .filter(|thread| elsewhere(thread))
            .collect();
        if !left.is_empty() {
            left.sort_by(|a, b| b.activity.total_cmp(&a.activity));
            let all: f64 = left.iter().map(|thread| thread.activity).sum();
            let names: Vec<String> = left
                .iter()
                .take(NAMED)
                .map(|thread| format!("{} ({})", thread.info.name, why_left(thread)))
                .collect();
            let more = match left.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let text = format!(
                "{} % of a PU is work of the operating system on PU {rest} that cannot be moved: {}{more}",
                rounded(100.0 * all),
                names.join(", ")
            );
            remarks.push(Remark::note("not-moved", text).keyed("threads"));
        }
        let rate = |load: &perch_core::IrqLoad| {
            let rates = load.rates.iter().filter(|(pu, _)| rest.contains(*pu));
            rates.map(|(_, rate)| rate).sum::<f64>()
        };
        let fixed: Vec<(u32, f64)> = snapshot
            .irqs
            .iter()
            .filter(|load| load.allowed.is_disjoint(system))
            .map(|load| (load.irq, rate(load)))
            .filter(|(_, rate)| *rate > 0.0)
            .collect();
        if !fixed.is_empty() {
            let names: Vec<String> = fixed.iter().map(|(irq, _)| irq.to_string()).collect();
            let all: f64 = fixed.iter().map(|(_, rate)| rate).sum();
            let text = format!(
                "{} interrupts a second come on PU {rest} and cannot be moved: IRQ {}",
                rounded(all),
                names.join(", ")
            );
            remarks.push(Remark::note("not-moved", text).keyed("interrupts"));
        }
        remarks
    }

    /// Whether the programs have more busy threads than PUs: then some share a PU, whatever the operating system does.
    fn crowded(&self, snapshot: &Snapshot, rest: &PuSet) -> Option<Remark> {
        let least = self.config.min_activity;
        let program = |thread: &&ThreadState| thread.info.work.is_program();
        let busy = snapshot.threads.iter().filter(program);
        let busy = busy.filter(|thread| is_busy(thread, least)).count();
        let room = rest.len() + self.beside.len();
        (busy > room).then(|| {
            let text = match self.method {
                Method::One => format!(
                    "{busy} busy threads share {room} PUs, since PS-Sched-1 keeps programs off the operating system's: \
                     start the program with {room} threads (OMP_NUM_THREADS={room}), or use ps-sched-2"
                ),
                Method::Two => format!("{busy} busy threads share {room} PUs"),
            };
            Remark::note("crowded", text).keyed(format!("{busy} on {room}"))
        })
    }
}

/// Instructions of the programs' threads in the period; `None` if none was counted.
fn instructions(snapshot: &Snapshot) -> Option<f64> {
    let programs = snapshot.threads.iter();
    let programs = programs.filter(|thread| thread.info.work.is_program());
    let counted = programs.filter_map(|thread| thread.metrics.value(names::INSTRUCTIONS));
    counted.fold(None, |sum, count| Some(sum.unwrap_or(0.0) + count))
}

/// One digit behind the point where there is little.
fn rounded(number: f64) -> String {
    match number < 10.0 {
        true => format!("{number:.1}"),
        false => format!("{number:.0}"),
    }
}

fn why_left(thread: &ThreadState) -> &'static str {
    match thread.unmanaged {
        _ if thread.info.work == Work::SystemFixed => "the kernel keeps it where it is",
        Some(Unmanaged::PlacedBefore) => "it was bound before",
        Some(Unmanaged::ChangedByOthers) => "others have bound it",
        Some(Unmanaged::NotPermitted) => "the kernel refuses",
        Some(Unmanaged::Unknown) => "it may have been bound by others",
        None => "its CPU set has none of the operating system's PUs",
    }
}

impl Policy for PsSched {
    fn name(&self) -> &'static str {
        match self.method {
            Method::One => "ps-sched-1",
            Method::Two => "ps-sched-2",
        }
    }

    fn needs(&self) -> &'static [&'static str] {
        match self.clock {
            Clock::Search => &[names::INSTRUCTIONS],
            _ => &[],
        }
    }

    fn wants_irqs(&self) -> bool {
        true
    }

    fn wants_settings(&self) -> bool {
        true
    }

    fn wants_system(&self) -> bool {
        true
    }

    fn decides_at_once(&self) -> bool {
        self.method == Method::One
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let topology = &snapshot.topology;
        let system = self.config.system_pus(topology);
        let rest = topology.usable().minus(&system);
        if system.is_empty() || rest.is_empty() {
            let text = format!(
                "PU {} is all that can be used: nothing is left to keep free of the operating system's work",
                topology.usable()
            );
            return Plan {
                remarks: vec![nothing_to_place(text)],
                ..Plan::default()
            };
        }
        if self.method == Method::Two {
            self.choose(snapshot, &system, &rest);
        }
        let (slow, why) = match self.method {
            Method::One => (&system, "the operating system's work needs no full speed"),
            Method::Two => (
                &rest,
                "the PU that also does the operating system's work stays ahead",
            ),
        };
        let (clock, told) = self.clock(snapshot, slow);
        let (clocks, mut remarks) = clocks::slowed(&snapshot.settings, slow, clock, why);
        remarks.extend(told);
        remarks.extend(Self::left(snapshot, &system, &rest));
        remarks.extend(self.crowded(snapshot, &rest));
        let mut settings = Self::queues(snapshot, &system);
        settings.extend(clocks);
        Plan {
            bindings: self.bindings(snapshot, &system, &rest),
            irqs: Self::irqs(snapshot, &system),
            settings,
            own: Some(system),
            remarks,
            ..Plan::default()
        }
    }
}
