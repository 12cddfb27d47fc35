//! Which lines of a thread are missing in caches that it comes to, and what bringing them costs.

use super::{
    NEGLIGIBLE, Run,
    demand::Lines,
    filling::{Cold, PARTS},
    layout::Layout,
    owner::Owner,
    prefetch::{Learned, cover, remembered},
    warmth::{Warmth, Whose},
};
use rustc_hash::FxHashMap;
use std::cell::LazyCell;

/// If fewer visits than this part miss the caches so far, the next ones keep no lines because of them.
const PASSING: f64 = 1e-3;

/// Lines of one sort in one cache of a thread's path, or pages in its TLB.
pub(super) struct Holding {
    which: usize,
    cache: usize,
    /// All there are.
    all: f64,
    /// How many of them this cache or one before it has when nothing is missing.
    full: f64,
    /// How many it has itself then.
    keeps: f64,
    /// Whether visits come to it then, too. Otherwise lines only pass it, on their way to the caches before it.
    visited: bool,
    /// Instructions with as many visits as there are lines.
    within: f64,
    /// Whether what it misses comes from memory.
    last: bool,
}

/// All that a thread has in caches and TLBs when it has run for long, along its path.
pub(super) fn holdings(layout: &Layout, run: &Run) -> Vec<Holding> {
    let fate = &run.speed.fate;
    let find = |cache: usize, which: usize| {
        let cache = layout.counterpart(cache, run.pu, run.like);
        let mut all = fate.kept.iter();
        all.find(|kept| kept.cache == cache && kept.which == which)
    };
    let mut found = Vec::new();
    let demand = &run.asked.demand;
    for (which, lines) in demand.lines.iter().enumerate() {
        if lines.visits <= 0.0 || lines.lines <= 0.0 {
            continue;
        }
        let pu = &layout.pus[run.pu];
        let path = if lines.code { &pu.fetch } else { &pu.data };
        // The part of the visits that misses all caches so far.
        let mut missed = 1.0;
        for cache in path {
            let kept = find(*cache, which).filter(|_| missed > PASSING);
            if let Some(kept) = kept {
                missed = (kept.misses / lines.visits).min(missed);
            }
            let full = lines.lines * (1.0 - missed);
            found.push(Holding {
                which,
                cache: *cache,
                all: lines.lines,
                full,
                // A victim cache has not what only passes, but the caches before it do, or evict it into this one.
                keeps: kept.map_or(full, |kept| kept.lines),
                visited: kept.is_some(),
                within: lines.lines / lines.visits,
                last: path.last() == Some(cache),
            });
        }
    }
    for kept in &fate.kept {
        if kept.cache >= layout.caches.len() && kept.hits > 0.0 {
            let all = kept.lines * (kept.hits + kept.misses) / kept.hits;
            found.push(Holding {
                which: kept.which,
                cache: layout.counterpart(kept.cache, run.like, run.pu),
                all,
                full: kept.lines,
                keeps: kept.lines,
                visited: true,
                within: all / (kept.hits + kept.misses),
                last: false,
            });
        }
    }
    found
}

/// Whose lines a thread visits, and which they are.
fn whose(run: &Run, which: usize) -> Whose {
    match &run.asked.demand.lines[which].owner {
        Owner::Thread => Whose::Thread(run.thread, which),
        shared => Whose::Shared(*shared),
    }
}

/// Remembers what a thread has in caches.
pub(super) fn keep_warm(warmth: &mut Warmth, run: &Run) {
    let ways = run.asked.class.ways;
    for its in &run.holdings {
        let whose = whose(run, its.which);
        let mut cold = run.cold.iter();
        let cold = cold.find(|cold| cold.cache == its.cache && cold.whose == whose);
        match cold {
            Some(cold) => warmth.remember(its.cache, whose, cold.there(), ways),
            None if its.visited => warmth.remember(its.cache, whose, its.keeps, ways),
            None => warmth.stays(its.cache, whose),
        }
    }
}

/// Takes away from caches what was written elsewhere until now: what a thread writes from now on stays in those that it uses.
pub(super) fn arrive(warmth: &mut Warmth, run: &Run) {
    for its in run.holdings.iter().filter(|its| !its.visited) {
        let whose = whose(run, its.which);
        let there = warmth.lines(its.cache, whose);
        warmth.remember(its.cache, whose, there, run.asked.class.ways);
    }
}

/// Remembers all that a thread would have in caches if it had run for long.
pub(super) fn fill(warmth: &mut Warmth, run: &Run) {
    for its in &run.holdings {
        let whose = whose(run, its.which);
        warmth.remember(its.cache, whose, its.keeps, run.asked.class.ways);
    }
}

/// Counts the threads that share lines: they bring them for each other.
pub(super) fn count_sharers(run: &Run, sharers: &mut FxHashMap<(usize, Whose), f64>) {
    for its in run.holdings.iter().filter(|its| its.full > 0.0) {
        let whose = whose(run, its.which);
        *sharers.entry((its.cache, whose)).or_default() += 1.0;
    }
}

