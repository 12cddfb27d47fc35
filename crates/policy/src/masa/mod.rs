//! Micro-Architectural Scheduling Assist: swaps threads between packages so that no shared resource is overrun in one of
//! them while another has room.
//!
//! MASA (Nakajima and Pallipadi), sections 4 and 4.2: loads are vectors, one number a load metric; each metric is checked by itself, in the
//! order of what the resource costs when it is shared, against the limit that one program alone reaches.

mod config;
mod field;
mod load;
mod swap;

pub use config::{BUILT_IN, GivenLimit, MasaConfig, Variant};

use crate::{
    PolicyError, calibration::Calibration, error::not_read, history::PerThread,
    nothing::nothing_to_place,
};
use field::Field;
use load::Loads;
use perch_core::{Binding, Plan, Policy, PuSet, Reason, Remark, Snapshot, ThreadState};
use std::time::Duration;
use swap::Swap;

/// The policy's name.
pub(crate) const NAME: &str = "masa";

/// What is said where nothing is known of limits.
const NO_LIMITS: &str = "needs the measured limit of each resource: run `perch calibrate`, which takes a few minutes; perch uses its file from \
     then on, or another one with --set calibration=FILE. --set calibration=built-in takes limits learned from what single \
     threads are seen to do, which are guesses";

/// The longest that a thread waits which came back, in periods.
const LONGEST_WAIT: u64 = 64;

/// The policy `masa` (Nakajima and Pallipadi 2002, sections 4 and 4.2).
#[derive(Debug)]
pub struct Masa {
    config: MasaConfig,
    loads: Loads,
    memory: PerThread<Memory>,
    /// Exchanges and moves between groups so far.
    swaps: u64,
    /// Those of them that brought a thread back to where it had been swapped away from.
    back: u64,
}

/// State that the policy keeps for each thread.
#[derive(Debug, Clone, Default)]
struct Memory {
    /// The PU from which it was last swapped away.
    left: Option<u32>,
    /// How often it came back.
    back: u32,
    /// It does not move before this period.
    waits_until: u64,
    /// Why it is where it is bound.
    reason: Option<Reason>,
}

impl Masa {
    /// A policy that needs no calibration: its options have the limits, or it learns them.
    ///
    /// # Errors
    /// An option out of range, or options that ask for a calibration ([`Masa::with_calibration`]) or say nothing of
    /// limits.
    pub fn new(config: MasaConfig) -> Result<Self, PolicyError> {
        config.check().map_err(bad)?;
        if !config.limits.is_empty() {
            let loads = Loads::given(&config.limits);
            return Ok(Self::of(config, loads));
        }
        match config.calibration.as_str() {
            BUILT_IN => Ok(Self::of(config, Loads::built_in())),
            "" => Err(bad(NO_LIMITS.to_owned())),
            file => Err(not_read(NAME, file)),
        }
    }

    /// A policy with these options and this calibration, whatever limits and whatever file the options name.
    ///
    /// # Errors
    /// An option out of range.
    pub fn with_calibration(
        mut config: MasaConfig,
        calibration: &Calibration,
    ) -> Result<Self, PolicyError> {
        config.limits.clear();
        config.calibration.clone_from(&calibration.machine);
        config.check().map_err(bad)?;
        Ok(Self::of(config, Loads::calibrated(calibration)))
    }

    fn of(config: MasaConfig, loads: Loads) -> Self {
        Self {
            config,
            loads,
            memory: PerThread::default(),
            swaps: 0,
            back: 0,
        }
    }

    /// Exchanges and moves between groups so far, and how many of them brought a thread back (fluctuation).
    pub fn swaps(&self) -> (u64, u64) {
        (self.swaps, self.back)
    }

