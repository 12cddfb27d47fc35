//! Counts and metrics over time: a chart for each of them, one time axis below all, a line a thread or PU.

use super::{
    Anchor, Area, Canvas, GREY, INK, PALE, cut,
    heat::between,
    timeline::{axis, step},
};
use perch_core::text::printable;
use perch_lab::figure::COLOURS;
use perch_stat::{
    series::{Line, Series},
    text::short,
};
use plotters::style::RGBColor;

/// What is drawn besides the lines.
pub struct Labels<'a> {
    /// The program, the recording, …
    pub title: &'a str,
    /// How it was counted.
    pub counting: &'a str,
    /// The columns of the series: what they are called, unit included.
    pub columns: &'a [String],
    /// What lines are about, such as "threads".
    pub kind: &'a str,
    /// How many event sets are in rotation.
    pub turns: usize,
    /// The name of a line.
    pub name: &'a dyn Fn(&Line) -> String,
    /// What else is to be said of it, a sentence each.
    pub notes: &'a [String],
}

/// Pixels of the numbers beside a chart, of a chart, and of its lines' names.
const NUMBERS: i32 = 64;
const WIDTH: i32 = 720;
const NAMES: i32 = 170;
/// Pixels of a chart's height, and from one to the next.
const HEIGHT: i32 = 84;
const NEXT: i32 = HEIGHT + 34;
/// The most points of a line: one for two pixels.
const POINTS: u64 = WIDTH as u64 / 2;
/// Charts that are drawn; further columns are only named.
const CHARTS: usize = 32;
/// Lines with a colour and a name, and further ones in grey.
const NAMED: usize = COLOURS.len();
const NAMELESS: usize = 34;
/// Lines without a name.
const FAINT: RGBColor = RGBColor(170, 170, 170);
/// A round that was dropped.
const DROPPED: RGBColor = RGBColor(252, 226, 214);
/// Changes of phase, if there are few enough to be told apart.
const CHANGES: usize = 60;

/// Draws the series.
pub fn series(canvas: &mut Canvas, series: &mut Series, labels: &Labels<'_>) {
    series.thin(POINTS);
    let series = &*series;
    let all = series.by_cpu_time();
    let named = &all[..all.len().min(NAMED)];
    let nameless = &all[named.len()..all.len().min(NAMED + NAMELESS)];
    let left_out = &all[named.len() + nameless.len()..];
    let end = series.end().max(1);
    let across = NUMBERS + WIDTH + NAMES;
    let title = cut(&printable(labels.title), across, 13);
    canvas.text(&title, (0, 8), 13, Anchor::Left, INK);
    let counting = format!("counted by: {}", labels.counting);
    let counting = cut(&printable(&counting), across, 10);
    canvas.text(&counting, (0, 25), 10, Anchor::Left, GREY);
    let mut notes = Vec::new();
    let mut top = 44;
    for (column, name) in labels.columns.iter().enumerate().take(CHARTS) {
        let area = Area::new(NUMBERS, top + 18, WIDTH, HEIGHT);
        let name = cut(&printable(name), WIDTH, 11);
        canvas.text(&name, (NUMBERS, top + 8), 11, Anchor::Left, INK);
        Chart { area, end, column }.draw(canvas, named, nameless, labels);
        top += NEXT;
    }
    top = phases(canvas, named, labels, top, end, &mut notes);
    axis(canvas, (NUMBERS, top), WIDTH, end);
    if let Some(more) = labels.columns.get(CHARTS..).filter(|more| !more.is_empty()) {
        let text = format!("{} more: {}", more.len(), more.join(", "));
        notes.push(text);
    }
    if !nameless.is_empty() {
        notes.push(format!("grey: {} more {}", nameless.len(), labels.kind));
    }
    notes.extend(missing(series, left_out, labels.kind));
    if let Some(bin) = series.merged() {
        let bin = short(bin as f64 / 1e9);
        notes.push(format!("points are means over {bin} s"));
    }
    notes.extend(labels.notes.iter().cloned());
    for (at, note) in notes.iter().enumerate() {
        let y = top + 36 + 15 * at as i32;
        canvas.text(
            &cut(&printable(note), across, 10),
            (NUMBERS, y),
            10,
            Anchor::Left,
            GREY,
        );
    }
}

/// What is not drawn at all.
fn missing(series: &Series, left_out: &[&Line], kind: &str) -> Option<String> {
    let sum = |lines: &[&Line]| lines.iter().map(|line| line.cpu_time).sum::<u64>();
    let time = sum(left_out) + series.left_out();
    if left_out.is_empty() && series.left_out() == 0 {
        return None;
    }
    let all = sum(&series.by_cpu_time()) + series.left_out();
    let share = 100.0 * time as f64 / all.max(1) as f64;
    let others = match series.left_out() {
        0 => "",
        _ => ", and those that came later",
    };
    let number = left_out.len();
    Some(format!(
        "left out: {number} {kind} with the least CPU time{others} ({share:.1} % of all CPU time)"
    ))
}

