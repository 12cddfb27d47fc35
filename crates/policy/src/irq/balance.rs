//! Interrupts, balanced as MASA balances threads.
//!
//! MASA (Nakajima and Pallipadi), section 5: "I/O interrupt handling can be handled in the same fashion". An interrupt's
//! load is how often it comes. First packages are balanced, then the PUs of each package: while the highest load is
//! out of balance with the lowest, the interrupt is moved there, or the two are swapped, that equalises both best.

use super::IrqConfig;
use perch_core::{IrqLevel, IrqStep, PuSet, Topology};

/// Imbalance from which something is done: (highest − lowest) / 2, relative to the highest (MASA, section 4.2, step 4c).
pub const IMBALANCE: f64 = 0.25;

/// Where fewer interrupts a second arrive than that, nothing is worth a move: at some microseconds each they take less
/// than a thousandth of a PU.
pub const LEAST_RATE: f64 = 100.0;

/// A move must take this share of the difference between highest and lowest away.
const LEAST_GAIN: f64 = 0.05;

/// One source of interrupts.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Interrupt number, as in `/proc/irq/N`.
    pub irq: u32,
    /// Interrupts per second on each PU.
    pub rates: Vec<(u32, f64)>,
    /// PUs to which it may go; empty for one that must stay.
    pub allowed: PuSet,
}

impl Source {
    /// How often it came, a second.
    pub fn rate(&self) -> f64 {
        self.rates.iter().fold(0.0, |sum, (_, rate)| sum + rate)
    }

    /// The PU on which it came most often, the lowest of several.
    pub fn pu(&self) -> Option<u32> {
        let most = |best: Option<(u32, f64)>, &(pu, rate): &(u32, f64)| match best {
            Some((_, most)) if most >= rate => best,
            _ => Some((pu, rate)),
        };
        self.rates.iter().fold(None, most).map(|(pu, _)| pu)
    }
}

/// Half the difference of highest and lowest, relative to the highest: 0 to 0.5.
pub fn imbalance(loads: &[f64]) -> f64 {
    let highest = loads.iter().copied().fold(0.0, f64::max);
    let lowest = loads.iter().copied().fold(f64::INFINITY, f64::min);
    match highest > 0.0 {
        true => (highest - lowest) / 2.0 / highest,
        false => 0.0,
    }
}

/// The loads of packages: interrupts a second on those of their PUs that are in `pus`; packages without any are left
/// out.
pub fn package_loads(sources: &[Source], topology: &Topology, pus: &PuSet) -> Vec<(u32, f64)> {
    let packages = topology.packages.iter();
    let packages = packages.filter(|package| !package.pus.is_disjoint(pus));
    let load = |of: &PuSet| {
        let rates = sources.iter().flat_map(|source| &source.rates);
        let here = rates.filter(|(pu, _)| of.contains(*pu));
        here.fold(0.0, |sum, (_, rate)| sum + rate)
    };
    packages
        .map(|package| (package.os, load(&package.pus)))
        .collect()
}

/// Moves that balance the interrupts: at most one for each, only to PUs of its own allowed ones that are in `pus`, and
/// none where nothing is out of balance. Steps are bounded by twice the number of sources.
pub fn balance(
    sources: &[Source],
    topology: &Topology,
    pus: &PuSet,
    config: &IrqConfig,
) -> Vec<IrqStep> {
    let mut field = Field {
        sources: sources.to_vec(),
        config: *config,
        moves: Vec::new(),
    };
    let packages = topology.packages.iter().map(|package| package.pus.and(pus));
    let packages: Vec<PuSet> = packages.filter(|pus| !pus.is_empty()).collect();
    field.level(&packages, IrqLevel::Package);
    for package in &packages {
        let pus: Vec<PuSet> = package.iter().map(PuSet::single).collect();
        field.level(&pus, IrqLevel::Pu);
    }
    field.into_moves(sources)
}

/// The interrupts as they would be after the moves so far.
struct Field {
    sources: Vec<Source>,
    config: IrqConfig,
    moves: Vec<IrqStep>,
}

/// Something that equalises two groups: a source to the lower one, and one back.
#[derive(Clone, Copy)]
struct Exchange {
    down: usize,
    up: Option<usize>,
    /// The difference that it leaves.
    left: f64,
}

impl Field {
    fn load(&self, of: &PuSet) -> f64 {
        let rates = self.sources.iter().flat_map(|source| &source.rates);
        let here = rates.filter(|(pu, _)| of.contains(*pu));
        here.fold(0.0, |sum, (_, rate)| sum + rate)
    }

