//! The swap that equalises two groups' loads best, and whether it is worth it (MASA, section 4.2, steps 3 and 4).

use super::{MasaConfig, Variant, field::Field};

/// How many partners of nearly the right load are looked at for each thread, above and below.
const REACH: usize = 8;

/// How many groups of low load are tried for one of high load.
const TRIES: usize = 4;

/// A thread that moves, and the one whose place it takes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Swap {
    /// The runner that leaves the group with the highest load.
    pub down: usize,
    /// The one that comes instead; `None`: a PU that no thread uses.
    pub up: Option<usize>,
    /// Where `down` goes.
    pub to: u32,
    /// What is balanced; `None`: the number of outstanding threads on the PUs of a package.
    pub metric: usize,
    /// The loads of the two groups before.
    pub before: (f64, f64),
    /// And as predicted after it.
    pub after: (f64, f64),
}

/// Step 3: in each package, a thread from a PU with several outstanding ones to a PU that has none. `paper` makes one such
/// move in a period. `perch` makes one a package, and only where the kernel cannot do it, since the thread is bound. Both
/// only where the PU has two busy threads more than the other.
pub(crate) fn inside_packages(field: &mut Field<'_>, config: &MasaConfig) -> Vec<Swap> {
    let mut packages: Vec<Vec<u32>> = Vec::new();
    for domain in field
        .snapshot
        .topology
        .domains(perch_core::ShareLevel::Package)
    {
        let pus = domain.pus.iter().filter(|pu| field.usable.contains(*pu));
        packages.push(pus.collect());
    }
    let mut moves = Vec::new();
    for metric in 0..field.metrics.len() {
        let threshold = field.total(metric) / (config.outstanding * field.usable.len() as f64);
        for package in &packages {
            let counts = |pu: &u32| {
                let there = field.on_pu[*pu as usize].iter();
                let outstanding = there.filter(|at| field.load(**at, metric) > threshold);
                (outstanding.count(), field.on_pu[*pu as usize].len())
            };
            let moved = |pu: &&u32| {
                field.on_pu[**pu as usize]
                    .iter()
                    .any(|at| field.runners[*at].moved)
            };
            let counts: Vec<(u32, (usize, usize))> = (package.iter())
                .filter(|pu| !moved(pu))
                .map(|pu| (*pu, counts(pu)))
                .collect();
            let most = counts.iter().rev().max_by_key(|(_, counts)| *counts);
            let least = counts
                .iter()
                .filter(|(_, (outstanding, _))| *outstanding == 0);
            let least = least.min_by_key(|(_, counts)| *counts);
            let (Some(&(from, (many, busy))), Some(&(to, (_, few)))) = (most, least) else {
                continue;
            };
            let paper = config.variant == Variant::Paper;
            // If only outstanding threads counted, two metrics could send a thread to and fro for ever.
            if many < 2 || busy < few + 2 || !paper && field.held(to, None) {
                continue;
            }
            let load = |pu: u32| {
                field.on_pu[pu as usize]
                    .iter()
                    .map(|at| field.load(*at, metric))
                    .sum::<f64>()
            };
            let (high, low) = (load(from), load(to));
            let half = (high - low) / 2.0;
            let there = field.on_pu[from as usize].iter().copied();
            let movable = there.filter(|at| {
                let bound = field.thread(*at).bound.is_some();
                field.load(*at, metric) > threshold && field.may(*at, to) && (paper || bound)
            });
            let off = |at: &usize| (field.load(*at, metric) - half).abs();
            let Some(down) = movable.min_by(|a, b| off(a).total_cmp(&off(b)).then(a.cmp(b))) else {
                continue;
            };
            let load = field.load(down, metric);
            moves.push(Swap {
                down,
                up: None,
                to,
                metric,
                before: (high, low),
                after: (high - load, low + load),
            });
            field.put(down, to);
            if paper {
                return moves;
            }
        }
    }
    moves
}

/// Step 4: metric by metric in order of priority, groups above the limit and groups of low load exchange threads.
///
/// `waits` are the runners that must not move in this period.
pub(crate) fn between_groups(
    field: &mut Field<'_>,
    config: &MasaConfig,
    waits: &[bool],
) -> Vec<Swap> {
    let mut swaps = Vec::new();
    for metric in 0..field.metrics.len() {
        let level = &field.levels[metric];
        let mut order: Vec<usize> = (0..level.load.len()).collect();
        order.sort_by(|a, b| level.load[*b].total_cmp(&level.load[*a]).then(a.cmp(b)));
        let mut taken = vec![false; order.len()];
        for &high in &order {
            let level = &field.levels[metric];
            if taken[high] || level.load[high] <= level.limit[high] {
                continue;
            }
            let tries = match config.variant {
                Variant::Paper => 1,
                Variant::Perch => TRIES,
            };
            let lows = order
                .iter()
                .rev()
                .filter(|low| !taken[**low] && **low != high);
            let lows: Vec<usize> = lows.take(tries).copied().collect();
            let swap = lows.into_iter().find_map(|low| {
                balances(field, metric, high, low, config)
                    .then(|| best(field, metric, high, low, config, waits))
                    .flatten()
                    .map(|swap| (low, swap))
            });
            if let Some((low, swap)) = swap {
                let (from, to) = (field.runners[swap.down].pu, swap.to);
                field.put(swap.down, to);
                if let Some(up) = swap.up {
                    field.put(up, from);
                }
                swaps.push(swap);
                taken[high] = true;
                taken[low] = true;
            }
            if config.variant == Variant::Paper {
                break;
            }
        }
        if config.variant == Variant::Paper && !swaps.is_empty() {
            break;
        }
    }
    swaps
}

