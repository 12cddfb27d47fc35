//! How often each block runs, told from where a thread's samples lie.
//!
//! One address alone says which loop a thread is in, but not which of its branches it takes, how often
//! an outer loop comes round, or what a loop does in the functions that it calls. All addresses of a
//! thread together do. The model is a walk: from every sample the thread goes on along the control-flow
//! graph, through calls and back, for about [`HORIZON`] instructions; what it meets on the way is the
//! mix. So an instruction that stalls (and draws the samples) weighs no more than its neighbours, which
//! run as often.
//!
//! Which way branches go is fitted to the samples: a block that is walked through more often than samples
//! fall on it makes the branches that lead to it less likely, and the other way round. The ratio is
//! looked at over the next [`LOOKAHEAD`] instructions, not block by block, because samples gather behind
//! the slow instruction of a region.
//!
//! Measured against single-stepped instruction counts, 250 samples a period at 997 Hz; error of the
//! floating-point share in points over the programs with more than 2 %, and total variation over all twelve
//! classes and programs:
//!
//! | programs | estimate | mean | largest | total variation |
//! | --- | --- | --- | --- | --- |
//! | development: 51 of 80 | each sample's own window | 3.0 | 11.8 | 6.8 |
//! | | this walk | 1.7 | 6.4 | 3.6 |
//! | later: 10 of 11 | each sample's own window | 3.9 | 8.3 | 7.5 |
//! | | this walk, before samples were evened out | 3.9 | 15.0 | 5.4 |
//! | | this walk | 2.9 | 6.5 | 4.5 |
//!
//! The estimate that is reported is the mean of both ([`crate::Estimator::take`]), because on natural programs that perch
//! was not developed with the windows are the better of the two (docs/accuracy.md).
//!
//! The constants were chosen with the development programs in view (C by two compilers at four levels, libm,
//! long double, NumPy, Java, JavaScript, Go, Perl); one Go program is left out of the errors because stepping
//! made its runtime do work that the samples do not show. The later ones (other builds of the C programs, awk,
//! Python with libm) were run after that, but they showed the need to even samples out, so only their line
//! before that is an estimate of what unseen programs get: there the walk was no better than the windows in
//! the floating-point share. Interpreters that call libm remain the worst.
//!
//! The idea is that of profile inference for sampled optimisation feedback (He, Mestre, Pupyrev, Wang,
//! Yu: "Profile inference revisited", POPL 2022), with a damped random walk in place of minimum-cost flow:
//! costs per block are unknown here, and a walk needs no consistent counts.

use rustc_hash::FxHashMap;

use crate::graph::{Exit, Graph};
use crate::mix::{Mix, MixSum};

/// Instructions after which a walk has ended with probability 1 - 1/e.
const HORIZON: f64 = 1000.0;
/// Instructions ahead over which samples are compared with visits, weighted by 1/e at this distance.
const LOOKAHEAD: f64 = 10.0;
/// Times that branch probabilities are adjusted.
const ROUNDS: usize = 10;
/// Passes over all blocks between two adjustments, if the frequencies do not settle earlier.
const PASSES: usize = 4;
/// Passes before the first and after the last adjustment.
const LAST_PASSES: usize = 20;
/// Passes once samples are evened out, which moves weight between tight loops and code that leaves the
/// graph soon; a loop of a few instructions takes some hundreds to settle over the horizon.
const EVEN_PASSES: usize = 600;
/// Change of a branch probability below which fitting has ended.
const FITTED: f64 = 0.002;
/// Relative change of the frequencies below which they have settled.
const SETTLED: f64 = 1e-4;
/// Passes of the lookahead, which reaches few blocks.
const LOOKAHEAD_PASSES: usize = 3;
/// Samples by which an expected and an observed number are moved towards each other, so that a block
/// without samples is not impossible at once.
const PRIOR: f64 = 1.0;
/// Samples by which a function's expected and observed number are moved towards each other.
const UNSEEN: f64 = 0.25;
/// Branch probabilities stay this far from 0 and 1.
const MARGIN: f64 = 0.004;
/// Probability of a backward branch before samples have spoken.
const BACKWARD: f64 = 0.9;

/// Samples at one address.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Hits {
    /// In the current period: where walks start.
    pub(crate) now: f64,
    /// In this and past periods, fading: what branches are fitted to.
    pub(crate) faded: f64,
}

/// The mix of what runs around the samples, or `None` if none of them is in the graph.
pub(crate) fn mix(graph: &Graph, hits: &FxHashMap<u64, Hits>) -> Option<Mix> {
    let mut walk = Walk::new(graph, hits)?;
    walk.spread(LAST_PASSES);
    for _ in 1..ROUNDS {
        let change = walk.adjust();
        walk.spread(PASSES);
        if change < FITTED {
            break;
        }
    }
    walk.even_out();
    walk.spread(EVEN_PASSES);
    walk.hold_to_samples(hits);
    let mut sum = MixSum::default();
    for (node, frequency) in graph.nodes.iter().zip(&walk.frequency) {
        sum.merge(&node.block.sum, *frequency);
    }
    sum.mix()
}

