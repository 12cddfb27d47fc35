//! Measures while a machine runs: who took what, by thread and by PU.

use super::Energy;
use crate::{
    counters::Counters,
    model::{CoreAt, EnergyModel, MachineModel, OperatingPoint},
    units::{Ps, SECOND},
};

/// Nanojoules of a watt in a picosecond.
const WATT: f64 = 1e9 / SECOND as f64;

/// One core's power so far.
#[derive(Debug, Clone, Copy)]
struct CoreMeter {
    /// Threads on it.
    present: u32,
    /// Up to when it is accounted for.
    since: Ps,
    /// Its voltage / that at which the numbers are given.
    voltage: f64,
    /// What it took with and without a thread, in nanojoules.
    taken: f64,
    /// Of that, what it took without a thread.
    idle: f64,
    /// What a thread that was there from the beginning would have got of the core's power: its share is that of the
    /// threads present at each moment, in nanojoules.
    share: f64,
}

/// What a PU shares with others whether or not it has a thread.
#[derive(Debug, Clone, Copy)]
struct Place {
    core: usize,
    /// Its part of the core while that is idle.
    part: f64,
    /// Watts of its package's, its memory's and everything else's power that count for it.
    power: Energy,
    /// Its core's share when the PU's thread was last accounted for.
    seen: f64,
    /// What its core had taken without a thread, and when, when it was last accounted for.
    idle: f64,
    since: Ps,
}

/// Measures while a machine runs.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    model: EnergyModel,
    /// Kind of each core.
    kind_of: Vec<usize>,
    cores: Vec<CoreMeter>,
    /// By PU.
    places: Vec<Place>,
    /// Watts of what takes them all the time.
    steady: Energy,
    dynamic: Energy,
}

/// Of how many things of a sort there are, and how many PUs each has.
fn counted(of_pus: &[u32], all: impl Iterator<Item = u32>) -> (f64, Vec<f64>) {
    let mut each: Vec<u32> = all.collect();
    each.sort_unstable();
    each.dedup();
    let pus = |which: &u32| of_pus.iter().filter(|of| *of == which).count() as f64;
    (each.len() as f64, of_pus.iter().map(pus).collect())
}

impl Meter {
    /// The meter of a machine whose energy is modelled.
    pub(crate) fn new(machine: &MachineModel) -> Option<Self> {
        let model = machine.energy.clone()?;
        let places = machine.places();
        let cores = machine.cores.iter();
        let of_pus = |of: fn(&CoreAt) -> u32| -> Vec<u32> {
            let cores = places.iter().map(|(core, _)| &machine.cores[*core]);
            cores.map(of).collect()
        };
        let (packages, of_package) = counted(
            &of_pus(|core| core.package),
            cores.clone().map(|core| core.package),
        );
        let (nodes, of_node) = counted(
            &of_pus(|core| core.numa_node),
            cores.clone().map(|core| core.numa_node),
        );
        let place = |(pu, (core, _)): (usize, &(usize, usize))| Place {
            core: *core,
            part: 1.0 / f64::from(machine.kind(&machine.cores[*core]).contexts),
            power: Energy {
                background: model.background / of_node[pu],
                uncore: model.uncore / of_package[pu],
                base: model.base / places.len() as f64,
                ..Energy::default()
            },
            seen: 0.0,
            idle: 0.0,
            since: 0,
        };
        let meter = |core: &CoreAt| CoreMeter {
            present: 0,
            since: 0,
            voltage: model.kinds[core.kind].voltage_at(machine.kind(core).highest_clock()),
            taken: 0.0,
            idle: 0.0,
            share: 0.0,
        };
        Some(Self {
            kind_of: cores.clone().map(|core| core.kind).collect(),
            cores: cores.map(meter).collect(),
            places: places.iter().enumerate().map(place).collect(),
            steady: Energy {
                background: nodes * model.background,
                uncore: packages * model.uncore,
                base: model.base,
                ..Energy::default()
            },
            dynamic: Energy::default(),
            model,
        })
    }

    /// Brings a core up to date.
    fn pass(&mut self, core: usize, now: Ps) {
        let kind = &self.model.kinds[self.kind_of[core]];
        let meter = &mut self.cores[core];
        let time = now.saturating_sub(meter.since) as f64 * WATT * meter.voltage;
        meter.since = meter.since.max(now);
        if meter.present > 0 {
            meter.taken += kind.active * time;
            meter.share += kind.active * time / f64::from(meter.present);
        } else {
            meter.taken += kind.idle * time;
            meter.idle += kind.idle * time;
        }
    }

    /// A thread comes to a PU.
    pub(crate) fn arrive(&mut self, pu: usize, now: Ps) {
        let core = self.places[pu].core;
        self.pass(core, now);
        self.cores[core].present += 1;
        self.places[pu].seen = self.cores[core].share;
    }

    /// It goes.
    pub(crate) fn leave(&mut self, pu: usize, now: Ps) {
        let core = self.places[pu].core;
        self.pass(core, now);
        self.cores[core].present -= 1;
    }

    /// A core has another operating point from now on; its threads must have been accounted for.
    pub(crate) fn set_point(&mut self, core: usize, point: OperatingPoint, now: Ps) {
        self.pass(core, now);
        self.cores[core].voltage = self.model.kinds[self.kind_of[core]].voltage_at(point.clock);
    }

    /// What the thread on a PU took since this was last asked: for what it counted, and of its core's power.
    pub(crate) fn take(&mut self, pu: usize, counted: &Counters, now: Ps) -> Energy {
        let core = self.places[pu].core;
        self.pass(core, now);
        let share = self.cores[core].share;
        let cores = share - std::mem::replace(&mut self.places[pu].seen, share);
        let voltage = self.cores[core].voltage;
        let dynamic = self.model.dynamic(self.kind_of[core], voltage, counted);
        self.dynamic += dynamic;
        Energy { cores, ..dynamic }
    }

    /// What counts for a PU but for no thread, since this was last asked: its core while that was idle, its package, its
    /// memory and everything else.
    pub(crate) fn take_rest(&mut self, pu: usize, now: Ps) -> Energy {
        let core = self.places[pu].core;
        self.pass(core, now);
        let idle = self.cores[core].idle;
        let place = &mut self.places[pu];
        let time = now.saturating_sub(std::mem::replace(&mut place.since, now)) as f64;
        let cores = (idle - std::mem::replace(&mut place.idle, idle)) * place.part;
        Energy {
            cores,
            ..place.power.times(time * WATT)
        }
    }

    /// What the machine took up to now, in nanojoules; threads must have been accounted for.
    pub(crate) fn total(&self, now: Ps) -> Energy {
        let cores = self.cores.iter().zip(&self.kind_of).map(|(meter, kind)| {
            let kind = &self.model.kinds[*kind];
            let power = match meter.present {
                0 => kind.idle,
                _ => kind.active,
            };
            let time = now.saturating_sub(meter.since) as f64;
            meter.taken + power * meter.voltage * time * WATT
        });
        let mut total = self.dynamic;
        total += self.steady.times(now as f64 * WATT);
        Energy {
            cores: cores.sum(),
            ..total
        }
    }
}
