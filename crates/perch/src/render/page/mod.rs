//! A recording as one page for a browser. The page holds its style, its script and its data, and loads nothing.
//!
//! A recording is read twice: [`totals::Totals`] finds what is in it, [`course::Course`] what happened in each column of
//! time. So neither memory nor the page grows with its length.

pub mod course;
mod data;
mod head;
pub mod place;
mod tables;
pub mod totals;
mod tracks;
mod values;

use super::svg::COLOURS;
use course::Course;
use data::{Page, Quantity};
use perch_lab::page::escape;
use std::fmt::Write;
use totals::Totals;

/// The page without what is filled in.
const FRAME: &str = include_str!("page.html");

/// The style.
const STYLE: &str = include_str!("page.css");

/// The script, in the order in which its parts need each other.
const SCRIPT: [&str; 6] = [
    include_str!("state.js"),
    include_str!("chart.js"),
    include_str!("placement.js"),
    include_str!("series.js"),
    include_str!("tables.js"),
    include_str!("main.js"),
];

/// The page of a recording that was read twice; `damage` says what could not be read, one sentence each.
///
/// # Errors
/// None but of the library that writes JSON.
pub fn page(
    course: Course<'_>,
    totals: &Totals,
    damage: Vec<String>,
) -> serde_json::Result<String> {
    let finished = course.finish();
    let mut notes = damage;
    notes.extend(head::notes(totals, &finished));
    let times = [("cpu", "CPU share"), ("waiting", "waiting for a PU")];
    let times = times.map(|(key, label)| Quantity {
        key: key.to_owned(),
        label: label.to_owned(),
        unit: "share",
    });
    let mut quantities = times.to_vec();
    quantities.extend_from_slice(totals.quantities.list());
    let page = Page {
        title: totals.header.command.join(" "),
        head: head::head(totals, &finished),
        notes,
        remarks: totals.remarks.clone(),
        starts: finished.starts,
        ends: finished.ends,
        quantities,
        names: finished.names,
        lanes: finished.lanes,
        lane_kind: finished.lane_kind,
        unmeasured: finished.unmeasured,
        unseen: finished.unseen,
        moved: finished.moved,
        series: finished.series,
        moves: finished.moves,
        moves_left_out: finished.moves_left_out,
        threads: tables::threads(totals),
        processes: tables::process_rows(totals),
        units: tables::units(totals),
    };
    Ok(filled(&page.title, &serde_json::to_string(&page)?))
}

/// The frame with title, style, script and data.
fn filled(title: &str, data: &str) -> String {
    let mut colours = String::from(":root {");
    for (number, colour) in COLOURS.iter().enumerate() {
        let _ = write!(
            colours,
            " --thread-{number}: rgb({}, {}, {});",
            colour.0, colour.1, colour.2
        );
    }
    colours += " }\n";
    let title = escape(title);
    // In one pass: what is filled in may look like one of the marks.
    let mut page = String::with_capacity(FRAME.len() + STYLE.len() + data.len() + 50_000);
    for (at, part) in FRAME.split("@@").enumerate() {
        match (at % 2, part) {
            (0, text) => page += text,
            (_, "TITLE") => page += &title,
            (_, "STYLE") => {
                page += &colours;
                page += STYLE;
            }
            (_, "SCRIPT") => SCRIPT.iter().for_each(|part| page.push_str(part)),
            // `</script>` and `<!--` would end or change the element.
            (_, _) => page += &data.replace('<', "\\u003c"),
        }
    }
    page
}

/// Rounds to this many digits: more are noise, and make the page longer.
fn round(value: f64, digits: u8) -> f32 {
    if value == 0.0 || !value.is_finite() {
        return value as f32;
    }
    let digits = f64::from(digits) - value.abs().log10().ceil();
    // A share of a thousandth is nothing that a chart can show.
    let scale = 10_f64.powf(digits.min(5.0));
    ((value * scale).round() / scale) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_filled_in_ends_no_element(title in ".{0,40}", text in ".{0,40}") {
            let data = serde_json::to_string(&[&text, "</script><!--@@DATA@@"]).unwrap();
            let page = filled(&title, &data);
            prop_assert_eq!(page.matches("</script").count(), 2);
            prop_assert_eq!(page.matches("<!--").count(), 1);
            let (_, after) = page.split_once("id=\"data\">").unwrap();
            let (inside, _) = after.split_once("</script>").unwrap();
            let read: Vec<String> = serde_json::from_str(inside).unwrap();
            prop_assert_eq!(&read[0], &text);
        }

        #[test]
        fn rounding_changes_little(value in -1e12..1e12f64) {
            let error = (f64::from(round(value, 4)) - value).abs();
            prop_assert!(error <= (value.abs() * 1e-3).max(1e-5), "{value} {}", round(value, 4));
        }
    }
}
