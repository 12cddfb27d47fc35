//! Published, ours, and whether it holds: as rows, as a table for a terminal.

use crate::{
    experiment::{Against, Claim, Holds},
    run::{Measured, Results},
};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use perch_profile::formula::Formula;
use serde::{Serialize, Serializer};
use std::fmt;

/// Columns of a terminal that a table takes at most.
const WIDTH: u16 = 80;

/// How they are shared out: claim, published, ours, difference, allowed, verdict.
const COLUMNS: [u16; 6] = [27, 10, 9, 11, 11, 7];

/// A number, or the words of an ordering.
#[derive(Debug, Clone, PartialEq, Serialize)]
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

/// One claim and what came of it. As JSON it has the fields `name`, `published`, `ours`, `unit`, `tolerance` and
/// `holds`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The claim.
    pub name: String,
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
    /// Where it is published.
    #[serde(skip)]
    pub place: String,
    /// The published value for an open end.
    #[serde(skip)]
    bound: Option<f64>,
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

/// Holds a claim against what was measured.
///
/// # Errors
/// In words: a formula without a value.
pub fn row(claim: &Claim, measured: &[Measured]) -> Result<Row, String> {
    let numbers = claim.ours.iter().map(|formula| evaluate(formula, measured));
    let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
    let ours = numbers.first().copied().unwrap_or(f64::NAN);
    let bound = match claim.published {
        Against::Number(number) => Some(number),
        Against::Words(_) => None,
    };
    let holds = match claim.holds {
        Holds::Within(tolerance) => bound.is_some_and(|bound| (ours - bound).abs() <= tolerance),
        Holds::Between(least, most) => (least..=most).contains(&ours),
        Holds::AtLeast(tolerance) => bound.is_some_and(|bound| ours >= bound - tolerance),
        Holds::AtMost(tolerance) => bound.is_some_and(|bound| ours <= bound + tolerance),
        Holds::Rising(margin) => numbers
            .windows(2)
            .all(|pair| pair[1] > pair[0] * (1.0 + margin)),
    };
    let ours = match claim.holds {
        Holds::Rising(_) => {
            let texts: Vec<String> = numbers.iter().map(|number| short(*number)).collect();
            Value::Words(texts.join(", "))
        }
        _ => Value::Number(ours),
    };
    Ok(Row {
        name: claim.name.clone(),
        published: match &claim.published {
            Against::Number(number) => Value::Number(*number),
            Against::Words(words) => Value::Words(words.clone()),
        },
        ours,
        unit: claim.unit.clone(),
        tolerance: claim.holds.clone(),
        holds,
        place: claim.place.clone(),
        bound,
    })
}

