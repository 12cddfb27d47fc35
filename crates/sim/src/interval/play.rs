//! The threads of one core in a short simulation.
//!
//! The cycle level's own core is simulated for a few thousand instructions, once for each combination of mixes. Random
//! draws replace the caches.

use super::{
    delays::{Delay, Delays, Sort},
    demand::{Demand, SAMPLE},
};
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
