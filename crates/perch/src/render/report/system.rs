//! What became of the operating system's work, where the policy places that.

use crate::render::{count, noise::time, unmanaged, wrapped};
use perch_core::{SettingValue, Unmanaged, text::printable};
use perch_engine::report::{Report, SystemReport};

/// Indentation of what follows the heading.
const INDENT: &str = "  ";

/// How many of the busiest threads that were not moved are named.
const NAMED: usize = 5;

/// The paragraph; nothing if the policy leaves the operating system's work where it is.
pub fn summary(report: &Report) -> String {
    let Some(system) = &report.system else {
        return String::new();
    };
    let mut text = format!(
        "\noperating system ({} seen):\n",
        count(system.threads as usize, "thread")
    );
    let mut line = |line: String| text += &wrapped(INDENT, &line);
    let would = if report.dry_run {
        "would be bound"
    } else {
        "bound"
    };
    if system.bound > 0 {
        line(format!(
            "{} {would} to PU {}, and {}",
            count(system.bound as usize, "thread"),
            system.pus,
            count(system.irqs.len(), "interrupt")
        ));
    }
    // A dry run lists what it would move.
    if report.dry_run && system.bound > 0 {
        let name = |(name, number): &(String, u64)| match number {
            1 => name.clone(),
            more => format!("{name} ({more})"),
        };
        let names: Vec<String> = system.names.iter().map(name).collect();
        line(format!("threads: {}", names.join(", ")));
        if !system.irqs.is_empty() {
            line(format!("interrupts: IRQ {}", numbers(&system.irqs)));
        }
    }
    for (setting, value) in &system.settings {
        let verb = if report.dry_run { "would be" } else { "was" };
        let value = match value {
            SettingValue::Pus(pus) => format!("PU {pus}"),
            value => value.to_string(),
        };
        line(format!(
            "{} {verb} set to {value}",
            printable(&setting.to_string())
        ));
    }
    for (why, number) in &system.left_by_reason {
        line(format!(
            "{} not moved: {}",
            count(*number as usize, "thread"),
            reason(*why)
        ));
    }
    if !system.irqs_failed.is_empty() {
        let irqs = numbers(&system.irqs_failed);
        line(format!("IRQ {irqs} not moved: the kernel refused"));
    }
    if system.bound > 0 {
        line(format!(
            "took {} on PU {} and {} elsewhere{}",
            time(system.cpu_time_there as f64),
            system.pus,
            time(system.cpu_time_elsewhere as f64),
            busiest(system)
        ));
    }
    text
}

fn numbers(irqs: &[u32]) -> String {
    let numbers: Vec<String> = irqs.iter().map(u32::to_string).collect();
    numbers.join(", ")
}

fn reason(why: Option<Unmanaged>) -> String {
    match why {
        None => "the kernel keeps them on their PUs".to_owned(),
        Some(why) => unmanaged(why).to_owned(),
    }
}

/// The busiest threads that were not moved.
fn busiest(system: &SystemReport) -> String {
    let left = system.left.iter().filter(|thread| thread.cpu_time > 0);
    let names: Vec<String> = left
        .take(NAMED)
        .map(|thread| format!("{} {}", thread.name, time(thread.cpu_time as f64)))
        .collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; not moved: {}", names.join(", ")),
    }
}