/// One way into a node.
#[derive(Clone, Copy)]
enum Way {
    /// From the node, always.
    Always(usize),
    /// From the branch, if taken.
    Taken(usize),
    /// From the branch, if not taken.
    Not(usize),
    /// From the returning node, if the call was the one that it returns to.
    Return { from: usize, call: usize },
}

struct Walk<'a> {
    graph: &'a Graph,
    /// Nodes by address: most control flow goes forward, so one pass carries far.
    order: Vec<usize>,
    length: Vec<f64>,
    /// Probability that a walk goes on after a node.
    survival: Vec<f64>,
    /// Nodes with the same last instruction overlap and share their samples.
    group: Vec<usize>,
    groups: usize,
    /// Ways into each node.
    ways: Vec<Vec<Way>>,
    /// Where walks start, summing to 1.
    start: Vec<f64>,
    /// Faded samples of each group, and their sum.
    observed: Vec<f64>,
    observed_total: f64,
    /// Probability that each branch is taken.
    taken: Vec<f64>,
    /// Expected visits of each node.
    frequency: Vec<f64>,
}

impl<'a> Walk<'a> {
    fn new(graph: &'a Graph, hits: &FxHashMap<u64, Hits>) -> Option<Self> {
        let nodes = &graph.nodes;
        let mut by_last: FxHashMap<u64, usize> = FxHashMap::default();
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut group = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let number = *by_last.entry(node.block.last).or_insert(members.len());
            if number == members.len() {
                members.push(Vec::new());
            }
            members[number].push(index);
            group.push(number);
        }
        let ways = ways(graph);
        let mut start = vec![0.0; nodes.len()];
        let mut observed = vec![0.0; members.len()];
        for (index, node) in nodes.iter().enumerate() {
            let Some(hit) = hits.get(&node.start) else {
                continue;
            };
            observed[group[index]] += hit.faded;
            // A sample within a block stands for the whole block, if it is known where that begins.
            let whole = members[group[index]]
                .iter()
                .copied()
                .filter(|&other| !ways[other].is_empty() && nodes[other].start <= node.start)
                .min_by_key(|&other| nodes[other].start)
                .unwrap_or(index);
            start[whole] += hit.now;
        }
        let total: f64 = start.iter().sum();
        let observed_total: f64 = observed.iter().sum();
        if total <= 0.0 || observed_total <= 0.0 {
            return None;
        }
        start.iter_mut().for_each(|weight| *weight /= total);
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_unstable_by_key(|&index| nodes[index].start);
        let length: Vec<f64> = nodes.iter().map(|node| node.block.sum.weight()).collect();
        Some(Self {
            graph,
            order,
            survival: length
                .iter()
                .map(|length| (-length.max(0.5) / HORIZON).exp())
                .collect(),
            length,
            group,
            groups: members.len(),
            ways,
            frequency: start.clone(),
            start,
            observed,
            observed_total,
            taken: first_guess(graph),
        })
    }

    /// Solves for the expected visits (start + what flows in) by Gauss-Seidel passes, at most `passes`.
    fn spread(&mut self, passes: usize) {
        // Flat copy of the ways, with what share of its source's visits each one carries.
        let mut first = Vec::with_capacity(self.order.len() + 1);
        let mut flat: Vec<(usize, f64)> = Vec::new();
        let mut keep = vec![1.0; self.length.len()];
        let mut returns = Vec::new();
        for &index in &self.order {
            first.push(flat.len());
            for &way in &self.ways[index] {
                let (from, share) = match way {
                    Way::Always(from) => (from, 1.0),
                    Way::Taken(from) => (from, self.taken[from]),
                    Way::Not(from) => (from, 1.0 - self.taken[from]),
                    Way::Return { from, call } => {
                        returns.push((flat.len(), from, call));
                        flat.push((from, 0.0));
                        continue;
                    }
                };
                let share = share * self.survival[from];
                if from == index {
                    keep[index] -= share;
                } else {
                    flat.push((from, share));
                }
            }
        }
        first.push(flat.len());
        for _ in 0..passes {
            // Returns are shared among calls by how often each call was made in the last pass.
            for &(way, from, call) in &returns {
                let all: f64 = self.graph.callers[from]
                    .iter()
                    .map(|&call| self.frequency[call])
                    .sum();
                let share = if all > 0.0 {
                    self.frequency[call] / all
                } else {
                    0.0
                };
                flat[way].1 = share * self.survival[from];
            }
            let (mut change, mut total) = (0.0, 0.0);
            for (&index, range) in self.order.iter().zip(first.windows(2)) {
                let inflow: f64 = flat[range[0]..range[1]]
                    .iter()
                    .map(|&(from, share)| self.frequency[from] * share)
                    .sum();
                // A block that loops to itself: the geometric series at once.
                let visits = (self.start[index] + inflow) / keep[index].max(1e-3);
                change += (visits - self.frequency[index]).abs();
                total += visits;
                self.frequency[index] = visits;
            }
            if change <= SETTLED * total {
                break;
            }
        }
    }

    /// Moves branch probabilities towards where samples exceed visits; returns the largest change.
    fn adjust(&mut self) -> f64 {
        let mut visits = vec![0.0; self.groups];
        for (index, &group) in self.group.iter().enumerate() {
            visits[group] += self.frequency[index] * self.length[index];
        }
        let all: f64 = visits.iter().sum();
        if all <= 0.0 {
            return 0.0;
        }
        let ratio: Vec<f64> = visits
            .iter()
            .zip(&self.observed)
            .map(|(visits, observed)| {
                (observed + PRIOR) / (visits / all * self.observed_total + PRIOR)
            })
            .collect();
        let ahead = self.look_ahead(&ratio);
        let mut change = 0.0f64;
        for (index, node) in self.graph.nodes.iter().enumerate() {
            if let Exit::Branch(taken, not) = node.exit {
                let yes = self.taken[index] * ahead[taken];
                let no = (1.0 - self.taken[index]) * ahead[not];
                if yes + no > 0.0 {
                    let taken = (yes / (yes + no)).clamp(MARGIN, 1.0 - MARGIN);
                    change = change.max((taken - self.taken[index]).abs());
                    self.taken[index] = taken;
                }
            }
        }
        change
    }

    /// Gives every sample the same number of instructions in all, however soon its walk leaves the known
    /// code. Interpreters dispatch through indirect jumps: without this, the short walks from there would
    /// weigh less than those within a long library function.
    fn even_out(&mut self) {
        let nodes = &self.graph.nodes;
        // From above: a walk that stays in known code goes on for the horizon, and exits carry back fast.
        let mut ahead = vec![HORIZON; self.length.len()];
        for _ in 0..EVEN_PASSES / 2 {
            let mut change = 0.0f64;
            for &index in self.order.iter().rev() {
                let further = match nodes[index].exit {
                    Exit::Next(next) => ahead[next],
                    Exit::Call { entry, .. } => ahead[entry],
                    Exit::Branch(taken, not) => {
                        let p = self.taken[index];
                        p * ahead[taken] + (1.0 - p) * ahead[not]
                    }
                    Exit::Return => {
                        let (mut sum, mut weight) = (0.0, 0.0);
                        for &call in &self.graph.callers[index] {
                            if let Exit::Call { back, .. } = nodes[call].exit {
                                sum += self.frequency[call] * ahead[back];
                                weight += self.frequency[call];
                            }
                        }
                        if weight > 0.0 { sum / weight } else { 0.0 }
                    }
                    Exit::Unknown => 0.0,
                };
                let length = self.length[index] + self.survival[index] * further;
                change = change.max((length - ahead[index]).abs());
                ahead[index] = length;
            }
            if change < 0.1 {
                break;
            }
        }
        for (start, ahead) in self.start.iter_mut().zip(&ahead) {
            *start /= ahead.max(1.0);
        }
    }

    /// Moves every function's visits halfway (as a factor) towards its share of the samples.
    ///
    /// The ways between functions are known least: returns, indirect calls, loops on whose ends no sample falls. A walk that
    /// takes a wrong one spends its visits where the thread never was.
    fn hold_to_samples(&mut self, hits: &FxHashMap<u64, Hits>) {
        let functions = functions(self.graph);
        let mut samples = vec![0.0; functions.len()];
        let mut visits = vec![0.0; functions.len()];
        for (index, node) in self.graph.nodes.iter().enumerate() {
            samples[functions[index]] += hits.get(&node.start).map_or(0.0, |hits| hits.now);
            visits[functions[index]] += self.frequency[index] * self.length[index];
        }
        let all_samples: f64 = samples.iter().sum();
        let all_visits: f64 = visits.iter().sum();
        if all_visits <= 0.0 {
            return;
        }
        for (frequency, &function) in self.frequency.iter_mut().zip(&functions) {
            let expected = visits[function] / all_visits * all_samples;
            let ratio = (samples[function] + UNSEEN) / (expected + UNSEEN);
            *frequency *= ratio.sqrt();
        }
    }

    /// Mean ratio of samples to visits over the next instructions from each node on.
    fn look_ahead(&self, ratio: &[f64]) -> Vec<f64> {
        let nodes = &self.graph.nodes;
        let fade: Vec<f64> = self
            .length
            .iter()
            .map(|length| (-length.max(0.5) / LOOKAHEAD).exp())
            .collect();
        // Sums of (instructions × ratio, instructions), both fading with distance.
        let mut sums: Vec<(f64, f64)> = self
            .length
            .iter()
            .zip(&self.group)
            .map(|(l, &g)| (l * ratio[g], *l))
            .collect();
        for _ in 0..LOOKAHEAD_PASSES {
            for &index in self.order.iter().rev() {
                let (above, below) = match nodes[index].exit {
                    Exit::Next(next) => sums[next],
                    Exit::Call { entry, .. } => sums[entry],
                    Exit::Branch(taken, not) => {
                        let p = self.taken[index];
                        let (t, n) = (sums[taken], sums[not]);
                        (p * t.0 + (1.0 - p) * n.0, p * t.1 + (1.0 - p) * n.1)
                    }
                    Exit::Return => self.behind_return(index, &sums),
                    Exit::Unknown => (0.0, 0.0),
                };
                let length = self.length[index];
                sums[index] = (
                    length * ratio[self.group[index]] + fade[index] * above,
                    length + fade[index] * below,
                );
            }
        }
        sums.into_iter()
            .map(|(above, below)| (above / below.max(1e-9)).max(1e-6))
            .collect()
    }

    /// Mean of `sums` over the places that a returning node may return to.
    fn behind_return(&self, index: usize, sums: &[(f64, f64)]) -> (f64, f64) {
        let (mut above, mut below, mut weight) = (0.0, 0.0, 0.0);
        for &call in &self.graph.callers[index] {
            if let Exit::Call { back, .. } = self.graph.nodes[call].exit {
                above += self.frequency[call] * sums[back].0;
                below += self.frequency[call] * sums[back].1;
                weight += self.frequency[call];
            }
        }
        if weight > 0.0 {
            (above / weight, below / weight)
        } else {
            (0.0, 0.0)
        }
    }
}