    /// Balances groups of PUs with each other.
    fn level(&mut self, groups: &[PuSet], level: IrqLevel) {
        for _ in 0..self.sources.len() {
            let loads: Vec<f64> = groups.iter().map(|group| self.load(group)).collect();
            let by_load = |a: &usize, b: &usize| loads[*a].total_cmp(&loads[*b]);
            let Some(high) = (0..groups.len()).rev().max_by(by_load) else {
                return;
            };
            let Some(low) = (0..groups.len()).min_by(by_load) else {
                return;
            };
            let (most, least) = (loads[high], loads[low]);
            let balanced = imbalance(&[most, least]) < self.config.imbalance;
            if high == low || balanced || most < self.config.least_rate {
                return;
            }
            let Some(best) = self.best(&groups[high], &groups[low], most - least) else {
                return;
            };
            self.make(best, &groups[high], &groups[low], level, (most, least));
        }
    }

    /// What equalises two groups best, if anything does; a single move before a swap that does no better.
    fn best(&self, high: &PuSet, low: &PuSet, difference: f64) -> Option<Exchange> {
        // An interrupt that also came elsewhere, for example because another process moved it, is judged the next time:
        // sending it away would change other groups as well.
        let both = high.or(low);
        let can = |(_, source): &(usize, &Source), here: &PuSet, there: &PuSet| {
            source.pu().is_some_and(|pu| here.contains(pu))
                && !source.allowed.is_disjoint(there)
                && source
                    .rates
                    .iter()
                    .all(|(pu, rate)| *rate == 0.0 || both.contains(*pu))
                && source.rate() > 0.0
        };
        let all = || self.sources.iter().enumerate();
        let downs: Vec<(usize, &Source)> = all().filter(|s| can(s, high, low)).collect();
        let ups: Vec<(usize, &Source)> = all().filter(|s| can(s, low, high)).collect();
        let mut best: Option<Exchange> = None;
        let mut offer = |down: usize, up: Option<usize>| {
            // What leaves the group and what arrives: all that comes of a source goes where it is sent.
            let (away, there) = self.shift(down, high, low);
            let (back, here) = up.map_or((0.0, 0.0), |up| self.shift(up, low, high));
            let left = (difference - away - there + back + here).abs();
            let better = best.is_none_or(|best| left < best.left * (1.0 - 1e-9));
            if left < difference * (1.0 - LEAST_GAIN) && better {
                best = Some(Exchange { down, up, left });
            }
        };
        for (down, _) in &downs {
            offer(*down, None);
        }
        for (down, _) in &downs {
            for (up, _) in &ups {
                offer(*down, Some(*up));
            }
        }
        best
    }

    /// By how much the load falls here and rises there if a source is sent there.
    fn shift(&self, source: usize, here: &PuSet, there: &PuSet) -> (f64, f64) {
        let source = &self.sources[source];
        let on = |pus: &PuSet| {
            let rates = source.rates.iter().filter(|(pu, _)| pus.contains(*pu));
            rates.map(|(_, rate)| rate).sum::<f64>()
        };
        (on(here), source.rate() - on(there))
    }

    fn make(
        &mut self,
        best: Exchange,
        high: &PuSet,
        low: &PuSet,
        level: IrqLevel,
        before: (f64, f64),
    ) {
        let irq = |source: usize| self.sources[source].irq;
        let (down, up) = (irq(best.down), best.up.map(irq));
        let first = self.moves.len();
        self.send(best.down, low, level, up, before);
        if let Some(up) = best.up {
            self.send(up, high, level, Some(down), before);
        }
        let after = (self.load(high), self.load(low));
        for made in &mut self.moves[first..] {
            made.after = after;
        }
    }

    /// Sends a source to the PU of a group with the least load.
    fn send(
        &mut self,
        source: usize,
        group: &PuSet,
        level: IrqLevel,
        with: Option<u32>,
        before: (f64, f64),
    ) {
        let allowed = self.sources[source].allowed.and(group);
        let loads = allowed.iter().map(|pu| (pu, self.load(&PuSet::single(pu))));
        let Some((to, _)) = loads.min_by(|a, b| a.1.total_cmp(&b.1)) else {
            return;
        };
        let source = &mut self.sources[source];
        self.moves.push(IrqStep {
            irq: source.irq,
            from: source.pu().unwrap_or(to),
            to,
            level,
            with,
            before,
            after: before,
        });
        source.rates = vec![(to, source.rate())];
    }

    /// One move for each source, from where it is to where it ends; none for those that come back.
    fn into_moves(self, sources: &[Source]) -> Vec<IrqStep> {
        let mut moves: Vec<IrqStep> = Vec::new();
        for source in sources {
            let of_source = |made: &&IrqStep| made.irq == source.irq;
            let Some(first) = self.moves.iter().find(of_source) else {
                continue;
            };
            let last = self.moves.iter().rfind(of_source).unwrap_or(first);
            if first.from != last.to {
                moves.push(IrqStep {
                    to: last.to,
                    ..first.clone()
                });
            }
        }
        moves
    }
}
