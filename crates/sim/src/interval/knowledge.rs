//! What was solved once is remembered: speeds by combination of mixes, and how wrong the closed formula is for each
//! combination on a core.

use super::{
    alone::{Alone, alone},
    demand::{Asked, Class, Demand, IDLE, Packed},
    homes::Homes,
    layout::Layout,
    own_ports::OwnPorts,
    play::{InQueues, Played, Purpose, play},
    recorded,
    running::Running,
    seats::{Seat, Seats, contexts},
    settle::{Pace, Speed, cycle, delays, hold, settle},
    traffic::Traffic,
    wait::Wait,
};
use crate::{
    model::{MachineModel, OperatingPoint},
    ways::Ways,
    workload::{Mix, WorkloadModel},
};
use rustc_hash::FxHashMap;
use std::{
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

/// This many combinations are remembered; then all are forgotten.
const REMEMBERED: usize = 1 << 16;

/// Rounds in which the correction and the delays for which it holds are brought together.
const ROUNDS: usize = 2;

/// If the formula and the simulation are then farther apart than this (logarithm), the work is repeated step by step,
/// in at most this many rounds.
const APART: f64 = 0.1;
const CAREFUL_ROUNDS: usize = 12;

/// A careful round follows the simulation by this part.
const STEP: f64 = 0.5;

/// Threads by their classes, in an order of PUs.
type Key = Box<[Packed]>;

/// A table that several threads of the host may fill: every value follows from its key alone, so that it makes no
/// difference who was first.
struct Table<K, V>(Mutex<FxHashMap<K, V>>);

impl<K: Hash + Eq, V: Clone> Table<K, V> {
    fn new() -> Self {
        Self(Mutex::new(FxHashMap::default()))
    }

    fn get(&self, key: &K) -> Option<V> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.get(key).cloned()
    }

    fn put(&self, key: K, value: V) -> V {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() >= REMEMBERED {
            table.clear();
        }
        table.insert(key, value.clone());
        value
    }
}

/// The threads of a core, with all other cores idle.
struct Corrected {
    /// How each does alone in its part of the core.
    alone: Vec<Alone>,
    /// By how much the closed formula is wrong for each.
    corrections: Vec<f64>,
    /// Their speeds, in instructions a picosecond.
    speeds: Vec<f64>,
    in_queues: Vec<InQueues>,
}

/// What was found out about a machine and some mixes. Simulations of these may share it.
pub struct Knowledge {
    pub(super) machine: Arc<MachineModel>,
    pub(super) mixes: Box<[Mix]>,
    /// The names of the mixes' regions.
    regions: Vec<String>,
    pub(super) layout: Layout,
    classes: Table<Packed, Arc<Asked>>,
    speeds: Table<Key, Arc<[Arc<Speed>]>>,
    /// By sort of core ([`Layout::alike`]), mix, recorded thread, nodes of the data and number of busy contexts.
    alone: Table<(usize, usize, usize, Homes, Ways, usize), Alone>,
    /// By sort of core ([`Layout::alike`]) and classes of its contexts, sorted; with idle ones if it has parts.
    corrections: Table<(usize, Key), Arc<Corrected>>,
    /// The same about the machine with its cores at other operating points.
    points: Table<Box<[OperatingPoint]>, Arc<Knowledge>>,
}

impl Knowledge {
    /// Nothing yet.
    pub fn new(machine: Arc<MachineModel>, workload: &WorkloadModel) -> Self {
        let sets = workload.mixes.iter().flat_map(|mix| &mix.working_sets);
        let mut regions: Vec<String> = sets.filter_map(|set| set.region.clone()).collect();
        regions.sort_unstable();
        regions.dedup();
        Self::of(machine, workload.mixes.clone().into(), regions)
    }

    fn of(machine: Arc<MachineModel>, mixes: Box<[Mix]>, regions: Vec<String>) -> Self {
        Self {
            regions,
            layout: Layout::new(&machine),
            machine,
            mixes,
            classes: Table::new(),
            speeds: Table::new(),
            alone: Table::new(),
            corrections: Table::new(),
            points: Table::new(),
        }
    }

    /// The same about the machine with its cores at these operating points.
    pub(super) fn at_points(&self, points: &[OperatingPoint]) -> Arc<Self> {
        let key: Box<[OperatingPoint]> = points.into();
        self.points.get(&key).unwrap_or_else(|| {
            let machine = Arc::new(self.machine.at_points(points));
            let known = Self::of(machine, self.mixes.clone(), self.regions.clone());
            self.points.put(key, Arc::new(known))
        })
    }

