//! Holds claims against what was measured.

use crate::{
    experiment::{Against, Claim, Holds},
    results::{Measured, Row, Value, Varied, short},
};
use perch_profile::formula::Formula;

/// Holds a claim against what was measured.
///
/// # Errors
/// In words: a formula without a value.
pub fn row(claim: &Claim, measured: &[Measured]) -> Result<Row, String> {
    let numbers = claim.ours.iter().map(|formula| evaluate(formula, measured));
    let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
    let holds = held(&claim.holds, bound(claim), &numbers);
    let ours = match claim.holds {
        Holds::Rising(_) => {
            let texts: Vec<String> = numbers.iter().map(|number| short(*number)).collect();
            Value::Words(texts.join(", "))
        }
        _ => Value::Number(numbers.first().copied().unwrap_or(f64::NAN)),
    };
    Ok(told(claim, ours, holds, None))
}

/// The row of what was measured before. `holds` is believed of orderings only: of a number it is told anew.
pub(crate) fn again(claim: &Claim, ours: Value, holds: bool, varied: Option<Varied>) -> Row {
    let holds = match ours {
        Value::Number(ours) => held(&claim.holds, bound(claim), &[ours]),
        Value::Words(_) => holds,
    };
    told(claim, ours, holds, varied)
}

/// The published value, if it is a number.
fn bound(claim: &Claim) -> Option<f64> {
    match claim.published {
        Against::Number(number) => Some(number),
        Against::Words(_) => None,
    }
}

fn told(claim: &Claim, ours: Value, holds: bool, varied: Option<Varied>) -> Row {
    let bound = bound(claim);
    let null_holds = match claim.holds {
        Holds::Rising(_) => Some(claim.by_chance),
        _ => claim.null.map(|null| held(&claim.holds, bound, &[null])),
    };
    Row {
        name: claim.name.clone(),
        id: claim.id.clone(),
        class: claim.class,
        published: match &claim.published {
            Against::Number(number) => Value::Number(*number),
            Against::Words(words) => Value::Words(words.clone()),
        },
        ours,
        unit: claim.unit.clone(),
        tolerance: claim.holds.clone(),
        holds,
        null_holds,
        varied,
        place: claim.place.clone(),
        bound,
    }
}

/// Whether these numbers, of which an ordering has several, are what a claim allows.
fn held(holds: &Holds, bound: Option<f64>, numbers: &[f64]) -> bool {
    let ours = numbers.first().copied().unwrap_or(f64::NAN);
    match *holds {
        Holds::Within(tolerance) => bound.is_some_and(|bound| (ours - bound).abs() <= tolerance),
        Holds::Between(least, most) => (least..=most).contains(&ours),
        Holds::AtLeast(tolerance) => bound.is_some_and(|bound| ours >= bound - tolerance),
        Holds::AtMost(tolerance) => bound.is_some_and(|bound| ours <= bound + tolerance),
        Holds::Rising(margin) => numbers
            .windows(2)
            .all(|pair| pair[1] > pair[0] * (1.0 + margin)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
            class: crate::experiment::Class::Prediction,
            null: None,
            by_chance: false,
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
    fn what_holds_if_nothing_makes_a_difference_is_told() {
        let values = measured(&[("x", 3.0), ("y", 2.0)]);
        let null = |holds, published, null| {
            let claim = Claim {
                null,
                ..claim(holds, published, &["x / y", "x"])
            };
            row(&claim, &values).unwrap().null_holds
        };
        assert_eq!(null(Holds::Within(0.1), 1.05, Some(1.0)), Some(true));
        assert_eq!(null(Holds::Within(0.1), 1.5, Some(1.0)), Some(false));
        assert_eq!(null(Holds::AtMost(0.0), 0.02, Some(0.0)), Some(true));
        assert_eq!(null(Holds::Within(0.1), 1.5, None), None);
        assert_eq!(null(Holds::Rising(0.0), 1.5, None), Some(false));
        let of_spreads = Claim {
            by_chance: true,
            ..claim(Holds::Rising(0.0), 1.5, &["y", "x"])
        };
        assert_eq!(row(&of_spreads, &values).unwrap().null_holds, Some(true));
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
}
