//! A simulated machine for two periods, seen as a policy sees it.

use super::measured::Measured;
use crate::processor::SimProcessor;
use perch_core::{Sharing, metric::names};
use perch_engine::{Acting, Options, Period, Session, SessionSink};
use perch_policy::Observe;
use perch_sim::{machine::SimMachine, model::MachineModel, system::System};
use std::time::Duration;

/// Cycles of the first PU's core while it is measured, and before that.
const MEASURED: u64 = 3_000_000;

/// For which threads sleep at first, in nanoseconds of the operating system: long enough to bind them before they have
/// touched any memory.
pub const ASLEEP: u64 = 1_000;

/// What was seen in the second period.
#[derive(Debug, Default)]
pub struct Seen {
    /// Of each thread, in the order of their numbers.
    pub threads: Vec<Measured>,
    /// Who shares memory.
    pub sharing: Vec<Sharing>,
}

/// How long a period is, in nanoseconds of the operating system.
pub fn period(machine: &MachineModel) -> u64 {
    let cycle = machine.kind(&machine.cores[0]).cycle;
    machine.os_time(MEASURED * cycle).max(4 * ASLEEP)
}

/// Plays two periods of threads that are where they are to be; what was seen of the second.
///
/// # Errors
/// In words: a machine that cannot go on.
pub fn watch(system: System, processor: &SimProcessor, period: u64) -> Result<Seen, String> {
    let period = Duration::from_nanos(period);
    let options = Options {
        period: Some(period),
        ..Options::new(
            Box::new(Observe),
            Box::new(processor.clone()),
            Acting::DryRun(None),
        )
    };
    let machine = SimMachine::new(system, Some(2 * period));
    let mut session = Session::new(machine, options).map_err(|error| error.to_string())?;
    let mut watcher = Watcher::default();
    session
        .run(&mut watcher)
        .map_err(|error| error.to_string())?;
    Ok(watcher.0)
}

#[derive(Default)]
struct Watcher(Seen);

impl SessionSink for Watcher {
    fn period(&mut self, period: &Period) {
        let snapshot = &period.snapshot;
        if !period.last {
            return;
        }
        let seconds = snapshot.interval as f64 * 1e-9;
        let threads = snapshot.threads.iter().map(|thread| {
            let metrics = thread.metrics.iter();
            let metrics = metrics.map(|(name, metric)| (name.to_string(), metric.value));
            let instructions = thread.metrics.value(names::INSTRUCTIONS).unwrap_or(0.0);
            Measured {
                speed: instructions / seconds,
                metrics: metrics.collect(),
                ..Measured::default()
            }
        });
        self.0 = Seen {
            threads: threads.collect(),
            sharing: snapshot.sharing.clone(),
        };
    }
}
