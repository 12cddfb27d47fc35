//! Interrupts as tables.

use super::{
    fit,
    table::{Align, table as columns},
    wrapped,
};
use crate::command::irq::{Line, Seen};
use perch_core::{IrqLevel, Outcome, Topology};

/// Width of a device's name.
const DEVICE: usize = 26;

/// A rate a second.
fn rate(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 9.95 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

/// Where something came, the most first, as far as it fits.
fn places(by_pu: &[(u32, f64)]) -> String {
    let mut places = by_pu.to_vec();
    places.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut text = places
        .iter()
        .take(3)
        .map(|(pu, _)| pu.to_string())
        .collect::<Vec<_>>()
        .join(" ");
    if places.len() > 3 {
        text += " …";
    }
    text
}

fn may(line: &Line) -> String {
    match &line.allowed {
        _ if line.per_pu => "each PU has its own".to_owned(),
        None => "cannot be moved".to_owned(),
        Some(pus) if pus.len() == 1 => format!("bound to {pus}"),
        Some(pus) => fit(&pus.to_string(), 16).trim_end().to_owned(),
    }
}

/// What came where, and what would be better.
pub fn table(seen: &Seen, topology: &Topology, all: bool) -> String {
    let shown = |line: &&Line| all || (!line.per_pu && line.rate > 0.0);
    let mut lines: Vec<&Line> = seen.interrupts.iter().filter(shown).collect();
    lines.sort_by(|a, b| a.per_pu.cmp(&b.per_pu).then(b.rate.total_cmp(&a.rate)));
    let mut text = String::new();
    if lines.is_empty() {
        text += &format!("No device interrupted in {:.1} s.\n", seen.seconds);
    } else {
        let heading = [
            ("IRQ", Align::Right),
            ("device", Align::Left),
            ("1/s", Align::Right),
            ("on PU", Align::Left),
            ("may go to", Align::Left),
        ];
        let rows = lines.iter().map(|line| {
            vec![
                line.label.clone(),
                fit(&line.device, DEVICE).trim_end().to_owned(),
                rate(line.rate),
                places(&line.by_pu),
                may(line),
            ]
        });
        text += &columns(&heading, rows);
        text += "\n\n";
    }
    text += &pus(seen, topology, all);
    text += "\n\n";
    if let Some(pid) = seen.irqbalance {
        text += &wrapped(
            "",
            &format!(
                "irqbalance runs (process {pid}) and moves interrupts too: what one does, the other may undo."
            ),
        );
        text += "\n";
    }
    text += &moves(seen);
    text
}

/// Interrupts a second of each PU: of devices, and all others.
fn pus(seen: &Seen, topology: &Topology, all: bool) -> String {
    let heading = [
        ("PU", Align::Right),
        ("package", Align::Right),
        ("devices 1/s", Align::Right),
        ("timers, IPIs 1/s", Align::Right),
    ];
    let of = |pu: u32, per_pu: bool| -> f64 {
        let lines = seen.interrupts.iter().filter(|line| line.per_pu == per_pu);
        let rates = lines.flat_map(|line| &line.by_pu);
        rates
            .filter(|(at, _)| *at == pu)
            .fold(0.0, |sum, (_, rate)| sum + rate)
    };
    let rows = topology.online().iter().collect::<Vec<u32>>();
    let rows = rows.into_iter().filter_map(|pu| {
        let (devices, others) = (of(pu, false), of(pu, true));
        let package = topology.core_of(pu).map_or(0, |core| core.package);
        (all || devices + others > 0.0).then(|| {
            vec![
                pu.to_string(),
                package.to_string(),
                rate(devices),
                rate(others),
            ]
        })
    });
    columns(&heading, rows)
}

/// The moves, in words.
pub fn moves(seen: &Seen) -> String {
    if seen.moves.is_empty() {
        return "Balanced, or too few to matter: nothing to move.\n".to_owned();
    }
    let mut text = String::new();
    for made in &seen.moves {
        let line = seen
            .interrupts
            .iter()
            .find(|line| line.label == made.irq.to_string());
        let device = line.map_or("", |line| line.device.as_str());
        let between = match made.level {
            IrqLevel::Package => "packages",
            IrqLevel::Pu => "PUs of the package",
        };
        let outcome = seen.outcomes.iter().find(|(irq, _)| *irq == made.irq);
        let done = match outcome.map(|(_, outcome)| outcome) {
            None => "better",
            Some(Outcome::Applied) => "moved",
            Some(Outcome::NotPermitted) => "not permitted (run as root)",
            Some(Outcome::ChangedByOthers) => "left alone: another process has set its mask",
            Some(Outcome::Gone) => "no longer present",
            Some(Outcome::NoUsablePu | Outcome::NotApplied | Outcome::Failed) => {
                "refused by the kernel"
            }
        };
        let swapped = made
            .with
            .map_or(String::new(), |with| format!(", swapped with IRQ {with}"));
        let sentence = format!(
            "IRQ {} ({}) from PU {} to PU {}{swapped}: {between} at {} and {} a second would be at {} and {}",
            made.irq,
            fit(device, DEVICE).trim_end(),
            made.from,
            made.to,
            rate(made.before.0),
            rate(made.before.1),
            rate(made.after.0),
            rate(made.after.1),
        );
        text += &wrapped(&format!("{done}: "), &sentence);
        if !text.ends_with('\n') {
            text += "\n";
        }
    }
    text
}