    /// Remembers a move inside a package and says why.
    fn note_move(&mut self, field: &Field<'_>, swap: &Swap) {
        let text = format!(
            "several outstanding threads of {} on one PU: to PU {} of the package",
            field.metrics[swap.metric].name, swap.to
        );
        let reason = Reason::new(text).with("load", field.load(swap.down, swap.metric));
        self.memory[field.runners[swap.down].at].reason = Some(reason);
    }

    /// Remembers a swap, says why, and whether a thread came back by it.
    fn note_swap(&mut self, field: &Field<'_>, swap: &Swap, period: u64, old: &[u32]) -> bool {
        let level = &field.levels[swap.metric];
        let mut came_back = false;
        for runner in [Some(swap.down), swap.up].into_iter().flatten() {
            let from = old[runner];
            let memory = &mut self.memory[field.runners[runner].at];
            let group = level.of(field.runners[runner].pu);
            let returns = memory.left.is_some_and(|left| level.of(left) == group);
            if returns {
                came_back = true;
                memory.back += 1;
                let wait = 1u64 << memory.back.min(LONGEST_WAIT.ilog2());
                memory.waits_until = period + 1 + wait;
            }
            memory.left = Some(from);
        }
        self.swaps += 1;
        self.back += u64::from(came_back);
        let metric = &field.metrics[swap.metric];
        for (runner, other) in [(Some(swap.down), swap.up), (swap.up, Some(swap.down))] {
            let Some(runner) = runner else { continue };
            let with = match other {
                Some(other) => format!("swapped with {}", field.thread(other).info.id),
                None => "to an unused PU".to_owned(),
            };
            let limit = level
                .of(old[swap.down])
                .map_or(0.0, |group| level.limit[group]);
            let text = format!("{} above its limit: {with}", metric.name);
            let reason = Reason::new(text)
                .with("load", field.load(runner, swap.metric))
                .with("limit", limit)
                .with("highest before", swap.before.0)
                .with("lowest before", swap.before.1)
                .with("highest after", swap.after.0)
                .with("lowest after", swap.after.1)
                .with("swaps", self.swaps as f64)
                .with("came back", self.back as f64);
            self.memory[field.runners[runner].at].reason = Some(reason);
        }
        came_back
    }

    /// Bound threads that wait for each other while a PU is idle: the kernel can do better than a stale plan. One from
    /// each such PU is released.
    fn crowded(&self, field: &Field<'_>) -> Vec<usize> {
        let idle = field
            .usable
            .iter()
            .filter(|pu| field.on_pu[*pu as usize].is_empty());
        let mut idle: Vec<u32> = idle.collect();
        let mut go = Vec::new();
        for there in field.on_pu.iter().filter(|there| there.len() > 1) {
            let free = |at: &usize| {
                if field.thread(*at).bound.is_none() || field.runners[*at].moved {
                    return None;
                }
                let room = idle.iter().position(|pu| field.may(*at, *pu))?;
                Some((*at, room))
            };
            // The order of `there` is that of past moves; that of the runners is not.
            let mut there = there.clone();
            there.retain(|at| field.tied(*at));
            if there.len() < 2 {
                continue;
            }
            there.sort_unstable();
            if let Some((at, room)) = there.iter().find_map(free) {
                idle.remove(room);
                go.push(at);
            }
        }
        go
    }
}

fn bad(message: String) -> PolicyError {
    PolicyError::BadOption {
        policy: NAME,
        message,
    }
}