    /// Whether it is about this machine and this workload's mixes.
    pub(crate) fn is_about(&self, machine: &Arc<MachineModel>, workload: &WorkloadModel) -> bool {
        Arc::ptr_eq(&self.machine, machine) && *self.mixes == *workload.mixes
    }

    /// What a class asks for.
    pub(super) fn asked(&self, class: Class) -> Arc<Asked> {
        let packed = class.pack();
        self.classes.get(&packed).unwrap_or_else(|| {
            let mix = &self.mixes[class.mix];
            let (line, page) = (self.layout.line, self.layout.page);
            let recorded = mix.trace.as_ref().zip(class.recorded.checked_sub(1));
            let recorded = recorded.and_then(|(trace, at)| recorded::demand(trace, at, line, page));
            let demand =
                recorded.unwrap_or_else(|| Demand::new(mix, class, &self.regions, line, page));
            self.classes.put(
                packed,
                Arc::new(Asked {
                    class,
                    packed,
                    demand,
                }),
            )
        })
    }

    /// The speeds of threads on all PUs; meaningless for PUs without. Of each, also the PU that stood for its own: the speed
    /// names the caches of that one.
    pub(super) fn speeds(&self, on_pus: &[Option<Arc<Asked>>]) -> Vec<(Arc<Speed>, usize)> {
        let packed = |pu: u32| {
            on_pus[pu as usize]
                .as_ref()
                .map_or(IDLE, |asked| asked.packed)
        };
        let order = self.in_order(packed);
        let key: Key = order.iter().map(|pu| packed(*pu)).collect();
        let known = self.speeds.get(&key).unwrap_or_else(|| {
            let sorted: Vec<_> = order
                .iter()
                .map(|pu| on_pus[*pu as usize].clone())
                .collect();
            let solved = self.solve(&sorted).into_iter().map(Arc::new).collect();
            self.speeds.put(key, solved)
        });
        let mut speeds = vec![(Arc::clone(&known[0]), 0); on_pus.len()];
        for (place, pu) in order.iter().enumerate() {
            speeds[*pu as usize] = (Arc::clone(&known[place]), place);
        }
        speeds
    }

    /// The PUs in an order in which machines that are the same but for the names of like cores and contexts look the
    /// same: place n of the order stands for PU n.
    fn in_order(&self, packed: impl Fn(u32) -> Packed) -> Vec<u32> {
        let cores = self.machine.cores.len();
        let mut of_core: Vec<Vec<u32>> = vec![Vec::new(); cores];
        for (pu, at) in self.layout.pus.iter().enumerate() {
            of_core[at.core].push(pu as u32);
        }
        for (core, pus) in of_core.iter_mut().enumerate() {
            let kind = self.machine.kind(&self.machine.cores[core]);
            let each = pus.len() / kind.parts().number as usize;
            let mut parts: Vec<Vec<u32>> = pus.chunks(each.max(1)).map(<[u32]>::to_vec).collect();
            for part in &mut parts {
                part.sort_by_key(|pu| packed(*pu));
            }
            parts.sort_by_key(|part| part.iter().map(|pu| packed(*pu)).collect::<Vec<_>>());
            *pus = parts.concat();
        }
        // Cores that can stand for each other, those with the least classes first.
        let sorts = self.layout.alike.iter().max().map_or(0, |sort| sort + 1);
        let mut alike: Vec<Vec<usize>> = vec![Vec::new(); sorts];
        for core in 0..cores {
            alike[self.layout.alike[core]].push(core);
        }
        for cores in &mut alike {
            let content = |core: usize| of_core[core].iter().map(|pu| packed(*pu));
            cores.sort_by(|a, b| content(*a).cmp(content(*b)));
        }
        let mut next = vec![0; sorts];
        let mut order = Vec::with_capacity(self.layout.pus.len());
        for core in 0..cores {
            let sort = self.layout.alike[core];
            order.extend(&of_core[alike[sort][next[sort]]]);
            next[sort] += 1;
        }
        order
    }

    /// The speeds, in the order of PUs.
    fn solve(&self, on_pus: &[Option<Arc<Asked>>]) -> Vec<Speed> {
        let mut of_core: Vec<Vec<(usize, Arc<Asked>)>> = vec![Vec::new(); self.machine.cores.len()];
        for (pu, asked) in on_pus.iter().enumerate() {
            if let Some(asked) = asked {
                of_core[self.layout.pus[pu].core].push((pu, Arc::clone(asked)));
            }
        }
        let busy = of_core
            .iter()
            .enumerate()
            .filter(|(_, pus)| !pus.is_empty());
        let cores: Vec<Seats> = busy.map(|(core, pus)| self.seats(core, pus)).collect();
        let settled = settle(&self.machine, &self.layout, &cores);
        let mut speeds = vec![Speed::default(); on_pus.len()];
        let seats = cores.iter().flat_map(|core| &core.seats);
        for (seat, speed) in seats.zip(settled) {
            speeds[seat.pu] = speed;
        }
        speeds
    }

