//! How many claims hold, by class: a prediction that holds says more than an input that comes out again.

use crate::{experiment::Class, results::Row};
use std::fmt;

/// Claims of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// All of them.
    pub claims: usize,
    /// Those that hold.
    pub hold: usize,
    /// Those that hold and would hold as well if nothing that is compared made a difference.
    pub hold_anyway: usize,
}

impl Count {
    fn of<'a>(class: Class, rows: impl Iterator<Item = &'a Row>) -> Self {
        rows.filter(|row| row.class == class)
            .fold(Self::default(), |count, row| Self {
                claims: count.claims + 1,
                hold: count.hold + usize::from(row.holds),
                hold_anyway: count.hold_anyway
                    + usize::from(row.holds && row.null_holds == Some(true)),
            })
    }
}

/// Claims by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// What the simulation predicts.
    pub predictions: Count,
    /// What was put in.
    pub inputs: Count,
    /// What perch itself wants.
    pub aims: Count,
}

impl Tally {
    /// Counts these.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row> + Clone) -> Self {
        let count = |class| Count::of(class, rows.clone().into_iter());
        Self {
            predictions: count(Class::Prediction),
            inputs: count(Class::Input),
            aims: count(Class::Aim),
        }
    }

    /// What each class is called, and its count; those of which there is nothing are left out.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, Count)> {
        let all = [
            ("predictions", self.predictions),
            ("inputs", self.inputs),
            ("own aims", self.aims),
        ];
        all.into_iter().filter(|(_, count)| count.claims > 0)
    }
}

/// A line for each class, without a line's end after the last.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, count)) in self.counts().enumerate() {
            let end = if at == 0 { "" } else { "\n" };
            let Count {
                claims,
                hold,
                hold_anyway,
            } = count;
            write!(f, "{end}{name}: {hold} of {claims} hold")?;
            if hold_anyway > 0 {
                write!(
                    f,
                    ", {hold_anyway} of them would hold even if nothing made a difference"
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        experiment::Holds,
        results::{Row, Value},
    };
    use proptest::prelude::*;

    fn row(class: Class, holds: bool, null_holds: Option<bool>) -> Row {
        Row {
            name: String::new(),
            id: None,
            class,
            published: Value::Number(1.0),
            ours: Value::Number(1.0),
            unit: String::new(),
            tolerance: Holds::Within(0.0),
            holds,
            null_holds,
            varied: None,
            place: String::new(),
            bound: None,
        }
    }

    #[test]
    fn inputs_and_aims_are_no_predictions() {
        let rows = [
            row(Class::Prediction, true, Some(true)),
            row(Class::Prediction, true, Some(false)),
            row(Class::Prediction, false, Some(true)),
            row(Class::Input, true, None),
            row(Class::Aim, false, None),
        ];
        assert_eq!(
            Tally::of(&rows).to_string(),
            "predictions: 2 of 3 hold, 1 of them would hold even if nothing made a difference\ninputs: 1 of 1 hold\n\
             own aims: 0 of 1 hold"
        );
        assert_eq!(Tally::of(&rows[3..4]).to_string(), "inputs: 1 of 1 hold");
    }

    proptest! {
        #[test]
        fn every_claim_is_counted_once(claims in proptest::collection::vec((0usize..3, any::<bool>(), any::<Option<bool>>()), 0..30)) {
            let rows: Vec<Row> = claims.iter().map(|(class, holds, null)| row(Class::ALL[*class].1, *holds, *null)).collect();
            let tally = Tally::of(&rows);
            let sum = |of: fn(Count) -> usize| tally.counts().map(|(_, count)| of(count)).sum::<usize>();
            prop_assert_eq!(sum(|count| count.claims), rows.len());
            prop_assert_eq!(sum(|count| count.hold), rows.iter().filter(|row| row.holds).count());
            prop_assert!(tally.counts().all(|(_, count)| count.hold_anyway <= count.hold && count.hold <= count.claims));
        }
    }
}
