//! Which thread was on which PU when: a row a PU, time to the right; several runs below each other.

use super::{Anchor, Area, Canvas, GREY, INK, PALE, Palette, cut, kind};
use perch_core::{Topology, text::printable, topology::PuState};
use perch_engine::report::Placements;
use perch_sim::timeline::Stay;
use std::collections::{BTreeMap, HashMap};

/// A thread on a PU for some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// The PU.
    pub pu: u32,
    /// What is written on it: the thread's name.
    pub name: String,
    /// What has one colour.
    pub kind: String,
    /// When it came, in nanoseconds.
    pub from: u64,
    /// When it left.
    pub to: u64,
    /// Its share of the PU's time meanwhile, 0 to 1.
    pub share: f64,
}

/// One run.
pub struct Run<'a> {
    /// Above its timeline.
    pub title: String,
    /// Its machine.
    pub topology: &'a Topology,
    /// By PU and time; no two of a PU overlap.
    pub segments: Vec<Segment>,
    /// How long it took, in nanoseconds.
    pub end: u64,
}

/// Pixels of the time axis, a multiple of [`BINS`].
const WIDTH: i32 = 720;
/// The time is cut into so many parts at most, and of each the busiest thread is shown.
const BINS: usize = 240;
/// Pixels of the rows' names.
const NAMES: i32 = 120;
/// More PUs than these are too many for a picture: the rest is left out, and that is said.
const ROWS: usize = 1024;

/// Shares are drawn in this many steps.
const STEPS: f64 = 8.0;

/// Draws the runs, on one time scale.
pub fn timeline(canvas: &mut Canvas, runs: &[Run<'_>]) {
    let all = || runs.iter().flat_map(|run| &run.segments);
    let mut weights: BTreeMap<String, u64> = BTreeMap::new();
    for segment in all() {
        *weights.entry(segment.kind.clone()).or_default() += segment.to - segment.from;
    }
    let palette = Palette::new(&weights);
    let end = runs.iter().map(|run| run.end).max().unwrap_or(0).max(1);
    for run in runs {
        let top = canvas.bottom() + if canvas.bottom() > 0 { 18 } else { 0 };
        draw(canvas, run, end, top, &palette);
    }
    let others = all().any(|segment| !palette.has(&segment.kind));
    palette.legend(canvas, (NAMES, canvas.bottom() + 14), others);
}

fn draw(canvas: &mut Canvas, run: &Run<'_>, end: u64, top: i32, palette: &Palette) {
    let topology = run.topology;
    let seen = |pu: u32| run.segments.iter().any(|segment| segment.pu == pu);
    let pus: Vec<u32> = topology
        .cores
        .iter()
        .flat_map(|core| core.pus.iter())
        .filter(|pu| {
            let state = topology.pu(*pu).map(|pu| pu.state);
            state == Some(PuState::Usable) || seen(*pu)
        })
        .collect();
    let row = match pus.len() {
        0..=32 => 16,
        33..=128 => 11,
        _ => 5,
    };
    // A command line may be of any length.
    let title = cut(&printable(&run.title), NAMES + WIDTH, 13);
    canvas.text(&title, (0, top + 8), 13, Anchor::Left, INK);
    let mut y = top + 22;
    let mut core = None;
    let by_pu = by_pu(&run.segments);
    for pu in pus.iter().take(ROWS) {
        let of = topology.pu(*pu).map(|pu| pu.core);
        if core != of {
            // A gap between cores shows which rows are siblings.
            y += if core.is_some() { (row / 3).min(3) } else { 0 };
            if let Some(number) = of.filter(|_| row > 8) {
                let label = topology.core_label(number);
                canvas.text(&label, (0, y + row / 2), 10, Anchor::Left, GREY);
            }
            core = of;
        }
        if row > 8 {
            let label = format!("PU {pu}");
            canvas.text(&label, (NAMES - 6, y + row / 2), 10, Anchor::Right, INK);
        }
        let bar = Area::new(NAMES, y, WIDTH, row - 1);
        canvas.fill(bar, PALE);
        for piece in pieces(by_pu.get(pu).map_or(&[], Vec::as_slice), end) {
            let pixels = |bin: usize| bin as i32 * (WIDTH / BINS as i32);
            let high = (f64::from(bar.h) * piece.segment.share).round() as i32;
            let high = high.clamp(2.min(bar.h), bar.h);
            let area = Area {
                x: NAMES + pixels(piece.from),
                y: bar.y + bar.h - high,
                w: pixels(piece.to - piece.from),
                h: high,
            };
            canvas.fill(area, palette.of(&piece.segment.kind));
            if piece.from > 0 {
                // Threads of one colour are told apart.
                canvas.line((area.x, area.y), (area.x, area.y + area.h), PALE);
            }
            if row > 8 && area.w > 24 && area.h > 9 {
                canvas.label(&piece.segment.name, area, 9);
            }
        }
        y += row;
    }
    if pus.len() > ROWS {
        let more = format!("and {} PUs more", pus.len() - ROWS);
        canvas.text(&more, (NAMES, y + 8), 10, Anchor::Left, INK);
        y += 14;
    }
    axis(canvas, (NAMES, y + 2), WIDTH, end);
    if run.segments.iter().any(|segment| segment.share < 1.0) {
        let note = "height: the share of the PU's time that the busiest thread there had";
        canvas.text(note, (NAMES, canvas.bottom() + 8), 10, Anchor::Left, GREY);
    }
}

fn by_pu(segments: &[Segment]) -> HashMap<u32, Vec<&Segment>> {
    let mut by_pu: HashMap<u32, Vec<&Segment>> = HashMap::new();
    for segment in segments {
        by_pu.entry(segment.pu).or_default().push(segment);
    }
    by_pu
}

/// The seconds below a timeline that begins at a point and is so many pixels wide; `end` in nanoseconds.
pub fn axis(canvas: &mut Canvas, (left, y): (i32, i32), wide: i32, end: u64) {
    let seconds = end as f64 / 1e9;
    let step = step(seconds);
    canvas.line((left, y), (left + wide, y), GREY);
    let marks = (seconds / step + 1e-9) as usize;
    for mark in 0..=marks {
        let time = mark as f64 * step;
        let x = left + (f64::from(wide) * time / seconds).round() as i32;
        canvas.line((x, y), (x, y + 4), GREY);
        let text = format!("{} s", (time * 1e6).round() / 1e6);
        canvas.text(&text, (x, y + 12), 10, Anchor::Middle, INK);
    }
}

/// 1, 2 or 5 by a power of ten, so that there are five to ten marks.
pub fn step(seconds: f64) -> f64 {
    let power = 10f64.powf((seconds / 10.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let few = |step: &f64| seconds / *step <= 10.0;
    steps.into_iter().find(few).unwrap_or(10.0 * power)
}

/// Bins in a row in which the same thread used a PU most.
struct Piece<'a> {
    segment: &'a Segment,
    from: usize,
    to: usize,
}

/// The segments of one PU in bins: of each bin the thread that used it most.
fn pieces<'a>(segments: &[&'a Segment], end: u64) -> Vec<Piece<'a>> {
    let edge = |bin: usize| (u128::from(end) * bin as u128 / BINS as u128) as u64;
    let mut pieces: Vec<Piece<'a>> = Vec::new();
    let mut next = 0;
    for bin in 0..BINS {
        let (from, to) = (edge(bin), edge(bin + 1));
        while next < segments.len() && segments[next].to <= from {
            next += 1;
        }
        let mut times: Vec<(&Segment, u64)> = Vec::new();
        let in_bin = segments[next..].iter().copied();
        for segment in in_bin.take_while(|segment| segment.from < to) {
            let time = segment.to.min(to).saturating_sub(segment.from.max(from));
            match times
                .iter_mut()
                .find(|(known, _)| known.name == segment.name)
            {
                Some((_, sum)) => *sum += time,
                None => times.push((segment, time)),
            }
        }
        times.retain(|(_, time)| *time > 0);
        let Some((most, _)) = times.into_iter().max_by_key(|(_, time)| *time) else {
            continue;
        };
        match pieces.last_mut() {
            Some(last)
                if last.to == bin
                    && last.segment.name == most.name
                    && last.segment.share == most.share =>
            {
                last.to = bin + 1;
            }
            _ => pieces.push(Piece {
                segment: most,
                from: bin,
                to: bin + 1,
            }),
        }
    }
    pieces
}

