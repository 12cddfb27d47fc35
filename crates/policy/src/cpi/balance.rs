//! Pipeline demand dealt over cores: who goes to which core, and what comes of it by the model.
//!
//! A core of width `W` whose threads ask for `D` instructions a cycle together delivers `min(W, D)`; this is the
//! paper's model behind table 1. The present placement can be completed (new threads only), bettered by exchanges
//! between the most and the least demanded core, or dealt anew: largest demand first, each to the core with the least
//! demand that has room (Graham's LPT, Bounds on multiprocessing timing anomalies, 1969). One sort and a heap: n log n.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
};

/// A thread to be placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    /// Instructions a cycle that it asks for, 0 or more.
    pub demand: f64,
    /// Which of [`Field::reaches`] it has.
    pub reach: usize,
    /// The core where it is.
    pub home: Option<usize>,
    /// Whether it is bound there.
    pub settled: bool,
}

/// A core.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pipeline {
    /// Instructions that it can issue in a cycle.
    pub width: f64,
    /// Threads that it runs at a time.
    pub contexts: usize,
    /// Threads on it that cannot be moved.
    pub fixed: usize,
    /// Sum of their demands, in instructions per cycle.
    pub fixed_demand: f64,
}

/// The cores, and the sets of cores that threads may use.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// The cores among which threads are distributed.
    pub cores: Vec<Pipeline>,
    /// The different sets of cores on which items may be put.
    pub reaches: Vec<Vec<bool>>,
}

/// Loads that differ by less than this part of a width are equal.
const EQUAL: f64 = 1e-9;

/// How many more threads each core takes: its free contexts; with more threads than contexts as many that each context
/// has as many as any other, give or take one.
struct Room {
    left: Vec<usize>,
    spare: usize,
    spared: Vec<bool>,
    queues: bool,
}

impl Room {
    fn new(items: usize, field: &Field) -> Self {
        let contexts: usize = field.cores.iter().map(|core| core.contexts).sum();
        let fixed: usize = field.cores.iter().map(|core| core.fixed).sum();
        let all = items + fixed;
        let queues = all > contexts;
        let share = |core: &Pipeline| match queues {
            true => (all * core.contexts / contexts.max(1)).saturating_sub(core.fixed),
            false => core.contexts.saturating_sub(core.fixed),
        };
        let left: Vec<usize> = field.cores.iter().map(share).collect();
        let spare = match queues {
            true => items.saturating_sub(left.iter().sum()),
            false => 0,
        };
        Self {
            spared: vec![false; left.len()],
            left,
            spare,
            queues,
        }
    }

    fn has(&self, core: usize) -> bool {
        self.left[core] > 0 || (self.spare > 0 && !self.spared[core])
    }

    fn take(&mut self, core: usize) {
        if self.left[core] > 0 {
            self.left[core] -= 1;
        } else {
            self.spare -= 1;
            self.spared[core] = true;
        }
    }
}

/// Loads and rooms while items are put down, with the least demanded core at hand.
struct Dealer<'a> {
    field: &'a Field,
    load: Vec<f64>,
    room: Room,
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    everywhere: Vec<bool>,
}

impl<'a> Dealer<'a> {
    fn new(items: usize, field: &'a Field) -> Self {
        let load: Vec<f64> = field.cores.iter().map(|core| core.fixed_demand).collect();
        let mut dealer = Self {
            room: Room::new(items, field),
            everywhere: (field.reaches.iter())
                .map(|r| r.iter().all(|r| *r))
                .collect(),
            heap: BinaryHeap::with_capacity(field.cores.len()),
            load,
            field,
        };
        for core in 0..field.cores.len() {
            dealer.heap.push(Reverse((dealer.key(core), core)));
        }
        dealer
    }

    fn relative(&self, core: usize) -> f64 {
        self.load[core] / self.field.cores[core].width
    }

    /// Orders cores as their loads do: bits of numbers from 0 up rise with them.
    fn key(&self, core: usize) -> u64 {
        self.relative(core).max(0.0).to_bits()
    }

    fn put(&mut self, item: &Item, core: usize) -> usize {
        self.room.take(core);
        self.load[core] += item.demand;
        self.heap.push(Reverse((self.key(core), core)));
        core
    }

    fn home(&self, item: &Item) -> Option<usize> {
        item.home
            .filter(|&home| self.field.reaches[item.reach][home] && self.room.has(home))
    }

