//! What threads on one core do to each other in its pipeline.
//!
//! The cycle level's own core is simulated for a few thousand instructions, once for each combination of mixes. Random
//! draws replace the caches. The result at one setting of memory delays is carried over to others by a closed network
//! of the issue slots and shared units (approximate mean value analysis, Schweitzer 1979; Bard 1979). That takes out
//! the network's error at that setting.

use super::demand::{Demand, SAMPLE};
use crate::{
    core::{Core, Supply},
    counters::Counters,
    memory::{Access, Hierarchy},
    model::{CoreKind, Op, Queue, QueueSharing},
    stream::{Instruction, Random},
    units::Ps,
};

/// Instructions simulated of each thread before and while it is measured, on the average.
const WARM: u64 = 1_500;
const MEASURED: u64 = 3 * SAMPLE as u64;

/// A run should meet this many delays of each length that matters; with fewer, it is luck how many of them hide each other.
/// Runs are up to [`LONGER`] times as long for that.
const EVENTS: f64 = 400.0;

/// A delay matters if it takes this part of a cycle of each instruction, were nothing of it hidden.
const MATTERS: f64 = 0.05;

/// Runs are this many times as long where contexts share a queue: which of them holds most of its entries changes at
/// random, and may stay the same for thousands of cycles.
const LONGER: u64 = 8;

/// This many draws in a row meet each part of the probabilities equally often, in random order.
const STRATA: usize = 128;

/// No run is longer, in cycles; where contexts share a queue, [`LONGER`] times that.
const LONGEST: u64 = 400_000;

/// A possible delay of an access.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Delay {
    /// The chance to be delayed that long.
    pub chance: f64,
    pub time: f64,
}

/// What happens to the accesses of one sort of lines.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sort {
    /// The share of the thread's accesses.
    pub share: f64,
    /// Accesses in a row to one line. The first may miss; the others wait until the line is there.
    pub accesses: f64,
    /// Of the first access to a line, in the same steps as [`Delays::load`].
    pub delays: Vec<Delay>,
}

/// What happens to the accesses of a thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Delays {
    /// Of a load of any line; the chances of those that are not delayed are left out.
    pub load: Vec<Delay>,
    /// The same by sort of lines.
    pub sorts: Vec<Sort>,
    /// Of a fetch of a line.
    pub fetch: Vec<Delay>,
    /// A walk through the page tables, besides.
    pub walk: Delay,
}

impl Delays {
    /// Of accesses to these sorts of lines.
    pub fn of(sorts: Vec<Sort>, fetch: Vec<Delay>, walk: Delay) -> Self {
        let steps = sorts.iter().map(|sort| sort.delays.len()).max();
        let step = |step: usize| {
            let delays = sorts.iter().filter_map(|sort| {
                let delay = sort.delays.get(step)?;
                Some((sort.share / sort.accesses * delay.chance, delay.time))
            });
            let (chance, time) = delays.fold((0.0, 0.0), |(sum, all), (chance, time)| {
                (sum + chance, all + chance * time)
            });
            Delay {
                chance: chance.min(1.0),
                time: match chance > 0.0 {
                    true => time / chance,
                    false => sorts
                        .iter()
                        .filter_map(|sort| sort.delays.get(step))
                        .map(|delay| delay.time)
                        .fold(0.0, f64::max),
                },
            }
        };
        Self {
            load: (0..steps.unwrap_or(0)).map(step).collect(),
            sorts,
            fetch,
            walk,
        }
    }

    /// Only the delays of one step, so that this part of the loads meets them.
    fn only(&self, step: usize, chance: f64) -> Self {
        let present = self.load[step].chance;
        let sorts = self.sorts.iter().map(|sort| {
            let delay = sort.delays.get(step).copied().unwrap_or_default();
            // Where none does now, all sorts do alike.
            let chance = match present > 0.0 {
                true => delay.chance * chance / present,
                false => chance * sort.accesses,
            };
            Sort {
                delays: vec![Delay {
                    chance: chance.min(1.0),
                    time: if delay.time > 0.0 {
                        delay.time
                    } else {
                        self.load[step].time
                    },
                }],
                ..*sort
            }
        });
        Self::of(sorts.collect(), Vec::new(), Delay::default())
    }

    /// How long a load is delayed on the average, in picoseconds.
    pub fn of_load(&self) -> f64 {
        self.walk.chance * self.walk.time + mean(&self.load)
    }

    /// How long a fetch of a line is delayed on the average.
    pub fn of_fetch(&self) -> f64 {
        mean(&self.fetch)
    }
}

fn mean(delays: &[Delay]) -> f64 {
    delays.iter().map(|delay| delay.chance * delay.time).sum()
}

/// Numbers from 0 to 1 that are spread evenly over each [`STRATA`] draws: less chance in a short run.
struct Even {
    random: Random,
    order: [u8; STRATA],
    at: usize,
}

