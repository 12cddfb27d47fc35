//! What a recorded program asks for: its stream is walked once, and counted.
//!
//! Lines that threads of a recording share are taken as each one's own: who wrote what for whom is not seen.

use super::{
    demand::{Demand, Lines, SAMPLE},
    owner::Owner,
    reuse::{Point, Reuse},
};
use crate::{
    model::Op,
    reuse_times::{Histogram, LastVisits},
    stream::{Instruction, RecordedStream},
    workload::Trace,
};

/// Operations that are walked at most.
const WALKED: usize = 4_000_000;

/// A sample consists of this many stretches.
const STRETCHES: usize = 8;

/// Visits of lines or pages.
#[derive(Default)]
struct Track {
    previous: Option<u64>,
    last: LastVisits,
    times: Histogram,
}

impl Track {
    /// Several in a row are one visit.
    fn visit(&mut self, what: u64) {
        if self.previous.replace(what) == Some(what) {
            return;
        }
        if let Some(after) = self.last.visit(what) {
            self.times.add(after);
        }
    }

    /// How soon it comes back, and how many lines there are, if the walk was one of `parts` like it.
    fn reuse(&self, parts: f64) -> (Reuse, f64) {
        let all = self.last.visits().max(1) as f64;
        let mut points: Vec<Point> = self
            .times
            .classes()
            .map(|class| Point {
                after: class.after,
                share: class.count as f64 / all,
            })
            .collect();
        // What was visited once comes again when the recording does.
        points.push(Point {
            after: all * parts,
            share: self.last.different().max(1) as f64 / all,
        });
        let reuse = Reuse::measured(points);
        let lines = reuse.distinct(f64::INFINITY);
        (reuse, lines.max(1.0))
    }
}

/// The demand of a recorded thread on a machine with lines of `line` bytes and pages of `page` bytes.
pub(super) fn demand(trace: &Trace, thread: usize, line: f64, page: f64) -> Option<Demand> {
    let trace = trace.with_thread(Some(thread));
    let mut stream = RecordedStream::new(&trace, 0, 0)?;
    let recorded = trace.recording().threads()[thread].instructions as usize;
    let walk = recorded.clamp(SAMPLE, WALKED);
    let (mut code, mut data, mut pages) = (Track::default(), Track::default(), Track::default());
    let mut ops = [0.0; Op::COUNT];
    let (mut mispredicted, mut sample) = (0.0, Vec::with_capacity(SAMPLE));
    let stretch = SAMPLE / STRETCHES;
    for number in 0..walk {
        let operation: Instruction = stream.next();
        ops[operation.op as usize] += 1.0 / walk as f64;
        mispredicted += f64::from(u8::from(operation.mispredicted)) / walk as f64;
        code.visit(operation.at / line as u64);
        if matches!(operation.op, Op::Load | Op::Store) {
            data.visit(operation.data / line as u64);
            pages.visit(operation.data / page as u64);
        }
        if number % (walk / STRETCHES) < stretch && sample.len() < SAMPLE {
            sample.push(operation);
        }
    }
    let parts = (recorded as f64 / walk as f64).max(1.0);
    let each = |track: &Track| track.last.visits() as f64 / walk as f64;
    let (code_reuse, code_lines) = code.reuse(parts);
    let (data_reuse, data_lines) = data.reuse(parts);
    let (page_reuse, all_pages) = pages.reuse(parts);
    let accesses = ops[Op::Load as usize] + ops[Op::Store as usize];
    let written = ops[Op::Store as usize] / accesses.max(f64::MIN_POSITIVE);
    let of_code = Lines {
        owner: Owner::Thread,
        code: true,
        visits: each(&code),
        written: 0.0,
        accesses: 1.0,
        lines: code_lines,
        start: 0.0,
        first_page: 0.0,
        reuse: code_reuse,
        step: None,
        skips: 1.0,
        pages: 1.0,
        page_visits: 0.0,
        page_reuse: Reuse::cyclic(1.0),
    };
    let of_data = Lines {
        owner: Owner::Thread,
        code: false,
        visits: each(&data),
        written,
        accesses: accesses / each(&data).max(f64::MIN_POSITIVE),
        lines: data_lines,
        start: code_lines,
        first_page: 0.0,
        reuse: data_reuse,
        step: None,
        skips: 1.0,
        pages: all_pages,
        page_visits: each(&pages),
        page_reuse,
    };
    Some(Demand {
        ops,
        mispredicted,
        lines: vec![of_code, of_data],
        sample: sample.into(),
    })
}
