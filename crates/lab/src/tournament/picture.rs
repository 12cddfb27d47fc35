//! The picture of a tournament: every workload a dot at its regret, a row for each policy.

use super::{Line, Match, Outcome};
use crate::figure::{COLOURS, Slots};
use plotters::{
    coord::{
        ranged1d::{DefaultFormatting, KeyPointHint},
        types::RangedCoordf64,
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::ops::Range;

/// Pixels: the width, the height of a policy's row, the rest of the height, the legend's part of it.
const SIZE: (u32, u32, u32, u32) = (820, 64, 112, 30);

/// Pixels of the policies' names, and of the numbers at the right.
const SIDES: (u32, u32) = (130, 150);

/// Dots keep to so much of a row.
const BAND: f64 = 0.62;

/// Regrets in percent at which the axis may have a number.
const MARKS: [f64; 9] = [0.0, 0.2, 1.0, 3.0, 6.0, 10.0, 20.0, 40.0, 80.0];

/// The picture as an SVG document. Its fonts are the reader's.
///
/// # Errors
/// In words, if it cannot be drawn.
pub fn picture(outcome: &Outcome) -> Result<String, String> {
    let mut text = String::new();
    draw(outcome, &mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw(outcome: &Outcome, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let rows = outcome.standings.len();
    let (width, row, rest, legend) = SIZE;
    let height = row * rows as u32 + rest;
    let area = SVGBackend::with_string(text, (width, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let (above, below) = area.split_vertically(height - legend);
    let most = outcome.standings.iter().map(|s| s.worst_regret);
    let most = 105.0 * most.fold(0.01, f64::max);
    let (left, right) = SIDES;
    let mut chart = ChartBuilder::on(&above)
        .caption(
            format!(
                "Regret on {} workloads: how far below the best placement",
                outcome.matches.len()
            ),
            ("sans-serif", 17),
        )
        .margin(10)
        .margin_right(right)
        .x_label_area_size(40)
        .y_label_area_size(left)
        .build_cartesian_2d(Roots { most }, Slots { groups: rows })?;
    let name = |at: &f64| {
        let of = rows.checked_sub(1 + at.floor() as usize);
        of.map_or(String::new(), |at| outcome.standings[at].name.clone())
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("regret (% of the best speedup; the axis grows like its square)")
        .x_label_formatter(&|percent| format!("{percent}"))
        .y_labels(rows + 1)
        .y_label_formatter(&name)
        .draw()?;
    let machines = machines(outcome);
    for at in 0..rows {
        let middle = (rows - 1 - at) as f64 + 0.5;
        for (number, found) in outcome.matches.iter().enumerate() {
            let machine = machines.iter().position(|name| *name == found.machine);
            let colour = COLOURS[machine.unwrap_or(0) % COLOURS.len()];
            let x = 100.0 * line(found, at).regret.max(0.0);
            let y = middle + BAND * (spread(number) - 0.5);
            chart.draw_series([Circle::new((x, y), 2, colour.mix(0.65).filled())])?;
        }
        let standing = &outcome.standings[at];
        let mean = 100.0 * standing.mean_regret;
        let (low, high) = (middle - BAND / 2.0, middle + BAND / 2.0);
        let bar = vec![(mean, low), (mean, high)];
        chart.draw_series([PathElement::new(bar, BLACK.stroke_width(3))])?;
        let numbers = format!(
            "mean {mean:.1} %, worst {:.0} %",
            100.0 * standing.worst_regret
        );
        let (x, y) = chart.backend_coord(&(most, middle));
        let style = ("sans-serif", 12).into_font().color(&BLACK);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        above.draw(&Text::new(numbers, (x + 8, y), style))?;
    }
    let each = (width - left) / machines.len().max(1) as u32;
    for (number, machine) in machines.iter().enumerate() {
        let x = (left / 2 + each * number as u32) as i32;
        let colour = COLOURS[number % COLOURS.len()];
        below.draw(&Circle::new((x, 10), 4, colour.filled()))?;
        let style = ("sans-serif", 12).into_font().color(&BLACK);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        below.draw(&Text::new((*machine).to_owned(), (x + 9, 10), style))?;
    }
    area.present()?;
    Ok(())
}

/// The machines in the order of the matches.
fn machines(outcome: &Outcome) -> Vec<&str> {
    let mut names: Vec<&str> = outcome.matches.iter().map(|m| m.machine.as_str()).collect();
    names.dedup();
    names
}

/// That of the policy with this place in the standings, the first of which is the default scheduler's.
fn line(found: &Match, at: usize) -> &Line {
    match at.checked_sub(1) {
        Some(at) => &found.lines[at],
        None => &found.default,
    }
}

/// Spreads successive numbers evenly over 0 to 1 (multiples of the golden ratio).
fn spread(number: usize) -> f64 {
    (number as f64 * 0.618_033_988_749_895).fract()
}

/// An axis from 0 with the root of a number as its scale, so that small regrets can be distinguished.
struct Roots {
    most: f64,
}

impl Ranged for Roots {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(0.0..self.most.sqrt()).map(&value.sqrt(), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let there = MARKS.into_iter().filter(|mark| *mark <= self.most);
        there.collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.most
    }
}