    /// Threads on a core, and how wrong the closed formula is for them.
    fn seats(&self, core: usize, pus: &[(usize, Arc<Asked>)]) -> Seats {
        let seat = |(pu, asked): &(usize, Arc<Asked>)| Seat {
            pu: *pu,
            asked: Arc::clone(asked),
            alone: self.alone(*pu, asked, pus.len()),
        };
        let seats: Vec<Seat> = pus.iter().map(seat).collect();
        // The PUs of a core, or of its parts, are in the order of their classes already.
        let kind = self.machine.kind(&self.machine.cores[core]);
        let mut classes: Vec<Packed> = pus.iter().map(|(_, asked)| asked.packed).collect();
        if kind.parts().number > 1 {
            classes = vec![IDLE; kind.contexts as usize];
            for (pu, asked) in pus {
                classes[self.layout.pus[*pu].context] = asked.packed;
            }
        }
        let key = (self.layout.alike[core], classes.into());
        let found = self.corrections.get(&key);
        let found = found.unwrap_or_else(|| {
            let corrected = self.correct(core, seats.clone());
            self.corrections.put(key, Arc::new(corrected))
        });
        let seats = seats.into_iter().zip(&found.alone);
        let seats = seats.map(|(seat, alone)| Seat {
            alone: alone.clone(),
            ..seat
        });
        Seats {
            core,
            seats: seats.collect(),
            corrections: found.corrections.clone(),
            guesses: found.speeds.clone(),
            in_queues: found.in_queues.clone(),
        }
    }

    /// Finds out how wrong the closed formula is for these threads on a core, with all other cores idle, and how fast
    /// they are then.
    fn correct(&self, core: usize, seats: Vec<Seat>) -> Corrected {
        let cycle = cycle(&self.machine, core);
        let guess = |seat: &Seat| 1.0 / seat.alone.base / cycle;
        let mut seats = Seats {
            core,
            corrections: vec![1.0; seats.len()],
            guesses: seats.iter().map(guess).collect(),
            in_queues: vec![InQueues::default(); seats.len()],
            seats,
        };
        let speeds =
            |settled: &[Speed]| -> Vec<f64> { settled.iter().map(|speed| speed.running).collect() };
        let settle =
            |seats: &Seats| settle(&self.machine, &self.layout, std::slice::from_ref(seats));
        let mut settled = settle(&seats);
        let mut apart = 0.0;
        for _ in 0..ROUNDS {
            let played = self.played(&mut seats, &settled);
            let found = seats.corrections.iter().zip(settled.iter().zip(&played));
            seats.corrections = found
                .map(|(before, (speed, played))| before * played / speed.running)
                .collect();
            self.level(&mut seats);
            let before = farthest(&speeds(&settled), &played);
            seats.guesses = speeds(&settled);
            // A correction holds for the delays with which it was found: with others the formula may settle elsewhere.
            settled = settle(&seats);
            apart = before.max(farthest(&speeds(&settled), &played));
        }
        if apart > APART {
            self.correct_carefully(&mut seats);
        }
        Corrected {
            alone: seats.seats.into_iter().map(|seat| seat.alone).collect(),
            corrections: seats.corrections,
            speeds: seats.guesses,
            in_queues: seats.in_queues,
        }
    }

