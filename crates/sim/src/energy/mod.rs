//! Energy: what instructions, accesses and time take.
//!
//! `E = Σ n_event · e_event · (V/V0)² + V · P_static · t + P_base · t`. `V` is that of the core's clock at that moment.
//! Clock modulation (`duty`) leaves the voltage as it is: fewer events happen in a second, and the static part goes on.

mod meter;

pub(crate) use meter::Meter;

use crate::{
    counters::Counters,
    model::{EnergyModel, LEVELS, Op},
    units::{Ps, SECOND},
};
use serde::Serialize;
use std::ops::{AddAssign, Sub};

impl EnergyModel {
    /// Nanojoules of what was counted on a kind of core at a voltage. Looks into the first level are loads and stores
    /// (those of fetches are in the instructions' own), into each further one the misses of the one before.
    pub(crate) fn dynamic(&self, kind: usize, voltage: f64, counted: &Counters) -> Energy {
        let kind = &self.kinds[kind];
        let squared = voltage * voltage;
        let of_ops = |each: &[f64; Op::COUNT]| {
            let ops = counted.ops.iter().zip(each);
            ops.map(|(count, each)| *count as f64 * each).sum::<f64>() * squared
        };
        let missed = |level: usize| counted.fetch_misses[level] + counted.data_misses[level];
        let looks = [
            counted.ops[Op::Load as usize] + counted.ops[Op::Store as usize],
            missed(0),
            missed(1),
        ];
        let caches = kind.caches.as_ref().unwrap_or(&self.caches);
        Energy {
            issue: of_ops(&kind.issue),
            units: of_ops(&kind.ops),
            caches: std::array::from_fn(|level| looks[level] as f64 * caches[level] * squared),
            transfers: counted.bus_transactions as f64 * self.transfer,
            ..Energy::default()
        }
    }
}

/// Energy by what took it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Energy {
    /// Instructions on their way through the core, besides what units do.
    pub issue: f64,
    /// Units.
    pub units: f64,
    /// Looks into caches, by level.
    pub caches: [f64; LEVELS],
    /// Lines moved to or from memory.
    pub transfers: f64,
    /// Power of cores, busy or idle: what leaks, and what does not depend on what they do.
    pub cores: f64,
    /// Memory, whatever is moved.
    pub background: f64,
    /// Packages besides their cores.
    pub uncore: f64,
    /// Everything else.
    pub base: f64,
}

impl Energy {
    /// How many parts there are.
    const PARTS: usize = 7 + LEVELS;

    fn parts(&mut self) -> [&mut f64; Self::PARTS] {
        let [first, second, third] = &mut self.caches;
        [
            &mut self.issue,
            &mut self.units,
            first,
            second,
            third,
            &mut self.transfers,
            &mut self.cores,
            &mut self.background,
            &mut self.uncore,
            &mut self.base,
        ]
    }

    fn with(mut self, mut other: Self, both: impl Fn(f64, f64) -> f64) -> Self {
        for (one, other) in self.parts().into_iter().zip(other.parts()) {
            *one = both(*one, *other);
        }
        self
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.dynamic() + self.cores + self.background + self.uncore + self.base
    }

    /// What instructions and their accesses take, rather than time.
    pub fn dynamic(&self) -> f64 {
        self.issue + self.units + self.caches.iter().sum::<f64>() + self.transfers
    }

    /// What packages take: neither memory nor what is outside.
    pub fn packages(&self) -> f64 {
        self.total() - self.transfers - self.background - self.base
    }

    /// This many times as much.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        self.with(self, |part, _| part * factor)
    }
}

impl AddAssign for Energy {
    fn add_assign(&mut self, other: Self) {
        *self = self.with(other, |one, other| one + other);
    }
}

impl Sub for Energy {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.with(other, |one, other| one - other)
    }
}

/// How far a machine was when energy began to be measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Mark {
    /// When.
    pub at: Ps,
    /// What it had taken, in nanojoules.
    pub energy: Energy,
    /// Instructions that it had executed.
    pub instructions: u64,
}

/// What a run took, in the machine's own time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnergyStats {
    /// How long it was measured, in seconds of the machine: those of the operating system / scale.
    pub seconds: f64,
    /// All energy, in joules.
    pub joules: f64,
    /// Of it, that of instructions, caches and transfers.
    pub dynamic: f64,
    /// All of it by what took it, in joules.
    #[serde(flatten)]
    pub parts: Energy,
    /// Joules a second.
    pub watts: f64,
    /// Nanojoules / instruction, all energy.
    pub nanojoules_an_instruction: f64,
    /// Energy-delay product, joules × seconds: only for runs that end with their work.
    pub energy_delay: f64,
}

impl EnergyStats {
    /// Of what happened between two marks.
    pub(crate) fn between(from: &Mark, to: &Mark) -> Self {
        let seconds = to.at.saturating_sub(from.at) as f64 / SECOND as f64;
        let parts = (to.energy - from.energy).times(1e-9);
        let joules = parts.total();
        let instructions = to.instructions.saturating_sub(from.instructions);
        Self {
            seconds,
            joules,
            dynamic: parts.dynamic(),
            parts,
            watts: if seconds > 0.0 { joules / seconds } else { 0.0 },
            nanojoules_an_instruction: joules * 1e9 / instructions.max(1) as f64,
            energy_delay: joules * seconds,
        }
    }
}
