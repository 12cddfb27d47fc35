//! Reports as text and JSON, and where they go.

use super::{gather, moment, process::Process};
use crate::Error;
use perch_regions::{Report, merge, table};
use perch_stat::{RowMetrics, text::wrapped};
use std::{ffi::OsStr, io::Write, path::Path};

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
    write_to(process, &named(destination, process.pid, 1), false)
}

/// The same for the report that is written when counting ends. If a process begins again and ends again, its first
/// report is not overwritten: the second one of `report.json` is `report.2.json`.
pub(crate) fn write_last(process: &Process, destination: &str) -> Result<(), Error> {
    let path = named(destination, process.pid, process.times);
    write_to(process, &path, true)
}

/// The name of a process's report of this number.
fn named(destination: &str, pid: i32, number: u32) -> String {
    let path = destination.replace("%p", &pid.to_string());
    if number < 2 || is_stderr(&path) {
        return path;
    }
    match Path::new(&path).extension().and_then(OsStr::to_str) {
        Some(extension) => {
            let stem = &path[..path.len() - extension.len()];
            format!("{stem}{number}.{extension}")
        }
        None => format!("{path}.{number}"),
    }
}

fn is_stderr(path: &str) -> bool {
    matches!(path, "stderr" | "-")
}

fn write_to(process: &Process, path: &str, complete: bool) -> Result<(), Error> {
    if is_stderr(path) {
        // Nobody can be told where this cannot be written.
        let _ = std::io::stderr().write_all(text(process).as_bytes());
        return Ok(());
    }
    let report = match path.ends_with(".json") {
        true => json(process, true, complete),
        false => text(process),
    };
    perch_files::output(Path::new(path))
        .and_then(|mut file| file.write_all(report.as_bytes()))
        .map_err(|error| {
            // Without the number that std adds.
            let error = error.to_string();
            let why = error.split(" (os error").next().unwrap_or_default();
            Error::Report(format!("the report of regions, {path}: {why}"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_report_has_a_name_of_its_own() {
        for (name, number, expected) in [
            ("out/%p.json", 1, "out/7.json"),
            ("out/report.json", 2, "out/report.2.json"),
            ("a.b/report", 3, "a.b/report.3"),
            ("stderr", 2, "stderr"),
        ] {
            assert_eq!(named(name, 7, number), expected);
        }
    }
}
