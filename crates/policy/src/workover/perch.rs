//! WorkOver with a steady hand: the paper's ranking up to noise, spread from where the threads are.

use super::{Decision, Memory, Placed, View, WorkOverConfig, explain, placement::Placement};
use crate::{
    busy::{Census, stays_busy},
    domains::Domains,
    history::PerThread,
    hysteresis::{Cuts, LIGHT, Thresholds},
    ranking::{FpShare, by_fp_share, fp_threshold},
};
use perch_core::{Reason, metric::names};

pub(super) fn decide(
    view: &View<'_>,
    memory: &mut PerThread<Memory>,
    config: &WorkOverConfig,
) -> Decision {
    let snapshot = view.snapshot;
    let census = by_fp_share(snapshot, config.min_confidence, |at, thread| {
        let bound = view.present[at].is_some();
        stays_busy(thread.wanted(), config.min_activity, bound)
    });
    let domains = Domains::new(snapshot, &census.reachable);
    if let Some(why) = view.nothing_to_do(&census, &domains) {
        return Decision::nothing(why);
    }
    let thresholds = Thresholds {
        margin: config.margin,
        large: config.large,
        patience: config.patience,
        fp_threshold: fp_threshold(snapshot),
    };
    let cuts = Cuts::new(&census.ranked, domains.len(), domains.width(), thresholds);
    let levels: Vec<u8> = (census.ranked.iter())
        .map(|candidate| cuts.follow(&mut memory[candidate.at].level, candidate))
        .collect();
    let unknown = census
        .unknown
        .iter()
        .filter_map(|at| memory[*at].level.level());
    let mut seen = levels.iter().copied().chain(unknown);
    let one = seen
        .next()
        .filter(|first| seen.all(|level| level == *first));
    if let Some(level) = one {
        let heavy = level < LIGHT;
        return Decision::nothing(explain::alike(&census, heavy, fp_threshold(snapshot)));
    }
    let fixed = Fixed::new(view, memory, &census, &domains);
    let mut placement = Placement::new(view, &census, &levels, &domains, &fixed);
    placement.select(memory, fixed.free(&domains));
    let pus = placement.decide();
    let placed = placement.explain(&pus, census.ranked.len());
    Decision {
        placed: placed.chain(fixed.explain(view)).collect(),
        nothing: None,
        busy: census.busy(),
        pus: domains.pus(),
    }
}

/// What stands where it is: threads that must be left alone, and bound ones about which nothing new is known.
pub(super) struct Fixed {
    /// Whether such a thread holds the PU, by PU.
    pub taken: Vec<bool>,
    /// FP-heavy ones in each domain.
    pub heavy: Vec<usize>,
    /// Other ones in each domain.
    pub light: Vec<usize>,
    /// Bound threads that stay since their FP share is not known, with their PU.
    kept: Vec<(usize, u32)>,
}

impl Fixed {
    fn new(
        view: &View<'_>,
        memory: &PerThread<Memory>,
        census: &Census<FpShare>,
        domains: &Domains,
    ) -> Self {
        let highest = domains.iter().flat_map(|d| d.pus.iter().copied()).max();
        let mut fixed = Self {
            taken: vec![false; highest.map_or(0, |pu| pu as usize + 1)],
            heavy: vec![0; domains.len()],
            light: vec![0; domains.len()],
            kept: Vec::new(),
        };
        for &at in &census.unmanaged {
            let thread = &view.snapshot.threads[at];
            let share = thread.metrics.value(names::FP_SHARE);
            let heavy = share.is_some_and(|share| share >= fp_threshold(view.snapshot));
            if let (Some(pu), 1) = (thread.allowed.first(), thread.allowed.len()) {
                fixed.take(pu, heavy, domains);
            }
        }
        for &at in &census.unknown {
            let thread = &view.snapshot.threads[at];
            let level = memory[at].level.level();
            let heavy = level.is_some_and(|level| level < LIGHT);
            if let Some(pu) = view.present[at].filter(|pu| thread.allowed.contains(*pu))
                && fixed.take(pu, heavy, domains)
            {
                fixed.kept.push((at, pu));
            }
        }
        fixed
    }

    /// Takes a PU, if it can be used and is not taken.
    fn take(&mut self, pu: u32, heavy: bool, domains: &Domains) -> bool {
        let Some(domain) = domains.of(pu).filter(|_| !self.taken[pu as usize]) else {
            return false;
        };
        self.taken[pu as usize] = true;
        let count = if heavy {
            &mut self.heavy
        } else {
            &mut self.light
        };
        count[domain] += 1;
        true
    }

    fn free(&self, domains: &Domains) -> usize {
        domains.pus() - self.taken.iter().filter(|taken| **taken).count()
    }

    fn explain(&self, view: &View<'_>) -> impl Iterator<Item = Placed> {
        self.kept.iter().map(|&(at, pu)| Placed {
            at,
            pu,
            reason: Reason::new("its FP share is not known now: stays until it is")
                .with("activity", view.snapshot.threads[at].activity)
                .with("pu", f64::from(pu)),
        })
    }
}
