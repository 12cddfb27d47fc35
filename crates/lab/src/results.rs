//! What comes of an experiment, as data: what was measured, what became of each claim, what is drawn.

use crate::experiment::{Class, Holds};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// A number that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Its name in the experiment.
    pub name: String,
    /// What it is.
    pub what: String,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
}

/// What came of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// What was done.
    pub about: String,
    /// The claims.
    pub rows: Vec<Row>,
    /// The numbers behind them.
    pub measured: Vec<Measured>,
    /// What a reader must know: searches that were not exhaustive, scales.
    pub notes: Vec<String>,
    /// Simulations that were run.
    pub simulations: usize,
    /// The picture's data.
    pub picture: Option<Picture>,
}

/// A number, or the words of an ordering.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Words: `0.52 < 0.81`.
    Words(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => f.write_str(&short(*number)),
            Self::Words(words) => f.write_str(words),
        }
    }
}

/// What a claim's number is over all values of the parameters for which there is no source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Varied {
    /// The least of ours; none for an ordering.
    pub least: Option<f64>,
    /// Where that was.
    pub least_with: String,
    /// The greatest.
    pub greatest: Option<f64>,
    /// Where that was.
    pub greatest_with: String,
    /// In how many variants, the one of the files among them, the claim holds.
    pub holds: usize,
    /// How many variants there are.
    pub of: usize,
}

/// One claim and what came of it. As JSON it has the fields `name`, `id`, `class`, `published`, `ours`, `unit`,
/// `tolerance`, `holds` and `null_holds`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The claim.
    pub name: String,
    /// The published value's name in the table of them, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it says if it holds.
    pub class: Class,
    /// What is published.
    pub published: Value,
    /// What was measured.
    pub ours: Value,
    /// The unit of both.
    pub unit: String,
    /// How far they may differ. As JSON `[least, most]` for `Between`, for an ordering the part by which each number must
    /// exceed the one before, else the number.
    #[serde(serialize_with = "tolerance")]
    pub tolerance: Holds,
    /// Whether they do not differ by more.
    pub holds: bool,
    /// Whether they would not if nothing that is compared made a difference, where that can be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_holds: Option<bool>,
    /// What it is over the parameters that were varied, if any were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub varied: Option<Varied>,
    /// Where it is published.
    #[serde(skip)]
    pub place: String,
    /// The published value for an open end.
    #[serde(skip)]
    pub(crate) bound: Option<f64>,
}

fn tolerance<S: Serializer>(holds: &Holds, serializer: S) -> Result<S::Ok, S::Error> {
    match holds {
        Holds::Within(tolerance) | Holds::Rising(tolerance) => serializer.serialize_f64(*tolerance),
        Holds::Between(least, most) => [least, most].serialize(serializer),
        Holds::AtLeast(tolerance) | Holds::AtMost(tolerance) => {
            serializer.serialize_f64(*tolerance)
        }
    }
}

impl Row {
    /// Ours less what is published, where both are numbers.
    pub fn difference(&self) -> Option<f64> {
        match (&self.ours, &self.published) {
            (Value::Number(ours), Value::Number(published)) => Some(ours - published),
            _ => None,
        }
    }

    /// The least and the greatest of ours over what was varied.
    pub fn range(&self) -> Option<(String, String)> {
        let varied = self.varied.as_ref()?;
        Some((short(varied.least?), short(varied.greatest?)))
    }

    /// The tolerance in words.
    pub fn allowed(&self) -> String {
        match self.tolerance {
            Holds::Within(tolerance) => format!("±{}", short(tolerance)),
            Holds::Between(least, most) => format!("{} to {}", short(least), short(most)),
            Holds::AtLeast(tolerance) => {
                format!("≥ {}", short(self.bound.unwrap_or(0.0) - tolerance))
            }
            Holds::AtMost(tolerance) => {
                format!("≤ {}", short(self.bound.unwrap_or(0.0) + tolerance))
            }
            Holds::Rising(0.0) => "in this order".to_owned(),
            Holds::Rising(margin) => format!("each {} % more", short(margin * 100.0)),
        }
    }
}

/// A picture's data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Picture {
    /// Its title.
    pub title: String,
    /// What is to the right.
    pub x: String,
    /// What is upwards.
    pub y: String,
    /// What is drawn.
    pub drawing: Drawing,
}

/// A bar with its height.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// The group that it belongs to.
    pub group: String,
    /// Which of the group.
    pub series: String,
    /// Its height.
    pub value: f64,
    /// The ends of its whisker.
    pub range: Option<(f64, f64)>,
    /// What is published instead.
    pub published: Option<f64>,
}

/// A line with its points.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// What it is called.
    pub series: String,
    /// Where each point is, to the right and upwards.
    pub points: Vec<(f64, f64)>,
}

/// What is drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drawing {
    /// Bars.
    Bars(Vec<Column>),
    /// Lines, to the right logarithmic in bytes.
    Lines {
        /// Ours.
        curves: Vec<Curve>,
        /// Published points.
        published: Vec<(f64, f64)>,
    },
}

/// Four digits that count, without zeros at the end.
pub(crate) fn short(number: f64) -> String {
    if !number.is_finite() {
        return "-".to_owned();
    }
    let magnitude = number.abs().max(1e-300).log10().floor();
    let decimals = (3.0 - magnitude).clamp(0.0, 6.0) as usize;
    let text = format!("{number:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    match text {
        "-0" => "0".to_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn short_numbers_are_near_the_long_ones(number in -1e6f64..1e6) {
            let back: f64 = short(number).parse().unwrap();
            prop_assert!((back - number).abs() <= number.abs() * 0.0006 + 1e-6, "{number} {back}");
        }
    }
}