impl Even {
    fn new(random: Random) -> Self {
        Self {
            random,
            order: std::array::from_fn(|at| at as u8),
            at: 0,
        }
    }

    fn draw(&mut self) -> f64 {
        if self.at == 0 {
            self.random.shuffle(&mut self.order);
        }
        let stratum = self.order[self.at];
        self.at = (self.at + 1) % STRATA;
        (f64::from(stratum) + self.random.unit()) / STRATA as f64
    }
}

/// Where a thread is in one sort of lines.
struct Place {
    /// Accesses to the present line.
    accesses: f64,
    /// When that is there.
    arrives: Ps,
    draws: Even,
}

/// Chance in place of the caches.
struct Chance<'a> {
    line_bits: u32,
    members: &'a [(&'a Demand, Delays)],
    /// Of each member: for its loads, walks, fetches and stores.
    draws: Vec<[Even; 4]>,
    /// Of each member, by sort of lines.
    places: Vec<Vec<Place>>,
}

fn pick(delays: &[Delay], mut draw: f64) -> f64 {
    for delay in delays {
        draw -= delay.chance;
        if draw < 0.0 {
            return delay.time;
        }
    }
    0.0
}

/// The delay of an access at that moment: which sort of lines it is for is drawn by their shares.
fn access(sorts: &[Sort], places: &mut [Place], mut draw: f64, now: Ps) -> f64 {
    let of = sorts.iter().zip(places).find(|(sort, _)| {
        draw -= sort.share;
        draw < 0.0
    });
    let Some((sort, place)) = of else {
        return 0.0;
    };
    place.accesses += 1.0;
    if place.accesses < sort.accesses {
        return place.arrives.saturating_sub(now) as f64;
    }
    place.accesses -= sort.accesses;
    let time = pick(&sort.delays, place.draws.draw());
    place.arrives = now + time.round() as Ps;
    time
}

impl Hierarchy for Chance<'_> {
    fn line_of(&self, address: u64) -> u64 {
        address >> self.line_bits
    }

    fn access(
        &mut self,
        _: usize,
        thread: u32,
        kind: Access,
        _: u64,
        now: Ps,
        counters: &mut Counters,
    ) -> Ps {
        let delays = &self.members[thread as usize].1;
        let [load, walk, fetch, store] = &mut self.draws[thread as usize];
        let places = &mut self.places[thread as usize];
        let (time, of_walk) = match kind {
            Access::Fetch => return pick(&delays.fetch, fetch.draw()).round() as Ps,
            Access::Load => (
                access(&delays.sorts, places, load.draw(), now),
                pick(&[delays.walk], walk.draw()),
            ),
            // Loads and stores share a mix's working sets.
            Access::Store => (access(&delays.sorts, places, store.draw(), now), 0.0),
        };
        counters.data_misses[0] += u64::from(time > 0.0);
        (time + of_walk).round() as Ps
    }
}

/// Samples of streams, again and again. No two accesses are to the same line: chance decides which are there.
struct Samples<'a> {
    streams: Vec<(&'a [Instruction], usize)>,
    lines: u64,
    /// Draws each instruction from the sample at random, where it matters that many of a sort may follow each other.
    /// Without it all come in order, so that each sort has exactly its share.
    drawn: Option<Random>,
}

/// Bits of an address in the largest line.
const LINE_BITS: u32 = 16;

impl Supply for Samples<'_> {
    fn fill(&mut self, thread: u32, into: &mut [Instruction]) -> usize {
        let (sample, at) = &mut self.streams[thread as usize];
        for place in &mut *into {
            *place = sample[*at];
            if let Some(drawn) = &mut self.drawn {
                let other = sample[drawn.below(sample.len() as u64) as usize];
                *place = Instruction {
                    at: place.at,
                    ..other
                };
            }
            place.data = self.lines << LINE_BITS;
            self.lines += 1;
            *at = (*at + 1) % sample.len();
        }
        into.len()
    }

    fn give_back(&mut self, _: u32, _: &[Instruction]) {
        // No thread leaves.
    }
}

/// How many times the usual length a thread must be simulated to meet enough of its delays.
fn events(kind: &CoreKind, demand: &Demand, delays: &Delays) -> u64 {
    let loads = demand.ops[Op::Load as usize];
    let least = delays
        .load
        .iter()
        .chain([&delays.walk])
        .filter(|delay| loads * delay.chance * delay.time > MATTERS * kind.cycle as f64);
    let least = least.map(|delay| loads * delay.chance).fold(1.0, f64::min);
    let times = EVENTS / (least * MEASURED as f64);
    (times.ceil() as u64).clamp(1, LONGER)
}

fn places(sorts: &[Sort], random: Random) -> Vec<Place> {
    let place = |sort: u64| Place {
        accesses: 0.0,
        arrives: 0,
        draws: Even::new(random.part(sort)),
    };
    (0..sorts.len() as u64).map(place).collect()
}

