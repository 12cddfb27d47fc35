//! What a clock that stops from time to time (clock modulation) leaves of a thread's speed.
//!
//! While the clock runs, the thread goes on at its usual speed `v`. Each stop costs it the time of the stop, less what it
//! would have waited for memory meanwhile: requests under way arrive all the same. Of an access that takes `T` and holds
//! the thread up for the last `s` of it, a stop of length `B` that begins `r` before the data come saves
//! `min(r, s, B)`. Stops come at any moment, so a thread that is held up for the part `m` of its time saves
//! `m / s · (T · k - k² / 2)` at each stop, where `k = min(s, B)`: for one access after the other, which hold it up all
//! the time, half of an access. Where several accesses are under way at a time, they hold it up together, and all of
//! them have come when the clock runs again; the next ones then ask for the channel at once. So a stop saves no more than
//! `T / 2 · (1 - used)`, where `used` is the part of the channel that the thread uses, or nothing if the clock runs for
//! less than an access takes: then the channel has caught up by the next run. As accesses are short against real
//! stops, threads that wait for memory lose nearly as much as those that compute.

use super::{alone::Alone, delays::Delays, demand::Demand};
use crate::model::{Op, Pace};

/// The mean speed of a thread / its speed while the clock runs, which is `speed` instructions a picosecond. It uses the
/// part `used` of its memory's channel then.
pub(super) fn left(
    pace: Pace,
    alone: &Alone,
    demand: &Demand,
    delays: &Delays,
    (speed, used): (f64, f64),
) -> f64 {
    if !pace.stops() {
        return 1.0;
    }
    let stop = pace.stop() as f64;
    let steps = delays.load.iter().enumerate();
    let loads = demand.ops[Op::Load as usize] * speed;
    let waits = steps.map(|(step, delay)| Wait {
        rate: loads * delay.chance,
        time: delay.time,
        exposed: alone.exposed_part(step, delay.chance),
    });
    let walk = Wait {
        rate: loads * delays.walk.chance,
        time: delays.walk.time,
        exposed: alone.exposed_walk,
    };
    let fetches = delays.fetch.iter().map(|delay| Wait {
        rate: demand.fetches() * speed * delay.chance,
        time: delay.time,
        exposed: 1.0,
    });
    let waits: Vec<Wait> = waits.chain([walk]).chain(fetches).collect();
    let under_way: f64 = waits.iter().map(|wait| wait.rate * wait.time).sum();
    let saved = waits
        .iter()
        .map(|wait| wait.saved(stop, under_way.max(1.0)));
    let mut saved: f64 = saved.sum();
    if under_way > 1.0 {
        let squares = waits.iter().map(|wait| wait.rate * wait.time * wait.time);
        let time = squares.sum::<f64>() / under_way;
        let run = (pace.run * pace.cycle) as f64;
        let used = used * (run / time - 1.0).clamp(0.0, 1.0);
        saved = saved.min(time / 2.0 * (1.0 - used).max(0.0));
    }
    (pace.duty() + saved.min(stop) / pace.window as f64).min(1.0)
}

/// Accesses of one sort.
struct Wait {
    /// How many in a picosecond.
    rate: f64,
    /// How long one takes.
    time: f64,
    /// The part of that for which it holds the thread up.
    exposed: f64,
}

impl Wait {
    /// What a stop of this length saves of them, with this many accesses under way at a time.
    fn saved(&self, stop: f64, under_way: f64) -> f64 {
        let together = (self.time * self.exposed * under_way).min(self.time);
        if together <= 0.0 {
            return 0.0;
        }
        let held_up = self.rate * self.time * self.exposed;
        let most = together.min(stop);
        held_up / together * (self.time * most - most * most / 2.0)
    }
}