/// One chart.
struct Chart {
    area: Area,
    /// Nanoseconds across it.
    end: u64,
    column: usize,
}

impl Chart {
    fn draw(&self, canvas: &mut Canvas, named: &[&Line], nameless: &[&Line], labels: &Labels<'_>) {
        let area = self.area;
        canvas.fill(area, PALE);
        if let [line] = named {
            // Of several lines, they are told apart in the rows below.
            for (from, to) in &line.broken {
                canvas.fill(self.between(*from, *to), DROPPED);
            }
        }
        let pieces = |line: &Line| line.pieces(self.column, labels.turns);
        let values = named.iter().chain(nameless).flat_map(|line| pieces(line));
        let values: Vec<f64> = values.flatten().map(|span| span.value).collect();
        if values.is_empty() {
            canvas.label("not measured", area, 11);
            return;
        }
        let low = values.iter().copied().fold(0f64, f64::min);
        let high = values.iter().copied().fold(0f64, f64::max);
        let scale = Scale::new(low, high, area);
        for mark in scale.marks() {
            let y = scale.y(mark);
            canvas.line((area.x, y), (area.x + area.w, y), RGBColor(225, 225, 225));
            let number = round(mark);
            canvas.text(&number, (area.x - 6, y), 10, Anchor::Right, INK);
        }
        let changes: usize = named.iter().map(|line| line.changes.len()).sum();
        for line in named.iter().filter(|_| changes <= CHANGES) {
            for at in &line.changes {
                let x = self.x(*at);
                canvas.line((x, area.y), (x, area.y + area.h), GREY);
            }
        }
        for line in nameless.iter().rev() {
            self.line(canvas, &scale, line, labels.turns, FAINT, 1);
        }
        let mut ends: Vec<(i32, &Line, RGBColor)> = Vec::new();
        for (line, colour) in named.iter().zip(COLOURS).rev() {
            if let Some(y) = self.line(canvas, &scale, line, labels.turns, colour, 2) {
                ends.push((y, line, colour));
            }
        }
        ends.sort_by_key(|(y, line, _)| (*y, line.entity.clone()));
        let heights: Vec<i32> = ends.iter().map(|(y, ..)| *y).collect();
        for (y, (_, line, colour)) in apart(&heights, area).into_iter().zip(ends) {
            let name = cut(&printable(&(labels.name)(line)), NAMES - 10, 10);
            canvas.text(&name, (area.x + area.w + 8, y), 10, Anchor::Left, colour);
        }
    }

    fn x(&self, at: u64) -> i32 {
        let share = at.min(self.end) as f64 / self.end as f64;
        self.area.x + (f64::from(self.area.w) * share).round() as i32
    }

    /// A time over the whole height, at least a pixel wide.
    fn between(&self, from: u64, to: u64) -> Area {
        let x = self.x(from);
        let w = (self.x(to) - x).max(1);
        Area { x, w, ..self.area }
    }

    /// Draws a line; returns where it ends.
    fn line(
        &self,
        canvas: &mut Canvas,
        scale: &Scale,
        line: &Line,
        turns: usize,
        colour: RGBColor,
        wide: u32,
    ) -> Option<i32> {
        let mut last = None;
        for piece in line.pieces(self.column, turns) {
            let mut path: Vec<(i32, i32)> = Vec::new();
            for span in &piece {
                let (from, y) = (self.x(span.from), scale.y(span.value));
                let to = self.x(span.to).max(from + 1);
                let before = path.last().copied();
                if let Some(before) = before.filter(|(x, _)| from > x + 1) {
                    // Other sets had their turn: thin, as it was not measured.
                    canvas.path(vec![before, (from, y)], 1, pale(colour));
                    draw(canvas, &mut path, wide, colour);
                }
                path.extend([(from, y), (to, y)]);
                last = Some(y);
            }
            draw(canvas, &mut path, wide, colour);
        }
        last
    }
}

fn draw(canvas: &mut Canvas, path: &mut Vec<(i32, i32)>, wide: u32, colour: RGBColor) {
    let mut path = std::mem::take(path);
    path.dedup();
    canvas.path(path, wide, colour);
}

fn pale(RGBColor(r, g, b): RGBColor) -> RGBColor {
    between((r, g, b), (255, 255, 255), 0.5)
}

/// Values on a chart's height.
struct Scale {
    low: f64,
    high: f64,
    step: f64,
    area: Area,
}

impl Scale {
    /// From the value below the least to the one above the greatest that have marks.
    fn new(low: f64, high: f64, area: Area) -> Self {
        let range = match high - low {
            range if range > 0.0 && range.is_finite() => range,
            _ => 1.0,
        };
        // About four marks.
        let step = step(2.5 * range);
        let (low, high) = ((low / step).floor(), (high / step).ceil());
        let high = if high > low { high } else { low + 1.0 };
        Self {
            low: low * step,
            high: high * step,
            step,
            area,
        }
    }