impl Policy for Masa {
    fn name(&self) -> &'static str {
        NAME
    }

    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn needs(&self) -> &'static [&'static str] {
        load::WANTED
    }

    fn wants_pu_loads(&self) -> bool {
        true
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        self.memory.follow(&snapshot.threads);
        let mut field = Field::new(snapshot, &mut self.loads, &self.config);
        let mut plan = Plan::default();
        let old: Vec<u32> = field.runners.iter().map(|runner| runner.pu).collect();
        let inside = swap::inside_packages(&mut field, &self.config);
        for swap in &inside {
            self.note_move(&field, swap);
        }
        let perch = self.config.variant == Variant::Perch;
        let mut go = Vec::new();
        if inside.is_empty() {
            if perch {
                go = self.crowded(&field);
            }
            let mut waits: Vec<bool> = (field.runners.iter())
                .map(|runner| perch && self.memory[runner.at].waits_until > snapshot.period)
                .collect();
            go.iter().for_each(|at| waits[*at] = true);
            let swaps = swap::between_groups(&mut field, &self.config, &waits);
            let mut came_back = false;
            for swap in &swaps {
                came_back |= self.note_swap(&field, swap, snapshot.period, &old);
            }
            // Not every time: a remark that changes is printed anew.
            if came_back && self.back.is_power_of_two() {
                plan.remarks.push(Remark::warning("swaps-undone", format!(
                    "{} of {} swaps so far brought a thread back to where it had been swapped away from: the loads change \
                     faster than the period",
                    self.back, self.swaps
                )));
            }
        }
        let mut running: Vec<Option<usize>> = vec![None; snapshot.threads.len()];
        for (runner, state) in field.runners.iter().enumerate() {
            running[state.at] = Some(runner);
        }
        for (at, thread) in snapshot.threads.iter().enumerate() {
            if thread.unmanaged.is_some() {
                continue;
            }
            let stays = running[at].filter(|runner| !go.contains(runner));
            match self.place(&field, thread, stays) {
                Some(pus) => {
                    let reason = self.memory[at].reason.clone();
                    plan.bindings.push(Binding {
                        thread: thread.info.id,
                        pus,
                        reason: reason.unwrap_or_else(|| Reason::new("bound before: stays")),
                    });
                }
                None if thread.bound.is_some() => {
                    self.memory[at].reason = None;
                    let why = match running[at] {
                        Some(runner) if go.contains(&runner) => {
                            "others run on its PU while another PU is idle: left to the kernel"
                        }
                        Some(_) => "the PU where it was bound cannot be used: left to the kernel",
                        None => "idle",
                    };
                    let reason = Reason::new(why).with("activity", thread.activity);
                    plan.released.push((thread.info.id, reason));
                }
                None => {}
            }
        }
        if plan.bindings.is_empty()
            && let Some(why) = nothing(&field)
        {
            plan.remarks.push(nothing_to_place(why));
        }
        if !field.missing.is_empty() && !field.metrics.is_empty() {
            plan.remarks.push(Remark::warning(
                "metrics-missing",
                format!(
                    "load metrics that are not measured here and so not checked: {}",
                    field.missing.join(", ")
                ),
            ));
        }
        plan
    }
}

impl Masa {
    /// Where a thread shall be bound: those that were moved once stay bound while they are busy.
    fn place(
        &self,
        field: &Field<'_>,
        thread: &ThreadState,
        runner: Option<usize>,
    ) -> Option<PuSet> {
        let runner = &field.runners[runner?];
        if runner.moved {
            return Some(PuSet::single(runner.pu));
        }
        let bound = thread.bound.as_ref()?;
        let usable = bound.and(&thread.allowed).and(&field.usable);
        (!usable.is_empty()).then_some(usable)
    }
}

/// Why nothing is bound.
fn nothing(field: &Field<'_>) -> Option<String> {
    if field.runners.is_empty() {
        return None;
    }
    Some(if field.metrics.is_empty() && field.missing.is_empty() {
        "the calibration shows no resource of which threads lose anything by sharing it, so nothing is bound".to_owned()
    } else if field.metrics.is_empty() {
        format!(
            "no load metric is measured (yet), so nothing is bound; it takes one of: {}",
            field.missing.join(", ")
        )
    } else if field.levels.iter().all(|level| level.load.len() < 2) {
        "no resource is there twice: there is nothing to balance, so nothing is bound".to_owned()
    } else {
        "no load is above its limit in one place with room in another, so nothing is bound"
            .to_owned()
    })
}
