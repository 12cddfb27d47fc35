//! Reasons in the numbers that decided.

use super::view::Demand;
use crate::busy::{Census, NOTHING_BUSY};

/// No two PUs share a pipeline.
pub(super) fn nothing_shared() -> String {
    "no two usable PUs share a core's pipeline: there is nothing to gain here, so nothing is bound"
        .to_owned()
}

/// The kernel does it by itself.
pub(super) fn few(busy: usize, cores: usize) -> String {
    if busy == 0 {
        return NOTHING_BUSY.to_owned();
    }
    let threads = if busy == 1 { "thread" } else { "threads" };
    format!(
        "{busy} busy {threads} for {cores} cores: the kernel has room to give each its own, so nothing is bound"
    )
}

/// No thread's demand is known, or no thread may be placed.
pub(super) fn unknown(census: &Census<Demand>) -> String {
    if census.unknown.is_empty() {
        "all busy threads were placed by others and are left alone".to_owned()
    } else {
        "neither cycles nor the instruction mix of the busy threads are known (yet), so nothing is bound".to_owned()
    }
}

/// No core can be asked for more than it has.
pub(super) fn never_saturated(most: f64, width: f64) -> String {
    format!(
        "even the threads that ask for most would together issue {most:.2} instructions a cycle on a core that can \
         issue {width:.2}: no placement is better than another, so nothing is bound"
    )
}

/// The kernel's placement is as good.
pub(super) fn no_gain(now: f64, best: f64, gain: f64) -> String {
    format!(
        "{now:.2} instructions a cycle as it is, {best:.2} predicted for the best balance: less than {:.0} % to gain, \
         so nothing is bound",
        100.0 * gain
    )
}
