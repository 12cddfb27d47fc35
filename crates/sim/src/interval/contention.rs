//! What threads on one core do to each other in its pipeline.
//!
//! What the simulation of a core ([`super::play`]) shows at one setting of memory delays is carried over to others by a
//! closed network of the issue slots and shared units (approximate mean value analysis, Schweitzer 1979; Bard 1979). That
//! takes out the network's error at that setting.

use super::demand::Demand;
use crate::model::{CoreKind, Op, UnitPool};

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
    /// Threads with these demands on a core of a kind, on these contexts.
    pub fn new(kind: &'a CoreKind, demands: Vec<&'a Demand>, contexts: &[usize]) -> Self {
        let slot = 1.0 / f64::from(kind.width.max(1));
        // Shares need not add up to 1 exactly: they are not asked where each instruction takes one slot.
        let slots = |demand: &&Demand| match kind.micro_ops == [1; Op::COUNT] {
            true => (1.0, slot),
            false => {
                let of_ops = demand.ops.iter().zip(kind.micro_ops);
                let mean: f64 = of_ops
                    .map(|(share, number)| share * f64::from(number))
                    .sum();
                (1.0, slot * mean)
            }
        };
        let slots = Station {
            visits: demands.iter().map(slots).collect(),
        };
        let parts = kind.parts();
        let number = parts.among(demands.len());
        let part = |thread: usize| match number {
            1 => 0,
            _ => parts.of(contexts[thread]),
        };
        // Of each part, how its threads use the pools.
        let shares: Vec<_> = (0..number as usize)
            .map(|its| {
                let own = demands.iter().enumerate();
                let own = own.filter(|(thread, _)| part(*thread) == its);
                shares(kind, &own.map(|(_, demand)| *demand).collect::<Vec<_>>())
            })
            .collect();
        let of_pool = |(at, pool): (usize, &UnitPool), thread: usize, units: u32| {
            let (demand, shares) = (demands[thread], &shares[part(thread)][at]);
            let visits = |op: &Op| demand.ops[*op as usize] * shares[*op as usize];
            let time = |op: &Op| visits(op) * busy(kind, *op);
            let all: f64 = pool.ops.iter().map(visits).sum();
            let time: f64 = pool.ops.iter().map(time).sum();
            (all, time / all.max(1e-12) / f64::from(units.max(1)))
        };
        let mut stations = vec![slots];
        for pool in kind
            .units
            .iter()
            .enumerate()
            .filter(|(_, pool)| !pool.private)
        {
            let divided = if pool.1.partitioned { number } else { 1 };
            for its in 0..divided as usize {
                let of_thread = |thread: usize| match divided > 1 && part(thread) != its {
                    true => (0.0, 0.0),
                    false => of_pool(pool, thread, pool.1.count / divided),
                };
                stations.push(Station {
                    visits: (0..demands.len()).map(of_thread).collect(),
                });
            }
        }
        Self {
            stations,
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

/// Cycles for which an operation keeps its unit.
fn busy(kind: &CoreKind, op: Op) -> f64 {
    f64::from(kind.latencies[op as usize].busy.max(1))
}

/// Times that the shares of operations between two pools are adapted to each other's.
const ROUNDS: usize = 8;

/// Of each pool, the part of each operation that it does: an operation goes to the pool that is free, so that both are
/// equally busy if they can be.
fn shares(kind: &CoreKind, demands: &[&Demand]) -> Vec<[f64; Op::COUNT]> {
    let work = |op: Op| {
        let of_all: f64 = demands.iter().map(|demand| demand.ops[op as usize]).sum();
        of_all * busy(kind, op)
    };
    let units = |pool: usize| {
        let pool = &kind.units[pool];
        let of = if pool.private { demands.len() } else { 1 };
        f64::from(pool.count.max(1)) * of.max(1) as f64
    };
    let pools = |op: Op| {
        let does = move |at: &usize| kind.units[*at].ops.contains(&op);
        (0..kind.units.len()).filter(does)
    };
    let mut shares = vec![[0.0; Op::COUNT]; kind.units.len()];
    for op in Op::ALL {
        let of = pools(op).count().max(1) as f64;
        pools(op).for_each(|at| shares[at][op as usize] = 1.0 / of);
    }
    for _ in 0..ROUNDS {
        for op in Op::ALL {
            let (mut of, own) = (pools(op), work(op));
            let (Some(one), Some(other)) = (of.next(), of.next()) else {
                continue;
            };
            if own <= 0.0 {
                continue;
            }
            let others = |at: usize| {
                let ops = kind.units[at].ops.iter().filter(|its| **its != op);
                ops.map(|op| work(*op) * shares[at][*op as usize])
                    .sum::<f64>()
            };
            let first = units(one) * (others(other) + own) - units(other) * others(one);
            let first = (first / (units(one) + units(other)) / own).clamp(0.0, 1.0);
            shares[one][op as usize] = first;
            shares[other][op as usize] = 1.0 - first;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::find_machine, interval::demand::Class, workload::Mix};

    fn only(op: Op) -> Demand {
        let mut mix = Mix {
            code_bytes: 64,
            ..Mix::default()
        };
        mix.shares[op as usize] = 1.0;
        Demand::new(&mix, Class::default(), &[], 64.0, 4096.0)
    }

    /// Two threads that would each fill the core's slots alone share them, counted in micro-operations.
    #[test]
    fn an_instruction_takes_a_slot_for_each_of_its_micro_operations() {
        let machine = find_machine("smt2-zen").unwrap();
        let mut kind = CoreKind {
            units: Vec::new(),
            ..machine.kinds[0].clone()
        };
        let width = f64::from(kind.width);
        for micro_ops in [1u32, 2, 3] {
            kind.micro_ops[Op::Alu as usize] = micro_ops;
            let demand = only(Op::Alu);
            let sharers = Sharers::new(&kind, vec![&demand, &demand], &[0, 1]);
            let own = f64::from(micro_ops) / width;
            let speeds = sharers.speeds(&[own, own]);
            let sum: f64 = speeds.iter().sum();
            assert!(
                sum * own <= 1.0 + 1e-9 && sum * own > 0.9,
                "{micro_ops}: {sum} instructions a cycle of {width} slots"
            );
        }
    }
}
