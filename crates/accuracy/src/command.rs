//! The command: prepares, runs every program, prints and writes the result.

use crate::catalogue::{Catalogue, Program, find_executable};
use crate::estimate::{Rights, estimate};
use crate::machine::Machine;
use crate::report;
use crate::score::{Row, Summary, TrueShares, judge};
use crate::truth::{self, kept::Kept};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
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
    /// Keep truths in this file, and use those that it holds: counting is slow
    #[arg(long, value_name = "FILE")]
    truths: Option<PathBuf>,
    /// Count truths and keep them, and ask perch nothing
    #[arg(long, requires = "truths")]
    count_only: bool,
    /// Which programs
    #[arg(long, value_enum, default_value_t = Programs::Both)]
    programs: Programs,
}

/// Which list of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Programs {
    /// Those with which the estimator was developed.
    Development,
    /// Those that nobody looked at while developing it.
    HeldOut,
    /// Both. Only then, and without --only, the page is written.
    Both,
}

impl Programs {
    fn lists(self) -> &'static [&'static str] {
        match self {
            Programs::Development => &[DEVELOPMENT],
            Programs::HeldOut => &[HELD_OUT],
            Programs::Both => &[DEVELOPMENT, HELD_OUT],
        }
    }
}

const DEVELOPMENT: &str = "programs.toml";
const HELD_OUT: &str = "held-out.toml";

/// One list's result.
#[derive(Serialize)]
pub struct Part {
    /// The file with the list.
    pub list: &'static str,
    /// What is judged.
    pub summary: Summary,
    /// One for each program.
    pub programs: Vec<Row>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output<'a> {
    machine: &'a Machine,
    parts: &'a [Part],
}

/// Runs the experiment.
///
/// # Errors
/// A missing perch or valgrind, a list of programs that cannot be read, a build that fails. What goes wrong with
/// a single program is in the result.
pub fn run(args: &Args) -> Result<ExitCode> {
    let lists = args.programs.lists();
    let mut catalogues = Vec::new();
    for list in lists {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut catalogue = Catalogue::read(&folder.join(list))?;
        catalogue.programs.retain(|program| {
            args.only.is_empty() || args.only.iter().any(|text| program.name.contains(text))
        });
        catalogues.push(catalogue);
    }
    ensure!(
        catalogues
            .iter()
            .any(|catalogue| !catalogue.programs.is_empty()),
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
    for build in catalogues.iter().flat_map(|catalogue| &catalogue.builds) {
        workspace.build(build)?;
    }

    let mut kept = Kept::read(args.truths.as_deref())?;
    if args.count_only {
        for program in catalogues.iter().flat_map(|catalogue| &catalogue.programs) {
            println!("{}", count_only(program, &workspace, &mut kept));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let machine = Machine::look(&perch);
    let everything = args.only.is_empty();
    let mut parts = Vec::new();
    for (list, catalogue) in lists.iter().zip(&catalogues) {
        let programs: Vec<&Program> = catalogue.programs.iter().collect();
        let rows = measure(&programs, &machine, &perch, &workspace, &mut kept);
        parts.push(Part {
            list,
            summary: judge(&rows, everything),
            programs: rows,
        });
    }
    if args.json {
        let output = Output {
            machine: &machine,
            parts: &parts,
        };
        println!("{}", serde_json::to_string_pretty(&output)?);
    } else {
        for part in &parts {
            println!(
                "{}:\n{}\n{}",
                part.list,
                report::programs(&part.programs),
                report::summary(&part.programs, &part.summary)
            );
        }
    }
    if let ([development, held_out], true) = (parts.as_slice(), everything) {
        std::fs::write(&args.page, report::page(&machine, development, held_out))
            .with_context(|| format!("cannot write {}", args.page.display()))?;
        eprintln!("wrote {}", args.page.display());
    }
    let met = parts.iter().all(|part| part.summary.violations.is_empty());
    Ok(if met {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A program's true share, or why there is none, as a line.
fn count_only(program: &Program, workspace: &Workspace, kept: &mut Kept) -> String {
    let result = match program.missing() {
        Some(missing) => missing,
        None => match truth_of(program, workspace, kept) {
            Ok(truth) => format!("{:.1} %", truth.fp_percent),
            Err(error) => format!("{error:#}"),
        },
    };
    format!("{}: {result}", program.name)
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

/// A program's truth, kept or counted now.
fn truth_of(program: &Program, workspace: &Workspace, kept: &mut Kept) -> Result<TrueShares> {
    if let Some(truth) = kept.get(program, workspace) {
        return Ok(truth);
    }
    let truth = truth::count(program, program.truth, workspace)?;
    let truth = TrueShares::new(&truth, program.truth.name());
    kept.put(program, workspace, &truth)?;
    Ok(truth)
}

/// All programs; truths and estimates at the same time, or two estimates, where there are PUs for both.
fn measure(
    programs: &[&Program],
    machine: &Machine,
    perch: &Path,
    workspace: &Workspace,
    kept: &mut Kept,
) -> Vec<Row> {
    let mut rows: Vec<Row> = programs.iter().map(|program| Row::new(program)).collect();
    for (row, program) in rows.iter_mut().zip(programs) {
        row.missing = program.missing();
    }
    let present: Vec<usize> = (0..rows.len())
        .filter(|&index| rows[index].missing.is_none())
        .collect();
    let counted = |index: &&usize| kept.get(programs[**index], workspace).is_some();
    let counted = present.iter().filter(counted).count();
    // One PU counts, unless most is counted already.
    let askers = match 2 * counted > present.len() {
        true => machine.pus.min(2),
        false => 1,
    };
    let mut count_all = |sender: mpsc::Sender<(usize, Result<TrueShares>)>| {
        for &index in &present {
            let truth = truth_of(programs[index], workspace, kept);
            if sender.send((index, truth)).is_err() {
                return;
            }
        }
    };
    let (sender, truths) = mpsc::channel();
    let estimates = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let ask = || {
        while let Some(&index) = present.get(next.fetch_add(1, Ordering::Relaxed)) {
            let program = programs[index];
            eprintln!("{}", program.name);
            let privileged = estimate(program, Rights::Own, perch, workspace);
            let unprivileged = machine
                .as_root
                .then(|| estimate(program, Rights::Nobody, perch, workspace));
            let answer = (index, privileged, unprivileged);
            estimates.lock().expect("no asker panics").push(answer);
        }
    };
    thread::scope(|scope| {
        let counting = scope.spawn(move || count_all(sender));
        if machine.pus == 1 && counting.join().is_err() {
            return;
        }
        for _ in 0..askers {
            scope.spawn(ask);
        }
    });
    let estimates = estimates.into_inner().expect("no asker panics");
    for (index, truth) in truths {
        match truth {
            Ok(truth) => rows[index].truth = Some(truth),
            Err(error) => rows[index].uncounted = Some(format!("{error:#}")),
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
