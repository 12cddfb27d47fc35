//! Kernels on a simulated machine, seen as a policy sees threads.

use super::{
    evaluate::Measurements,
    kernels::{self, SimKernel},
    measure::{Effort, Rig, Sample, measure},
    measured::Measured,
    plan::{Run, Seat, Sites},
    transfers::transfers,
    watch::{ASLEEP, period, watch},
};
use crate::{
    parallel::{each, host_threads},
    processor::SimProcessor,
};
use perch_core::{PuSet, UnitClass};
use perch_engine::Processor;
use perch_policy::Calibration;
use perch_sim::{
    detail::{Detail, Fidelity},
    model::MachineModel,
    os::SchedulerModel,
    system::System,
    topology::topology,
    workload::{ProgramModel, Step, ThreadModel, WorkloadModel},
};
use std::{collections::BTreeMap, sync::Arc};

/// How a simulated machine is calibrated.
#[derive(Debug, Clone)]
pub struct How {
    /// The date in the file.
    pub date: String,
    /// The level of detail of the simulation.
    pub fidelity: Fidelity,
    /// Only alone and in pairs, without groups.
    pub quick: bool,
    /// Threads of the host.
    pub threads: usize,
}

impl How {
    /// All of it at the interval level, on all of the host's PUs.
    pub fn new(date: String) -> Self {
        Self {
            date,
            fidelity: Fidelity::Interval,
            quick: false,
            threads: host_threads(),
        }
    }
}

/// Calibrates a simulated machine. Reports progress to `done`: how many runs are done, of how many. The same machine
/// always has the same calibration, but for the date.
///
/// # Errors
/// In words: a machine without PUs, a run that cannot go on.
pub fn simulated(
    machine: &Arc<MachineModel>,
    how: &How,
    mut done: impl FnMut(usize, usize),
) -> Result<Calibration, String> {
    let topology = topology(machine);
    let processor = SimProcessor::new(machine);
    let fp_domains = processor.unit_domains(&topology).of(UnitClass::Fp).to_vec();
    let sites = Sites::new(&topology, &fp_domains, &topology.usable())
        .ok_or("a machine without PUs cannot be calibrated")?;
    let kernels = kernels::kernels(&topology);
    let kinds: Vec<_> = kernels.iter().map(SimKernel::kind).collect();
    let runs = sites.runs(&kinds, !how.quick);
    let rig = Machine::new(machine, &kernels, processor, how.fidelity);
    let count = runs.len();
    let played = each(
        count,
        how.threads,
        |at| rig.measure(&runs[at]),
        |at| done(at, count),
    )
    .map_err(|(_, error)| error)?;
    let mut memory = Played {
        by_seats: runs
            .iter()
            .map(|run| run.seats.clone())
            .zip(&played)
            .collect(),
    };
    let mut measured = measure(&mut memory, &runs, &ALIKE, |_| Ok(()))?.measured;
    for (measured, played) in measured.iter_mut().flatten().zip(played.iter().flatten()) {
        measured.metrics = played.metrics.clone();
    }
    let measurements = Measurements {
        kernels: kinds,
        sites: &sites,
        runs: &runs,
        measured: &measured,
    };
    let name = format!("{} (simulated)", machine.name);
    let metrics = kernels::load_metrics();
    let mut calibration = measurements.calibration(name, how.date.clone(), &metrics);
    calibration.transfers = transfers(machine, &rig.processor, &sites, how.fidelity)?;
    if machine.scale != 1.0 {
        calibration.notes.push(format!(
            "all times and rates are in the operating system's time, in which the machine is {} times slower (its `scale`)",
            machine.scale
        ));
    }
    Ok(calibration)
}

/// Every window of a simulated machine is the same: as many visits as an interval needs.
const ALIKE: Effort = Effort {
    least: 3,
    most: 3,
    seconds: f64::INFINITY,
};

/// Runs that were simulated already.
struct Played<'a> {
    by_seats: BTreeMap<Vec<Seat>, &'a Vec<Measured>>,
}