    /// Where threads compete for caches, a thread that is a little slower loses lines and gets slower still: the
    /// formula alone may settle far from where the threads do. Here it follows the simulation, and what hides delays is
    /// measured where the threads end up.
    fn correct_carefully(&self, seats: &mut Seats) {
        let kind = self.machine.kind(&self.machine.cores[seats.core]);
        let cycle = cycle(&self.machine, seats.core);
        let busy = seats.seats.len();
        // As if each had its part of the core's slots.
        let fair = f64::from(kind.width.max(1)) / busy as f64 / cycle;
        let mut speeds: Vec<f64> = seats
            .seats
            .iter()
            .map(|seat| fair.min(1.0 / seat.alone.base / cycle))
            .collect();
        for _ in 0..CAREFUL_ROUNDS {
            let settled = hold(&self.machine, &self.layout, seats, &speeds);
            let played = self.played(seats, &settled);
            let apart = farthest(&speeds, &played);
            for (speed, played) in speeds.iter_mut().zip(&played) {
                *speed *= (played / *speed).powf(STEP);
            }
            if apart < APART / 2.0 {
                break;
            }
        }
        let held = hold(&self.machine, &self.layout, seats, &speeds);
        for (seat, speed) in seats.seats.iter_mut().zip(&held) {
            let pace = Pace::of(seat, speed.running);
            let delays = delays(
                &self.layout,
                seat.pu,
                &seat.asked,
                &speed.fate,
                &speed.wait,
                pace,
            );
            seat.alone = alone(kind, &seat.asked.demand, busy, &delays, self.layout.line);
        }
        seats.corrections.fill(1.0);
        let formula = hold(&self.machine, &self.layout, seats, &speeds);
        let found = speeds.iter().zip(&formula);
        seats.corrections = found
            .map(|(speed, formula)| speed / formula.running)
            .collect();
        seats.guesses = speeds;
        self.level(seats);
    }

    /// How fast the threads of a core run in the simulation with these delays, in instructions a picosecond. What they hold
    /// of its queues is noted.
    fn played(&self, seats: &mut Seats, settled: &[Speed]) -> Vec<f64> {
        let kind = self.machine.kind(&self.machine.cores[seats.core]);
        let cycle = cycle(&self.machine, seats.core);
        let both = seats.seats.iter().zip(settled);
        let members: Vec<_> = both
            .map(|(seat, speed)| {
                let pace = Pace::of(seat, speed.running);
                let (asked, fate) = (&seat.asked, &speed.fate);
                let wait = OwnPorts::without(&self.layout, seats.core, &speed.wait);
                let delays = delays(&self.layout, seat.pu, asked, fate, &wait, pace);
                (&seat.asked.demand, delays)
            })
            .collect();
        let contexts = match kind.parts().number {
            1 => (0..members.len()).collect(),
            _ => contexts(&self.layout, seats),
        };
        let threads: Vec<_> = (seats.seats.iter().zip(settled))
            .map(|(seat, speed)| (seat.pu, &seat.asked.demand, &speed.fate))
            .collect();
        let ports = OwnPorts::new(&self.layout, seats.core, &threads);
        let line = self.layout.line;
        let played = play(kind, &members, &contexts, line, &ports, Purpose::Speed);
        seats.in_queues = played.iter().map(|played| played.in_queues).collect();
        let speed = |played: &Played| 1.0 / (played.cycles * cycle);
        played.iter().map(speed).collect()
    }

    /// Gives threads of the same class, and in the same part of the core, the same: their mean.
    fn level(&self, seats: &mut Seats) {
        let kind = self.machine.kind(&self.machine.cores[seats.core]);
        let part = |seat: &Seat| kind.parts().of(self.layout.pus[seat.pu].context);
        let place = |seat: &Seat| (part(seat), seat.asked.packed);
        let places: Vec<_> = seats.seats.iter().map(place).collect();
        let mut corrections = &mut seats.corrections[..];
        for same in places.chunk_by(|one, other| one == other) {
            let (values, others) = corrections.split_at_mut(same.len());
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            values.fill(mean);
            corrections = others;
        }
    }

    /// How a class does in isolation on a core with `busy` busy contexts.
    fn alone(&self, pu: usize, asked: &Asked, busy: usize) -> Alone {
        let core = self.layout.pus[pu].core;
        let class = &asked.class;
        let key = (
            self.layout.alike[core],
            class.mix,
            class.recorded,
            class.homes,
            class.ways,
            busy,
        );
        self.alone.get(&key).unwrap_or_else(|| {
            let running = [Running {
                pu,
                demand: &asked.demand,
                homes: asked.class.homes,
                ways: class.ways,
            }];
            let speed = 0.3 / cycle(&self.machine, core);
            let fate = &Traffic::new(&self.layout, &running).fates(&[speed])[0];
            let pace = Pace {
                instruction: 1.0 / speed,
                exposed: 1.0,
            };
            let delays = delays(&self.layout, pu, asked, fate, &Wait::default(), pace);
            let kind = self.machine.kind(&self.machine.cores[core]);
            let found = alone(kind, &asked.demand, busy, &delays, self.layout.line);
            self.alone.put(key, found)
        })
    }
}

/// By how much speeds differ at most (logarithm).
fn farthest(some: &[f64], others: &[f64]) -> f64 {
    let both = some.iter().zip(others);
    both.map(|(one, other)| (one / other).ln().abs())
        .fold(0.0, f64::max)
}
