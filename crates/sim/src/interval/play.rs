//! The threads of one core in a short simulation.
//!
//! The cycle level's own core is simulated for a few thousand instructions, once for each combination of mixes. Random
//! draws replace the caches; ports of caches that only this core uses are simulated ([`super::own_ports`]).

use super::{
    delays::{Delay, Delays, Sort},
    demand::{Demand, SAMPLE},
    own_ports::{OwnPorts, Passes},
};
use crate::{
    core::{Core, Supply},
    counters::Counters,
    memory::{Access, Channel, Hierarchy},
    model::{CoreKind, Op, QUEUES},
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

/// Runs that measure speeds are this many times as long where a core has queues: which context holds most entries of one that
/// they share changes at random, and may stay the same for thousands of cycles. What fills the queue of a single thread are
/// instructions that happen to follow each other.
const LONGER: u64 = 8;

/// This many draws in a row meet each part of the probabilities equally often, in random order.
const STRATA: usize = 128;

/// No run is longer, in cycles; where the core has queues, [`LONGER`] times that.
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

/// How lines are numbered: no two members have a line in common, nor two sorts.
#[derive(Clone, Copy)]
struct Numbers {
    members: u64,
    /// Sorts of lines, of the member with most of them.
    sorts: u64,
}

impl Numbers {
    /// The number of a member's `nth` line of a sort.
    fn line(self, member: usize, sort: usize, nth: u64) -> u64 {
        (nth * self.sorts + sort as u64) * self.members + member as u64
    }

    /// The sort of a line, and which one of that it is.
    fn of(self, line: u64) -> (usize, u64) {
        let line = line / self.members;
        ((line % self.sorts) as usize, line / self.sorts)
    }
}

/// Chance in place of the caches.
struct Chance<'a> {
    line_bits: u32,
    members: &'a [(&'a Demand, Delays)],
    numbers: Numbers,
    /// Of each member: for the walks of its loads, and its fetches.
    draws: Vec<[Even; 2]>,
    /// Of each member, by sort.
    lines: Vec<Vec<Met>>,
    ports: &'a OwnPorts,
    channels: Vec<Channel>,
    /// Of each member: which lines pass the ports besides.
    others: Vec<[Even; 4]>,
}

/// More lines of a sort than a window holds.
const IN_USE: usize = 1_024;

/// Lines of one sort that were accessed, each at the place of its number's lowest bits.
struct Met {
    lines: Box<[u64]>,
    draws: Even,
}

impl Met {
    fn new(random: Random) -> Self {
        Self {
            lines: vec![u64::MAX; IN_USE].into(),
            draws: Even::new(random),
        }
    }

    /// Whether this is the first access to a line.
    fn is_new(&mut self, nth: u64) -> bool {
        std::mem::replace(&mut self.lines[nth as usize % IN_USE], nth) != nth
    }
}

/// Of which step a delay is, and how long; `None` if there is none.
fn pick(delays: &[Delay], mut draw: f64) -> Option<(usize, f64)> {
    for (step, delay) in delays.iter().enumerate() {
        draw -= delay.chance;
        if draw < 0.0 {
            return Some((step, delay.time));
        }
    }
    None
}

