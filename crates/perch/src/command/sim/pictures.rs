//! Pictures of simulated runs.

use crate::render::svg::{
    Anchor, Canvas, INK, OTHERS, Palette, machine,
    timeline::{Run, Segment, of_stays, timeline},
};
use perch_core::UnitDomains;
use perch_engine::Processor;
use perch_lab::SimProcessor;
use perch_sim::{model::MachineModel, timeline::Stay, topology::topology};
use std::collections::BTreeMap;

/// A run that is drawn.
pub struct Drawn<'a> {
    /// Above it.
    pub title: String,
    /// Who was where, by PU and time.
    pub stays: &'a [Stay],
}

/// Machines side by side are no wider than this together, in pixels.
const WIDTH: i32 = 1200;
/// Pixels of a PU with a thread's name.
const PU: i32 = 62;
/// From the left to what is drawn beside it, and from the top to what is below.
const GAP: i32 = 24;

/// The timelines of all runs, below each other.
pub fn timelines(model: &MachineModel, runs: &[Drawn<'_>]) -> String {
    let topology = topology(model);
    let runs: Vec<Run<'_>> = runs
        .iter()
        .map(|run| Run {
            title: run.title.clone(),
            topology: &topology,
            segments: of_stays(run.stays),
            end: end(run.stays),
        })
        .collect();
    let mut canvas = Canvas::default();
    timeline(&mut canvas, &runs);
    canvas.svg()
}

/// For each run the machine with who used each PU most in the last quarter.
pub fn placements(model: &MachineModel, runs: &[Drawn<'_>]) -> String {
    let topology = topology(model);
    let units: UnitDomains = SimProcessor::new(model).unit_domains(&topology);
    let mut weights: BTreeMap<String, u64> = BTreeMap::new();
    let last: Vec<BTreeMap<u32, Segment>> = runs
        .iter()
        .map(|run| {
            let segments = of_stays(run.stays);
            for segment in &segments {
                *weights.entry(segment.kind.clone()).or_default() += segment.to - segment.from;
            }
            last_quarter(segments, end(run.stays))
        })
        .collect();
    let palette = Palette::new(&weights);
    let mut canvas = Canvas::default();
    let (mut x, mut y, mut below) = (0, 0, 0);
    for (run, on) in runs.iter().zip(&last) {
        let mark = |pu: u32| {
            let segment = on.get(&pu)?;
            Some(machine::PuMark {
                colour: palette.of(&segment.kind),
                label: segment.name.clone(),
            })
        };
        let marks = machine::Marks {
            width: PU,
            labels: true,
            of: &mark,
        };
        canvas.text(&run.title, (x + 5, y + 8), 13, Anchor::Left, INK);
        let area = machine::machine(&mut canvas, (x, y + 18), &topology, &units, &marks);
        below = below.max(area.y + area.h);
        x += area.w + GAP;
        if x + area.w > WIDTH {
            (x, y) = (0, below + GAP);
        }
    }
    let names = || last.iter().flat_map(BTreeMap::values);
    let others = names().any(|segment| palette.of(&segment.kind) == OTHERS);
    palette.legend(&mut canvas, (5, below + 12), others);
    machine::legend(&mut canvas, (5, below + 32), &topology, &units, false);
    canvas.svg()
}

/// When the last thread left its PU.
fn end(stays: &[Stay]) -> u64 {
    stays.iter().map(|stay| stay.to).max().unwrap_or(0)
}

/// Who used each PU most in the last quarter of the time.
fn last_quarter(segments: Vec<Segment>, end: u64) -> BTreeMap<u32, Segment> {
    let from = end - end / 4;
    let mut times: BTreeMap<u32, BTreeMap<String, (u64, Segment)>> = BTreeMap::new();
    for segment in segments.into_iter().filter(|segment| segment.to > from) {
        let time = segment.to - segment.from.max(from);
        let of_pu = times.entry(segment.pu).or_default();
        let entry = of_pu.entry(segment.name.clone());
        entry.or_insert((0, segment)).0 += time;
    }
    let most = times.into_iter().filter_map(|(pu, of_pu)| {
        let (_, segment) = of_pu.into_values().max_by_key(|(time, _)| *time)?;
        Some((pu, segment))
    });
    most.collect()
}
