//! What threads on one core do to each other in its pipeline.
//!
//! What the simulation of a core ([`super::play`]) shows at one setting of memory delays is carried over to others by a
//! closed network of the issue slots and shared units (approximate mean value analysis, Schweitzer 1979; Bard 1979). That
//! takes out the network's error at that setting.

use super::demand::Demand;
use crate::model::{CoreKind, Op};

/// Issue slots or units that the contexts of a core share.
struct Station {
    /// Each thread's visits by one instruction, and how long one takes, in cycles.
    visits: Vec<(f64, f64)>,
}

/// Threads that share a core.
pub(super) struct Sharers<'a> {
    stations: Vec<Station>,
    kind: &'a CoreKind,
    demands: Vec<&'a Demand>,
}

impl<'a> Sharers<'a> {
    /// Threads with these demands on a core of a kind.
    pub fn new(kind: &'a CoreKind, demands: Vec<&'a Demand>) -> Self {
        let slots = Station {
            visits: vec![(1.0, 1.0 / f64::from(kind.width.max(1))); demands.len()],
        };
        let of_pool = |ops: &[Op], count: u32, demand: &Demand| {
            let visits: f64 = ops.iter().map(|op| demand.ops[*op as usize]).sum();
            let busy = |op: &Op| {
                demand.ops[*op as usize] * f64::from(kind.latencies[*op as usize].busy.max(1))
            };
            let time: f64 = ops.iter().map(busy).sum();
            (visits, time / visits.max(1e-12) / f64::from(count.max(1)))
        };
        let pools = kind.units.iter().filter(|pool| !pool.private);
        let pools = pools.map(|pool| Station {
            visits: demands
                .iter()
                .map(|demand| of_pool(&pool.ops, pool.count, demand))
                .collect(),
        });
        Self {
            stations: std::iter::once(slots).chain(pools).collect(),
            kind,
            demands,
        }
    }

    /// Instructions a cycle of each, if alone each would take `own` cycles for one.
    pub fn speeds(&self, own: &[f64]) -> Vec<f64> {
        let stations = &self.stations;
        let threads = own.len();
        let mut speeds: Vec<f64> = own.iter().map(|own| 1.0 / own).collect();
        // How many instructions of each thread are at each station, on the average.
        let mut queues = vec![vec![0.0; threads]; stations.len()];
        let mut there = vec![0.0; stations.len()];
        for _ in 0..60 {
            let mut change = 0.0f64;
            for thread in 0..threads {
                let mut waiting = 0.0;
                for (at, station) in stations.iter().enumerate() {
                    let (visits, time) = station.visits[thread];
                    let others = (0..threads).filter(|other| *other != thread).map(|other| {
                        let (visits, time) = station.visits[other];
                        // Of the one that is served just now half is over.
                        let served = (speeds[other] * visits * time).min(queues[at][other]);
                        (queues[at][other] - served / 2.0) * time
                    });
                    let wait = visits * others.sum::<f64>();
                    waiting += wait;
                    there[at] = visits * time + wait;
                }
                let speed = 1.0 / (own[thread] + waiting);
                change = change.max((speed / speeds[thread]).ln().abs());
                speeds[thread] = (speed * speeds[thread]).sqrt();
                for (queue, there) in queues.iter_mut().zip(&there) {
                    queue[thread] = (speeds[thread] * there).min(1.0);
                }
            }
            if change < 1e-4 {
                break;
            }
        }
        // What no queue can tell.
        self.limit(&mut speeds, 1.0);
        speeds
    }

    /// No thread gets more than there is, times this.
    pub fn limit(&self, speeds: &mut [f64], times: f64) {
        for station in &self.stations {
            let both = speeds.iter().zip(&station.visits);
            let used: f64 = both
                .map(|(speed, (visits, time))| speed * visits * time)
                .sum();
            if used <= times {
                continue;
            }
            for (speed, (visits, _)) in speeds.iter_mut().zip(&station.visits) {
                if *visits > 0.0 {
                    *speed *= times / used;
                }
            }
        }
    }

    /// Part of the time in which a floating-point unit has something to do, at these speeds.
    pub fn fp_busy(&self, speeds: &[f64]) -> f64 {
        let idle = self.demands.iter().zip(speeds);
        let idle = idle.map(|(demand, speed)| (1.0 - speed * demand.fp_cycles(self.kind)).max(0.0));
        1.0 - idle.product::<f64>()
    }
}
