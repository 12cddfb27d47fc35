//! WorkOver: pairs floating-point threads with integer threads.
//!
//! The policy of A. Peternier et al. 2014 (WorkOver, sections 4.2, 4.3, 5.3): of the threads that were most active in
//! the last period, those that use the floating-point units most get a domain that shares such units each; the next
//! ones get the second PU of each domain, and so on; the rest is left to the kernel. So integer and floating-point
//! threads interleave. A thread that stays in its group stays on its PU, and one that comes back gets the PU that it
//! used most.

mod config;
mod explain;
mod paper;
mod perch;
mod placement;

pub use config::{Variant, WorkOverConfig};

use crate::{
    busy::{self, Census},
    domains::Domains,
    history::{PerThread, PuUsage},
    hysteresis::LevelState,
    nothing::nothing_to_place,
    ranking::FpShare,
};
use perch_core::{Binding, Plan, Policy, PuSet, Reason, Snapshot, metric::names};

/// The policy `workover` (Peternier et al. 2014, sections 4.2, 4.3 and 5.3).
#[derive(Debug, Default)]
pub struct WorkOver {
    config: WorkOverConfig,
    memory: PerThread<Memory>,
}

/// State that the policy keeps for each thread.
#[derive(Debug, Clone, Default)]
struct Memory {
    usage: PuUsage,
    /// Its level, with `perch`.
    level: LevelState,
    /// Its group in the last period, with `paper`.
    group: Option<usize>,
}

/// A period as both variants see it.
struct View<'a> {
    snapshot: &'a Snapshot,
    /// The one PU to which each thread is bound, in the snapshot's order.
    present: Vec<Option<u32>>,
}

impl View<'_> {
    /// Why there is nothing to do, whatever the threads' FP shares are. `domains` are those that can be reached.
    fn nothing_to_do(&self, census: &Census<FpShare>, domains: &Domains) -> Option<String> {
        let known = !census.ranked.is_empty();
        let usable = || Domains::new(self.snapshot, &self.snapshot.topology.usable());
        let all = (!known).then(usable);
        let domains = all.as_ref().unwrap_or(domains);
        if !domains.share_anything() {
            Some(explain::nothing_shared())
        } else if census.busy() < domains.len() {
            Some(explain::few(census.busy(), domains.len()))
        } else if !known {
            Some(explain::unknown(census))
        } else {
            None
        }
    }
}

/// What a variant decided.
#[derive(Default)]
struct Decision {
    placed: Vec<Placed>,
    /// Why nothing is bound, if nothing is.
    nothing: Option<String>,
    /// Busy threads, placed or not.
    busy: usize,
    /// PUs that could be used.
    pus: usize,
}

impl Decision {
    fn nothing(why: String) -> Self {
        Self {
            nothing: Some(why),
            ..Self::default()
        }
    }
}

/// A thread (its place in the snapshot), its PU, and why.
struct Placed {
    at: usize,
    pu: u32,
    reason: Reason,
}

impl WorkOver {
    /// A policy with these options.
    pub fn new(config: WorkOverConfig) -> Self {
        Self {
            config,
            memory: PerThread::default(),
        }
    }

    /// Takes the period into the memory, and sees where each thread is bound.
    fn view<'a>(&mut self, snapshot: &'a Snapshot) -> View<'a> {
        self.memory.follow(&snapshot.threads);
        let seconds = snapshot.interval as f64 / 1e9;
        let threads = snapshot.threads.iter().enumerate();
        let present = threads.map(|(at, thread)| {
            let bound = thread.bound.as_ref().filter(|pus| pus.len() == 1);
            let bound = bound.and_then(PuSet::first);
            if let Some(pu) = bound.or(thread.last_pu).filter(|_| thread.activity > 0.0) {
                self.memory[at].usage.record(pu, thread.activity * seconds);
            }
            bound.filter(|_| thread.unmanaged.is_none())
        });
        View {
            present: present.collect(),
            snapshot,
        }
    }

    fn released(&self, view: &View<'_>, decision: &Decision, placed: &[bool]) -> Vec<Release> {
        let threads = view.snapshot.threads.iter().enumerate();
        let leaving = threads.filter(|(at, thread)| {
            (thread.bound.is_some() || view.present[*at].is_some())
                && !placed[*at]
                && thread.unmanaged.is_none()
        });
        leaving
            .map(|(_, thread)| {
                let reason = if let Some(why) = &decision.nothing {
                    Reason::new(why.clone())
                } else if thread.wanted() < self.config.min_activity {
                    Reason::new(busy::idle(thread))
                } else if thread.metrics.get(names::FP_SHARE).is_none() {
                    Reason::new("its FP share is not known")
                } else {
                    let (busy, pus) = (decision.busy, decision.pus);
                    Reason::new(format!(
                        "left to the kernel: {busy} busy threads on {pus} PUs"
                    ))
                };
                (thread.info.id, reason.with("activity", thread.activity))
            })
            .collect()
    }
}

type Release = (perch_core::ThreadId, Reason);

impl Policy for WorkOver {
    fn name(&self) -> &'static str {
        "workover"
    }

    fn needs(&self) -> &'static [&'static str] {
        &[names::FP_SHARE]
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let view = self.view(snapshot);
        let mut decision = match self.config.variant {
            Variant::Paper => paper::decide(&view, &mut self.memory, &self.config),
            Variant::Perch => perch::decide(&view, &mut self.memory, &self.config),
        };
        decision.placed.sort_unstable_by_key(|placed| placed.at);
        let mut is_placed = vec![false; snapshot.threads.len()];
        for placed in &decision.placed {
            is_placed[placed.at] = true;
        }
        let released = self.released(&view, &decision, &is_placed);
        let bindings = decision.placed.into_iter().map(|placed| Binding {
            thread: snapshot.threads[placed.at].info.id,
            pus: PuSet::single(placed.pu),
            reason: placed.reason,
        });
        Plan {
            bindings: bindings.collect(),
            released,
            remarks: decision.nothing.map(nothing_to_place).into_iter().collect(),
            ..Plan::default()
        }
    }
}
