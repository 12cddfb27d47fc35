//! A calibration in readable form: which kernel slows down which.

use super::table::{Align, table};
use perch_lab::calibrate::contends;
use perch_policy::{Calibration, Coupling, Share};
use std::path::Path;

/// Tables of slowdowns and of load metrics, notes, and where the file is.
pub fn render(calibration: &Calibration, file: Option<&Path>) -> String {
    let mut text = format!("{}, {}\n\n", calibration.machine, calibration.date);
    text += &slowdowns(calibration);
    if !calibration.metrics.is_empty() {
        text += "\n\nLoad metrics in the order in which they are checked (policy masa):\n\n";
        text += &metrics(calibration);
    }
    text += "\n\n";
    if !calibration.transfers.is_empty() {
        let told = calibration.transfers.iter();
        let told = told.map(|one| format!("{} {:.3} us", name(one.share), one.seconds * 1e6));
        let told = told.collect::<Vec<_>>().join(", ");
        text += &super::wrapped("Handing a line over costs: ", &told);
        text.push('\n');
    }
    for note in &calibration.notes {
        text += &super::wrapped("* ", note);
    }
    if let Some(file) = file {
        text += &format!("\nWritten to {}\n", file.display());
    }
    text
}

/// The levels that were measured, the closest first.
fn levels(calibration: &Calibration) -> Vec<Share> {
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
fn in_words(share: Share) -> &'static str {
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
        let worst = |share: Option<Share>| {
            let mut of_kernel: Vec<&Coupling> = calibration.couplings.iter().collect();
            of_kernel.retain(|coupling| {
                coupling.kernel == kernel
                    && coupling.beside.len() == 1
                    && share.is_none_or(|share| coupling.share == share)
            });
            of_kernel
                .into_iter()
                .max_by(|a, b| a.slowdown.total_cmp(&b.slowdown))
        };
        let mut cells = vec![kernel.to_owned()];
        cells.extend(levels.iter().map(|level| {
            worst(Some(*level)).map_or("-".to_owned(), |found| format!("{:.2}", found.slowdown))
        }));
        let beside = worst(None).filter(|found| contends(found.slowdown, found.spread));
        cells.push(beside.map_or("-".to_owned(), |found| found.beside[0].clone()));
        cells
    };
    let rows = calibration.kernels.iter().map(|kernel| row(&kernel.name));
    let shared = levels.iter().map(|level| in_words(*level));
    let shared = shared.collect::<Vec<_>>().join(", ");
    let what = format!(
        "How much longer each kernel takes next to the worst other kernel, on PUs that share {shared}:"
    );
    format!("{}\n{}", super::wrapped("", &what), table(&columns, rows))
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
            ratio.map_or("-".to_owned(), |ratio| {
                format!("{:.0} %", 100.0 * ratio * metric.limit)
            }),
        ]
    });
    table(&columns, rows)
}
