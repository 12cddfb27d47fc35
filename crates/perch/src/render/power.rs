//! What `perch power` prints.

use super::{
    count,
    table::{Align, table},
    wrapped,
};
use anyhow::Result;
use perch_core::{Subject, text::printable};
use perch_stat::{PartPower, Power};
use serde_json::{Value, json};
use std::time::Duration;

/// What was measured.
pub struct Told<'a> {
    /// The program, the processes, or the machine.
    pub title: String,
    /// How energy is measured.
    pub measured_by: String,
    /// The interval over which peak power is a mean.
    pub interval: Duration,
    /// How long it took.
    pub took: Duration,
    /// Of the program or the processes.
    pub instructions: Option<f64>,
    /// Why they are not known.
    pub why_no_instructions: Option<String>,
    /// While it ran.
    pub power: &'a Power,
    /// Before it.
    pub idle: Option<&'a Power>,
}

impl Told<'_> {
    fn energy_delay(&self, part: &PartPower) -> f64 {
        part.energy * self.took.as_secs_f64()
    }

    /// Nanojoules.
    fn per_instruction(&self, energy: f64) -> Option<f64> {
        let instructions = self.instructions.filter(|count| *count > 0.0)?;
        Some(energy * 1e9 / instructions)
    }

    /// Idle power of a part in watts, and the part's energy above it in joules.
    fn above_idle(&self, part: &PartPower) -> Option<(f64, f64)> {
        let idle = self.idle?.same(part)?.mean();
        Some((idle, part.energy - idle * part.time as f64 / 1e9))
    }

    /// Whether a part was not known for all of the time.
    fn is_partial(&self, part: &PartPower) -> bool {
        (part.time as f64) < 0.95 * self.took.as_nanos() as f64
    }
}

/// A part of the machine by its metric: `package 0`, `memory of package 1`, `all cores`.
fn name(part: &PartPower) -> String {
    let what = match &*part.metric {
        "energy_pkg" => "package",
        "energy_cores" => "cores",
        "energy_uncore" => "uncore",
        "energy_dram" => "memory",
        "energy_psys" => "platform",
        other => other.split_once('_').map_or(other, |(_, name)| name),
    };
    match (part.subject, what) {
        (Subject::Package(os), _) => format!("{what} {os}"),
        (Subject::Machine, "package") => "all packages".to_owned(),
        (Subject::Machine, "cores" | "uncore" | "memory") => format!("all {what}"),
        (Subject::Machine, _) => what.to_owned(),
        (Subject::Pu(pu), _) => format!("{what} of PU {pu}"),
        (Subject::Process(pid), _) => format!("{what} of PID {pid}"),
    }
}

fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

/// The table for people.
pub fn text(told: &Told<'_>) -> String {
    let mut out = String::from("\n");
    out += &wrapped("perch power: ", &told.title);
    out += &format!("{:.3} s\n", told.took.as_secs_f64());
    out += &wrapped("measured by: ", &told.measured_by);
    out.push('\n');
    let columns = [
        ("part", Align::Left),
        ("energy (J)", Align::Right),
        ("mean (W)", Align::Right),
        ("peak (W)", Align::Right),
        ("EDP (J·s)", Align::Right),
        ("nJ/instruction", Align::Right),
    ];
    let rows = told.power.parts().map(|part| {
        let bound = if told.is_partial(part) { ">" } else { "" };
        vec![
            printable(&name(part)).into_owned(),
            format!("{bound}{}", number(part.energy)),
            number(part.mean()),
            optional(part.peak),
            format!("{bound}{}", number(told.energy_delay(part))),
            optional(told.per_instruction(part.energy)),
        ]
    });
    out += &table(&columns, rows);
    out.push('\n');
    let idle = told.power.parts().filter_map(|part| {
        let (watts, joules) = told.above_idle(part)?;
        Some(vec![
            printable(&name(part)).into_owned(),
            number(watts),
            number(joules),
            optional(told.per_instruction(joules)),
        ])
    });
    let idle: Vec<Vec<String>> = idle.collect();
    if !idle.is_empty() {
        let columns = [
            ("part", Align::Left),
            ("idle (W)", Align::Right),
            ("above idle (J)", Align::Right),
            ("above idle (nJ/instruction)", Align::Right),
        ];
        out.push('\n');
        out += &table(&columns, idle);
        out.push('\n');
    }
    out.push('\n');
    out += &wrapped(
        "note: ",
        "each part's energy is that of all that ran there, other programs included",
    );
    if let Some(why) = &told.why_no_instructions {
        out += &wrapped("note: ", &format!("no energy per instruction: {why}"));
    }
    if told.power.parts().any(|part| told.is_partial(part)) {
        out += &wrapped(">  ", "a lower bound: it was not known for all of the time");
    }
    if told.power.parts().any(|part| part.is_sampled) {
        let text = format!(
            "the energy of {} is a sum of samples of power, one every {} ms",
            count(
                told.power.parts().filter(|part| part.is_sampled).count(),
                "sensor"
            ),
            told.interval.as_millis()
        );
        out += &wrapped("note: ", &text);
    }
    out
}