    /// The least demanded core that has room and may be used; the item's own of equals.
    fn least(&mut self, item: &Item) -> Option<usize> {
        let least = if self.everywhere[item.reach] {
            loop {
                let &Reverse((key, core)) = self.heap.peek()?;
                if key == self.key(core) && self.room.has(core) {
                    break core;
                }
                self.heap.pop();
            }
        } else {
            let reach = &self.field.reaches[item.reach];
            let cores = (0..reach.len()).filter(|core| reach[*core] && self.room.has(*core));
            cores.min_by(|a, b| self.relative(*a).total_cmp(&self.relative(*b)))?
        };
        let as_good =
            |home: &usize| self.relative(*home) <= self.relative(least) * (1.0 + EQUAL) + EQUAL;
        Some(self.home(item).filter(as_good).unwrap_or(least))
    }
}

/// What all cores deliver, in instructions a cycle, if the items are on these cores.
pub(crate) fn throughput(items: &[Item], placed: &[Option<usize>], field: &Field) -> f64 {
    let (loads, counts) = loads(items, placed, field);
    let cores = field.cores.iter().zip(loads).zip(counts);
    cores
        .map(|((core, load), count)| delivered(core, load, count))
        .sum()
}

fn delivered(core: &Pipeline, load: f64, count: usize) -> f64 {
    let at_a_time = if count > core.contexts {
        core.contexts as f64 / count as f64
    } else {
        1.0
    };
    (load * at_a_time).min(core.width)
}

/// What each core's threads ask for, and how many there are.
pub(crate) fn loads(
    items: &[Item],
    placed: &[Option<usize>],
    field: &Field,
) -> (Vec<f64>, Vec<usize>) {
    let mut loads: Vec<f64> = field.cores.iter().map(|core| core.fixed_demand).collect();
    let mut counts: Vec<usize> = field.cores.iter().map(|core| core.fixed).collect();
    for (item, core) in items.iter().zip(placed) {
        if let Some(core) = *core {
            loads[core] += item.demand;
            counts[core] += 1;
        }
    }
    (loads, counts)
}

/// Whether the first placement's loads are as even as the second's: compared from the largest on, none is larger before
/// one is smaller.
pub(crate) fn as_even(
    items: &[Item],
    first: &[Option<usize>],
    second: &[Option<usize>],
    field: &Field,
) -> bool {
    let sorted = |placed: &[Option<usize>]| {
        let (loads, _) = loads(items, placed, field);
        let relative = loads
            .iter()
            .zip(&field.cores)
            .map(|(load, core)| load / core.width);
        let mut relative: Vec<f64> = relative.collect();
        relative.sort_by(|a, b| b.total_cmp(a));
        relative
    };
    let (first, second) = (sorted(first), sorted(second));
    let mut pairs = first.iter().zip(&second);
    let differ = pairs.find(|(a, b)| (*a - *b).abs() > EQUAL * a.max(**b));
    differ.is_none_or(|(a, b)| a < b)
}

/// Deals anew. `items` are by falling demand; those that may not go everywhere choose first. Items that differ by no
/// more than `margin` stand for each other, so that each stays where it is if it can. `None` where there is no room.
pub(crate) fn deal(items: &[Item], field: &Field, margin: f64) -> Vec<Option<usize>> {
    let mut dealer = Dealer::new(items.len(), field);
    let mut placed = vec![None; items.len()];
    for everywhere in [false, true] {
        for (at, item) in items.iter().enumerate() {
            if dealer.everywhere[item.reach] == everywhere {
                placed[at] = dealer.least(item).map(|core| dealer.put(item, core));
            }
        }
    }
    stay_at_home(items, &mut placed, field, margin);
    placed
}

/// Lets items that are as good as equal exchange what they were dealt, so that as many as possible stay at home.
fn stay_at_home(items: &[Item], placed: &mut [Option<usize>], field: &Field, margin: f64) {
    let cores = field.cores.len();
    // What was dealt to whom: by reach, how often each core. Nothing is left of it after each class.
    let mut dealt = vec![0u32; field.reaches.len() * cores];
    let mut left: Vec<VecDeque<usize>> = vec![VecDeque::new(); field.reaches.len()];
    let mut from = 0;
    while from < items.len() {
        let first = items[from].demand;
        let equal = |item: &Item| item.demand >= first * (1.0 - margin);
        let to = from + items[from..].partition_point(equal).max(1);
        let class = from..to;
        for at in class.clone() {
            if let Some(core) = placed[at] {
                dealt[items[at].reach * cores + core] += 1;
            }
        }
        let mut waiting = Vec::new();
        let mut order: Vec<usize> = class.clone().filter(|at| placed[*at].is_some()).collect();
        order.sort_by_key(|at| !items[*at].settled);
        let mut next = placed[class.clone()].to_vec();
        for at in order {
            let place = |home: usize| items[at].reach * cores + home;
            let wish = items[at].home.map(place);
            match wish.filter(|place| dealt[*place] > 0) {
                Some(place) => {
                    dealt[place] -= 1;
                    next[at - from] = items[at].home;
                }
                None => waiting.push(at),
            }
        }
        // The rest takes what is left, in the order in which it was dealt.
        for at in class.clone() {
            let reach = items[at].reach;
            if let Some(core) = placed[at]
                && dealt[reach * cores + core] > 0
            {
                dealt[reach * cores + core] -= 1;
                left[reach].push_back(core);
            }
        }
        waiting.sort_unstable();
        for at in waiting {
            next[at - from] = left[items[at].reach].pop_front();
        }
        placed[class].copy_from_slice(&next);
        from = to;
    }
}

