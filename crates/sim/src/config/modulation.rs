//! Reads when the clock of a kind of core stops.

use super::{
    quantity::{CYCLES, LATENCY},
    table::{Checked, Item, Table},
};
use crate::{
    model::STOP,
    units::{MICROSECOND, Ps},
};

/// A stop is at most so long: beyond a millisecond, the operating system would lose its ticks.
const LONGEST: Ps = 1_000 * MICROSECOND;

/// Steps of the duty cycle at most.
const MOST_STEPS: u32 = 64;

/// When a clock stops.
pub(super) struct Modulation {
    pub duty: f64,
    pub stop: Ps,
    pub steps: u32,
}

/// Of a kind of core with cycles of this length.
pub(super) fn read(kind: &Table<'_>, cycle: Ps) -> Checked<Modulation> {
    let duty = kind.get("duty");
    let throttling = kind.get("throttling");
    let steps = throttling.map_or(Ok(0), |item| item.whole(2..=MOST_STEPS))?;
    let share = duty.map_or(Ok(1.0), |item| item.number(0.001..=1.0))?;
    if let Some(item) = duty.filter(|_| steps > 0) {
        let of_steps = share * f64::from(steps);
        if of_steps < 0.5 || (of_steps - of_steps.round()).abs() > 1e-6 {
            return Err(item.wrong_hint(
                format!("must be a multiple of 1/{steps}, as `throttling` says"),
                Some(format!(
                    "write {}",
                    of_steps.round().max(1.0) / f64::from(steps)
                )),
            ));
        }
    }
    let stop = match kind.get("modulation") {
        Some(item) if share >= 1.0 && steps == 0 => {
            return Err(item.wrong_hint(
                "the clock never stops",
                Some("give the kind of core a `duty` below 1, or `throttling`".to_owned()),
            ));
        }
        Some(item) => length(item, cycle)?,
        None => STOP,
    };
    Ok(Modulation {
        duty: share,
        stop,
        steps,
    })
}

/// Of a stop.
fn length(item: Item<'_>, cycle: Ps) -> Checked<Ps> {
    let text = item.as_text().unwrap_or("").trim_end().to_lowercase();
    let in_cycles = item.is_number() || text.ends_with("cycles") || text.ends_with("cycle");
    let length = match in_cycles {
        true => item.quantity(&CYCLES)?.saturating_mul(cycle),
        false => item.quantity(&LATENCY)?,
    };
    match (cycle..=LONGEST).contains(&length) {
        true => Ok(length),
        false => Err(item.wrong("must be from a cycle to 1 ms")),
    }
}