/// The same for programs.
///
/// # Errors
/// None that is known: numbers that JSON does not have become null.
pub fn json(told: &Told<'_>) -> Result<String> {
    let part = |part: &PartPower| {
        let (subject, id): (&str, Option<i64>) = match part.subject {
            Subject::Process(pid) => ("process", Some(pid.into())),
            Subject::Pu(pu) => ("pu", Some(pu.into())),
            Subject::Package(package) => ("package", Some(package.into())),
            Subject::Machine => ("machine", None),
        };
        let idle = told.above_idle(part);
        json!({
            "metric": &*part.metric,
            "of": subject,
            "id": id,
            "energy_j": part.energy,
            "sampled": part.is_sampled,
            "partial": told.is_partial(part),
            "mean_w": part.mean(),
            "peak_w": part.peak,
            "edp_js": told.energy_delay(part),
            "energy_per_instruction_nj": told.per_instruction(part.energy),
            "idle_w": idle.map(|(watts, _)| watts),
            "above_idle_j": idle.map(|(_, joules)| joules),
        })
    };
    let parts: Vec<Value> = told.power.parts().map(part).collect();
    Ok(serde_json::to_string(&json!({
        "title": told.title,
        "measured_by": told.measured_by,
        "wall_s": told.took.as_secs_f64(),
        "interval_s": told.interval.as_secs_f64(),
        "instructions": told.instructions,
        "why_no_instructions": told.why_no_instructions,
        "parts": parts,
    }))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{Metric, MetricKind, MetricSource, Observation, Reading};

    fn power(intervals: &[[f64; 3]]) -> Power {
        let mut power = Power::default();
        for [first, second, board] in intervals {
            let reading = |subject, name: &str, kind, value| Reading {
                subject,
                name: name.into(),
                kind,
                metric: Metric {
                    value,
                    confidence: 1.0,
                    source: MetricSource::Sensor,
                },
            };
            let package = Subject::Package;
            power.take(&Observation {
                interval: 100_000_000,
                readings: vec![
                    reading(package(0), "energy_pkg", MetricKind::Amount, *first),
                    reading(package(1), "energy_pkg", MetricKind::Amount, *second),
                    reading(package(0), "energy_dram", MetricKind::Amount, first / 4.0),
                    reading(
                        Subject::Machine,
                        "power_b\u{1b}ard",
                        MetricKind::Level,
                        *board,
                    ),
                ],
                ..Observation::default()
            });
        }
        power
    }

    fn told<'a>(power: &'a Power, idle: Option<&'a Power>) -> Told<'a> {
        Told {
            title: "./app".into(),
            measured_by: "RAPL counters (powercap) and sensors".into(),
            interval: Duration::from_millis(100),
            took: Duration::from_millis(200),
            instructions: Some(1e9),
            why_no_instructions: None,
            power,
            idle,
        }
    }

    #[test]
    fn a_table_of_all_parts() {
        let power = power(&[[1.0, 2.0, 31.0], [3.0, 0.5, 35.0]]);
        insta::assert_snapshot!(text(&told(&power, None)));
    }

    #[test]
    fn above_idle() {
        let idle = power(&[[0.5, 0.5, 20.0]]);
        let power = power(&[[1.0, 2.0, 31.0], [3.0, 0.5, 35.0]]);
        let mut told = told(&power, Some(&idle));
        told.instructions = None;
        told.why_no_instructions = Some("the processor shows no hardware counters".into());
        told.took = Duration::from_millis(400);
        insta::assert_snapshot!(text(&told));
        let json: Value = serde_json::from_str(&json(&told).unwrap()).unwrap();
        let all = &json["parts"][3];
        assert_eq!(
            (&all["metric"], &all["of"]),
            (&"energy_pkg".into(), &"machine".into())
        );
        assert!((all["above_idle_j"].as_f64().unwrap() - 4.5).abs() < 1e-9);
        assert!(all["partial"].as_bool().unwrap() && all["energy_per_instruction_nj"].is_null());
    }
}