/// The present placement: who is at home stays while there is room (bound ones first), the others go to the least
/// demanded cores. `items` are by falling demand.
pub(crate) fn complete(items: &[Item], field: &Field) -> Vec<Option<usize>> {
    let mut dealer = Dealer::new(items.len(), field);
    let mut placed = vec![None; items.len()];
    for settled in [true, false] {
        for (at, item) in items.iter().enumerate() {
            if item.settled == settled
                && let Some(home) = dealer.home(item)
            {
                placed[at] = Some(dealer.put(item, home));
            }
        }
    }
    for everywhere in [false, true] {
        for (at, item) in items.iter().enumerate() {
            if placed[at].is_none() && dealer.everywhere[item.reach] == everywhere {
                placed[at] = dealer.least(item).map(|core| dealer.put(item, core));
            }
        }
    }
    placed
}

/// Betters a placement by few moves: as long as it delivers less than `enough`, one exchange (or one move, where there
/// is room) between the most and the least demanded core that evens them out most.
pub(crate) fn exchange(
    items: &[Item],
    mut placed: Vec<Option<usize>>,
    field: &Field,
    enough: f64,
) -> Vec<Option<usize>> {
    let queues = Room::new(items.len(), field).queues;
    let (mut loads, mut counts) = loads(items, &placed, field);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); field.cores.len()];
    for (at, core) in placed.iter().enumerate() {
        if let Some(core) = *core {
            members[core].push(at);
        }
    }
    let relative = |loads: &[f64], core: usize| loads[core] / field.cores[core].width;
    let key = |loads: &[f64], core: usize| (relative(loads, core).max(0.0).to_bits(), core);
    let mut order: BTreeSet<(u64, usize)> =
        (0..loads.len()).map(|core| key(&loads, core)).collect();
    let mut total = throughput(items, &placed, field);
    for _ in 0..items.len() {
        let (Some(&(_, low)), Some(&(_, high))) = (order.first(), order.last()) else {
            break;
        };
        let gap = relative(&loads, high) - relative(&loads, low);
        if total >= enough || gap <= EQUAL {
            break;
        }
        let reach = |at: usize, core: usize| field.reaches[items[at].reach][core];
        let free = !queues && counts[low] < field.cores[low].contexts;
        // The worse of the two after `amount` went from one to the other.
        let worst = |amount: f64| {
            let high = (loads[high] - amount) / field.cores[high].width;
            high.max((loads[low] + amount) / field.cores[low].width)
        };
        let mut best = (relative(&loads, high) * (1.0 - EQUAL) - EQUAL, None);
        for &a in members[high].iter().filter(|a| reach(**a, low)) {
            let back = members[low].iter().copied().filter(|b| reach(*b, high));
            for b in back.map(Some).chain(free.then_some(None)) {
                let returned = b.map_or(0.0, |b| items[b].demand);
                let after = worst(items[a].demand - returned);
                if after < best.0 {
                    best = (after, Some((a, b)));
                }
            }
        }
        let Some((a, b)) = best.1 else { break };
        let cores = [high, low];
        for core in cores {
            order.remove(&key(&loads, core));
            total -= delivered(&field.cores[core], loads[core], counts[core]);
        }
        let mut go = |at: usize, from: usize, to: usize| {
            members[from].retain(|member| *member != at);
            members[to].push(at);
            placed[at] = Some(to);
            loads[from] -= items[at].demand;
            loads[to] += items[at].demand;
            counts[from] -= 1;
            counts[to] += 1;
        };
        go(a, high, low);
        if let Some(b) = b {
            go(b, low, high);
        }
        for core in cores {
            order.insert(key(&loads, core));
            total += delivered(&field.cores[core], loads[core], counts[core]);
        }
    }
    placed
}
