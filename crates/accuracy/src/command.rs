//! The command: prepares, runs every program, prints and writes the result.

use crate::catalogue::{Catalogue, Program, find_executable};
use crate::estimate::{Rights, estimate};
use crate::machine::Machine;
use crate::report;
use crate::score::{Row, Summary, TrueShares, judge};
use crate::truth::{self, Truth};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

/// Compares the floating-point share that perch samples with dynamic instruction counts, program by program.
///
/// Exit code: 0 if all limits are met, 1 if not. Run it as root to measure with and without privileges.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    /// Only programs whose name contains this; repeatable. Writes no page and asks for no number of programs
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Write the page here
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/accuracy.md"))]
    page: PathBuf,
    /// The perch to examine [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    perch: Option<PathBuf>,
    /// The list of programs
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/programs.toml"))]
    programs: PathBuf,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output<'a> {
    machine: &'a Machine,
    summary: &'a Summary,
    programs: &'a [Row],
}

/// Runs the experiment.
///
/// # Errors
/// A missing perch or valgrind, a list of programs that cannot be read, a build that fails. What goes wrong with
/// a single program is in the result.
pub fn run(args: &Args) -> Result<ExitCode> {
    let catalogue = Catalogue::read(&args.programs)?;
    let wanted = |program: &&Program| {
        args.only.is_empty() || args.only.iter().any(|text| program.name.contains(text))
    };
    let programs: Vec<&Program> = catalogue.programs.iter().filter(wanted).collect();
    ensure!(
        !programs.is_empty(),
        "no program's name contains {}",
        args.only.join(" or ")
    );
    if find_executable("valgrind").is_none() {
        bail!(
            "valgrind is missing: apt-get install valgrind (all that is needed: crates/accuracy/apt-packages.txt)"
        );
    }
    let workspace = Workspace::create()?;
    let perch = workspace.adopt(&find_perch(args.perch.as_deref())?)?;
    eprintln!("building the programs");
    workspace.generate_data()?;
    for build in &catalogue.builds {
        workspace.build(build)?;
    }

    let machine = Machine::look(&perch);
    let rows = measure(&programs, &machine, &perch, &workspace);
    let everything = args.only.is_empty();
    let summary = judge(&rows, everything);
    if args.json {
        let output = Output {
            machine: &machine,
            summary: &summary,
            programs: &rows,
        };
        println!("{}", serde_json::to_string_pretty(&output)?);
    } else {
        println!(
            "{}\n{}",
            report::programs(&rows),
            report::summary(&rows, &summary)
        );
    }
    if everything {
        std::fs::write(&args.page, report::page(&machine, &rows, &summary))
            .with_context(|| format!("cannot write {}", args.page.display()))?;
        eprintln!("wrote {}", args.page.display());
    }
    Ok(if summary.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn find_perch(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_path_buf(),
        None => std::env::current_exe()?.with_file_name("perch"),
    };
    ensure!(
        path.is_file(),
        "{} is missing: cargo build --release -p perch",
        path.display()
    );
    Ok(path)
}

/// All programs; truths and estimates at the same time where there are PUs for both.
fn measure(
    programs: &[&Program],
    machine: &Machine,
    perch: &Path,
    workspace: &Workspace,
) -> Vec<Row> {
    let mut rows: Vec<Row> = programs.iter().map(|program| Row::new(program)).collect();
    for (row, program) in rows.iter_mut().zip(programs) {
        row.missing = program.missing();
    }
    let present: Vec<usize> = (0..rows.len())
        .filter(|&index| rows[index].missing.is_none())
        .collect();
    let count_all = |sender: mpsc::Sender<(usize, Result<Truth>)>| {
        for &index in &present {
            let truth = truth::count(programs[index], programs[index].truth, workspace);
            if sender.send((index, truth)).is_err() {
                return;
            }
        }
    };
    let (sender, truths) = mpsc::channel();
    let mut estimates = Vec::new();
    thread::scope(|scope| {
        let counting = scope.spawn(|| count_all(sender));
        if machine.pus == 1 && counting.join().is_err() {
            return;
        }
        for (done, &index) in present.iter().enumerate() {
            eprintln!("{:2}/{} {}", done + 1, present.len(), programs[index].name);
            let privileged = estimate(programs[index], Rights::Own, perch, workspace);
            let unprivileged = machine
                .as_root
                .then(|| estimate(programs[index], Rights::Nobody, perch, workspace));
            estimates.push((index, privileged, unprivileged));
        }
    });
    for (index, truth) in truths {
        match truth {
            Ok(truth) => {
                rows[index].truth = Some(TrueShares::new(&truth, programs[index].truth.name()))
            }
            Err(error) => rows[index].failures.push(format!("{error:#}")),
        }
    }
    for (index, privileged, unprivileged) in estimates {
        let row = &mut rows[index];
        let (first, second) = if machine.as_root {
            (Some(privileged), unprivileged)
        } else {
            (None, Some(privileged))
        };
        for (result, place) in [
            (first, &mut row.privileged),
            (second, &mut row.unprivileged),
        ] {
            match result {
                Some(Ok(estimate)) => *place = Some(estimate),
                Some(Err(error)) => row.failures.push(format!("{error:#}")),
                None => {}
            }
        }
    }
    rows
}
