//! Energy: what instructions, accesses and time take.
//!
//! `E = Σ n_event · e_event · (V/V0)² + V · P_static · t + P_base · t`. Clock modulation (`duty`) leaves the voltage as
//! it is: fewer events happen in a second, and the static part goes on.

use crate::{
    counters::Counters,
    model::{MachineModel, Op},
    units::{Ps, SECOND},
};
use serde::{Deserialize, Serialize};

/// Nanojoules of a watt in a picosecond.
const WATT: f64 = 1e9 / SECOND as f64;

/// What one kind of core takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindEnergy {
    /// Nanojoules of an instruction at the nominal voltage, by [`Op`] number.
    pub ops: [f64; Op::COUNT],
    /// Watts of a core that has a thread, whatever that does, at the nominal voltage.
    pub active: f64,
    /// Watts of a core that has none, at the nominal voltage.
    pub idle: f64,
    /// Its voltage / that at which the numbers are given.
    pub voltage: f64,
}

/// What a machine takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnergyModel {
    /// By [`MachineModel::kinds`].
    pub kinds: Vec<KindEnergy>,
    /// Nanojoules of a look into a cache of level 1, 2, 3, at the nominal voltage.
    pub caches: [f64; 3],
    /// Nanojoules of a line moved to or from memory.
    pub transfer: f64,
    /// Watts of everything else, all the time: boards, fans, the loss of the power supply.
    pub base: f64,
}

impl EnergyModel {
    /// Nanojoules of what was counted on a kind of core. Looks into the first level are loads and stores (those of
    /// fetches are in the instructions' own), into each further one the misses of the one before.
    pub fn dynamic(&self, kind: usize, counted: &Counters) -> f64 {
        let kind = &self.kinds[kind];
        let ops = counted.ops.iter().zip(&kind.ops);
        let ops: f64 = ops.map(|(count, each)| *count as f64 * each).sum();
        let missed = |level: usize| counted.fetch_misses[level] + counted.data_misses[level];
        let looks = [
            counted.ops[Op::Load as usize] + counted.ops[Op::Store as usize],
            missed(0),
            missed(1),
        ];
        let looks = looks.iter().zip(&self.caches);
        let caches: f64 = looks.map(|(count, each)| *count as f64 * each).sum();
        (ops + caches) * kind.voltage * kind.voltage
            + counted.bus_transactions as f64 * self.transfer
    }
}

/// What a run took, in the machine's own time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnergyStats {
    /// How long it ran, in seconds of the machine: those of the operating system / scale.
    pub seconds: f64,
    /// All energy, in joules.
    pub joules: f64,
    /// Of it, that of instructions, caches and memory.
    pub dynamic: f64,
    /// Of it, that of cores, busy or idle.
    pub cores: f64,
    /// Of it, that of everything else.
    pub base: f64,
    /// Joules a second.
    pub watts: f64,
    /// Nanojoules / instruction, all energy.
    pub nanojoules_an_instruction: f64,
    /// Energy-delay product, joules × seconds: only for runs that end with their work.
    pub energy_delay: f64,
}

/// One core's power so far.
#[derive(Debug, Clone, Copy, Default)]
struct CoreMeter {
    /// Threads on it.
    present: u32,
    /// Up to when it is accounted for.
    since: Ps,
    /// Time with a thread.
    active: Ps,
    /// What a thread that was there from the beginning would have got of the core's power: its share is that of the
    /// threads present at each moment, in nanojoules.
    share: f64,
}

/// Measures while a machine runs.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    model: EnergyModel,
    /// Core of each PU.
    core_of: Vec<usize>,
    /// Kind of each core.
    kind_of: Vec<usize>,
    cores: Vec<CoreMeter>,
    /// What its core's share was when the thread of each PU was last accounted for.
    seen: Vec<f64>,
    dynamic: f64,
}

impl Meter {
    /// The meter of a machine whose energy is modelled.
    pub(crate) fn new(machine: &MachineModel) -> Option<Self> {
        let places = machine.places();
        Some(Self {
            model: machine.energy.clone()?,
            seen: vec![0.0; places.len()],
            core_of: places.iter().map(|(core, _)| *core).collect(),
            kind_of: machine.cores.iter().map(|core| core.kind).collect(),
            cores: vec![CoreMeter::default(); machine.cores.len()],
            dynamic: 0.0,
        })
    }

    /// Brings a core up to date.
    fn pass(&mut self, core: usize, now: Ps) {
        let kind = &self.model.kinds[self.kind_of[core]];
        let meter = &mut self.cores[core];
        let time = now.saturating_sub(meter.since);
        meter.since = meter.since.max(now);
        if meter.present > 0 {
            meter.active += time;
            let power = kind.active * kind.voltage * WATT;
            meter.share += power * time as f64 / f64::from(meter.present);
        }
    }

    /// A thread comes to a PU.
    pub(crate) fn arrive(&mut self, pu: usize, now: Ps) {
        let core = self.core_of[pu];
        self.pass(core, now);
        self.cores[core].present += 1;
        self.seen[pu] = self.cores[core].share;
    }

    /// It goes.
    pub(crate) fn leave(&mut self, pu: usize, now: Ps) {
        let core = self.core_of[pu];
        self.pass(core, now);
        self.cores[core].present -= 1;
    }

    /// What the thread on a PU took since this was last asked: for what it counted, and of its core's power.
    pub(crate) fn take(&mut self, pu: usize, counted: &Counters, now: Ps) -> f64 {
        let core = self.core_of[pu];
        self.pass(core, now);
        let share = self.cores[core].share;
        let power = share - std::mem::replace(&mut self.seen[pu], share);
        let dynamic = self.model.dynamic(self.kind_of[core], counted);
        self.dynamic += dynamic;
        dynamic + power
    }

    /// All up to now; threads must have been accounted for.
    pub(crate) fn stats(&self, now: Ps, instructions: u64) -> EnergyStats {
        let seconds = now as f64 / SECOND as f64;
        let cores = self.cores.iter().zip(&self.kind_of).map(|(meter, kind)| {
            let kind = &self.model.kinds[*kind];
            let last = match meter.present {
                0 => 0,
                _ => now.saturating_sub(meter.since),
            };
            let active = (meter.active + last) as f64 / SECOND as f64;
            kind.voltage * (kind.active * active + kind.idle * (seconds - active))
        });
        let cores: f64 = cores.sum();
        let dynamic = self.dynamic * 1e-9;
        let base = self.model.base * seconds;
        let joules = dynamic + cores + base;
        EnergyStats {
            seconds,
            joules,
            dynamic,
            cores,
            base,
            watts: if now > 0 { joules / seconds } else { 0.0 },
            nanojoules_an_instruction: joules * 1e9 / instructions.max(1) as f64,
            energy_delay: joules * seconds,
        }
    }
}
