//! The placement with the greatest predicted speed: exact matching where units take two, then improvement step by step.

use super::{
    loss::{Change, Pairs, Placed},
    scene::Scene,
};
use integer_blossom::min_weight_perfect_matching;

/// Gains smaller than this part of the whole are rounding.
const LEAST: f64 = 1e-7;

/// How often all changes are tried at most.
const SWEEPS: usize = 24;

/// Exact matching up to this many threads and empty places: its time grows with the cube (0.6 ms for 64, 32 ms for
/// 256).
pub(super) const MATCHED: usize = 256;

/// Speeds are matched as whole numbers: that of a thread in isolation is this.
const WHOLE: f64 = 1e7;

/// Improves a placement by the best change of each runner in turn until there is none.
pub(super) fn improve(placed: &mut Placed<'_>, scene: &Scene) {
    let least = LEAST * placed.value().abs();
    let limits = limits(scene);
    for _ in 0..SWEEPS {
        let mut better = false;
        for runner in 0..scene.runners.len() {
            if !scene.runners[runner].ours {
                continue;
            }
            let mut best: Option<(f64, Change)> = None;
            let mut consider = |change: Change| {
                if placed.allows(change) {
                    let gain = placed.gain(change);
                    if gain > best.map_or(least, |(best, _)| best) {
                        best = Some((gain, change));
                    }
                }
            };
            let here = placed.unit[runner];
            for other in runner + 1..scene.runners.len() {
                if placed.unit[other] != here && scene.runners[other].ours {
                    consider(Change::Swap(runner, other));
                }
            }
            // Of empty units that share the same with others one stands for all.
            let mut empty: Vec<(usize, &[usize])> = Vec::new();
            let mask = scene.runners[runner].mask;
            for (unit, limit) in limits.iter().enumerate() {
                if unit == here || placed.count(unit) >= *limit || !scene.masks[mask][unit] {
                    continue;
                }
                if placed.count(unit) == 0 {
                    let alike = (scene.units[unit].width, scene.units[unit].groups.as_slice());
                    if empty.contains(&alike) {
                        continue;
                    }
                    empty.push(alike);
                }
                consider(Change::Move(runner, unit));
            }
            if let Some((_, change)) = best {
                placed.make(change);
                better = true;
            }
        }
        for one in 0..scene.units.len() {
            for other in one + 1..scene.units.len() {
                let full = placed.count(one) > 1 || placed.count(other) > 1;
                let alike = || scene.units[one].groups == scene.units[other].groups;
                let change = Change::Exchange(one, other);
                if full && !alike() && placed.allows(change) && placed.gain(change) > least {
                    placed.make(change);
                    better = true;
                }
            }
        }
        if !better {
            return;
        }
    }
}

/// How many runners a unit takes: as many as PUs; where there are more threads than PUs, its part of them.
fn limits(scene: &Scene) -> Vec<usize> {
    let pus: usize = scene.units.iter().map(|unit| unit.width).sum();
    let threads = scene.runners.len();
    let limit = |width: usize| width.max((threads * width).div_ceil(pus.max(1)));
    scene.units.iter().map(|unit| limit(unit.width)).collect()
}

/// The best pairs, if every unit takes two and every thread may be anywhere: on the units where most of them are
/// already. The best of all where nothing but the neighbour on the unit matters.
pub(super) fn matched(scene: &Scene, pairs: &Pairs) -> Option<Vec<usize>> {
    let threads = scene.runners.len();
    let units = scene.units.len();
    let free = scene
        .runners
        .iter()
        .all(|runner| runner.ours && scene.masks[runner.mask].iter().all(|may| *may));
    let two = scene.units.iter().all(|unit| unit.width == 2);
    if !free || !two || threads > 2 * units || threads < 2 {
        return None;
    }
    // Empty places: as many threads as these can be alone.
    let empty = (2 * units - threads).min(threads);
    let all = threads + empty;
    if all > MATCHED || !all.is_multiple_of(2) {
        return None;
    }
    let present = |runner: usize| scene.runners[runner].present;
    let beside = |one: usize, other: usize| {
        present(one) * (-pairs.cost(0, one, other) * present(other)).exp()
    };
    let mut value = vec![0.0; all * all];
    for one in 0..threads {
        for other in 0..one {
            value[other * all + one] = beside(one, other) + beside(other, one);
        }
        for empty in threads..all {
            value[one * all + empty] = present(one);
        }
    }
    for talk in &pairs.talk {
        let (a, b) = talk.pair;
        let apart = talk.cost.last().copied().unwrap_or(0.0);
        let (low, high) = (a.min(b), a.max(b));
        value[low * all + high] += apart - talk.cost[0];
    }
    let greatest = value.iter().copied().fold(0.0, f64::max);
    let cost: Vec<i64> = value
        .iter()
        .map(|value| ((greatest - value) * WHOLE) as i64)
        .collect();
    let mate = min_weight_perfect_matching(&cost, all);
    let groups = (0..threads).filter_map(|one| match mate[one] {
        other if other >= threads => Some(vec![one]),
        other if other > one => Some(vec![one, other]),
        _ => None,
    });
    Some(seat(scene, groups.collect()))
}

/// Puts groups of threads on units so that many stay where they are: first groups that are together already.
fn seat(scene: &Scene, groups: Vec<Vec<usize>>) -> Vec<usize> {
    let mut unit_of = vec![usize::MAX; scene.runners.len()];
    let mut taken = vec![false; scene.units.len()];
    let mut waiting: Vec<Vec<usize>> = Vec::new();
    let here = |runner: usize| scene.runners[runner].unit;
    let mut put = |group: &[usize], unit: usize, taken: &mut Vec<bool>| {
        taken[unit] = true;
        for runner in group {
            unit_of[*runner] = unit;
        }
    };
    for group in groups {
        let unit = here(group[0]);
        let together = group.len() > 1 && group.iter().all(|runner| here(*runner) == unit);
        match together && !taken[unit] {
            true => put(&group, unit, &mut taken),
            false => waiting.push(group),
        }
    }
    let mut homeless: Vec<Vec<usize>> = Vec::new();
    for group in waiting {
        let home = group.iter().map(|runner| here(*runner));
        match home.clone().find(|unit| !taken[*unit]) {
            Some(unit) => put(&group, unit, &mut taken),
            None => homeless.push(group),
        }
    }
    for group in homeless {
        let free = taken.iter().position(|taken| !taken).unwrap_or(0);
        put(&group, free, &mut taken);
    }
    unit_of
}
