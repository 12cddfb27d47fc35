//! A calibration in readable form: which kernel slows down which.

use super::table::{Align, table};
use perch_policy::{
    Calibration, Coupling, Share,
    calibration::{NOTICED, TIGHT},
};
use std::path::Path;

/// What stands in the table besides numbers.
const LEGEND: [(&str, &str); 2] = [
    (
        " <",
        "<1.04: no slowdown was shown, and none is larger than that.",
    ),
    (
        "?",
        "?: no slowdown was shown, but the speeds vary too much to exclude it.",
    ),
];

/// Where a calibration was written.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// The file.
    pub file: &'a Path,
    /// Whether it is the one that perch uses on this machine.
    pub is_used: bool,
}

/// Tables of slowdowns and of load metrics, notes, and where the file is.
pub fn render(calibration: &Calibration, file: Option<Written<'_>>) -> String {
    let mut text = format!("{}, {}\n\n", calibration.machine, calibration.date);
    text += &slowdowns(calibration);
    if !calibration.metrics.is_empty() {
        text += "\n\nLoad metrics in the order in which they are checked (policy masa):\n\n";
        text += &metrics(calibration);
    }
    text += "\n\n";
    if !calibration.transfers.is_empty() {
        let told = calibration.transfers.iter();
        let told = told.map(|one| {
            let us = |seconds: f64| format!("{:.3}", seconds * 1e6);
            let range = one.low.zip(one.high);
            let range = range.map(|(low, high)| format!(" ({} to {})", us(low), us(high)));
            let range = range.unwrap_or_default();
            format!("{} {} us{range}", name(one.share), us(one.seconds))
        });
        let told = told.collect::<Vec<_>>().join(", ");
        text += &super::wrapped("Cache-line transfer latency: ", &told);
        text.push('\n');
    }
    for note in &calibration.notes {
        text += &super::wrapped("* ", note);
    }
    if let Some(written) = file {
        let file = written.file.display();
        text += &match written.is_used {
            true => super::wrapped(
                "\n",
                &format!(
                    "Written to {file}. From now on, perch run and perch attach use the policy symbiosis with it, unless \
                     another is named; remove the file to undo that."
                ),
            ),
            false => format!("\nWritten to {file}\n"),
        };
    }
    text
}

/// The levels that were measured, the closest first.
pub fn levels(calibration: &Calibration) -> Vec<Share> {
    let mut levels = Vec::new();
    for coupling in &calibration.couplings {
        if !levels.contains(&coupling.share) {
            levels.push(coupling.share);
        }
    }
    levels
}

/// What PUs of a level share, as a file says it.
fn name(share: Share) -> &'static str {
    match share {
        Share::Fp => "fp",
        Share::Core => "core",
        Share::L2 => "l2",
        Share::Llc => "llc",
        Share::Node => "node",
        Share::Package => "package",
        Share::Machine => "machine",
    }
}

/// The same in a sentence: PUs share …
pub fn in_words(share: Share) -> &'static str {
    match share {
        Share::Fp => "FP units",
        Share::Core => "a core",
        Share::L2 => "an L2 cache",
        Share::Llc => "an LLC",
        Share::Node => "a NUMA node",
        Share::Package => "a package",
        Share::Machine => "nothing but the machine's memory",
    }
}

/// Each kernel's largest slowdown when co-running with one other, at each level, and which one that was.
fn slowdowns(calibration: &Calibration) -> String {
    let levels = levels(calibration);
    if levels.is_empty() {
        return "No two kernels can run at the same time.".to_owned();
    }
    let mut columns = vec![("kernel", Align::Left)];
    columns.extend(levels.iter().map(|level| (name(*level), Align::Right)));
    columns.push(("worst beside", Align::Left));
    let row = |kernel: &str| {
        let pairs = |share: Option<Share>| {
            let mut of_kernel: Vec<&Coupling> = calibration.couplings.iter().collect();
            of_kernel.retain(|coupling| {
                coupling.kernel == kernel
                    && coupling.beside.len() == 1
                    && share.is_none_or(|share| coupling.share == share)
            });
            of_kernel
        };
        let mut cells = vec![kernel.to_owned()];
        cells.extend(levels.iter().map(|level| largest(&pairs(Some(*level)))));
        let culprit = worst(&pairs(None)).filter(|found| found.slowdown >= NOTICED);
        cells.push(culprit.map_or("-".to_owned(), |found| found.beside[0].clone()));
        cells
    };
    let rows = calibration.kernels.iter().map(|kernel| row(&kernel.name));
    let shared = levels.iter().map(|level| in_words(*level));
    let shared = shared.collect::<Vec<_>>().join(", ");
    let what = format!(
        "How much longer each kernel takes next to the worst other kernel, on PUs that share {shared}:"
    );
    let table = table(&columns, rows);
    let mut legend = String::new();
    for (sign, means) in LEGEND {
        if table.contains(sign) {
            legend += &format!("\n{means}");
        }
    }
    format!("{}\n{table}{legend}", super::wrapped("", &what))
}

/// The largest slowdown that is more than noise.
fn worst<'a>(couplings: &[&'a Coupling]) -> Option<&'a Coupling> {
    let shown = couplings
        .iter()
        .filter(|coupling| coupling.is_significant());
    shown
        .copied()
        .max_by(|a, b| a.slowdown.total_cmp(&b.slowdown))
}

/// The same as a cell of the table; where there is none, what no slowdown is above; `?` where that is not known.
fn largest(couplings: &[&Coupling]) -> String {
    if couplings.is_empty() {
        return "-".to_owned();
    }
    if let Some(worst) = worst(couplings) {
        return format!("{:.2}", worst.slowdown);
    }
    let is_known = |coupling: &&Coupling| coupling.half().is_some_and(|half| half <= TIGHT);
    if !couplings.iter().all(is_known) {
        return "?".to_owned();
    }
    let highs = couplings.iter().filter_map(|coupling| coupling.high);
    match format!("{:.2}", highs.fold(1.0, f64::max)) {
        none if none == "1.00" => none,
        most => format!("<{most}"),
    }
}

fn metrics(calibration: &Calibration) -> String {
    let columns = [
        ("metric", Align::Left),
        ("shared by", Align::Left),
        ("limit", Align::Right),
        ("dT/dL", Align::Right),
        ("lost at the limit", Align::Right),
    ];
    let rows = calibration.metrics.iter().map(|metric| {
        let ratio = metric.ratio;
        vec![
            metric.name.clone(),
            name(metric.share).to_owned(),
            format!("{:.3e}", metric.limit),
            ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2e}")),
            match (ratio, metric.is_of_use()) {
                (Some(ratio), true) => format!("{:.0} %", 100.0 * ratio * metric.limit),
                _ => "-".to_owned(),
            },
        ]
    });
    table(&columns, rows)
}
