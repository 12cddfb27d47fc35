//! What it costs to hand over a line: two threads that write the same memory, beside two that write their own.

use super::{
    kernels,
    plan::Sites,
    watch::{ASLEEP, Seen, period, watch},
};
use crate::processor::SimProcessor;
use perch_core::PuSet;
use perch_policy::Transfer;
use perch_sim::{
    detail::{Detail, Fidelity},
    model::MachineModel,
    os::SchedulerModel,
    system::System,
    topology::topology,
    workload::{Mix, ProgramModel, Step, ThreadModel, WorkloadModel},
};
use std::sync::Arc;

/// What both threads share.
const REGION: &str = "lines";

/// The cost of a line at each level of sharing: the time that two threads lose because their memory is the same, by the
/// lines that a policy sees going between them.
///
/// # Errors
/// In words: a machine that cannot go on.
pub fn transfers(
    machine: &Arc<MachineModel>,
    processor: &SimProcessor,
    sites: &Sites,
    fidelity: Fidelity,
) -> Result<Vec<Transfer>, String> {
    let own = kernels::transfer(&topology(machine));
    let mut shared = own.clone();
    let sets = shared.working_sets.iter_mut();
    sets.for_each(|set| set.region = Some(REGION.to_owned()));
    let speed = |seen: &Seen| seen.threads.iter().map(|thread| thread.speed).sum::<f64>();
    let mut found = Vec::new();
    for level in &sites.levels {
        let pair = |mix: &Mix| play(machine, processor, fidelity, mix, &level.pus[..2]);
        let (alone, together) = (pair(&own)?, pair(&shared)?);
        let lines: f64 = together.sharing.iter().map(|pair| pair.transfers).sum();
        if lines > 0.0 && speed(&alone) > 0.0 {
            // Of two seconds, one of each thread.
            let lost = 2.0 * (1.0 - speed(&together) / speed(&alone));
            found.push(Transfer {
                share: level.share,
                seconds: (lost / lines).max(0.0),
                low: None,
                high: None,
            });
        }
    }
    Ok(found)
}

/// Two threads of one process that run a mix on two PUs.
fn play(
    machine: &Arc<MachineModel>,
    processor: &SimProcessor,
    fidelity: Fidelity,
    mix: &Mix,
    pus: &[u32],
) -> Result<Seen, String> {
    let compute = Step::Compute {
        mix: 0,
        instructions: u64::MAX,
    };
    let workload = WorkloadModel {
        name: mix.name.clone(),
        about: "two threads with the same memory, or not".into(),
        sources: Vec::new(),
        mixes: vec![mix.clone()],
        devices: Vec::new(),
        programs: vec![ProgramModel {
            name: mix.name.clone(),
            count: 1,
            start: 0,
            restart: false,
            system: false,
            requests: None,
            threads: vec![ThreadModel {
                name: mix.name.clone(),
                count: pus.len() as u32,
                steps: vec![Step::Sleep(ASLEEP), compute],
                repeat: 1,
                nice: 0,
                pus: Vec::new(),
            }],
        }],
    };
    let words = |error: perch_sim::system::SimError| error.to_string();
    let detail = Detail::new(fidelity, machine, &workload);
    let scheduler = SchedulerModel::default();
    let mut system = System::at(
        &detail,
        Arc::clone(machine),
        Arc::new(workload),
        scheduler,
        1,
    );
    system.run(1).map_err(words)?;
    for (thread, pu) in pus.iter().enumerate() {
        system.set_mask(thread, PuSet::single(*pu));
    }
    system
        .run(machine.machine_time(2 * ASLEEP).max(2))
        .map_err(words)?;
    system.warm();
    watch(system, processor, period(machine))
}
