//! A picture of all predictions of a result page: how far ours are from what is published, and what is allowed.

use crate::{
    experiment::{Class, Holds},
    figure::COLOURS,
    kept,
    results::{Row, Value},
};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::path::Path;

/// Pixels: of the picture, from its left edge to the axis, and from one row to the next.
const WIDTH: u32 = 900;
const LABELS: i32 = 500;
const ROW: i32 = 17;

/// Pixels above the first row.
const HEAD: i32 = 66;

/// Letters of a label that have room.
const LETTERS: usize = 68;

/// What the axis shows of ours as a multiple of what is published. What lies farther out is drawn at the edge.
const SHOWN: (f64, f64) = (0.5, 2.0);

const GREY: RGBColor = RGBColor(215, 215, 215);

/// A prediction as multiples of what is published.
#[derive(Debug, Clone, PartialEq)]
struct Mark<'a> {
    name: &'a str,
    ours: f64,
    allowed: (f64, f64),
    /// Over the parameters that no source gives.
    range: Option<(f64, f64)>,
    holds: bool,
    /// Whether it would hold even if nothing that is compared made a difference.
    null: bool,
}

impl<'a> Mark<'a> {
    /// `None` for what is no prediction, and for orderings and zeros, which have no such multiple.
    fn new(row: &'a Row) -> Option<Self> {
        let Value::Number(ours) = row.ours else {
            return None;
        };
        let far = f64::INFINITY;
        let (published, allowed) = match (&row.tolerance, &row.published) {
            (Holds::Between(least, most), _) => ((least + most) / 2.0, (*least, *most)),
            (Holds::Within(far), Value::Number(of)) => (*of, (of - far, of + far)),
            (Holds::AtLeast(less), _) => (row.bound?, (row.bound? - less, far)),
            (Holds::AtMost(more), _) => (row.bound?, (0.0, row.bound? + more)),
            _ => return None,
        };
        if row.class != Class::Prediction || published <= 0.0 {
            return None;
        }
        let varied = row.varied.as_ref();
        let range = varied.and_then(|varied| varied.least.zip(varied.greatest));
        Some(Self {
            name: &row.name,
            ours: ours / published,
            allowed: (allowed.0 / published, allowed.1 / published),
            range: range.map(|(least, most)| (least / published, most / published)),
            holds: row.holds,
            null: row.null_holds == Some(true),
        })
    }
}

/// The picture of the experiments below a name, from the results that are kept in this folder, as SVG.
///
/// # Errors
/// In words: results that are not there or stale, or have no prediction with a number.
pub fn svg(group: &str, folder: &Path) -> Result<String, String> {
    let experiments = kept::below(group, folder)?;
    let marks = |rows: &'_ [Row]| rows.iter().filter_map(Mark::new).count();
    let shown: Vec<_> = experiments
        .iter()
        .filter(|(_, rows)| marks(rows) > 0)
        .collect();
    if shown.is_empty() {
        return Err(format!("no prediction below `{group}` is a number"));
    }
    let rows: usize = shown.iter().map(|(_, rows)| 1 + marks(rows)).sum();
    let height = HEAD + ROW * rows as i32 + 12;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height as u32)).into_drawing_area();
        draw(&area, &shown, height).map_err(|error| error.to_string())?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Where a multiple is on the axis, which is logarithmic.
fn place(multiple: f64) -> i32 {
    let (least, most) = SHOWN;
    let part = (multiple.clamp(least, most) / least).ln() / (most / least).ln();
    LABELS + (part * f64::from(WIDTH as i32 - LABELS - 24)).round() as i32
}

fn draw(area: &Area<'_>, experiments: &[&(String, Vec<Row>)], height: i32) -> Drawn {
    area.fill(&WHITE)?;
    let end = height - 12;
    for multiple in [0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0] {
        let x = place(multiple);
        let colour = if multiple == 1.0 { BLACK } else { GREY };
        area.draw(&PathElement::new(vec![(x, HEAD), (x, end)], colour))?;
        let style = TextStyle::from(("sans-serif", 11).into_font());
        let style = style.pos(Pos::new(HPos::Center, VPos::Bottom));
        area.draw(&Text::new(format!("{multiple}"), (x, HEAD - 3), style))?;
    }
    legend(area)?;
    let mut y = HEAD + ROW / 2;
    for (name, rows) in experiments {
        let style = ("sans-serif", 13).into_font().style(FontStyle::Bold);
        let style = TextStyle::from(style).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(name.clone(), (8, y), style))?;
        y += ROW;
        for mark in rows.iter().filter_map(Mark::new) {
            draw_mark(area, &mark, y)?;
            y += ROW;
        }
    }
    Ok(())
}

fn draw_mark(area: &Area<'_>, mark: &Mark<'_>, y: i32) -> Drawn {
    let mut label: String = mark.name.chars().take(LETTERS).collect();
    if label.len() < mark.name.len() {
        label.push('…');
    }
    let style = TextStyle::from(("sans-serif", 12).into_font());
    let style = style.pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Text::new(label, (20, y), style))?;
    let (least, most) = (place(mark.allowed.0), place(mark.allowed.1));
    area.draw(&Rectangle::new(
        [(least, y - 6), (most.max(least + 1), y + 6)],
        GREY.filled(),
    ))?;
    if let Some((least, most)) = mark.range {
        let line = vec![(place(least), y), (place(most), y)];
        area.draw(&PathElement::new(line, BLACK))?;
    }
    draw_dot(area, (place(mark.ours), y), mark.holds, mark.null)
}

fn draw_dot(area: &Area<'_>, at: (i32, i32), holds: bool, null: bool) -> Drawn {
    let colour = COLOURS[if holds { 0 } else { 4 }];
    area.draw(&Circle::new(at, 4, WHITE.filled()))?;
    let style = if null {
        colour.stroke_width(2)
    } else {
        colour.filled()
    };
    area.draw(&Circle::new(at, 4, style))?;
    Ok(())
}

fn legend(area: &Area<'_>) -> Drawn {
    let title = TextStyle::from(("sans-serif", 15).into_font());
    area.draw(&Text::new(
        "Predictions: ours as a multiple of the published value (middle of a published range)",
        (8, 6),
        title,
    ))?;
    let style = TextStyle::from(("sans-serif", 12).into_font());
    let style = style.pos(Pos::new(HPos::Left, VPos::Center));
    let y = 34;
    let mut x = 12;
    let word = |text: &str, x: i32| area.draw(&Text::new(text.to_owned(), (x, y), style.clone()));
    for (text, holds, null) in [
        ("holds", true, false),
        ("misses", false, false),
        ("would hold even without any difference", true, true),
    ] {
        draw_dot(area, (x, y), holds, null)?;
        word(text, x + 10)?;
        x += 34 + 7 * text.chars().count() as i32;
    }
    area.draw(&Rectangle::new(
        [(x, y - 6), (x + 18, y + 6)],
        GREY.filled(),
    ))?;
    word("allowed", x + 24)?;
    x += 90;
    area.draw(&PathElement::new(vec![(x, y), (x + 18, y)], BLACK))?;
    word("over parameters without a source", x + 24)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_is_logarithmic_and_has_ends() {
        let (least, middle, most) = (place(0.5), place(1.0), place(2.0));
        assert!((middle - least - (most - middle)).abs() <= 1);
        assert_eq!((place(0.0), place(f64::INFINITY)), (least, most));
    }
}