impl Chance<'_> {
    /// How long a delay is with what its line, of data or of code (`is_data`), waits for at the core's own ports. `before`
    /// gives the place on the path of the cache before a port: lines that miss it pass the port.
    fn passing(
        &mut self,
        member: usize,
        (picked, is_data): (Option<(usize, f64)>, bool),
        now: Ps,
        before: impl Fn(&Passes) -> Option<usize>,
    ) -> f64 {
        let Some((step, alone)) = picked else {
            return 0.0;
        };
        let mut time = alone;
        let Some(ports) = self.ports.of.get(member) else {
            return time;
        };
        let times = |mean: f64, draw: f64| (mean + draw) as u32;
        for passes in ports {
            if before(passes).is_none_or(|before| step < before) {
                continue;
            }
            let port = &mut self.channels[passes.port];
            let draws = &mut self.others[member];
            time += port.request(now + time.round() as Ps) as f64;
            for _ in 0..times(passes.back, draws[0].draw()) {
                port.request(now + time.round() as Ps);
            }
            if is_data {
                for _ in 0..times(passes.vain, draws[1].draw()) {
                    for _ in 0..times(passes.at_once, draws[2].draw()) {
                        port.request(now + alone.round() as Ps);
                    }
                }
            }
        }
        time
    }

    /// Lines for which nothing waits pass the ports, too.
    fn pass_others(&mut self, member: usize, now: Ps) {
        for passes in self.ports.of.get(member).into_iter().flatten() {
            let lines = passes.others + self.others[member][3].draw();
            for _ in 0..lines as u32 {
                self.channels[passes.port].request(now);
            }
        }
    }
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
        address: u64,
        at: Ps,
        counters: &mut Counters,
    ) -> Ps {
        let member = thread as usize;
        let delays = &self.members[member].1;
        let [walk, fetch] = &mut self.draws[member];
        let of_walk = match kind {
            Access::Fetch => {
                let picked = pick(&delays.fetch, fetch.draw());
                let time = self.passing(member, (picked, false), at, |passes| passes.fetch);
                return time.round() as Ps;
            }
            Access::Load => pick(&[delays.walk], walk.draw()).map_or(0.0, |(_, time)| time),
            Access::Store => 0.0,
        };
        let (sort, nth) = self.numbers.of(self.line_of(address));
        let line = delays.sorts.get(sort).zip(self.lines[member].get_mut(sort));
        // The core itself waits for a line that is on its way.
        let picked = line.and_then(|(of, met)| match met.is_new(nth) {
            true => pick(&of.delays, met.draws.draw()),
            false => None,
        });
        let asked = at + of_walk.round() as Ps;
        let time = self.passing(member, (picked, true), asked, |passes| {
            passes
                .data
                .filter(|_| passes.stores || kind == Access::Load)
        });
        self.pass_others(member, at);
        counters.data_misses[0] += u64::from(time > 0.0);
        (time + of_walk).round() as Ps
    }
}

/// Samples of streams, again and again. Chance decides which accesses are to one line, and whether that is there.
struct Samples<'a> {
    streams: Vec<Sample<'a>>,
    line_bits: u32,
    numbers: Numbers,
    /// Draws each instruction from the sample at random, where it matters that many of a sort may follow each other.
    /// Without it all come in order, so that each sort has exactly its share.
    drawn: Option<Random>,
}

/// One member's sample.
struct Sample<'a> {
    instructions: &'a [Instruction],
    at: usize,
    /// For its loads, and its stores: the sorts of lines.
    draws: [Even; 2],
    sorts: Vec<Place<'a>>,
}

/// Where a thread is in one sort of lines.
struct Place<'a> {
    sort: &'a Sort,
    /// Lines so far, with the present one.
    lines: u64,
    /// Accesses to that.
    accesses: f64,
}

impl<'a> Sample<'a> {
    fn new(instructions: &'a [Instruction], at: usize, delays: &'a Delays, random: Random) -> Self {
        let place = |sort| Place {
            sort,
            lines: 0,
            accesses: 0.0,
        };
        Self {
            instructions,
            at,
            draws: [2, 3].map(|kind| Even::new(random.part(kind))),
            sorts: delays.sorts.iter().map(place).collect(),
        }
    }

    fn next(&mut self, drawn: Option<&mut Random>) -> Instruction {
        let mut next = self.instructions[self.at];
        if let Some(drawn) = drawn {
            let other = drawn.below(self.instructions.len() as u64);
            next = Instruction {
                at: next.at,
                ..self.instructions[other as usize]
            };
        }
        self.at = (self.at + 1) % self.instructions.len();
        next
    }

    /// The sort of the line of the next load or store, and which one of that it is.
    fn line(&mut self, op: Op) -> (usize, u64) {
        // Loads and stores share a mix's working sets.
        let mut draw = self.draws[usize::from(op == Op::Store)].draw();
        let mut sorts = self.sorts.iter_mut().enumerate();
        let of = sorts.find(|(_, place)| {
            draw -= place.sort.share;
            draw < 0.0
        });
        let Some((sort, place)) = of else {
            return (0, 0);
        };
        place.accesses += 1.0;
        let over = place.accesses - place.sort.accesses;
        if place.lines == 0 || over >= 0.0 {
            place.lines += 1;
            place.accesses = over.max(0.0);
        }
        (sort, place.lines)
    }
}

