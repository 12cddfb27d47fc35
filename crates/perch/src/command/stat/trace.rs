//! `--timeline FILE`: the series as counters of a trace that Perfetto opens.

use super::{
    drawn::{Column, columns, name, values},
    wanted::Wanted,
};
use crate::{args::StatArgs, timeline::is_picture};
use anyhow::{Context, Result, bail};
use perch_core::text::printable;
use perch_engine::timeline::{CounterTrace, Track};
use perch_stat::{Entity, Event, Row};
use serde_json::json;
use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io::BufWriter,
    path::PathBuf,
};

/// The process of the trace to which everything belongs that has none of its own: above all numbers that Linux gives to
/// processes (2^22).
const NO_PROCESS: u32 = 10_000_000;

/// The trace, written while perch counts.
pub struct Trace {
    trace: Option<CounterTrace<BufWriter<File>>>,
    path: PathBuf,
    columns: Vec<Column>,
    /// How many event sets are in rotation.
    turns: u64,
    /// Whether changes of phase are looked for.
    phases: bool,
    open: HashMap<Entity, Open>,
    processes: BTreeSet<u32>,
    /// Numbers of tracks for what has no number.
    numbers: u32,
}

/// A row's entity that is being measured.
struct Open {
    track: Track,
    name: String,
    /// When the present slice began, and until when something is known, in nanoseconds.
    from: u64,
    to: u64,
    phase: u64,
    /// How long nothing may be known of it, in nanoseconds, before that is a gap.
    patience: u64,
    /// Of each column, the last value and until when it was measured.
    last: Vec<Option<(f64, u64)>>,
}

impl Trace {
    /// Makes the file of `--timeline`, if there is one; `rows` says whether there will be any.
    ///
    /// # Errors
    /// A file that cannot be written, a picture, no rows.
    pub fn new(args: &StatArgs, wanted: &Wanted, rows: bool) -> Result<Option<Self>> {
        let Some(path) = &args.timeline else {
            return Ok(None);
        };
        if is_picture(path) {
            bail!(
                "--timeline {}: this is a trace for Perfetto; for a picture use --plot",
                path.display()
            );
        }
        super::needs_rows(rows, "--timeline")?;
        let cannot = || format!("--timeline: {}: cannot be written", path.display());
        let trace = CounterTrace::create(path).with_context(cannot)?;
        Ok(Some(Self {
            trace: Some(trace),
            path: path.clone(),
            columns: columns(wanted),
            turns: wanted.request.sets.len() as u64,
            phases: wanted.request.sets.len() > 1,
            open: HashMap::new(),
            processes: BTreeSet::new(),
            numbers: 0,
        }))
    }

    /// Writes an interval's rows.
    pub fn rows(&mut self, wanted: &Wanted, rows: &[Row]) {
        for row in rows {
            self.row(row, &values(wanted, row));
        }
        let now = rows.iter().map(|row| row.at).max().unwrap_or(0);
        let silent = |(_, open): &(&Entity, &Open)| open.to + open.patience < now;
        let silent = self.open.iter().filter(silent);
        let silent: Vec<Entity> = silent.map(|(entity, _)| entity.clone()).collect();
        silent.iter().for_each(|entity| self.close(entity));
        if let Some(trace) = &mut self.trace {
            trace.flush();
        }
    }

    fn row(&mut self, row: &Row, values: &[Option<f64>]) {
        let from = row.at.saturating_sub(row.interval);
        let gap = |open: &Open| from > open.to + open.patience;
        if self.open.get(&row.entity).is_some_and(gap) {
            self.close(&row.entity);
        }
        let mut open = match self.open.remove(&row.entity) {
            Some(open) => open,
            None => self.begin(row, from),
        };
        let Some(trace) = &mut self.trace else {
            return;
        };
        // As much as the turns of the other sets explain, and half an interval more.
        open.patience = (3 * self.turns.max(1) - 2) * row.interval / 2;
        if open.phase != row.phase {
            let until = from.max(open.from);
            if let Some(begin) = row.broken {
                let broken = (begin.max(open.from), until);
                trace.slice(open.track, "round dropped", broken, json!({}));
            }
            let phase = (open.from, until);
            trace.slice(open.track, &phase_name(open.phase), phase, json!({}));
            trace.instant(open.track, "new phase", until);
            (open.phase, open.from) = (row.phase, until);
        }
        open.to = row.at;
        let columns = self.columns.iter().zip(values).zip(&mut open.last);
        for ((column, value), last) in columns {
            let title = format!("{} {}", open.name, column.name);
            let value = value.filter(|value| value.is_finite());
            match (value, *last) {
                (Some(value), Some((known, _))) if value == known => *last = Some((value, row.at)),
                (Some(value), _) => {
                    trace.counter(open.track, &title, unit(column), from, value);
                    *last = Some((value, row.at));
                }
                (None, Some((_, until))) if row.at > until + open.patience + row.interval => {
                    trace.counter(open.track, &title, unit(column), until, 0.0);
                    *last = None;
                }
                (None, _) => {}
            }
        }
        self.open.insert(row.entity.clone(), open);
        if row.event == Event::Exit {
            self.close(&row.entity);
        }
    }

    /// Names a new track.
    fn begin(&mut self, row: &Row, from: u64) -> Open {
        let number = match row.entity.number() {
            Some(number) => u32::try_from(number).unwrap_or(0),
            None => {
                self.numbers += 1;
                self.numbers
            }
        };
        let process = row.pid.map_or(NO_PROCESS, i32::unsigned_abs);
        let track = Track {
            process,
            thread: number,
        };
        let name = printable(&name(&row.entity, &row.name)).into_owned();
        if let Some(trace) = &mut self.trace {
            if self.processes.insert(process) {
                match row.pid {
                    Some(pid) => trace.process(track, &format!("process {pid}")),
                    None => trace.process(track, "perch stat"),
                }
            }
            trace.thread(track, &name);
        }
        Open {
            track,
            name,
            from,
            to: from,
            phase: row.phase,
            patience: 0,
            last: vec![None; self.columns.len()],
        }
    }

    /// Nothing more is known of it: counters go to 0, so that they do not seem to go on.
    fn close(&mut self, entity: &Entity) {
        let (Some(open), Some(trace)) = (self.open.remove(entity), &mut self.trace) else {
            return;
        };
        let slice = match self.phases {
            true => phase_name(open.phase),
            false => "measured".to_owned(),
        };
        trace.slice(open.track, &slice, (open.from, open.to), json!({}));
        for (column, last) in self.columns.iter().zip(&open.last) {
            if last.is_some_and(|(value, _)| value != 0.0) {
                let title = format!("{} {}", open.name, column.name);
                trace.counter(open.track, &title, unit(column), open.to, 0.0);
            }
        }
    }

    /// Completes the file; a second time, nothing.
    ///
    /// # Errors
    /// What could not be written.
    pub fn finish(&mut self) -> Result<()> {
        let mut entities: Vec<Entity> = self.open.keys().cloned().collect();
        entities.sort();
        entities.iter().for_each(|entity| self.close(entity));
        let Some(trace) = self.trace.take() else {
            return Ok(());
        };
        let cannot = || format!("--timeline: {}: cannot be written", self.path.display());
        trace.finish().map(drop).with_context(cannot)
    }
}

fn phase_name(phase: u64) -> String {
    format!("phase {}", phase + 1)
}

fn unit(column: &Column) -> &str {
    match &*column.unit {
        "" => "value",
        unit => unit,
    }
}