/// Plays threads on the contexts of a core. Returns each one's cycles for an instruction.
pub(super) fn play<'m>(kind: &CoreKind, members: &[(&'m Demand, Delays)], line: f64) -> Vec<f64> {
    let mut core = Core::new(0, kind);
    let random = Random::new(0x5eed);
    let mut memory = Chance {
        line_bits: (line as u64).trailing_zeros(),
        members,
        draws: (0..members.len() as u64)
            .map(|at| [1, 2, 3, 0].map(|kind| Even::new(random.part(4 * at + kind))))
            .collect(),
        places: members
            .iter()
            .zip(1..)
            .map(|((_, delays), member)| places(&delays.sorts, random.part(member << 32)))
            .collect(),
    };
    let sampled = |(at, (demand, _)): (usize, &(&'m Demand, Delays))| {
        // Not all at the same place of the same sample.
        (&*demand.sample, at * demand.sample.len() / members.len())
    };
    let is_shared = |queue: &Queue| queue.sharing == QueueSharing::Shared;
    let longer = members.len() > 1 && kind.queues.iter().any(is_shared);
    let mut streams = Samples {
        streams: members.iter().enumerate().map(sampled).collect(),
        lines: 0,
        drawn: longer.then(|| random.part(u64::MAX)),
    };
    for thread in 0..members.len() {
        core.assign(thread, Some(thread as u32), 0, &mut streams, &mut memory);
    }
    let times = match longer {
        true => LONGER,
        false => members
            .iter()
            .map(|(demand, delays)| events(kind, demand, delays))
            .max()
            .unwrap_or(1),
    };
    let wanted = |each: u64| each * members.len() as u64 * times;
    let step = 500;
    let mut now = 0;
    let mut run = |core: &mut Core, instructions: u64| {
        let mut done = vec![0; members.len()];
        let begun = now;
        while done.iter().sum::<u64>() < instructions && now - begun < LONGEST * times {
            now += step;
            core.run(now * core.cycle_time(), &mut streams, &mut memory, |_| {});
            for (context, done) in done.iter_mut().enumerate() {
                *done += core.take_counters(context).instructions();
            }
        }
        (done, now - begun)
    };
    run(&mut core, wanted(WARM));
    let (done, cycles) = run(&mut core, wanted(MEASURED));
    done.iter()
        .map(|done| cycles as f64 / (*done).max(1) as f64)
        .collect()
}

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
        let loads =
            loads.map(|(step, delay)| self.part(step, delay.chance) * delay.chance * delay.time);
        loads.sum::<f64>() + self.exposed_walk * delays.walk.chance * delays.walk.time
    }

    /// How much longer a load holds it up that misses one cache more than this many, since that is cold: all that come to
    /// that cache miss, and hide each other.
    pub fn further(&self, delays: &Delays, step: usize) -> f64 {
        let Some(delay) = delays.load.get(step) else {
            return 0.0;
        };
        let (before, reach) = match step.checked_sub(1) {
            None => (0.0, COLD),
            Some(before) => {
                let rest = delays.load[before..].iter();
                let shorter = &delays.load[before];
                (
                    self.part(before, shorter.chance) * shorter.time,
                    rest.map(|delay| delay.chance).sum(),
                )
            }
        };
        let cold = self.part(step, reach.max(delay.chance)) * delay.time;
        (cold - before).max(0.0)
    }

    fn part(&self, step: usize, chance: f64) -> f64 {
        self.exposed
            .get(step)
            .map_or(1.0, |exposed| exposed.at(chance))
    }
}

/// Shares of the loads for which it is found out how far delays are hidden, besides the share that a thread has alone.
const SHARES: [f64; 4] = [RARE, 0.03, 0.2, 1.0];

/// Delays rarer than that are taken as so rare, where it is found out how far they are hidden.
const RARE: f64 = 0.004;

/// This share of the loads misses a cold first cache.
const COLD: f64 = 0.2;

/// How a stream does alone on one of `busy` contexts: with its part of a shared window.
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
    let mut queues = kind.queues.clone();
    for queue in &mut queues {
        if queue.sharing == QueueSharing::Split {
            queue.entries = (queue.entries / busy.max(1) as u32).max(1);
        }
    }
    let own = CoreKind {
        contexts: 1,
        window,
        window_shared: false,
        queues,
        ..kind.clone()
    };
    let base = play(&own, &[(demand, Delays::default())], line)[0];
    let loads = demand.ops[Op::Load as usize];
    let exposed = |only: Delays, delay: &Delay| {
        if kind.window <= 1 || loads <= 0.0 || delay.time <= 0.0 {
            return 1.0;
        }
        let slowed = play(&own, &[(demand, only)], line)[0];
        let cycles = loads * delay.chance * delay.time / kind.mean_cycle(kind.cycle);
        ((slowed - base) / cycles).clamp(0.0, 1.0)
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
