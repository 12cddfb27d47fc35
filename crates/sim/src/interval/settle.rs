//! The speeds at which threads go on side by side: each one's delays depend on how fast the others go, so the whole is
//! solved until it no longer changes.

use super::{
    channels::waits,
    contention::Sharers,
    delays::{Delay, Delays, Sort},
    demand::{Asked, Lines},
    fate::{Fate, Prefetched},
    filling::PARTS,
    homes::Home,
    layout::Layout,
    play::InQueues,
    running::Running,
    seats::{Seat, Seats, contexts},
    stops,
    traffic::Traffic,
    under_way::under_way,
    wait::Wait,
};
use crate::model::{MachineModel, Op, PuUses};

/// Changes of speeds below this end the search.
const STILL: f64 = 3e-4;

/// Steps at most.
const STEPS: usize = 100;

/// Steps in which queues follow speeds that are held.
const HELD: usize = 8;

/// A correction holds for one setting of delays; at others it may promise no more than this, times what the core has.
const SPARE: f64 = 1.05;

/// Steps in which the pace is found that goes with its own delays.
const HALVINGS: usize = 20;

/// One thread beside others.
#[derive(Debug, Clone, Default)]
pub(super) struct Speed {
    /// Instructions in a picosecond, on the average where the clock stops from time to time.
    pub speed: f64,
    /// The same while the clock runs.
    pub running: f64,
    /// What its accesses meet.
    pub fate: Fate,
    /// For how long its transfers wait for channels.
    pub wait: Wait,
    /// Cycles by which loads are delayed, by one instruction, each load by itself.
    pub memory_cycles: f64,
    /// By one instruction: cycles lost to delayed loads and fetches, and to others in the pipeline.
    pub memory_stall: f64,
    pub contention: f64,
    /// Part of the time in which a floating-point unit of the core has something to do.
    pub fp_busy: f64,
    /// What it holds of the core's queues.
    pub in_queues: InQueues,
    /// What a miss of each cache, or TLB behind those, costs it, with the stops of the clock.
    pub costs: Vec<Cost>,
}

/// What a miss of a cache or TLB costs a thread, in picoseconds.
#[derive(Debug, Clone)]
pub(super) struct Cost {
    pub cache: usize,
    /// Of data, by the part of its lines that are missing: the more, the more misses hide each other. The n-th is for a part
    /// from n to n + 1 of [`PARTS`].
    pub data: [f64; PARTS],
    pub code: f64,
}

/// Picoseconds of a cycle of a core while its clock runs.
pub(super) fn cycle(machine: &MachineModel, core: usize) -> f64 {
    machine.kind(&machine.cores[core]).cycle as f64
}

/// The same on the average.
pub(super) fn mean_cycle(machine: &MachineModel, core: usize) -> f64 {
    machine.kind(&machine.cores[core]).pace().mean_cycle()
}

/// How long a PU's accesses wait for memory on the average, in picoseconds: of its own data and its code.
fn own_memory(layout: &Layout, pu: usize, asked: &Asked, wait: &Wait) -> f64 {
    let own = asked.class.homes.own;
    let link = layout.link((own, layout.pus[pu].node));
    let link = link.map_or(0.0, |link| wait.server(link));
    layout.latency(pu, Home::Node(own)) + wait.memory + link
}

/// By how much longer those of data wait on the average that come from another core, in picoseconds.
fn farther(layout: &Layout, pu: usize, asked: &Asked, fate: &Fate) -> f64 {
    let last = layout.pus[pu].data.last();
    let missed = last.map_or(asked.demand.accesses(), |last| {
        fate.data[layout.caches[*last].level]
    });
    if missed > 0.0 {
        fate.farther / missed
    } else {
        0.0
    }
}

/// What a miss in each cache of a path costs: the next one's time, or memory's.
fn steps<'a>(
    layout: &'a Layout,
    path: &'a [usize],
    memory: f64,
    wait: &'a Wait,
) -> impl Iterator<Item = (usize, f64)> + 'a {
    let port = |cache: usize| wait.server(layout.port(cache));
    path.iter().enumerate().map(move |(step, cache)| {
        let hit = |next: &usize| layout.caches[*next].latency as f64 + port(*next);
        // Lines from memory do not pass a victim cache.
        let passed = || match layout.caches[*cache].victim {
            true => port(*cache),
            false => 0.0,
        };
        let cost = path.get(step + 1).map_or_else(|| memory - passed(), hit);
        (*cache, cost)
    })
}