impl Rig for Played<'_> {
    type Error = String;

    fn window(&mut self, seats: &[Seat]) -> Result<Vec<Sample>, String> {
        let of_run = self
            .by_seats
            .get(seats)
            .ok_or("a run that was not simulated")?;
        let sample = |measured: &Measured| Sample {
            speed: measured.speed,
            share: 1.0,
        };
        Ok(of_run.iter().map(sample).collect())
    }

    fn seconds(&self) -> f64 {
        0.0
    }
}

/// A machine and all kernels, of which each run plays some.
struct Machine<'a> {
    machine: &'a Arc<MachineModel>,
    processor: SimProcessor,
    workload: WorkloadModel,
    detail: Detail,
    /// Nanoseconds of the operating system: of the two periods the second is measured.
    period: u64,
}

impl<'a> Machine<'a> {
    fn new(
        machine: &'a Arc<MachineModel>,
        kernels: &[SimKernel],
        processor: SimProcessor,
        fidelity: Fidelity,
    ) -> Self {
        let program = |(mix, kernel): (usize, &SimKernel)| ProgramModel {
            name: kernel.mix.name.clone(),
            count: 0,
            start: 0,
            restart: false,
            system: false,
            requests: None,
            threads: vec![ThreadModel {
                name: kernel.mix.name.clone(),
                count: 1,
                steps: vec![
                    Step::Sleep(ASLEEP),
                    Step::Compute {
                        mix,
                        instructions: u64::MAX,
                    },
                ],
                repeat: 1,
                nice: 0,
                pus: Vec::new(),
            }],
        };
        let workload = WorkloadModel {
            name: "calibrate".into(),
            about: "kernels beside each other".into(),
            sources: Vec::new(),
            mixes: kernels.iter().map(|kernel| kernel.mix.clone()).collect(),
            devices: Vec::new(),
            programs: kernels.iter().enumerate().map(program).collect(),
        };
        Self {
            machine,
            processor,
            detail: Detail::new(fidelity, machine, &workload),
            workload,
            period: period(machine),
        }
    }

    /// What each seat of a run did.
    fn measure(&self, run: &Run) -> Result<Vec<Measured>, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let mut workload = self.workload.clone();
        for seat in &run.seats {
            workload.programs[seat.kernel].count += 1;
        }
        let machine = Arc::clone(self.machine);
        let scheduler = SchedulerModel::default();
        let mut system = System::at(&self.detail, machine, Arc::new(workload), scheduler, 1);
        system.run(1).map_err(|error| words(&error))?;
        let seats = self.bind(&mut system, run);
        // Awake, each where it is to be.
        let awake = self.machine.machine_time(2 * ASLEEP).max(2);
        system.run(awake).map_err(|error| words(&error))?;
        system.warm();
        let seen = watch(system, &self.processor, self.period)?.threads;
        let mut of_seats = vec![Measured::default(); run.seats.len()];
        for (seat, seen) in seats.into_iter().zip(seen) {
            of_seats[seat] = seen;
        }
        match of_seats.iter().position(|seen| seen.speed <= 0.0) {
            None => Ok(of_seats),
            Some(seat) => {
                let name = |seat: &Seat| self.workload.mixes[seat.kernel].name.as_str();
                let all: Vec<&str> = run.seats.iter().map(name).collect();
                Err(format!(
                    "kernel {} did nothing in its time, of those that ran: {}",
                    all[seat],
                    all.join(", ")
                ))
            }
        }
    }

    /// Binds each thread to the seat that it has; by thread, its seat.
    fn bind(&self, system: &mut System, run: &Run) -> Vec<usize> {
        let mut free: Vec<usize> = (0..run.seats.len()).collect();
        let mut seats = Vec::new();
        for thread in 0..system.threads().len() {
            let process = system.threads()[thread].identity.process;
            let kernel = system.processes()[process].program;
            let place = free
                .iter()
                .position(|seat| run.seats[*seat].kernel == kernel);
            // There are as many of each kernel as it has seats.
            let Some(place) = place else { continue };
            let seat = free.remove(place);
            system.set_mask(thread, PuSet::single(run.seats[seat].pu));
            seats.push(seat);
        }
        seats
    }
}