/// The segments of a simulation. A thread of a program of one kind of threads is called by its program.
pub fn of_stays(stays: &[Stay]) -> Vec<Segment> {
    let names = Names::new(stays);
    let segment = |stay: &Stay| {
        let (name, kind) = names.of(stay);
        Segment {
            pu: stay.pu,
            name,
            kind,
            from: stay.from,
            to: stay.to,
            share: 1.0,
        }
    };
    stays.iter().map(segment).collect()
}

/// What threads of a simulation are called: names that are the same for all programs say nothing.
pub struct Names {
    /// By program: kinds of threads.
    kinds: BTreeMap<String, std::collections::BTreeSet<String>>,
    /// Numbers of threads that have the same program and name.
    numbers: HashMap<i32, usize>,
}

impl Names {
    /// For all threads that are somewhere.
    pub fn new(stays: &[Stay]) -> Self {
        let mut kinds: BTreeMap<String, std::collections::BTreeSet<String>> = BTreeMap::new();
        let mut same: BTreeMap<(&str, &str), Vec<i32>> = BTreeMap::new();
        for stay in stays {
            let of = kinds.entry(stay.program.clone()).or_default();
            of.insert(kind(&stay.name).to_owned());
            let same = same.entry((&stay.program, &stay.name)).or_default();
            if !same.contains(&stay.tid) {
                same.push(stay.tid);
            }
        }
        let mut numbers = HashMap::new();
        for mut tids in same.into_values().filter(|tids| tids.len() > 1) {
            tids.sort_unstable();
            numbers.extend(tids.into_iter().zip(1..));
        }
        Self { kinds, numbers }
    }