/// How a thread goes on, as far as prefetchers are concerned: they have the more time the slower it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Picoseconds for an instruction.
    pub instruction: f64,
    /// The part of a miss that holds it up.
    pub exposed: f64,
}

impl Pace {
    /// Of a thread at a speed, in instructions a picosecond.
    pub fn of(seat: &Seat, speed: f64) -> Self {
        Self {
            instruction: 1.0 / speed,
            exposed: seat.alone.exposed_longest,
        }
    }
}

/// The delays of a thread's accesses.
pub(super) fn delays(
    layout: &Layout,
    pu: usize,
    asked: &Asked,
    fate: &Fate,
    wait: &Wait,
    pace: Pace,
) -> Delays {
    let at = &layout.pus[pu];
    let demand = &asked.demand;
    let farther = farther(layout, pu, asked, fate);
    let memory =
        |lines: &Lines| layout.latency(pu, asked.class.homes.of(lines.owner)) + wait.memory;
    let along = |path: &[usize], misses: &dyn Fn(usize) -> f64, visits: f64, memory: f64| {
        if path.is_empty() {
            return vec![Delay {
                chance: 1.0,
                time: memory,
            }];
        }
        let mut sum = 0.0;
        let steps = steps(layout, path, memory, wait).enumerate();
        let delays = steps.map(|(step, (cache, cost))| {
            sum += cost;
            let further = path.get(step + 1).map_or(0.0, |next| misses(*next));
            Delay {
                chance: ((misses(cache) - further).max(0.0) / visits.max(1e-30)).min(1.0),
                time: sum,
            }
        });
        delays.collect::<Vec<Delay>>()
    };
    let accesses = demand.accesses().max(1e-30);
    let sort = |(which, lines): (usize, &Lines)| {
        let misses = |cache: usize| {
            let kept = fate.kept.iter();
            let mut kept = kept.filter(|kept| kept.cache == cache && kept.which == which);
            kept.next().map_or(0.0, |kept| kept.unsaved)
        };
        let data_memory = memory(lines) + farther + fate.links.wait(which, wait);
        let mut delays = along(&at.data, &misses, lines.visits, data_memory);
        let prefetched = fate.prefetched.iter().find(|its| its.which == which);
        if let Some(prefetched) = prefetched {
            wait_for_prefetched(
                layout,
                at,
                &mut delays,
                (prefetched, lines),
                (data_memory, pace),
            );
        }
        Sort {
            share: lines.visits * lines.accesses / accesses,
            // Without a cache nothing stays for the next access.
            accesses: if at.data.is_empty() {
                1.0
            } else {
                lines.accesses
            },
            delays,
        }
    };
    let data = demand
        .lines
        .iter()
        .enumerate()
        .filter(|(_, lines)| !lines.code);
    let fetched = |cache: usize| fate.fetch[layout.caches[cache].level];
    Delays::of(
        data.map(sort).collect(),
        along(
            &at.fetch,
            &fetched,
            demand.fetches(),
            own_memory(layout, pu, asked, wait),
        ),
        Delay {
            chance: (fate.tlb / accesses).min(1.0),
            time: layout.tlbs.get(at.tlb).map_or(0.0, |(_, miss)| *miss),
        },
    )
}

/// Makes the delays of one sort of lines longer by what a thread waits for lines that were asked for too late.
fn wait_for_prefetched(
    layout: &Layout,
    at: &PuUses,
    delays: &mut [Delay],
    (prefetched, lines): (&Prefetched, &Lines),
    (memory, pace): (f64, Pace),
) {
    let behind = at.data[prefetched.step + 1..].iter();
    let rest: f64 = behind.map(|its| layout.caches[*its].latency as f64).sum();
    let rest = rest + memory;
    let visits = lines.visits.max(1e-30);
    let between = pace.instruction / visits;
    let lead = prefetched.cover.lead(between, pace.exposed * rest);
    let late = (rest - lead).max(0.0);
    let part = prefetched.lines / visits;
    // They hit the cache to which they were brought.
    let delay = &mut delays[prefetched.step.saturating_sub(1)];
    if prefetched.step == 0 && late > 0.0 {
        let chance = (delay.chance + part).min(1.0);
        delay.time *= delay.chance / chance.max(1e-30);
        delay.chance = chance;
    }
    delay.time += late * (part / delay.chance.max(1e-30)).min(1.0);
}

