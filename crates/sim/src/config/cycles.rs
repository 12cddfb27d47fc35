//! Reads latencies, which may be in cycles of the cores that share a part.

use super::{
    quantity::{CYCLES, LATENCY},
    table::{Checked, Item},
};
use crate::{
    model::{CoreAt, CoreKind},
    units::{Ps, SECOND},
};

/// The most cycles that a latency may have.
const MOST_CYCLES: u64 = 65_535;

/// And so long in any clock: beyond, sums of times could overflow.
const LONGEST_CYCLES: Ps = SECOND;

/// A latency is at most so long, be it of memory across a network: beyond, a unit is wrong.
const LONGEST: Ps = SECOND / 100_000;

/// The cycle of these cores, if all have the same.
pub(super) fn common_cycle<'m>(
    kinds: &[CoreKind],
    mut cores: impl Iterator<Item = &'m CoreAt>,
) -> Option<Ps> {
    let first = kinds[cores.next()?.kind].cycle;
    cores
        .all(|core| kinds[core.kind].cycle == first)
        .then_some(first)
}

/// A time with a unit, or cycles of these cores' clock.
pub(super) fn latency(item: Item<'_>, cycle: Option<Ps>) -> Checked<Ps> {
    let text = item.as_text().unwrap_or("").trim_end().to_lowercase();
    if item.is_number() || text.ends_with("cycles") || text.ends_with("cycle") {
        let Some(cycle) = cycle else {
            return Err(item.wrong(
                "cycles of which clock? cores of several clocks share this: write it in `ns`",
            ));
        };
        let cycles = item.quantity(&CYCLES)?;
        let latency = cycles.saturating_mul(cycle);
        if cycles > MOST_CYCLES || latency > LONGEST_CYCLES {
            let most = MOST_CYCLES.min(LONGEST_CYCLES / cycle.max(1));
            return Err(item.wrong(format!("must be {most} cycles at most")));
        }
        return Ok(latency);
    }
    let latency = item.quantity(&LATENCY)?;
    if latency > LONGEST {
        return Err(item.wrong_hint(
            "must be 10 us at most",
            Some("memory takes about 100 ns, a disk is a device of the workload".to_owned()),
        ));
    }
    Ok(latency)
}
