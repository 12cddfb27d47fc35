//! Workloads drawn for the tournament: programs of some like threads, with phases, idlers, more and fewer threads than
//! PUs.

use crate::random;
use perch_sim::{
    model::MachineModel,
    stream::Random,
    workload::{ProgramModel, Step, ThreadModel, WorkloadModel},
};

/// The least and the most threads.
const THREADS: (u64, u64) = (4, 64);

/// Seconds of the operating system that a phase lasts at one instruction a cycle: at least and at most.
const PHASE: (f64, f64) = (4.0, 12.0);

/// Seconds that an idler computes and sleeps at most.
const IDLER: f64 = 2.0;

/// A workload for a machine: from four threads to twice as many as PUs, at most 64; as often no more threads than PUs as
/// exactly as many or more.
pub fn workload(number: u64, machine: &MachineModel, random: &mut Random) -> WorkloadModel {
    let pus = machine.pus() as u64;
    let (least, most) = THREADS;
    let threads = match random.unit() {
        few if few < 0.5 => least + random.below(pus.saturating_sub(least).max(1)),
        full if full < 0.75 => pus.max(least),
        _ => pus + 1 + random.below(pus),
    };
    let threads = threads.clamp(least, most);
    let clock = machine.cores.first().map_or(1.0, |core| {
        let picoseconds = machine.kind(core).cycle as f64;
        1e12 / picoseconds / machine.scale
    });
    let mut model = WorkloadModel {
        name: format!("drawn-{number}"),
        about: "drawn at random".into(),
        sources: Vec::new(),
        mixes: Vec::new(),
        devices: Vec::new(),
        programs: Vec::new(),
    };
    let mut left = threads;
    while left > 0 {
        let count = (1 + random.below(4)).min(left);
        left -= count;
        let mut compute = |instructions: f64, random: &mut Random| {
            let name = format!("m{}", model.mixes.len());
            model.mixes.push(random::mix(name, random));
            Step::Compute {
                mix: model.mixes.len() - 1,
                // For ever, if there is no end.
                instructions: instructions as u64,
            }
        };
        let steps = match random.unit() {
            steady if steady < 0.65 => vec![compute(f64::INFINITY, random)],
            phased if phased < 0.85 => (0..2)
                .map(|_| {
                    let seconds = PHASE.0 + (PHASE.1 - PHASE.0) * random.unit();
                    compute(seconds * clock, random)
                })
                .collect(),
            _ => {
                let busy = IDLER * random.unit() + 0.01;
                let idle = IDLER * random.unit() + 0.01;
                vec![
                    compute(busy * clock, random),
                    Step::Sleep((idle * 1e9) as u64),
                ]
            }
        };
        let steady = steps.len() == 1;
        model.programs.push(ProgramModel {
            name: format!("p{}", model.programs.len()),
            count: 1,
            start: 0,
            restart: false,
            system: false,
            requests: None,
            threads: vec![ThreadModel {
                name: "t".into(),
                count: count as u32,
                steps,
                repeat: if steady { 1 } else { u64::MAX },
                nice: 0,
                pus: Vec::new(),
            }],
        });
    }
    model
}

/// Whether every thread does the same all the time, each on a PU of its own: then a short look at a placement tells what a
/// long one would.
pub fn is_steady(workload: &WorkloadModel, machine: &MachineModel) -> bool {
    let threads = workload
        .programs
        .iter()
        .flat_map(|program| &program.threads);
    let steady = threads.clone().all(|thread| thread.steps.len() == 1);
    let count: u32 = threads.map(|thread| thread.count).sum();
    steady && count as usize <= machine.pus()
}
