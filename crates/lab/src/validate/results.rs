//! What comparisons say, and their table.

use super::file::{Range, Source};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A value counts as right if it is no farther than this part from what was measured: an aim of our own.
pub const NEAR: f64 = 0.1;

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The machine's file has that number, from a source of its own, or one that was read off this value: an input.
    Input,
    /// It follows from how the parts of the machine work together.
    Prediction,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What is compared.
    pub what: String,
    /// In which unit.
    pub unit: String,
    /// What was measured: least and largest.
    pub measured: Range,
    /// What the simulated machine does.
    pub simulated: f64,
    /// Whether the number is an input.
    pub kind: Kind,
    /// The key of the source.
    pub source: String,
}

impl Row {
    /// How far the simulated value is from the range of those that were measured, as a part of the range's nearer end;
    /// negative if it is below.
    pub fn off(&self) -> f64 {
        let [least, most] = self.measured;
        if self.simulated < least {
            self.simulated / least - 1.0
        } else if self.simulated > most {
            self.simulated / most - 1.0
        } else {
            0.0
        }
    }

    /// Whether it is near enough.
    pub fn holds(&self) -> bool {
        self.off().abs() <= NEAR
    }
}

/// A machine and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Validated {
    /// Its name.
    pub machine: String,
    /// The comparisons.
    pub rows: Vec<Row>,
    /// Where the measurements are from.
    pub sources: Vec<Source>,
}

/// What `perch lab validate --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// That of the cycle level: see [`crate::fingerprint::State`].
    pub fingerprint: String,
    /// The machines.
    pub machines: Vec<Validated>,
}

impl Row {
    /// As a row of a table: what, unit, measured, simulated, off, and how it is judged.
    pub fn cells(&self) -> [String; 6] {
        let [least, most] = self.measured;
        let measured = match least == most {
            true => number(least),
            false => format!("{} to {}", number(least), number(most)),
        };
        let off = match self.off() {
            off if off.abs() < 0.005 => "-".to_owned(),
            off => format!("{:+.0} %", 100.0 * off),
        };
        let verdict = match (self.holds(), self.kind) {
            (true, Kind::Input) => "input",
            (false, Kind::Input) => "input off",
            (true, Kind::Prediction) => "holds",
            (false, Kind::Prediction) => "MISSED",
        };
        [
            self.what.clone(),
            self.unit.clone(),
            measured,
            number(self.simulated),
            off,
            verdict.to_owned(),
        ]
    }
}

fn number(value: f64) -> String {
    match value {
        large if large >= 99.95 => format!("{large:.0}"),
        middle if middle >= 9.995 => format!("{middle:.1}"),
        small => format!("{small:.2}"),
    }
}

impl Validated {
    /// How many values are right, in a sentence.
    pub fn tally(&self) -> String {
        let missed = self.rows.iter().filter(|row| !row.holds()).count();
        let predictions = self.rows.iter().filter(|row| row.kind == Kind::Prediction);
        let held = predictions.clone().filter(|row| row.holds()).count();
        format!(
            "{missed} of {} values are more than {:.0} % off; of {} predictions {held} hold.",
            self.rows.len(),
            100.0 * NEAR,
            predictions.count(),
        )
    }

    /// As Markdown: a table, what it comes to, the sources.
    pub fn markdown(&self) -> String {
        let mut text = "| | unit | measured | simulated | off | | source |\n\
                        | --- | --- | --: | --: | --: | --- | --- |\n"
            .to_owned();
        for row in &self.rows {
            let [what, unit, measured, simulated, off, verdict] = row.cells();
            let verdict = match verdict.as_str() {
                "MISSED" => "**MISSED**".to_owned(),
                _ => verdict,
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {what} | {unit} | {measured} | {simulated} | {off} | {verdict} | {} |",
                row.source
            );
        }
        let _ = writeln!(text, "\n{}\n", self.tally());
        for source in &self.sources {
            let _ = writeln!(text, "- {}: {}", source.key, source.text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_value_is_from_a_range() {
        let row = |simulated| Row {
            what: String::new(),
            unit: "cycles".into(),
            measured: [10.0, 20.0],
            simulated,
            kind: Kind::Input,
            source: String::new(),
        };
        assert_eq!(
            [row(5.0).off(), row(15.0).off(), row(30.0).off()],
            [-0.5, 0.0, 0.5]
        );
        assert!(row(9.1).holds() && !row(8.9).holds() && !row(22.1).holds());
    }
}
