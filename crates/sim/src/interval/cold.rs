//! Which lines of a thread are missing in caches that it comes to, and what bringing them costs.

use super::{
    NEGLIGIBLE, Run,
    demand::Lines,
    fate::Kept,
    layout::Layout,
    owner::Owner,
    prefetch::{Learned, cover},
    warmth::{Cold, Warmth, Whose},
};
use rustc_hash::FxHashMap;

/// Whether what a cache misses comes from memory.
fn is_last(layout: &Layout, run: &Run, cache: usize, code: bool) -> bool {
    let pu = &layout.pus[run.pu];
    let path = if code { &pu.fetch } else { &pu.data };
    path.last() == Some(&cache)
}

/// How many lines, or pages of a TLB, there are in all.
fn lines_of(kept: &Kept) -> f64 {
    kept.lines * (kept.hits + kept.misses) / kept.hits
}

/// Whose lines a thread visits, and which they are.
pub(super) fn whose(run: &Run, which: usize) -> Whose {
    match &run.asked.demand.lines[which].owner {
        Owner::Thread => Whose::Thread(run.thread, which),
        shared => Whose::Shared(*shared),
    }
}

/// Remembers what a thread has in caches.
pub(super) fn keep_warm(warmth: &mut Warmth, run: &Run) {
    for kept in &run.speed.fate.kept {
        let whose = whose(run, kept.which);
        let of_kept = |cold: &&Cold| cold.cache == kept.cache && cold.whose == whose;
        let missing = run
            .cold
            .iter()
            .find(of_kept)
            .map_or(0.0, |cold| cold.left() * cold.sharers);
        let there = (kept.lines - missing).max(0.0);
        warmth.remember(kept.cache, whose, there, run.asked.class.ways);
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

/// What a thread misses in caches that it would find there if it had run for long.
pub(super) fn cold(
    warmth: &Warmth,
    layout: &Layout,
    run: &Run,
    sharers: &FxHashMap<(usize, Whose), f64>,
) -> Vec<Cold> {
    let mut all = Vec::new();
    for kept in run.speed.fate.kept.iter().filter(|kept| kept.hits > 0.0) {
        let costs = run
            .speed
            .costs
            .iter()
            .find(|(cache, ..)| *cache == kept.cache);
        let Some((_, data, code)) = costs else {
            continue;
        };
        let lines = &run.asked.demand.lines[kept.which];
        let is_code = lines.code;
        let whose = whose(run, kept.which);
        let sharers = sharers.get(&(kept.cache, whose)).copied().unwrap_or(1.0);
        let cold = Cold {
            all: lines_of(kept) / sharers,
            had: warmth.lines(kept.cache, whose).min(kept.lines) / sharers,
            cache: kept.cache,
            whose,
            code: is_code,
            full: kept.lines / sharers,
            in_order: lines.reuse.in_order(),
            within: lines_of(kept) / sharers / (kept.hits + kept.misses),
            sharers,
            passed: 0.0,
            last: is_last(layout, run, kept.cache, is_code),
            cost: match is_code {
                true => *code,
                false => prefetched(layout, run, kept.cache, lines, *data),
            },
        };
        if cold.left() * cold.cost >= NEGLIGIBLE * cold.within && cold.left() > 0.5 {
            all.push(cold);
        }
    }
    all
}