    fn y(&self, value: f64) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        self.area.y + self.area.h - (f64::from(self.area.h) * share.clamp(0.0, 1.0)).round() as i32
    }

    fn marks(&self) -> Vec<f64> {
        let number = ((self.high - self.low) / self.step).round() as i64;
        let first = (self.low / self.step).round();
        let mark = |at: i64| (first + at as f64) * self.step;
        (0..=number).map(mark).collect()
    }
}

/// A mark's number, without the zeros at its end.
fn round(mark: f64) -> String {
    let text = short(mark);
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let prefix = &text[number.len()..];
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number}{prefix}")
}

/// Heights of labels that do not overlap, as near to the wanted ones as there is room; the wanted ones rise.
fn apart(wanted: &[i32], area: Area) -> Vec<i32> {
    const LINE: i32 = 13;
    let mut heights: Vec<i32> = Vec::with_capacity(wanted.len());
    for y in wanted {
        let least = heights.last().map_or(area.y, |last| last + LINE);
        heights.push((*y).max(least));
    }
    let mut most = area.y + area.h;
    for y in heights.iter_mut().rev() {
        *y = (*y).min(most);
        most = *y - LINE;
    }
    heights
}

/// A row for each line with phases: which phase when, and the dropped rounds. Returns where the time axis begins.
fn phases(
    canvas: &mut Canvas,
    named: &[&Line],
    labels: &Labels<'_>,
    top: i32,
    end: u64,
    notes: &mut Vec<String>,
) -> i32 {
    const ROW: i32 = 14;
    if named.iter().all(|line| line.changes.is_empty()) {
        return top - 14;
    }
    canvas.text("phases", (NUMBERS, top + 8), 11, Anchor::Left, INK);
    let mut y = top + 18;
    for (line, colour) in named.iter().zip(COLOURS) {
        let row = Area::new(NUMBERS, y, WIDTH, ROW - 2);
        let chart = Chart {
            area: row,
            end,
            column: 0,
        };
        let first = line.points.first().map_or(0, |point| point.from);
        let last = line.points.last().map_or(first, |point| point.to);
        canvas.fill(row, PALE);
        let begins = [first].into_iter().chain(line.changes.iter().copied());
        let ends = line.changes.iter().copied().chain([last]);
        for (phase, (from, to)) in begins.zip(ends).enumerate() {
            let area = chart.between(from, to);
            let light = [0.65, 0.85][phase % 2];
            let RGBColor(r, g, b) = colour;
            canvas.fill(area, between((r, g, b), (255, 255, 255), light));
            canvas.label(&(phase + 1).to_string(), area, 9);
        }
        for (from, to) in &line.broken {
            let area = chart.between(*from, *to);
            canvas.fill(area, DROPPED);
            canvas.hatch(area, true, INK);
        }
        let name = cut(&printable(&(labels.name)(line)), NAMES - 10, 10);
        let at = (NUMBERS + WIDTH + 8, y + ROW / 2 - 1);
        canvas.text(&name, at, 10, Anchor::Left, colour);
        y += ROW;
    }
    let changes: usize = named.iter().map(|line| line.changes.len()).sum();
    let lines = match changes <= CHANGES {
        true => "vertical lines: a new phase was detected; ",
        false => "",
    };
    notes.push(format!("{lines}hatched: a round that a new phase broke"));
    y + 6
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AREA: Area = Area {
        x: 0,
        y: 100,
        w: 10,
        h: HEIGHT,
    };

    #[test]
    fn scales_begin_at_zero_and_have_few_round_marks() {
        let scale = Scale::new(0.0, 1.93, AREA);
        assert_eq!(scale.marks(), [0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!((scale.y(0.0), scale.y(2.0)), (184, 100));
        assert_eq!(Scale::new(0.0, 0.0, AREA).marks().first(), Some(&0.0));
        assert_eq!(Scale::new(-3.0, 7.0, AREA).marks().first(), Some(&-5.0));
        assert_eq!(
            [0.0, 0.5, 2.5e6, 200.0, 12e3].map(round),
            ["0", "0.5", "2.5M", "200", "12k"]
        );
    }

    proptest! {
        #[test]
        fn labels_never_overlap(mut wanted in proptest::collection::vec(100..=100 + HEIGHT, 0..=NAMED)) {
            wanted.sort_unstable();
            let heights = apart(&wanted, AREA);
            prop_assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= 13), "{heights:?}");
            prop_assert!(heights.iter().all(|y| (100..=100 + HEIGHT).contains(y)), "{heights:?}");
        }

        #[test]
        fn all_values_are_on_the_chart(a in -1e12..1e12f64, b in -1e12..1e12f64) {
            let (low, high) = (a.min(b).min(0.0), a.max(b).max(0.0));
            let scale = Scale::new(low, high, AREA);
            prop_assert!(scale.low <= low && high <= scale.high);
            let marks = scale.marks().len();
            prop_assert!((2..=7).contains(&marks), "{marks}");
        }
    }
}
