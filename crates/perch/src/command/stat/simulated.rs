//! The series of a simulated machine: what is counted there is exact, and known to the user who wrote the workload.

use super::{
    modules::Chosen,
    output::Printer,
    wanted::{Formulas, Wanted},
    without_program,
};
use crate::args::StatArgs;
use anyhow::Result;
use perch_core::Machine;
use perch_lab::{processor::SimProcessor, scene::system};
use perch_sim::{config, detail::Detail, machine::SimMachine};
use perch_stat::Collector;
use std::{process::ExitCode, sync::Arc, time::Duration};

/// How long the workload is simulated unless --for says so, as `perch sim` does.
const TIME: Duration = Duration::from_secs(10);

/// Simulates the workload under the default scheduler and counts.
///
/// # Errors
/// Files that are wrong, events that a simulated machine does not count, a deadlock.
pub fn stat(args: &StatArgs, machine: &str, workload: &str) -> Result<ExitCode> {
    let machine = Arc::new(config::find_machine(machine)?);
    let workload = Arc::new(config::find_workload(workload)?);
    let time = args.duration.unwrap_or(TIME);
    let profile = SimProcessor::new(&machine).profile().clone();
    let formulas = Formulas::read(args, &profile)?;
    let modules = Chosen::of_recording(args)?;
    let wanted = Wanted::new(args, &profile, true, formulas, &modules)?;
    let printer = Printer::new(args, &wanted, false)?;
    let detail = Detail::new(args.fidelity, &machine, &workload);
    let system = system(&detail, &machine, &workload, args.seed);
    let mut machine = SimMachine::new(system, Some(time));
    machine.watch_pus(wanted.by.is_of_pus())?;
    machine.configure(&wanted.request.plan(&profile))?;
    let collector = Collector::new(wanted.options(args), profile);
    without_program(args, &mut machine, collector, printer)
}
