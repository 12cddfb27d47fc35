//! Reports as text and JSON, and where they go.

use super::{gather, moment, process::Process};
use crate::Error;
use perch_regions::{Report, merge, table};
use perch_stat::{RowMetrics, text::wrapped};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

/// A report as JSON, with metrics.
pub(crate) fn json(process: &Process, with_samples: bool, complete: bool) -> String {
    let report = Report {
        complete,
        ..gather::report(process, with_samples)
    };
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
    let path = destination.replace("%p", &process.pid.to_string());
    write_to(process, Path::new(&path), false)
}

/// The same for the report that is written when counting ends. If a process begins again and ends again, its first
/// report is not overwritten: the second one of `report.json` is `report.2.json`.
pub(crate) fn write_last(process: &Process, destination: &str) -> Result<(), Error> {
    let path = destination.replace("%p", &process.pid.to_string());
    write_to(process, &numbered(Path::new(&path), process.times), true)
}

/// The name of a process's report of this number.
fn numbered(path: &Path, number: u32) -> PathBuf {
    if number < 2 || is_stderr(path) {
        return path.to_owned();
    }
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let extension = match &*extension {
        "" => number.to_string(),
        known => format!("{number}.{known}"),
    };
    path.with_extension(extension)
}

fn is_stderr(path: &Path) -> bool {
    matches!(path.to_str(), Some("stderr" | "-"))
}

fn write_to(process: &Process, path: &Path, complete: bool) -> Result<(), Error> {
    if is_stderr(path) {
        // Nobody can be told where this cannot be written.
        let _ = std::io::stderr().write_all(text(process).as_bytes());
        return Ok(());
    }
    let report = match path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        true => json(process, true, complete),
        false => text(process),
    };
    perch_files::output(path)
        .and_then(|mut file| file.write_all(report.as_bytes()))
        .map_err(|error| {
            // Without the number that std adds.
            let error = error.to_string();
            let why = error.split(" (os error").next().unwrap_or_default();
            Error::Report(format!("the report of regions, {}: {why}", path.display()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_report_has_a_name_of_its_own() {
        for (name, number, expected) in [
            ("out/report.json", 1, "out/report.json"),
            ("out/report.json", 2, "out/report.2.json"),
            ("report", 3, "report.3"),
            ("stderr", 2, "stderr"),
        ] {
            assert_eq!(numbered(Path::new(name), number), Path::new(expected));
        }
    }
}
