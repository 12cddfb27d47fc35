//! How near a mix that was derived from a recording comes to the recording: both alone on a machine, at the cycle level.

use crate::{endless, simulate::begin_at};
use perch_sim::{
    counters::Counters,
    model::MachineModel,
    os::SchedulerModel,
    system::{SimError, System},
    workload::Mix,
};
use serde::Serialize;
use std::sync::Arc;

/// Cycles after which is looked whether enough was executed.
const STEP: u64 = 50_000;

/// What one of them did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Behaviour {
    /// Operations in each cycle.
    pub ipc: f64,
    /// Mispredicted branches in 1,000 operations.
    pub mispredicted: f64,
    /// Fetches that missed levels 1, 2 and 3, in 1,000 operations.
    pub fetch_misses: [f64; 3],
    /// Loads and stores that missed levels 1, 2 and 3, in 1,000 operations.
    pub data_misses: [f64; 3],
    /// Loads and stores that missed the TLB, in 1,000 operations.
    pub tlb_misses: f64,
}

/// A mix, and what it was found from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Operations of the recorded thread.
    pub operations: u64,
    /// Bytes of its working sets.
    pub data: u64,
    /// Bytes of its code.
    pub code: u64,
    /// How it compares with the recording.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// A thread of the recording and one of the mix, alone on a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The machine.
    pub machine: String,
    /// The recorded one.
    pub recording: Behaviour,
    /// The one that executes the mix.
    pub mix: Behaviour,
}

impl Check {
    /// Simulates both for as many operations as were recorded, after as many.
    ///
    /// # Errors
    /// A simulation that cannot go on.
    pub fn new(
        machine: &Arc<MachineModel>,
        recording: &Mix,
        mix: &Mix,
        operations: u64,
    ) -> Result<Self, SimError> {
        Ok(Self {
            machine: machine.name.clone(),
            recording: alone(machine, recording.clone(), operations)?,
            mix: alone(machine, mix.clone(), operations)?,
        })
    }
}

/// What a thread of this mix does alone on the first PU of a machine, from its `operations`th operation on, for as many.
///
/// # Errors
/// A simulation that cannot go on.
fn alone(machine: &Arc<MachineModel>, mix: Mix, operations: u64) -> Result<Behaviour, SimError> {
    let workload = endless::workload("alone", vec![mix], 1);
    let scheduler = SchedulerModel::default();
    let mut system = System::new(Arc::clone(machine), Arc::new(workload), scheduler, 1);
    begin_at(&mut system, &[0])?;
    let step = STEP * machine.first_cycle();
    let mut until = |operations: u64| -> Result<(Counters, u64), SimError> {
        loop {
            let thread = &system.threads()[0];
            if thread.counters.instructions() >= operations {
                return Ok((thread.counters, thread.cycles));
            }
            system.run(system.now() + step)?;
        }
    };
    let (before, begun) = until(operations)?;
    let (after, ended) = until(2 * operations)?;
    let counters = after.since(&before);
    let each = 1000.0 / counters.instructions().max(1) as f64;
    let misses = |counts: [u64; 3]| counts.map(|count| count as f64 * each);
    Ok(Behaviour {
        ipc: counters.instructions() as f64 / (ended - begun).max(1) as f64,
        mispredicted: counters.mispredicted as f64 * each,
        fetch_misses: misses(counters.fetch_misses),
        data_misses: misses(counters.data_misses),
        tlb_misses: counters.tlb_misses as f64 * each,
    })
}
