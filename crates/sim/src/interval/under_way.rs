//! How many lines a thread has under way at once.

use super::{fate::Fate, layout::Layout, seats::Seat};
use crate::model::CoreKind;

/// More than that make no difference to a queue.
const MANY: f64 = 1e3;

/// The lines that a thread has under way at most where it is held up by a port, a link or memory, the number of which is
/// `server`. A thread that waits for a part e of each delay has about 1/e of them under way together (memory-level
/// parallelism: Chou, Fahs and Abraham, ISCA 2004), and those that prefetchers ask for ahead of it.
pub(super) fn under_way(
    layout: &Layout,
    kind: &CoreKind,
    seat: &Seat,
    fate: &Fate,
    server: usize,
) -> f64 {
    if kind.window <= 1 {
        return 1.0;
    }
    let path = &layout.pus[seat.pu].data;
    let at_port = path.iter().position(|cache| layout.port(*cache) == server);
    // Its misses in this cache pass the server.
    let step = match at_port {
        Some(step) => step.checked_sub(1),
        None => path.len().checked_sub(1),
    };
    let Some(step) = step else {
        return MANY;
    };
    let missed = fate.data[layout.caches[path[step]].level];
    let chance = missed / seat.asked.demand.accesses().max(1e-30);
    let together = 1.0 / seat.alone.exposed_part(step, chance.min(1.0)).max(1e-30);
    // Where prefetchers ask for lines, those are under way and the one that the thread waits for.
    let prefetched = fate.prefetched.iter().filter(|its| its.step <= step);
    let (lines, ahead) = prefetched.fold((0.0, 0.0), |(lines, ahead), its| {
        (
            lines + its.lines,
            ahead + its.lines * (1.0 + its.cover.ahead),
        )
    });
    if lines + missed <= 0.0 {
        return 1.0;
    }
    ((together * missed + ahead) / (lines + missed)).clamp(1.0, MANY)
}