    /// The name of the thread, and its kind.
    pub fn of(&self, stay: &Stay) -> (String, String) {
        let one = self.kinds.get(&stay.program).is_none_or(|of| of.len() == 1);
        let several = self.kinds.len() > 1;
        let (name, kind) = match (one, several) {
            (true, true) => {
                let number = stay.name.strip_prefix(kind(&stay.name)).unwrap_or("");
                (stay.program.clone() + number, stay.program.clone())
            }
            (false, true) => (
                stay.name.clone(),
                format!("{} {}", stay.program, kind(&stay.name)),
            ),
            (_, false) => (stay.name.clone(), kind(&stay.name).to_owned()),
        };
        let name = match self.numbers.get(&stay.tid) {
            Some(number) => format!("{name} {number}"),
            None => name,
        };
        (name, kind)
    }
}

/// The segments of a report's timeline.
pub fn of_placements(placements: &Placements) -> Vec<Segment> {
    let begins: Vec<u64> = [0]
        .into_iter()
        .chain(placements.columns.iter().copied())
        .collect();
    let mut segments: Vec<Segment> = Vec::new();
    for row in &placements.rows {
        for (at, cell) in row.cells.iter().enumerate() {
            let Some(cell) = cell else {
                continue;
            };
            let segment = Segment {
                pu: row.pu,
                name: format!("{} {}", cell.name, cell.thread),
                kind: kind(&cell.name).to_owned(),
                from: begins[at],
                to: placements.columns[at],
                share: (cell.share * STEPS).ceil() / STEPS,
            };
            match segments.last_mut() {
                Some(last)
                    if last.pu == segment.pu
                        && last.name == segment.name
                        && last.share == segment.share
                        && last.to == segment.from =>
                {
                    last.to = segment.to;
                }
                _ => segments.push(segment),
            }
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(name: &str, from: u64, to: u64) -> Segment {
        Segment {
            pu: 0,
            name: name.to_owned(),
            kind: name.to_owned(),
            from,
            to,
            share: 1.0,
        }
    }

    #[test]
    fn a_thread_that_hardly_ran_is_drawn_low() {
        let topology =
            perch_sim::topology::topology(&perch_sim::config::find_machine("cmt-b").unwrap());
        let high = |share: f64| {
            let segments = vec![Segment {
                share,
                ..segment("a", 0, 100)
            }];
            let run = Run {
                title: String::new(),
                topology: &topology,
                segments,
                end: 100,
            };
            let mut canvas = Canvas::default();
            timeline(&mut canvas, &[run]);
            canvas.svg()
        };
        let (low, full) = (high(0.125), high(1.0));
        assert!(low.contains("height: the share") && !full.contains("height: the share"));
        assert!(low.contains("v2h-") && !full.contains("v2h-"), "{low}");
    }

    #[test]
    fn of_each_bin_the_busiest_is_shown() {
        // Bins of 100; time slices much shorter than one, and a gap.
        let mut segments: Vec<Segment> = (0..1000)
            .flat_map(|at| {
                let at = at * 10;
                [segment("a", at, at + 4), segment("b", at + 4, at + 10)]
            })
            .collect();
        segments.push(segment("c", 12_000, 24_000));
        let all: Vec<&Segment> = segments.iter().collect();
        let pieces = pieces(&all, 24_000);
        let told: Vec<_> = pieces
            .iter()
            .map(|piece| (piece.segment.name.as_str(), piece.from, piece.to))
            .collect();
        assert_eq!(told, [("b", 0, 100), ("c", 120, 240)]);
    }

    #[test]
    fn marks_are_few_and_round() {
        for (seconds, wanted) in [
            (10.0, 1.0),
            (12.0, 2.0),
            (4.0, 0.5),
            (0.1, 0.01),
            (3600.0, 500.0),
        ] {
            assert!(
                (step(seconds) / wanted - 1.0).abs() < 1e-9,
                "{seconds}: {}",
                step(seconds)
            );
        }
    }

    #[test]
    fn threads_are_called_by_what_distinguishes_them() {
        let stay = |tid: i32, program: &str, name: &str| Stay {
            pu: 0,
            tid,
            name: name.to_owned(),
            program: program.to_owned(),
            from: 0,
            to: 1,
        };
        let called = |stays: &[Stay]| -> Vec<(String, String)> {
            let names = Names::new(stays);
            stays.iter().map(|stay| names.of(stay)).collect()
        };
        let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
            pairs.iter().map(own).collect()
        };
        let copies = [
            stay(4, "fp", "main"),
            stay(3, "fp", "main"),
            stay(5, "int", "main"),
        ];
        let wanted = own(&[("fp 2", "fp"), ("fp 1", "fp"), ("int", "int")]);
        assert_eq!(called(&copies), wanted);
        let one = [stay(1, "p", "a-1"), stay(2, "p", "b")];
        assert_eq!(called(&one), own(&[("a-1", "a"), ("b", "b")]));
        let both = [stay(1, "p", "a-1"), stay(2, "p", "b"), stay(3, "q", "w-2")];
        let wanted = own(&[("a-1", "p a"), ("b", "p b"), ("q-2", "q")]);
        assert_eq!(called(&both), wanted);
    }
}