/// What a miss of each cache costs a thread: of its loads by one instruction, hidden as far as it hides them, since
/// nothing waits for stores; and of its code.
fn costs(layout: &Layout, seat: &Seat, fate: &Fate, wait: &Wait, speed: f64) -> Vec<Cost> {
    let at = &layout.pus[seat.pu];
    let demand = &seat.asked.demand;
    let loads = demand.loads();
    // All visits to lines miss if all are missing.
    let visits = demand.lines.iter().filter(|lines| !lines.code);
    let visits: f64 = visits.map(|lines| lines.visits).sum();
    let first = visits / demand.accesses().max(1e-30);
    let delays = delays(
        layout,
        seat.pu,
        &seat.asked,
        fate,
        wait,
        Pace::of(seat, speed),
    );
    let mut costs: Vec<Cost> = Vec::with_capacity(at.data.len() + at.fetch.len() + 1);
    for (step, cache) in at.data.iter().enumerate() {
        let of = |part: usize| {
            let share = first * (part as f64 + 0.5) / PARTS as f64;
            loads * seat.alone.further(&delays, step, share)
        };
        costs.push(Cost {
            cache: *cache,
            data: std::array::from_fn(of),
            code: 0.0,
        });
    }
    let memory = own_memory(layout, seat.pu, &seat.asked, wait);
    let walk = loads * seat.alone.exposed_walk * delays.walk.time;
    for (cache, cost) in steps(layout, &at.fetch, memory, wait) {
        match costs.iter_mut().find(|known| known.cache == cache) {
            Some(known) => known.code = cost,
            None => costs.push(Cost {
                cache,
                data: [0.0; PARTS],
                code: cost,
            }),
        }
    }
    costs.push(Cost {
        cache: layout.caches.len() + at.tlb,
        data: [walk; PARTS],
        code: 0.0,
    });
    costs
}

/// Speeds that agree with the delays that they cause: of all seats, core by core.
pub(super) fn settle(machine: &MachineModel, layout: &Layout, cores: &[Seats]) -> Vec<Speed> {
    let guesses = cores.iter().flat_map(|core| &core.guesses);
    iterate(machine, layout, cores, guesses.copied().collect(), false)
}

/// What the accesses of a core's threads meet while these go on at given speeds, and how fast the formula takes them to be
/// with that.
pub(super) fn hold(
    machine: &MachineModel,
    layout: &Layout,
    core: &Seats,
    speeds: &[f64],
) -> Vec<Speed> {
    let core = std::slice::from_ref(core);
    iterate(machine, layout, core, speeds.to_vec(), true)
}

