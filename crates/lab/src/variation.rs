//! Ranges: what claims come to where parameters that no source gives have other values.

use crate::results::{Results, Row, Value, Varied};

/// Gives each claim the range of what came of it, in the experiment as it is and in its variants.
pub(crate) fn add_ranges(results: &mut Results, variants: &[(&str, Results)]) {
    if variants.is_empty() {
        return;
    }
    for (at, row) in results.rows.iter_mut().enumerate() {
        let others = variants
            .iter()
            .map(|(name, results)| (*name, &results.rows[at]));
        row.varied = Some(varied(row, others));
    }
    results.notes.push(format!(
        "Below ours stands its range over {} variants: parameters that no source gives, one after the other and all \
         together by chance. Below the verdict: in how many of them and of the files' own values the claim holds.",
        variants.len()
    ));
}

fn varied<'a>(own: &Row, others: impl Iterator<Item = (&'a str, &'a Row)>) -> Varied {
    let number = |row: &Row| match row.ours {
        Value::Number(number) => Some(number),
        Value::Words(_) => None,
    };
    let mut all = Varied {
        least: number(own),
        least_with: "as in the files".to_owned(),
        greatest: number(own),
        greatest_with: "as in the files".to_owned(),
        holds: usize::from(own.holds),
        of: 1,
    };
    for (name, row) in others {
        all.of += 1;
        all.holds += usize::from(row.holds);
        let Some(ours) = number(row) else { continue };
        if all.least.is_some_and(|least| ours < least) {
            (all.least, all.least_with) = (Some(ours), name.to_owned());
        }
        if all.greatest.is_some_and(|greatest| ours > greatest) {
            (all.greatest, all.greatest_with) = (Some(ours), name.to_owned());
        }
    }
    all
}
