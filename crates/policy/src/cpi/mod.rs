//! Pairs low-CPI threads with high-CPI threads.
//!
//! A. Fedorova et al., Chip Multithreading Systems Need a New Operating System Scheduler, section 5: a thread with a low
//! number of cycles an instruction (CPI) keeps a core's pipeline busy, one with a high number leaves it to others. So
//! the demand `1/CPI` is balanced over the cores. With `perch` the demand is the one that the thread would have alone
//! ([`solo`]), predicted for the next period, and threads move only for a predicted gain.

pub(crate) mod balance;
mod config;
pub(crate) mod cores;
mod demand;
mod explain;
mod place;
mod predict;
pub mod solo;
mod trust;
mod view;

pub(crate) use config::check_width;
pub use config::{CpiConfig, Variant};
pub use solo::{Running, Solo, SoloCpi};
pub(crate) use view::core_of;

use crate::{
    busy::{Census, idle, is_busy, reachable},
    history::PerThread,
    nothing::nothing_to_place,
};
use cores::Cores;
use perch_core::{Binding, Plan, Policy, PuSet, Reason, Snapshot, ThreadId, metric::names};
use place::{Field, Ground};
use predict::Predictor;
use trust::Trust;
use view::Demand;

/// The policy `cpi` (Fedorova et al. 2004, sections 4 to 6).
#[derive(Debug, Default)]
pub struct Cpi {
    config: CpiConfig,
    memory: PerThread<Memory>,
    /// The widths learned so far, by kind of core.
    learned: Vec<f64>,
    will: Will,
}

/// What keeps threads from being moved for every promise.
#[derive(Debug, Default)]
struct Will {
    /// Periods in a row for which a better placement was predicted.
    wanted: u32,
    trust: Trust,
}

/// State that the policy keeps for each thread.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    predictor: Predictor,
}

/// The decision of one period.
#[derive(Default)]
struct Decision {
    bindings: Vec<(usize, PuSet, Reason)>,
    /// Why nothing is bound, if nothing is.
    nothing: Option<String>,
}

impl Decision {
    fn nothing(why: String) -> Self {
        Self {
            nothing: Some(why),
            ..Self::default()
        }
    }
}

impl Cpi {
    /// A policy with these options.
    pub fn new(config: CpiConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    fn place(&mut self, snapshot: &Snapshot) -> Decision {
        self.memory.follow(&snapshot.threads);
        let reachable = reachable(snapshot, self.config.min_activity);
        let cores = Cores::new(&snapshot.topology, &reachable);
        let (memory, learned) = (&mut self.memory, &mut self.learned);
        let demands = view::demands(snapshot, &cores, learned, memory, &self.config);
        if let Some(why) = nothing_to_do(snapshot, &demands.threads, &cores) {
            self.will.wanted = 0;
            return Decision::nothing(why);
        }
        let ground = Ground::new(snapshot, &self.memory, &demands.threads, &cores);
        let field = Field::new(snapshot, &demands, &ground, &cores, self.config.variant);
        let placed = match self.config.variant {
            Variant::Paper => field.deal(),
            Variant::Perch => match field.choose(&self.config, &mut self.will) {
                Ok(placed) => placed,
                Err(why) => return Decision::nothing(why),
            },
        };
        Decision {
            bindings: field.bind(&placed),
            nothing: None,
        }
    }

    fn released(&self, snapshot: &Snapshot, decision: &Decision) -> Vec<(ThreadId, Reason)> {
        let mut bound = decision.bindings.iter().map(|(at, ..)| *at).peekable();
        let threads = snapshot.threads.iter().enumerate();
        let leaving = threads.filter(|(at, thread)| {
            let stays = bound.next_if_eq(at).is_some();
            !stays && thread.bound.is_some() && thread.unmanaged.is_none()
        });
        leaving
            .map(|(_, thread)| {
                let text = match &decision.nothing {
                    Some(why) => why.clone(),
                    None if !is_busy(thread, self.config.min_activity) => idle(thread),
                    None => "no room on the cores that it may use: left to the kernel".to_owned(),
                };
                let reason = Reason::new(text).with("activity", thread.activity);
                (thread.info.id, reason)
            })
            .collect()
    }
}

/// Why there is nothing to do, whatever the threads ask for.
fn nothing_to_do(snapshot: &Snapshot, census: &Census<Demand>, cores: &Cores) -> Option<String> {
    if !cores.iter().any(|core| core.pus.len() > 1) && !cores.is_empty() {
        Some(explain::nothing_shared())
    } else if census.busy() < cores.len() || cores.is_empty() {
        Some(explain::few(census.busy(), cores.len()))
    } else if census.ranked.is_empty() {
        let bound = |at: &usize| snapshot.threads[*at].bound.is_some();
        // Bound threads stay while nothing new is known of them.
        (!census.unknown.iter().any(bound)).then(|| explain::unknown(census))
    } else {
        None
    }
}

impl Policy for Cpi {
    fn name(&self) -> &'static str {
        "cpi"
    }

    fn needs(&self) -> &'static [&'static str] {
        &[names::IPC]
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let mut decision = self.place(snapshot);
        decision.bindings.sort_unstable_by_key(|(at, ..)| *at);
        let released = self.released(snapshot, &decision);
        let bindings = decision.bindings.into_iter();
        Plan {
            bindings: bindings
                .map(|(at, pus, reason)| Binding {
                    thread: snapshot.threads[at].info.id,
                    pus,
                    reason,
                })
                .collect(),
            released,
            remarks: decision.nothing.map(nothing_to_place).into_iter().collect(),
            ..Plan::default()
        }
    }
}
