//! Reasons in the numbers that decided.

use crate::{
    busy::{Census, NOTHING_BUSY},
    domains::Domains,
    ranking::{Candidate, FpShare},
};
use perch_core::{MetricName, Reason, Snapshot, metric::names};

/// No two PUs share anything.
pub(super) fn nothing_shared() -> String {
    "no two usable PUs share floating-point units: there is nothing to gain here, so nothing is bound".to_owned()
}

/// The kernel does it by itself.
pub(super) fn few(busy: usize, domains: usize) -> String {
    if busy == 0 {
        return NOTHING_BUSY.to_owned();
    }
    let threads = if busy == 1 { "thread" } else { "threads" };
    format!(
        "{busy} busy {threads} for {domains} domains with FP units of their own: the kernel has room to give each its \
         own, so nothing is bound"
    )
}

/// No thread's FP share is known, or no thread may be placed.
pub(super) fn unknown(census: &Census<FpShare>) -> String {
    if census.unknown.is_empty() {
        "all busy threads were placed by others and are left alone".to_owned()
    } else {
        "the FP share of the busy threads is not known (yet), so nothing is bound".to_owned()
    }
}

/// All candidates use the FP units alike.
pub(super) fn alike(census: &Census<FpShare>, heavy: bool, threshold: f64) -> String {
    let (count, kind) = (census.ranked.len(), if heavy { "heavy" } else { "light" });
    let highest = census.ranked.first().map_or(0.0, |c| c.known.share);
    let lowest = census.ranked.last().map_or(0.0, |c| c.known.share);
    let threads = match count {
        1 => "the only busy thread is".to_owned(),
        _ => format!("the {count} busy threads are all"),
    };
    format!(
        "{threads} FP-{kind} (FP shares {lowest:.2} to {highest:.2}, threshold {threshold:.2}): there is nothing to \
         interleave, so nothing is bound"
    )
}

/// The names of the numbers behind the reasons of ranked threads.
pub(super) struct Names([MetricName; 5]);

impl Names {
    pub fn new() -> Self {
        let names = [
            "fp_rank",
            names::FP_SHARE,
            "activity",
            "pu",
            "fp_heavy_in_domain",
        ];
        Self(names.map(MetricName::from))
    }

    /// The reason of a ranked thread; `heavy` is how many FP-heavy threads its domain has, if that counts.
    pub fn reason(
        &self,
        text: String,
        rank: usize,
        candidate: &Candidate,
        pu: u32,
        heavy: Option<usize>,
    ) -> Reason {
        let numbers = [
            (rank + 1) as f64,
            candidate.known.share,
            candidate.activity,
            f64::from(pu),
        ];
        let heavy = heavy.map(|heavy| heavy as f64);
        Reason::new(text).with_all(&self.0, numbers.into_iter().chain(heavy))
    }
}

/// How many FP-heavy threads share FP units with a thread.
pub(super) fn company(heavy: bool, others: usize) -> String {
    match (others, heavy) {
        (0, true) => "beside no other FP-heavy thread".to_owned(),
        (0, false) => "beside no FP-heavy thread".to_owned(),
        (1, _) => "beside 1 FP-heavy thread".to_owned(),
        (n, _) => format!("beside {n} FP-heavy threads"),
    }
}

/// Where a thread comes from: it stays, moves, or is bound anew.
pub(super) fn movement(
    snapshot: &Snapshot,
    at: usize,
    present: Option<u32>,
    pu: u32,
    domains: &Domains,
) -> String {
    let label = |pu: u32| match domains.of(pu) {
        Some(domain) => {
            let label = domains[domain].label(&snapshot.topology);
            format!("{label} (PU {pu})")
        }
        None => format!("PU {pu}"),
    };
    match (present, snapshot.threads[at].last_pu) {
        (Some(present), _) if present == pu => "stays".to_owned(),
        (Some(present), _) => format!("moved from {}", label(present)),
        (None, Some(last)) if last == pu => "bound where it runs".to_owned(),
        (None, Some(last)) => format!("brought from {}", label(last)),
        (None, None) => "bound".to_owned(),
    }
}