/// If speeds are `held` only the channels' queues follow them.
fn iterate(
    machine: &MachineModel,
    layout: &Layout,
    cores: &[Seats],
    mut speeds: Vec<f64>,
    held: bool,
) -> Vec<Speed> {
    let most = if held { HELD } else { STEPS };
    let mut formula = speeds.clone();
    let seats: Vec<&Seat> = cores.iter().flat_map(|core| &core.seats).collect();
    let running: Vec<Running<'_>> = seats
        .iter()
        .map(|seat| Running {
            pu: seat.pu,
            demand: &seat.asked.demand,
            homes: seat.asked.class.homes,
            ways: seat.asked.class.ways,
        })
        .collect();
    let mut queues = Vec::new();
    let mut result = vec![Speed::default(); seats.len()];
    let mut traffic = Traffic::new(layout, &running);
    let mut last = Vec::new();
    // By how much each is slower than it would be with the core to itself and a right formula.
    let mut slower = vec![1.0; seats.len()];
    // What stops of the clock leave of each one's speed.
    let mut left = vec![1.0; seats.len()];
    let shared: Vec<Sharers<'_>> = cores
        .iter()
        .map(|core| {
            let demands = core.seats.iter().map(|seat| &seat.asked.demand);
            let kind = machine.kind(&machine.cores[core.core]);
            Sharers::new(kind, demands.collect(), &contexts(layout, core))
        })
        .collect();
    for _ in 0..most {
        // Others meet what comes of it on the average.
        let means: Vec<f64> = speeds.iter().zip(&left).map(|(v, left)| v * left).collect();
        let fates = traffic.fates(&means);
        let at_once = |at: usize, server: usize| {
            let kind = machine.kind(&machine.cores[layout.pus[seats[at].pu].core]);
            under_way(layout, kind, seats[at], &fates[at], server)
        };
        let (waits, moved) = waits(
            machine,
            layout,
            &running,
            &means,
            &fates,
            &at_once,
            &mut queues,
        );
        let mut change = moved;
        let mut at = 0;
        for (core, sharers) in cores.iter().zip(&shared) {
            let cycle = cycle(machine, core.core);
            let pace = machine.kind(&machine.cores[core.core]).pace();
            let first = at;
            let mut own = Vec::with_capacity(core.seats.len());
            for seat in &core.seats {
                let demand = &seat.asked.demand;
                let delays = match held {
                    true => {
                        let pace = Pace::of(seat, speeds[at]);
                        delays(layout, seat.pu, &seat.asked, &fates[at], &waits[at], pace)
                    }
                    false => own_delays(layout, seat, &fates[at], &waits[at], (cycle, slower[at])),
                };
                let loads = demand.ops[Op::Load as usize] * delays.of_load() / cycle;
                let fetches = demand.fetches() * delays.of_fetch() / cycle;
                let held_up = seat.alone.held_up(&delays) * demand.ops[Op::Load as usize];
                let stall = held_up / cycle + fetches;
                own.push(seat.alone.base + stall);
                let used = fates[at].transfers * speeds[at] * layout.service;
                let running = (speeds[at], used);
                left[at] = stops::left(pace, &seat.alone, demand, &delays, running);
                let result = &mut result[at];
                result.wait = waits[at].clone();
                result.memory_stall = stall;
                result.memory_cycles = loads;
                at += 1;
            }
            let mut shared = sharers.speeds(&own);
            let fp_busy = sharers.fp_busy(&shared);
            for (speed, correction) in shared.iter_mut().zip(&core.corrections) {
                *speed *= correction;
            }
            sharers.limit(&mut shared, SPARE);
            for (step, speed) in shared.into_iter().enumerate() {
                result[first + step].contention = (1.0 / speed - own[step]).max(0.0);
                result[first + step].fp_busy = fp_busy;
                result[first + step].in_queues = core.in_queues[step];
                slower[first + step] = 1.0 / (speed * own[step]);
                let most = waits[first + step].most;
                let speed = match most < 1.0 {
                    true => (speed / cycle).min(speeds[first + step] * most),
                    false => speed / cycle,
                };
                formula[first + step] = speed;
                if held {
                    continue;
                }
                let before = &mut speeds[first + step];
                change = change.max((speed / *before).ln().abs());
                *before = before.powf(0.4) * speed.powf(0.6);
            }
        }
        last = fates;
        if change < STILL {
            break;
        }
    }
    let speeds = if held { formula } else { speeds };
    let seats = seats.iter().zip(last.into_iter().zip(speeds));
    for ((result, left), (seat, (fate, speed))) in result.iter_mut().zip(left).zip(seats) {
        result.costs = costs(layout, seat, &fate, &result.wait, speed);
        for cost in &mut result.costs {
            let all = cost.data.iter_mut().chain([&mut cost.code]);
            all.for_each(|cost| *cost /= left);
        }
        result.fate = fate;
        result.running = speed;
        result.speed = speed * left;
    }
    result
}

/// The delays of a thread at the pace that these delays leave it, on a core with cycles of `cycle` picoseconds where others
/// make it `slower` by this factor. A slower thread gives prefetchers more time, and so has shorter delays: there is one
/// such pace.
fn own_delays(
    layout: &Layout,
    seat: &Seat,
    fate: &Fate,
    wait: &Wait,
    (cycle, slower): (f64, f64),
) -> Delays {
    let demand = &seat.asked.demand;
    let at = |instruction: f64| {
        let pace = Pace::of(seat, 1.0 / instruction);
        delays(layout, seat.pu, &seat.asked, fate, wait, pace)
    };
    let paced = |delays: &Delays| {
        let loads = seat.alone.held_up(delays) * demand.ops[Op::Load as usize];
        let fetches = demand.fetches() * delays.of_fetch();
        (seat.alone.base * cycle + loads + fetches) * slower
    };
    let mut quick = seat.alone.base * cycle * slower;
    let mut delays = at(quick);
    if fate.prefetched.is_empty() {
        return delays;
    }
    let mut slow = paced(&delays);
    for _ in 0..HALVINGS {
        let middle = (quick + slow) / 2.0;
        delays = at(middle);
        match paced(&delays) > middle {
            true => quick = middle,
            false => slow = middle,
        }
    }
    delays
}