impl Supply for Samples<'_> {
    fn fill(&mut self, thread: u32, into: &mut [Instruction]) -> usize {
        let sample = &mut self.streams[thread as usize];
        for place in &mut *into {
            *place = sample.next(self.drawn.as_mut());
            if matches!(place.op, Op::Load | Op::Store) {
                let (sort, nth) = sample.line(place.op);
                place.data = self.numbers.line(thread as usize, sort, nth) << self.line_bits;
            }
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

/// How a thread does on a core.
#[derive(Debug, Clone, Copy)]
pub(super) struct Played {
    /// Cycles for an instruction.
    pub cycles: f64,
    pub in_queues: InQueues,
}

/// What a thread holds of a core's queues, on the average.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct InQueues {
    /// Entries, by the number of the queue.
    pub entries: [f64; QUEUES],
    /// Part of the time in which a floating-point operation of the core waits in a scheduler.
    pub fp_waiting: f64,
}

impl InQueues {
    fn of(counted: &Counters) -> Self {
        let cycles = counted.cycles().max(1) as f64;
        Self {
            entries: counted
                .queue_entry_cycles
                .map(|entry_cycles| entry_cycles as f64 / cycles),
            fp_waiting: 1.0 - counted.fp_scheduler_empty_cycles as f64 / cycles,
        }
    }
}

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The difference that delays make to the same instructions.
    Difference,
    /// How fast threads are.
    Speed,
}

/// Plays threads on these contexts of a core whose clock never stops.
pub(super) fn play<'m>(
    kind: &CoreKind,
    members: &'m [(&'m Demand, Delays)],
    contexts: &[usize],
    line: f64,
    ports: &OwnPorts,
    purpose: Purpose,
) -> Vec<Played> {
    let steady = (kind.duty < 1.0).then(|| CoreKind {
        duty: 1.0,
        ..kind.clone()
    });
    let mut core = Core::new(0, steady.as_ref().unwrap_or(kind));
    let random = Random::new(0x5eed);
    let line_bits = (line as u64).trailing_zeros();
    let part = |at: usize| random.part(1 + at as u64);
    let sorts = members.iter().map(|(_, delays)| delays.sorts.len());
    let numbers = Numbers {
        members: members.len() as u64,
        sorts: sorts.max().unwrap_or(0).max(1) as u64,
    };
    let met = |at: usize| {
        let sorts = 0..members[at].1.sorts.len() as u64;
        sorts
            .map(|sort| Met::new(part(at).part(4 + sort)))
            .collect()
    };
    let mut memory = Chance {
        line_bits,
        members,
        numbers,
        draws: (0..members.len())
            .map(|at| [0, 1].map(|kind| Even::new(part(at).part(kind))))
            .collect(),
        lines: (0..members.len()).map(met).collect(),
        channels: ports.channels(),
        ports,
        others: (0..members.len())
            .map(|at| [0, 1, 2, 3].map(|sort| Even::new(part(at).part(u64::MAX - sort))))
            .collect(),
    };
    let sampled = |(at, (demand, delays)): (usize, &'m (&'m Demand, Delays))| {
        // Not all at the same place of the same sample.
        let first = at * demand.sample.len() / members.len();
        Sample::new(&demand.sample, first, delays, part(at))
    };
    let longer = purpose == Purpose::Speed && !kind.queues.is_empty();
    let mut streams = Samples {
        streams: members.iter().enumerate().map(sampled).collect(),
        line_bits,
        numbers,
        drawn: longer.then(|| random.part(u64::MAX)),
    };
    for (thread, context) in (0..).zip(contexts) {
        core.assign(*context, Some(thread), 0, &mut streams, &mut memory);
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
        let mut done = vec![Counters::default(); members.len()];
        let begun = now;
        let all = |done: &[Counters]| done.iter().map(Counters::instructions).sum::<u64>();
        while all(&done) < instructions && now - begun < LONGEST * times {
            now += step;
            core.run(now * core.cycle_time(), &mut streams, &mut memory, |_| {});
            for (context, done) in contexts.iter().zip(&mut done) {
                *done += core.take_counters(*context);
            }
        }
        (done, now - begun)
    };
    run(&mut core, wanted(WARM));
    let (done, cycles) = run(&mut core, wanted(MEASURED));
    done.iter()
        .map(|done| Played {
            cycles: cycles as f64 / done.instructions().max(1) as f64,
            in_queues: InQueues::of(done),
        })
        .collect()
}