/// What a miss of a cold cache costs on the average, if one that no prefetcher saves costs `cost`. Lines that are asked
/// for n visits ahead come one in each n-th part of the time that they take, at the earliest.
fn prefetched(layout: &Layout, run: &Run, cache: usize, lines: &Lines, cost: f64) -> f64 {
    let path = &layout.pus[run.pu].data;
    let Some(step) = path.iter().position(|its| *its == cache) else {
        return cost;
    };
    // Those of the caches before bring lines into this one, too.
    let covers = path[..=step].iter().map(|cache| {
        let prefetchers = &layout.caches[*cache].prefetchers;
        let none = vec![0.0; prefetchers.len()];
        cover(
            prefetchers,
            Learned { lines, rate: 0.0 },
            layout.line,
            (&none, 0.0),
        )
    });
    let best = covers.max_by(|one, other| one.share.total_cmp(&other.share));
    let Some(best) = best.filter(|best| best.share > 0.0) else {
        return cost;
    };
    let takes = match path.get(step + 1) {
        Some(next) => layout.caches[*next].latency as f64,
        None => layout.latency(run.pu, run.asked.class.homes.of(lines.owner)),
    };
    let between = 1.0 / (run.speed.speed * lines.visits);
    let late = (takes / best.ahead.max(1.0) - between).max(0.0);
    (1.0 - best.share) * cost + best.share * run.asked.demand.loads() * late
}

/// For how long the prefetchers of each cache on the path of a thread's data remember a page while all visits miss, in
/// instructions. Siblings that use the same prefetchers are left out.
fn times(layout: &Layout, run: &Run) -> Vec<Vec<f64>> {
    let lines = run.asked.demand.lines.iter().filter(|lines| !lines.code);
    let learned = lines.map(|lines| Learned {
        lines,
        rate: lines.visits,
    });
    let learned: Vec<_> = learned.collect();
    let path = layout.pus[run.pu].data.iter();
    let of = |cache: &usize| remembered(&layout.caches[*cache].prefetchers, layout.line, &learned);
    path.map(of).collect()
}

/// Lines of a set that is visited at random that prefetchers ask for with each that is missed in a cache or one before it:
/// any, and those that are missing whenever it is.
///
/// `times` is what [`times`] gives.
fn asked(
    layout: &Layout,
    run: &Run,
    (cache, lines): (usize, &Lines),
    times: &[Vec<f64>],
) -> (f64, f64) {
    let path = &layout.pus[run.pu].data;
    let Some(step) = path.iter().position(|its| *its == cache) else {
        return (0.0, 0.0);
    };
    let of = |(cache, times): (&usize, &Vec<f64>)| {
        let learned = Learned {
            lines,
            rate: lines.visits,
        };
        let prefetchers = &layout.caches[*cache].prefetchers;
        cover(prefetchers, learned, layout.line, (times, 0.0))
    };
    let covers = path[..=step].iter().zip(times).map(of);
    let most = covers.max_by(|one, other| one.asked.total_cmp(&other.asked));
    most.map_or((0.0, 0.0), |most| (most.asked - most.paired, most.paired))
}

/// What a thread misses in caches that it would find there if it had run for long.
pub(super) fn cold(
    warmth: &Warmth,
    layout: &Layout,
    run: &Run,
    sharers: &FxHashMap<(usize, Whose), f64>,
) -> Vec<Cold> {
    let mut all = Vec::new();
    let remember = LazyCell::new(|| times(layout, run));
    // Of the lines of the caches before, on the same path.
    let (mut path, mut had) = (None, 0.0_f64);
    for at in &run.holdings {
        let lines = &run.asked.demand.lines[at.which];
        let whose = whose(run, at.which);
        let is_tlb = at.cache >= layout.caches.len();
        if path != Some((at.which, is_tlb)) {
            (path, had) = (Some((at.which, is_tlb)), 0.0);
        }
        let part = match at.keeps > 0.0 {
            true => (warmth.lines(at.cache, whose) / at.keeps).min(1.0),
            false => 0.0,
        };
        had = had.max(part * at.full);
        let named = layout.counterpart(at.cache, run.pu, run.like);
        let mut costs = run.speed.costs.iter();
        let Some(cost) = costs.find(|cost| cost.cache == named) else {
            continue;
        };
        let sharers = sharers.get(&(at.cache, whose)).copied().unwrap_or(1.0);
        let mut cold = Cold {
            all: at.all / sharers,
            had: had / sharers,
            cache: at.cache,
            whose,
            code: lines.code,
            full: at.full / sharers,
            keeps: at.keeps,
            in_order: lines.reuse.in_order(),
            asked: 0.0,
            paired: 0.0,
            within: at.within / sharers,
            passed: 0.0,
            last: at.last,
            cost: match (lines.code, lines.reuse.in_order()) {
                (true, _) => [cost.code; PARTS],
                (_, true) => {
                    let most = cost.data[PARTS - 1];
                    [prefetched(layout, run, at.cache, lines, most); PARTS]
                }
                _ => cost.data,
            },
            spans: Vec::new(),
        };
        if !cold.costs_less(NEGLIGIBLE) && cold.left() > 0.5 {
            if !cold.in_order && !lines.code && !is_tlb {
                (cold.asked, cold.paired) = asked(layout, run, (at.cache, lines), &remember);
            }
            if cold.last {
                // However many misses overlap, the memory brings one line after the other.
                let least = cold.lines_of_a_miss() * layout.service;
                cold.cost = cold.cost.map(|cost| cost.max(least));
            }
            all.push(cold.prepared());
        }
    }
    all
}
