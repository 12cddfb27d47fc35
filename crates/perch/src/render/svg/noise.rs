//! Noise as a picture: for each PU when it was interrupted for how long, and how many interruptions there were of which
//! length. Both lengths are logarithmic.

use super::{Anchor, Area, Canvas, GREY, INK, OTHERS, PALE, Palette};
use crate::{command::noise::Report, render::noise::time};
use perch_linux::noise::{Noise, PuNoise, statistics::Bin};
use std::collections::BTreeMap;

/// Pixels of a timeline, of a histogram and of what is between and before.
const WIDE: i32 = 640;
const SIDE: i32 = 190;
const HIGH: i32 = 120;
const LEFT: i32 = 64;
const GAP: i32 = 24;
const ROW: i32 = HIGH + 46;
/// Letters of axes.
const SMALL: u32 = 10;
/// Lengths from 100 ns on are drawn.
const LEAST: f64 = 100.0;
/// So many PUs are drawn: the ones that lost most.
const PUS: usize = 32;

/// Draws all PUs, or those that lost most.
pub fn draw(canvas: &mut Canvas, noise: &Noise, report: &Report) {
    let mut weights = BTreeMap::new();
    for taker in &report.sources {
        let weight = (taker.share * 1e9) as u64;
        *weights.entry(taker.source.name.clone()).or_insert(0) += weight;
    }
    let palette = Palette::new(&weights);
    let mut order: Vec<usize> = (0..report.pus.len()).collect();
    order.sort_by(|a, b| report.pus[*b].lost.total_cmp(&report.pus[*a].lost));
    order.truncate(PUS);
    order.sort_unstable();
    let title = match order.len() < report.pus.len() {
        true => format!("Interruptions of the {PUS} PUs that lost most"),
        false => "Interruptions of each PU".to_owned(),
    };
    canvas.text(&title, (0, 8), 14, Anchor::Left, INK);
    palette.legend(canvas, (LEFT, 24), true);
    let worst = report.pus.iter().map(|pu| pu.lengths.worst).max();
    let most = worst.unwrap_or(0).max(1_000_000) as f64;
    let end = report.pus.iter().map(|pu| pu.end - pu.start).max();
    let end = end.unwrap_or(0).max(1);
    let counts = report.pus.iter().flat_map(|pu| &pu.histogram);
    let often = counts.map(|bin| bin.count).max().unwrap_or(1);
    for (row, at) in order.into_iter().enumerate() {
        let top = 50 + row as i32 * ROW;
        let name = format!("PU {}", report.pus[at].pu);
        canvas.text(&name, (0, top + HIGH / 2), 12, Anchor::Left, INK);
        let area = Area::new(LEFT + 30, top, WIDE, HIGH);
        timeline(canvas, area, &noise.pus[at], &palette, (end, most));
        let area = Area::new(LEFT + 30 + WIDE + GAP, top, SIDE, HIGH);
        histogram(canvas, area, &report.pus[at].histogram, (often, most));
    }
}

/// How far up a length is, 0 to 1.
fn height(length: f64, most: f64) -> f64 {
    ((length / LEAST).max(1.0).ln() / (most / LEAST).ln()).min(1.0)
}

/// Powers of ten from the least length to the greatest.
fn marks(most: f64) -> impl Iterator<Item = f64> {
    let marks = std::iter::successors(Some(LEAST * 10.0), |mark| Some(mark * 10.0));
    marks.take_while(move |mark| *mark <= most)
}

fn timeline(
    canvas: &mut Canvas,
    area: Area,
    of: &PuNoise,
    palette: &Palette,
    (end, most): (u64, f64),
) {
    canvas.fill(area, PALE);
    let y = |length: f64| area.y + area.h - (height(length, most) * f64::from(area.h)) as i32;
    for mark in marks(most) {
        let at = y(mark);
        canvas.line((area.x, at), (area.x + area.w, at), OTHERS);
        canvas.text(&time(mark), (area.x - 4, at), SMALL, Anchor::Right, GREY);
    }
    let start = of.measured.windows.first().map_or(0, |window| window.0);
    // Of those that fall on one column and are of one source, only the longest is seen: columns bound the picture.
    let mut longest = BTreeMap::<(i32, Option<u32>), u64>::new();
    for (at, found) in of.measured.interruptions.iter().enumerate() {
        let x = ((found.start - start) as f64 / end as f64 * f64::from(area.w - 1)) as i32;
        let source = of.causes.get(at).and_then(|cause| cause.source);
        let length = longest.entry((x, source)).or_default();
        *length = (*length).max(found.lost);
    }
    let mut bars: Vec<((i32, Option<u32>), u64)> = longest.into_iter().collect();
    // The shorter ones stand before the longer ones.
    bars.sort_by_key(|(place, lost)| (std::cmp::Reverse(*lost), *place));
    for ((x, source), lost) in bars {
        let source = source.and_then(|source| of.sources.get(source as usize));
        let colour = source.map_or(OTHERS, |share| palette.of(&share.source.name));
        let top = y(lost as f64);
        canvas.fill(Area::new(area.x + x, top, 1, area.y + area.h - top), colour);
    }
    canvas.frame(area, GREY);
    let below = area.y + area.h + 10;
    for part in 0..=4 {
        let x = area.x + area.w * part / 4;
        let moment = time(end as f64 * f64::from(part) / 4.0);
        let moment = if part == 0 { "0".to_owned() } else { moment };
        canvas.text(&moment, (x, below), SMALL, Anchor::Middle, GREY);
    }
}

fn histogram(canvas: &mut Canvas, area: Area, bins: &[Bin], (often, most): (u64, f64)) {
    canvas.fill(area, PALE);
    let scale = (1.0 + often as f64).ln();
    let x = |length: f64| area.x + (height(length, most) * f64::from(area.w)) as i32;
    for bin in bins.iter().filter(|bin| bin.count > 0) {
        let (from, to) = (x(bin.from as f64), x(bin.to as f64));
        let high = ((1.0 + bin.count as f64).ln() / scale * f64::from(area.h - 14)) as i32;
        let top = area.y + area.h - high;
        canvas.fill(
            Area::new(from, top, (to - from - 1).max(1), high),
            super::COLOURS[1],
        );
        let middle = ((from + to) / 2, top - 6);
        canvas.text(&bin.count.to_string(), middle, 8, Anchor::Middle, GREY);
    }
    canvas.frame(area, GREY);
    for mark in marks(most) {
        let at = (x(mark), area.y + area.h + 10);
        canvas.text(&time(mark), at, 8, Anchor::Middle, GREY);
    }
}
