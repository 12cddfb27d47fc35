//! `perch sim`: a user's own machine, workload and policies, simulated.

use crate::{
    args::SimArgs,
    render,
    simulation::{DEFAULT, Scene, Shipped, compare, decider},
};
use anyhow::{Context, Result, bail};
use perch_sim::{config, detail::Detail};
use std::{fs::OpenOptions, path::Path, process::ExitCode, sync::Arc};

/// Simulates with every policy that was asked for, and compares.
///
/// # Errors
/// Files that are wrong, a policy that is not there, a deadlock.
pub fn sim(args: &SimArgs) -> Result<ExitCode> {
    if args.list {
        let shipped = Shipped::new()?;
        match args.json {
            true => super::print_json(&shipped)?,
            false => super::print(&render::sim::shipped(&shipped))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (Some(machine), Some(workload)) = (&args.machine, &args.workload) else {
        bail!(
            "which machine and which workload? Give --machine and --workload, names or files (see --list)"
        );
    };
    let machine = Arc::new(config::find_machine(machine)?);
    let workload = Arc::new(config::find_workload(workload)?);
    let policies = match args.compare.is_empty() {
        true => vec![match &args.policy {
            Some(policy) => policy.clone(),
            None if !args.pin.is_empty() => "fixed".to_owned(),
            None => DEFAULT.to_owned(),
        }],
        false => args.compare.clone(),
    };
    if !args.pin.is_empty() && !policies.iter().any(|policy| policy == "fixed") {
        bail!(
            "--pin is for the policy `fixed`, which nothing here names: `-p fixed`, or `--compare fixed,…`"
        );
    }
    if args.compare.is_empty() {
        // A single placement has neither report nor recording.
        decider(&policies[0], &machine, args)?;
    }
    for file in args.log.iter().chain(&args.timeline) {
        can_be_written(file)?;
    }
    let scene = Scene {
        machine: &machine,
        workload: &workload,
        args,
        detail: Detail::new(args.fidelity, &machine, &workload),
    };
    let (comparison, report) = compare(&scene, &policies)?;
    if args.json {
        super::print_json(&comparison)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = render::sim::comparison(&comparison, machine.pus());
    if let Some(report) = report.filter(|_| args.report) {
        text += "\n";
        text += &render::report::render(&report);
    }
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Before hours of simulation, not after.
fn can_be_written(file: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    let opened = options.create(true).append(true).open(file);
    opened.with_context(|| format!("{}: cannot be written", file.display()))?;
    Ok(())
}
