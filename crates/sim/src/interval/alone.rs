//! How a thread does that has a core to itself, and how far it hides the delays of its accesses.

use super::{
    delays::{Delay, Delays},
    demand::Demand,
    own_ports::OwnPorts,
    play::{Purpose, play},
};
use crate::model::{CoreKind, Op};

/// Cycles that a thread loses for each cycle by which a load is delayed: short delays are hidden by what goes on meanwhile,
/// and long ones by each other, the more the more there are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exposed {
    /// By the share of the loads that meet the delay, rising.
    points: Vec<(f64, f64)>,
}

impl Exposed {
    /// Where this share of the loads meets it: between two points on a straight line over the share's logarithm.
    pub fn at(&self, chance: f64) -> f64 {
        let above = self.points.partition_point(|(point, _)| *point < chance);
        match (
            above.checked_sub(1).map(|at| self.points[at]),
            self.points.get(above),
        ) {
            (Some((low, before)), Some((high, after))) => {
                let part = (chance / low).ln() / (high / low).ln();
                before + part * (after - before)
            }
            (Some((_, only)), None) => only,
            (None, Some((_, only))) => *only,
            (None, None) => 1.0,
        }
    }
}

/// A thread that has a core to itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Alone {
    /// Cycles for an instruction if nothing ever misses.
    pub base: f64,
    /// For each delay of [`Delays::load`].
    pub exposed: Vec<Exposed>,
    /// The part of its longest delays that holds it up, as many as it has alone.
    pub exposed_longest: f64,
    /// The part of walks through page tables that holds it up.
    pub exposed_walk: f64,
}

impl Alone {
    /// How long delays hold it up by one load, in picoseconds.
    pub fn held_up(&self, delays: &Delays) -> f64 {
        let loads = delays.load.iter().enumerate();
        let loads = loads
            .map(|(step, delay)| self.exposed_part(step, delay.chance) * delay.chance * delay.time);
        loads.sum::<f64>() + self.exposed_walk * delays.walk.chance * delays.walk.time
    }

    /// How much longer a load holds it up that misses one cache more than this many, since that is cold, if this share of its
    /// loads does: they hide each other.
    pub fn further(&self, delays: &Delays, step: usize, share: f64) -> f64 {
        let cold = |step: usize| {
            delays.load.get(step).map_or(0.0, |delay| {
                self.exposed_part(step, delay.chance.max(share)) * delay.time
            })
        };
        let before = step.checked_sub(1).map_or(0.0, cold);
        (cold(step) - before).max(0.0)
    }

    /// The part of the delays of this step that holds it up, where this share of the loads meets them.
    pub fn exposed_part(&self, step: usize, chance: f64) -> f64 {
        self.exposed
            .get(step)
            .map_or(1.0, |exposed| exposed.at(chance))
    }
}

/// Shares of the loads for which it is found out how far delays are hidden, besides the share that a thread has alone.
const SHARES: [f64; 4] = [RARE, 0.03, 0.2, 1.0];

/// Delays rarer than that are taken as so rare, where it is found out how far they are hidden.
const RARE: f64 = 0.004;

/// How a stream does alone on one of `busy` contexts: with its part of a shared window, and what it may have of queues.
pub(super) fn alone(
    kind: &CoreKind,
    demand: &Demand,
    busy: usize,
    delays: &Delays,
    line: f64,
) -> Alone {
    let window = match kind.window_shared {
        true => (kind.window / busy.max(1) as u32).max(1),
        false => kind.window,
    };
    let parts = kind.parts().among(busy);
    let mut queues = kind.queues.clone();
    for queue in &mut queues {
        let divided = if queue.partitioned { parts } else { 1 };
        queue.entries = (queue.of_one(busy as u32) / divided).max(1);
    }
    let mut units = kind.units.clone();
    for pool in units.iter_mut().filter(|pool| pool.partitioned) {
        pool.count = (pool.count / parts).max(1);
    }
    let own = CoreKind {
        contexts: 1,
        window,
        window_shared: false,
        partition: None,
        units,
        queues,
        misses: match kind.misses_per_context {
            Some(most) if busy > 1 => most,
            _ => kind.misses,
        },
        ..kind.clone()
    };
    let cycles = |delays: Delays| {
        let (members, ports) = ([(demand, delays)], OwnPorts::default());
        play(&own, &members, &[0], line, &ports, Purpose::Difference)[0].cycles
    };
    let base = cycles(Delays::default());
    let loads = demand.ops[Op::Load as usize];
    let exposed = |only: Delays, delay: &Delay| {
        if kind.window <= 1 || loads <= 0.0 || delay.time <= 0.0 {
            return 1.0;
        }
        let delayed = loads * delay.chance * delay.time / kind.cycle as f64;
        ((cycles(only) - base) / delayed).clamp(0.0, 1.0)
    };
    let of_loads = |step: usize, chance: f64| {
        let only = delays.only(step, chance.max(RARE));
        let delay = only.load.first().copied().unwrap_or_default();
        (delay.chance, exposed(only, &delay))
    };
    let curve = |step: usize| {
        let mut points: Vec<(f64, f64)> =
            SHARES.iter().map(|share| of_loads(step, *share)).collect();
        points.push(of_loads(step, delays.load[step].chance));
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points.dedup_by(|one, other| one.0 <= 1.01 * other.0);
        Exposed { points }
    };
    // Any load may walk through the page tables.
    let walk = Delay {
        chance: delays.walk.chance.max(RARE),
        ..delays.walk
    };
    let walks = Delays {
        walk,
        ..Delays::default()
    };
    let longest = delays.load.len().checked_sub(1);
    Alone {
        base,
        exposed: (0..delays.load.len()).map(curve).collect(),
        exposed_longest: longest.map_or(1.0, |step| of_loads(step, delays.load[step].chance).1),
        exposed_walk: exposed(walks, &walk),
    }
}
