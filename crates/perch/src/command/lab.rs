//! `perch lab`: the papers' experiments on simulated machines.

use super::{
    fidelity::{Wanted, fidelity},
    place::Output,
    tournament,
};
use crate::args::{LabArgs, LabCommand};
use crate::render::table::{Align, table};
use anyhow::{Context, Result, bail};
use perch_lab::{Experiment, Progress, Results, Tally, results::Row};
use serde::Serialize;
use std::{path::Path, process::ExitCode};

/// Lists, runs, reports.
///
/// # Errors
/// An experiment that is not there or wrong, a file that cannot be written.
pub fn lab(args: &LabArgs) -> Result<ExitCode> {
    match &args.command {
        LabCommand::List { json } => list(*json),
        LabCommand::Run {
            experiments,
            figures,
            workloads,
            machines,
            json,
            strict,
        } => {
            let wanted = tournament::Wanted {
                workloads: *workloads,
                machines,
                figures: figures.as_deref(),
            };
            match tournament::is_meant(experiments, &wanted)? {
                true if *strict => {
                    bail!("the tournament claims nothing that could be missed: without --strict")
                }
                true => tournament::tournament(&wanted, *json),
                false => run(experiments, figures.as_deref(), *json, *strict),
            }
        }
        LabCommand::Report {
            experiments,
            output,
        } => report(experiments, output),
        LabCommand::Phases { seed, seeds, json } => super::phases::phases(*seed, *seeds, *json),
        LabCommand::Fidelity {
            machines,
            threads,
            workloads,
            placements,
            cold,
            seed,
            json,
        } => {
            let wanted = Wanted {
                machines,
                threads,
                workloads: *workloads,
                placements: *placements,
                cold: *cold,
                seed: *seed,
            };
            fidelity(&wanted, *json)
        }
        LabCommand::Validate {
            machines,
            only,
            json,
        } => super::validate::command(machines, only.as_deref(), *json),
    }
}

fn list(json: bool) -> Result<ExitCode> {
    let all = perch_lab::list()?;
    let played = tournament::title();
    if json {
        let mut values: Vec<_> = all
            .iter()
            .map(|e| serde_json::json!({ "name": e.name, "title": e.title, "claims": e.claims }))
            .collect();
        values.push(serde_json::json!({ "name": tournament::NAME, "title": played, "claims": 0 }));
        super::print_json(&values)?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = [
        ("experiment", Align::Left),
        ("claims", Align::Right),
        ("", Align::Left),
    ];
    let rows = all
        .into_iter()
        .map(|e| vec![e.name, e.claims.to_string(), e.title])
        .chain([vec![tournament::NAME.into(), "-".into(), played]]);
    super::print(&table(&columns, rows))?;
    Ok(ExitCode::SUCCESS)
}

/// A claim and of which experiment it is.
#[derive(Serialize)]
struct Told<'a> {
    experiment: &'a str,
    #[serde(flatten)]
    row: &'a Row,
}

/// A miss is a result like any other, and no failure of perch, unless `strict` asks for one.
fn run(names: &[String], figures: Option<&Path>, json: bool, strict: bool) -> Result<ExitCode> {
    let chosen = chosen(names)?;
    if let Some(folder) = figures {
        std::fs::create_dir_all(folder)
            .and_then(|()| tempfile::tempfile_in(folder))
            .with_context(|| format!("{}: cannot be written", folder.display()))?;
    }
    let all = results(&chosen)?;
    if let Some(folder) = figures {
        for results in &all {
            write_figure(folder, results)?;
        }
    }
    if json {
        let mut told = Vec::new();
        for results in &all {
            let experiment = results.name.as_str();
            told.extend(results.rows.iter().map(|row| Told { experiment, row }));
        }
        super::print_json(&told)?;
    } else {
        let mut texts: Vec<String> = all.iter().map(perch_lab::table::text).collect();
        if all.len() > 1 {
            let rows = all.iter().flat_map(|results| &results.rows);
            texts.push(format!("All of them\n{}\n", Tally::of(rows)));
        }
        super::print(&texts.join("\n"))?;
    }
    let missed = all
        .iter()
        .any(|results| results.rows.iter().any(|row| !row.holds));
    Ok(match strict && missed {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn report(names: &[String], output: &Path) -> Result<ExitCode> {
    if names.iter().any(|name| name == tournament::NAME) {
        bail!(
            "the tournament claims nothing and has no page: run it with `perch lab run tournament`"
        );
    }
    let chosen = chosen(names)?;
    let file = Output::open(output)?;
    file.write(&perch_lab::report(&results(&chosen)?)?)?;
    super::print(&format!("{}: open it in a browser", output.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The experiments of these names; a name may stand for all below it, none for all.
fn chosen(names: &[String]) -> Result<Vec<Experiment>> {
    let shipped = perch_lab::names();
    let mut wanted = Vec::new();
    for name in names {
        let below = format!("{}/", name.trim_end_matches('/'));
        let group = shipped
            .iter()
            .filter(|known| known.starts_with(&below))
            .cloned();
        let before = wanted.len();
        wanted.extend(group);
        if wanted.len() == before {
            wanted.push(name.clone());
        }
    }
    if names.is_empty() {
        wanted = shipped;
    }
    wanted
        .iter()
        .map(|name| Ok(perch_lab::load(name)?))
        .collect()
}

fn results(experiments: &[Experiment]) -> Result<Vec<Results>> {
    let mut bar = Bar::default();
    experiments
        .iter()
        .map(|experiment| Ok(perch_lab::run(experiment, &mut bar)?))
        .collect()
}

fn write_figure(folder: &Path, results: &Results) -> Result<()> {
    let Some(picture) = &results.picture else {
        return Ok(());
    };
    let svg = match perch_lab::figure::svg(picture) {
        Ok(svg) => svg,
        Err(why) => bail!("{}: the picture cannot be drawn: {why}", results.name),
    };
    write(&folder.join(format!("{}.svg", results.name)), &svg)
}

/// Writes a picture, and makes its folder.
///
/// # Errors
/// Either cannot be done.
pub(super) fn write(file: &Path, svg: &str) -> Result<()> {
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("{}: cannot be made", parent.display()))?;
    }
    std::fs::write(file, svg).with_context(|| format!("{}: cannot be written", file.display()))
}

/// How far an experiment is, on a terminal.
#[derive(Default)]
struct Bar(Option<crate::render::progress::Bar>);

impl Progress for Bar {
    fn start(&mut self, experiment: &str, simulations: usize) {
        let bar = crate::render::progress::Bar::new(true, simulations as u64);
        bar.says(experiment);
        self.0 = Some(bar);
    }

    fn done(&mut self, finished: usize) {
        self.0.iter().for_each(|bar| bar.is_at(finished as u64));
    }

    fn end(&mut self) {
        self.0 = None;
    }
}
