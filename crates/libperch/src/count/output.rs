//! Reports as text and JSON, and where they go.

use super::{gather, moment, process::Process};
use crate::Error;
use perch_regions::{Report, merge, table};
use perch_stat::{RowMetrics, text::wrapped};
use std::{io::Write, path::Path};

/// A report as JSON, with metrics.
pub(crate) fn json(process: &Process, with_samples: bool) -> String {
    let report = gather::report(process, with_samples);
    perch_regions::write(&report, &|amounts, wall| {
        process.plan.metrics(amounts, wall)
    })
}

/// A report as JSON, without metrics.
pub(crate) fn plain(report: &Report) -> String {
    perch_regions::write(report, &|_, _| RowMetrics::default())
}

/// A report for people.
fn text(process: &Process) -> String {
    let (report, plan) = (gather::report(process, false), &process.plan);
    let seconds = moment::now().saturating_sub(process.began) as f64 / 1e9;
    let mut out = format!(
        "\nperch: regions of {}, PID {}, {seconds:.3} s\n",
        report.program, report.pid
    );
    out += &wrapped("counted by: ", &report.counted_by);
    for remark in &report.remarks {
        out += &wrapped("note: ", remark);
    }
    out.push('\n');
    let (merged, _) = merge([&report]);
    match merged.is_empty() {
        true => out += "no region was started\n",
        false => {
            out += &table::table(&merged, &plan.columns, &|amounts, wall| {
                plan.metrics(amounts, wall)
            });
        }
    }
    out
}

/// Writes the report: text, or JSON if the file's name ends in `.json`. `%p` in it stands for the PID.
pub(crate) fn write(process: &Process, destination: &str) -> Result<(), Error> {
    if matches!(destination, "stderr" | "-") {
        // Nobody can be told where this cannot be written.
        let _ = std::io::stderr().write_all(text(process).as_bytes());
        return Ok(());
    }
    let path = destination.replace("%p", &process.pid.to_string());
    let report = match path.ends_with(".json") {
        true => json(process, true),
        false => text(process),
    };
    perch_files::output(Path::new(&path))
        .and_then(|mut file| file.write_all(report.as_bytes()))
        .map_err(|error| {
            // Without the number that std adds.
            let error = error.to_string();
            let why = error.split(" (os error").next().unwrap_or_default();
            Error::Report(format!("the report of regions, {path}: {why}"))
        })
}