/// For every node the number of its function: of the nodes that are reached from one another without calls and returns,
/// or that end at the same instruction.
fn functions(graph: &Graph) -> Vec<usize> {
    let mut parent: Vec<usize> = (0..graph.nodes.len()).collect();
    let mut by_last: FxHashMap<u64, usize> = FxHashMap::default();
    for (index, node) in graph.nodes.iter().enumerate() {
        let overlapping = *by_last.entry(node.block.last).or_insert(index);
        let (one, other) = match node.exit {
            Exit::Next(next) | Exit::Call { back: next, .. } => (next, next),
            Exit::Branch(taken, not) => (taken, not),
            Exit::Return | Exit::Unknown => (index, index),
        };
        for joined in [overlapping, one, other] {
            let (a, b) = (root(&mut parent, index), root(&mut parent, joined));
            parent[a] = b;
        }
    }
    (0..parent.len())
        .map(|index| root(&mut parent, index))
        .collect()
}

/// The representative of a node's set; the way there is made shorter.
fn root(parent: &mut [usize], mut index: usize) -> usize {
    while parent[index] != index {
        parent[index] = parent[parent[index]];
        index = parent[index];
    }
    index
}

/// The ways into each node.
fn ways(graph: &Graph) -> Vec<Vec<Way>> {
    let mut ways: Vec<Vec<Way>> = vec![Vec::new(); graph.nodes.len()];
    let mut returning: Vec<bool> = vec![false; graph.nodes.len()];
    for (from, calls) in graph.callers.iter().enumerate() {
        for &call in calls {
            if let Exit::Call { back, .. } = graph.nodes[call].exit {
                returning[call] = true;
                ways[back].push(Way::Return { from, call });
            }
        }
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        match node.exit {
            Exit::Next(next) => ways[next].push(Way::Always(index)),
            Exit::Branch(taken, not) => {
                ways[taken].push(Way::Taken(index));
                ways[not].push(Way::Not(index));
            }
            Exit::Call { entry, back } => {
                ways[entry].push(Way::Always(index));
                // A function whose return was not found returns all the same.
                if !returning[index] {
                    ways[back].push(Way::Always(index));
                }
            }
            Exit::Return | Exit::Unknown => {}
        }
    }
    ways
}

/// Branch probabilities before any sample: backward branches close loops.
fn first_guess(graph: &Graph) -> Vec<f64> {
    let nodes = &graph.nodes;
    nodes
        .iter()
        .map(|node| match node.exit {
            Exit::Branch(taken, not) => {
                let backward = |index: usize| nodes[index].start <= node.block.last;
                match (backward(taken), backward(not)) {
                    (true, false) => BACKWARD,
                    (false, true) => 1.0 - BACKWARD,
                    _ => 0.5,
                }
            }
            _ => 0.0,
        })
        .collect()
}
