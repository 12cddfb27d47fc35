//! `perch sim`: a user's own machine, workload and policies, simulated.

use crate::{
    args::SimArgs,
    render,
    simulation::{DEFAULT, alone, decider, play},
};
use anyhow::{Result, bail};
use perch_sim::config;
use std::{process::ExitCode, sync::Arc};

/// Simulates with every policy that was asked for, and compares.
///
/// # Errors
/// Files that are wrong, a policy that is not there, a deadlock.
pub fn sim(args: &SimArgs) -> Result<ExitCode> {
    if args.list {
        return super::print(&render::sim::shipped()).map(|()| ExitCode::SUCCESS);
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
    // Before anything is simulated.
    for policy in &policies {
        decider(policy, &machine, args)?;
    }
    let alone = alone(&machine, &workload, args)?;
    let mut results = Vec::new();
    let mut report = None;
    for policy in &policies {
        let (result, told) = play(&machine, &workload, policy, args, &alone)?;
        results.push(result);
        report = Some(told);
    }
    if args.json {
        super::print_json(&results)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = render::sim::results(&machine, &workload, &results);
    if args.report
        && let (Some(report), [_]) = (&report, &results[..])
    {
        text += "\n";
        text += &render::report::render(report);
    }
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