/// Step 4c: whether half the difference is large enough.
fn balances(
    field: &Field<'_>,
    metric: usize,
    high: usize,
    low: usize,
    config: &MasaConfig,
) -> bool {
    let level = &field.levels[metric];
    let (high, low) = (level.load[high], level.load[low]);
    high > 0.0 && (high - low) / 2.0 >= config.imbalance * high
}

/// The best swap of two groups that is allowed and worth it.
fn best(
    field: &Field<'_>,
    metric: usize,
    high: usize,
    low: usize,
    config: &MasaConfig,
    waits: &[bool],
) -> Option<Swap> {
    let level = &field.levels[metric];
    let half = (level.load[high] - level.load[low]) / 2.0;
    let load = |at: usize| field.load(at, metric);
    let candidates = |group: usize| {
        let pus = level.pus[group].iter();
        let mut there: Vec<usize> = pus
            .flat_map(|pu| field.on_pu[*pu as usize].iter().copied())
            .collect();
        there.retain(|at| {
            let runner = &field.runners[*at];
            runner.ours && field.known(*at, metric).is_some() && !runner.moved && !waits[*at]
        });
        there.sort_by(|a, b| load(*a).total_cmp(&load(*b)).then(a.cmp(b)));
        there
    };
    let perch = config.variant == Variant::Perch;
    let (downs, ups) = (candidates(high), candidates(low));
    let free = level.pus[low]
        .iter()
        .filter(|pu| field.on_pu[**pu as usize].is_empty());
    let free: Vec<u32> = free.copied().collect();
    let mut found: Option<(f64, Swap)> = None;
    let mut consider = |down: usize, up: Option<usize>, to: u32| {
        let change = load(down) - up.map_or(0.0, load);
        let left_over = (half - change).abs();
        if change <= 0.0 || found.as_ref().is_some_and(|(best, _)| *best <= left_over) {
            return;
        }
        if let Some(swap) = check(field, metric, (down, up, to), config) {
            found = Some((left_over, swap));
        }
    };
    for &down in &downs {
        let wanted = load(down) - half;
        let middle = ups.partition_point(|up| load(*up) < wanted);
        let near = middle.saturating_sub(REACH)..(middle + REACH).min(ups.len());
        for &up in &ups[near] {
            let (from, to) = (field.runners[down].pu, field.runners[up].pu);
            let crowds = perch && (field.held(to, Some(up)) || field.held(from, Some(down)));
            if !crowds && field.may(down, to) && field.may(up, from) {
                consider(down, Some(up), to);
            }
        }
        if let Some(to) = free.iter().find(|pu| field.may(down, **pu)) {
            consider(down, None, *to);
        }
    }
    found.map(|(_, swap)| swap)
}

/// What is above the limit, squared: the more uneven, the more.
fn excess(load: f64, limit: f64) -> f64 {
    (load - limit).max(0.0).powi(2)
}

/// The swap, if its prediction is a gain and no limit speaks against it.
///
/// Why this ends: a swap lowers the excess of its metric and raises that of none before it, so with unchanged loads the
/// excesses in order of priority only fall. With `paper` each swap leaves two more groups within all their limits than
/// before, or one.
fn check(
    field: &Field<'_>,
    metric: usize,
    (down, up, to): (usize, Option<usize>, u32),
    config: &MasaConfig,
) -> Option<Swap> {
    let from = field.runners[down].pu;
    let mut swap = None;
    for (at, level) in field.levels.iter().enumerate() {
        let (Some(high), Some(low)) = (level.of(from), level.of(to)) else {
            return None;
        };
        let change = field.load(down, at) - up.map_or(0.0, |up| field.load(up, at));
        let before = (level.load[high], level.load[low]);
        let after = match high == low {
            true => before,
            false => (before.0 - change, before.1 + change),
        };
        let limits = (level.limit[high], level.limit[low]);
        if config.variant == Variant::Paper && (after.0 > limits.0 || after.1 > limits.1) {
            return None;
        }
        let cost = |loads: (f64, f64)| excess(loads.0, limits.0) + excess(loads.1, limits.1);
        let (old, new) = (cost(before), cost(after));
        let worth = match at.cmp(&metric) {
            std::cmp::Ordering::Less => new <= old * (1.0 + 1e-9),
            std::cmp::Ordering::Equal => new < old && new <= old * (1.0 - config.gain),
            std::cmp::Ordering::Greater => {
                let newly = |before: f64, after: f64, limit: f64| before <= limit && after > limit;
                !newly(before.0, after.0, limits.0) && !newly(before.1, after.1, limits.1)
            }
        };
        if !worth {
            return None;
        }
        if at == metric {
            swap = Some(Swap {
                down,
                up,
                to,
                metric,
                before,
                after,
            });
        }
    }
    swap
}
