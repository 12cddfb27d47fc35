//! A calibration as heat maps: which kernel slows down which, at each level of sharing.

use super::{Anchor, Area, Canvas, GREY, INK, PALE, width};
use perch_policy::{
    Calibration, Coupling, Share,
    calibration::{NOTICED, TIGHT},
};
use plotters::style::RGBColor;

/// Pixels of a cell.
const CELL: (i32, i32) = (34, 20);
/// Up to so many kernels two maps stand side by side.
const NARROW: usize = 12;
/// Letters of kernels' names, and in cells.
const FONT: u32 = 10;
/// The colour of the largest slowdown.
const HOT: (u8, u8, u8) = (214, 82, 16);

/// A colour between two, 0 to 1.
pub fn between(low: (u8, u8, u8), high: (u8, u8, u8), share: f64) -> RGBColor {
    let share = share.clamp(0.0, 1.0);
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
    RGBColor(mix(low.0, high.0), mix(low.1, high.1), mix(low.2, high.2))
}

/// What a pair's cell says.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cell {
    /// It was not measured.
    Unmeasured,
    /// This slowdown was shown; 1 where there is none.
    Slowdown(f64),
    /// The speeds vary too much to say.
    Unknown,
}

/// Draws a map for each level that was measured. `levels` has the words for them: PUs that share …
pub fn heat(canvas: &mut Canvas, calibration: &Calibration, levels: &[(Share, &str)]) {
    let kernels: Vec<&str> = calibration
        .kernels
        .iter()
        .map(|k| k.name.as_str())
        .collect();
    let title = format!(
        "{}: how much longer a kernel takes beside another",
        calibration.machine
    );
    canvas.text(&title, (0, 8), 14, Anchor::Left, INK);
    if levels.is_empty() || kernels.is_empty() {
        let text = "No two kernels can run at the same time.";
        canvas.text(text, (0, 30), 12, Anchor::Left, INK);
        return;
    }
    let shown = calibration.couplings.iter().map(Coupling::known);
    let most = shown.fold(NOTICED, f64::max);
    let names = kernels
        .iter()
        .map(|name| width(name, FONT))
        .max()
        .unwrap_or(0)
        + 8;
    let side = kernels.len() as i32;
    let columns = if kernels.len() <= NARROW { 2 } else { 1 };
    let (across, down) = (names + CELL.0 * side + 40, names + CELL.1 * side + 44);
    for (at, (share, words)) in levels.iter().enumerate() {
        let x = (at % columns) as i32 * across;
        let y = 28 + (at / columns) as i32 * down;
        let text = format!("on PUs that share {words}");
        canvas.text(&text, (x, y + 8), 12, Anchor::Left, INK);
        let origin = (x + names, y + 20 + names);
        for (column, beside) in kernels.iter().enumerate() {
            let middle = origin.0 + CELL.0 * column as i32 + CELL.0 / 2;
            canvas.text(beside, (middle, origin.1 - 4), FONT, Anchor::Upwards, INK);
        }
        for (row, kernel) in kernels.iter().enumerate() {
            let top = origin.1 + CELL.1 * row as i32;
            let middle = top + CELL.1 / 2;
            canvas.text(kernel, (origin.0 - 4, middle), FONT, Anchor::Right, INK);
            for (column, beside) in kernels.iter().enumerate() {
                let left = origin.0 + CELL.0 * column as i32;
                let area = Area::new(left, top, CELL.0, CELL.1);
                draw(
                    canvas,
                    area,
                    cell(calibration, *share, kernel, beside),
                    most,
                );
            }
        }
    }
    let y = canvas.bottom() + 18;
    legend(canvas, y, most);
}

/// What was measured of a kernel beside another one.
fn cell(calibration: &Calibration, share: Share, kernel: &str, beside: &str) -> Cell {
    let mut all = calibration.couplings.iter();
    let pair = |of: &&Coupling| {
        of.share == share && of.kernel == kernel && of.beside.len() == 1 && of.beside[0] == beside
    };
    match all.find(pair) {
        None => Cell::Unmeasured,
        Some(found) if found.is_significant() => Cell::Slowdown(found.known()),
        // Files of version 1 have no intervals.
        Some(found) if found.half().is_none_or(|half| half <= TIGHT) => Cell::Slowdown(1.0),
        Some(_) => Cell::Unknown,
    }
}

fn draw(canvas: &mut Canvas, area: Area, cell: Cell, most: f64) {
    match cell {
        Cell::Unmeasured => canvas.hatch(area, true, RGBColor(222, 222, 222)),
        Cell::Unknown => {
            canvas.fill(area, PALE);
            canvas.label("?", area, FONT);
        }
        Cell::Slowdown(slowdown) => {
            canvas.fill(area, colour(slowdown, most));
            if slowdown >= 1.005 {
                canvas.label(&format!("{slowdown:.2}"), area, FONT);
            }
        }
    }
    canvas.frame(area, RGBColor(222, 222, 222));
}

/// By the logarithm: a few slowdowns are far larger than all others.
fn colour(slowdown: f64, most: f64) -> RGBColor {
    between((255, 255, 255), HOT, slowdown.ln() / most.ln())
}

fn legend(canvas: &mut Canvas, y: i32, most: f64) {
    const LONG: i32 = 120;
    canvas.text("1", (0, y + 6), 11, Anchor::Left, INK);
    for at in 0..LONG {
        let slowdown = most.powf(f64::from(at) / f64::from(LONG - 1));
        canvas.fill(Area::new(12 + at, y, 1, 12), colour(slowdown, most));
    }
    canvas.frame(Area::new(12, y, LONG, 12), GREY);
    let text = format!(
        "{most:.2}: time of the row's kernel beside the column's / alone; empty: no slowdown, ?: not known"
    );
    canvas.text(&text, (LONG + 18, y + 6), 11, Anchor::Left, INK);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_say_what_was_shown() {
        let coupling = |kernel: &str, slowdown: f64, low: f64, high: f64| Coupling {
            share: Share::Core,
            kernel: kernel.to_owned(),
            beside: vec!["b".to_owned()],
            slowdown,
            spread: None,
            low: Some(low),
            high: Some(high),
            significant: Some(low > 1.0),
        };
        let calibration = Calibration {
            version: 3,
            machine: "m".to_owned(),
            date: "d".to_owned(),
            notes: Vec::new(),
            metrics: Vec::new(),
            kernels: Vec::new(),
            couplings: vec![
                coupling("shown", 1.5, 1.4, 1.6),
                coupling("none", 1.01, 0.99, 1.02),
                coupling("vague", 1.1, 0.8, 1.4),
            ],
            transfers: Vec::new(),
        };
        let of = |kernel: &str| cell(&calibration, Share::Core, kernel, "b");
        assert_eq!(of("shown"), Cell::Slowdown(1.5));
        assert_eq!(of("none"), Cell::Slowdown(1.0));
        assert_eq!(of("vague"), Cell::Unknown);
        assert_eq!(of("other"), Cell::Unmeasured);
        let elsewhere = cell(&calibration, Share::L2, "shown", "b");
        assert_eq!(elsewhere, Cell::Unmeasured);
    }

    #[test]
    fn colours_go_from_one_to_the_other() {
        assert_eq!(
            between((0, 0, 0), (100, 200, 50), 0.5),
            RGBColor(50, 100, 25)
        );
        assert_eq!(
            between((0, 0, 0), (100, 200, 50), 7.0),
            RGBColor(100, 200, 50)
        );
    }
}