/// A formula's value.
///
/// # Errors
/// In words: a division by zero.
pub(crate) fn evaluate(formula: &Formula, measured: &[Measured]) -> Result<f64, String> {
    let value = |name: &String| {
        let found = measured.iter().find(|measured| measured.name == *name);
        found
            .map(|measured| measured.value)
            .ok_or_else(|| format!("`{name}` was not measured"))
    };
    let values: Vec<f64> = formula
        .names()
        .iter()
        .map(value)
        .collect::<Result<_, _>>()?;
    formula.evaluate(&values).map_err(|error| error.to_string())
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

/// The claims of an experiment as a table of 80 columns, and how many of them hold.
pub fn text(results: &Results) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH);
    table.set_header(["claim", "published", "ours", "difference", "allowed", ""]);
    for row in &results.rows {
        let unit = if row.unit.is_empty() {
            String::new()
        } else {
            format!(" ({})", row.unit)
        };
        table.add_row([
            format!("{}{unit}\n{}", row.name, row.place),
            row.published.to_string(),
            row.ours.to_string(),
            row.difference()
                .map_or(String::new(), |difference| match short(difference) {
                    zero if zero == "0" => zero,
                    text if difference > 0.0 => format!("+{text}"),
                    text => text,
                }),
            row.allowed(),
            verdict(row.holds).to_owned(),
        ]);
    }
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for (column, width) in COLUMNS.into_iter().enumerate() {
        if let Some(column) = table.column_mut(column) {
            column.set_padding((0, 1));
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
    }
    let held = results.rows.iter().filter(|row| row.holds).count();
    let mut text = format!("{}: {}\n{table}\n", results.name, results.title);
    text.push_str(&format!("{held} of {} claims hold\n", results.rows.len()));
    for note in &results.notes {
        let mut line = "note:".to_owned();
        for word in note.split(' ') {
            if line.chars().count() + 1 + word.chars().count() > usize::from(WIDTH) {
                text.push_str(&line);
                text.push('\n');
                line = " ".repeat(4);
            }
            line.push(' ');
            line.push_str(word);
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// A claim's outcome in a word.
pub(crate) fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "MISSES" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(holds: Holds, published: f64, ours: &[&str]) -> Claim {
        Claim {
            name: "a claim".to_owned(),
            published: Against::Number(published),
            place: "somewhere".to_owned(),
            id: None,
            ours: ours
                .iter()
                .map(|text| Formula::parse(text).unwrap())
                .collect(),
            unit: String::new(),
            holds,
        }
    }

    fn measured(values: &[(&str, f64)]) -> Vec<Measured> {
        let one = |(name, value): &(&str, f64)| Measured {
            name: (*name).to_owned(),
            what: String::new(),
            value: *value,
            unit: "",
        };
        values.iter().map(one).collect()
    }

    #[test]
    fn claims_hold_up_to_their_tolerance_and_not_beyond() {
        let values = measured(&[("x", 3.0), ("y", 2.0)]);
        let holds = |holds, published| {
            row(&claim(holds, published, &["x / y"]), &values)
                .unwrap()
                .holds
        };
        assert!(holds(Holds::Within(0.5), 1.0));
        assert!(!holds(Holds::Within(0.4), 1.0));
        assert!(!holds(Holds::Within(0.4), 2.0));
        assert!(holds(Holds::Between(1.5, 1.6), 9.0));
        assert!(!holds(Holds::Between(1.6, 1.7), 9.0));
        assert!(holds(Holds::AtLeast(0.0), 1.5) && !holds(Holds::AtLeast(0.0), 1.6));
        assert!(holds(Holds::AtMost(0.0), 1.5) && !holds(Holds::AtMost(0.0), 1.4));
    }

    #[test]
    fn an_ordering_holds_if_each_is_greater_by_the_margin() {
        let values = measured(&[("x", 1.0), ("y", 1.1), ("z", 1.2)]);
        let holds = |margin, ours: &[&str]| {
            row(&claim(Holds::Rising(margin), 0.0, ours), &values)
                .unwrap()
                .holds
        };
        assert!(holds(0.05, &["x", "y", "z"]));
        assert!(!holds(0.1, &["x", "y", "z"]));
        assert!(!holds(0.0, &["y", "x"]));
        assert!(!holds(0.0, &["x", "x"]));
    }

    #[test]
    fn a_division_by_zero_is_no_value() {
        let values = measured(&[("x", 1.0), ("y", 0.0)]);
        assert!(row(&claim(Holds::Within(1.0), 1.0, &["x / y"]), &values).is_err());
    }

    #[test]
    fn a_row_has_exactly_the_fields_of_the_report() {
        let values = measured(&[("x", 1.52)]);
        let ordering = Claim {
            published: Against::Words("up".into()),
            ..claim(Holds::Rising(0.0), 0.0, &["x", "2 * x"])
        };
        let rows = [
            row(&claim(Holds::Within(0.1), 1.5, &["x"]), &values).unwrap(),
            row(&claim(Holds::Between(1.0, 2.0), 1.5, &["x"]), &values).unwrap(),
            row(&ordering, &values).unwrap(),
        ];
        insta::assert_json_snapshot!(rows);
    }

    proptest! {
        #[test]
        fn short_numbers_are_near_the_long_ones(number in -1e6f64..1e6) {
            let back: f64 = short(number).parse().unwrap();
            prop_assert!((back - number).abs() <= number.abs() * 0.0006 + 1e-6, "{number} {back}");
        }
    }
}
