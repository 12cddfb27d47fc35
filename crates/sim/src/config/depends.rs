//! Reads the dependency distance of a mix: a number, a mean, or a list.

use super::table::{Checked, Item};
use crate::workload::{Depends, FURTHEST};

const FORMS: &str = "write `4` (each instruction), `2.5` or `{ mean = 4 }` (a geometric distribution), or \
                     `[[1, 0.7], [4, 0.3]]` (distances with shares)";

/// The distance, or the distances.
pub(super) fn read(item: Item<'_>) -> Checked<Depends> {
    if item.is_whole() {
        return item.whole(0..=FURTHEST).map(Depends::Always);
    }
    if item.is_number() {
        let mean = mean(item)?;
        if mean.fract() == 0.0 {
            let hint = format!(
                "write `{mean}` for this distance of each instruction, or `{{ mean = {mean} }}` for a distribution"
            );
            return Err(item.wrong_hint("a distance, or a mean?", Some(hint)));
        }
        return Ok(Depends::geometric(mean));
    }
    if item.is_table() {
        let table = item.table("a distribution of distances", &["mean"])?;
        return Ok(Depends::geometric(mean(table.need("mean")?)?));
    }
    if item.is_list() {
        return listed(item);
    }
    Err(item.wrong_hint("no dependency distance", Some(FORMS.to_owned())))
}

fn mean(item: Item<'_>) -> Checked<f64> {
    item.number(1.0..=f64::from(FURTHEST))
}

fn listed(item: Item<'_>) -> Checked<Depends> {
    let mut list: Vec<(u16, f64)> = Vec::new();
    for pair in item.some()? {
        let &[distance, share] = pair.list()?.as_slice() else {
            return Err(pair.wrong_hint("not a distance with its share", Some(FORMS.to_owned())));
        };
        let number = distance.whole(0..=FURTHEST)?;
        if list.iter().any(|(other, _)| *other == number) {
            return Err(distance.wrong(format!("a second share of the distance {number}")));
        }
        list.push((number, share.number(0.0..=1e9)?));
    }
    Depends::listed(&list).ok_or_else(|| item.wrong("no share is above 0"))
}
