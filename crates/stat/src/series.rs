//! Rows as lines over time, in bounded memory: for pictures.

use crate::{Entity, Row};
use std::{collections::BTreeMap, sync::Arc};

/// Points that are kept of all lines together; beyond them, neighbours are merged.
const MOST_POINTS: usize = 400_000;
/// Lines that are kept; of further ones, only their CPU time.
const MOST_LINES: usize = 20_000;

/// A value with the time for which it is known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Mean {
    /// Value times nanoseconds.
    sum: f64,
    /// Nanoseconds.
    time: f64,
}

/// What is known of some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// When it begins, in nanoseconds.
    pub from: u64,
    /// When it ends.
    pub to: u64,
    values: Vec<Mean>,
}

impl Point {
    /// The value of a column: where points were merged, the mean over the time for which it is known.
    pub fn value(&self, column: usize) -> Option<f64> {
        let mean = self.values.get(column)?;
        (mean.time > 0.0).then(|| mean.sum / mean.time)
    }

    fn add(&mut self, later: &Self) {
        self.to = self.to.max(later.to);
        for (mean, more) in self.values.iter_mut().zip(&later.values) {
            mean.sum += more.sum;
            mean.time += more.time;
        }
    }
}

/// One entity over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What it is about.
    pub entity: Entity,
    /// Its last name.
    pub name: Arc<str>,
    /// By time.
    pub points: Vec<Point>,
    /// When new phases began, in nanoseconds.
    pub changes: Vec<u64>,
    /// Rounds that a new phase broke: from when to when, in nanoseconds.
    pub broken: Vec<(u64, u64)>,
    /// All its CPU time, in nanoseconds.
    pub cpu_time: u64,
    phase: u64,
}

/// A value over a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// When it begins, in nanoseconds.
    pub from: u64,
    /// When it ends.
    pub to: u64,
    /// The value meanwhile.
    pub value: f64,
}

impl Line {
    /// The column's values, cut where nothing was measured, and where this column was not for longer than the event sets'
    /// rotation explains: `turns` is the number of sets. Within a piece, spans are by time; between two of them is the turn
    /// of other sets, or nothing.
    pub fn pieces(&self, column: usize, turns: usize) -> Vec<Vec<Span>> {
        let mut pieces: Vec<Vec<Span>> = Vec::new();
        let mut before: Option<&Point> = None;
        let mut cut = false;
        for point in &self.points {
            let late = |before: &Point| {
                let longest = (before.to - before.from).max(point.to - point.from);
                point.from as f64 > before.to as f64 + 0.5 * longest as f64
            };
            cut |= before.is_some_and(late);
            before = Some(point);
            let Some(value) = point.value(column) else {
                continue;
            };
            let span = Span {
                from: point.from,
                to: point.to,
                value,
            };
            let near = |last: &Span| {
                let longest = (last.to - last.from).max(span.to - span.from) as f64;
                let others = 1.5 * turns.saturating_sub(1) as f64 + 0.5;
                span.from as f64 <= last.to as f64 + others * longest
            };
            let goes_on = !std::mem::take(&mut cut);
            match pieces.last_mut() {
                Some(piece) if goes_on && piece.last().is_some_and(near) => piece.push(span),
                _ => pieces.push(vec![span]),
            }
        }
        pieces
    }

    /// Merges the points of each bin of this length (nanoseconds).
    fn merge(&mut self, bin: u64) {
        self.points.dedup_by(|later, kept| {
            let same = later.from / bin == kept.from / bin;
            if same {
                kept.add(later);
            }
            same
        });
        self.changes.dedup_by_key(|at| *at / bin);
        self.broken.dedup_by(|later, kept| {
            let same = later.0 / bin == kept.0 / bin;
            if same {
                kept.1 = kept.1.max(later.1);
            }
            same
        });
    }
}

/// All entities over time.
#[derive(Debug, Clone, Default)]
pub struct Series {
    lines: BTreeMap<Entity, Line>,
    points: usize,
    /// The length of bins, in nanoseconds, once points had to be merged.
    bin: u64,
    /// The shortest interval of a row.
    shortest: u64,
    /// CPU time of the entities for which there was no room, in nanoseconds.
    left_out: u64,
    /// The last row's end.
    end: u64,
}

impl Series {
    /// Adds a row, with the value of each column. The rows of an entity come by rising time.
    pub fn add(&mut self, row: &Row, values: &[Option<f64>]) {
        self.end = self.end.max(row.at);
        if self.lines.len() >= MOST_LINES && !self.lines.contains_key(&row.entity) {
            self.left_out += row.amounts.cpu_time;
            return;
        }
        let line = self
            .lines
            .entry(row.entity.clone())
            .or_insert_with(|| Line {
                entity: row.entity.clone(),
                name: Arc::clone(&row.name),
                points: Vec::new(),
                changes: Vec::new(),
                broken: Vec::new(),
                cpu_time: 0,
                phase: row.phase,
            });
        if line.name != row.name {
            line.name = Arc::clone(&row.name);
        }
        line.cpu_time = line.cpu_time.saturating_add(row.amounts.cpu_time);
        let from = row.at.saturating_sub(row.interval);
        // The row that has the mark may have been dropped with its round.
        if line.phase != row.phase {
            line.phase = row.phase;
            line.changes.push(from);
            line.broken.extend(row.broken.map(|begin| (begin, from)));
        }
        let time = row.interval.max(1) as f64;
        let mean = |value: &Option<f64>| match value.filter(|value| value.is_finite()) {
            Some(value) => Mean {
                sum: value * time,
                time,
            },
            None => Mean::default(),
        };
        let point = Point {
            from,
            to: row.at,
            values: values.iter().map(mean).collect(),
        };
        self.shortest = match self.shortest {
            0 => row.interval,
            shortest => shortest.min(row.interval),
        };
        match line.points.last_mut() {
            Some(last) if self.bin > 0 && last.from / self.bin == from / self.bin => {
                last.add(&point)
            }
            _ => {
                line.points.push(point);
                self.points += 1;
            }
        }
        while self.points > MOST_POINTS && self.bin < u64::MAX / 4 {
            self.merge_to(2 * self.bin.max(self.shortest).max(1));
        }
    }

    /// Merges points, so that there are at most so many from the beginning to the end of a line.
    pub fn thin(&mut self, points: u64) {
        let bin = self.end.div_ceil(points.max(1)).max(1);
        if bin > self.bin.max(self.shortest) {
            self.merge_to(bin);
        }
    }

    fn merge_to(&mut self, bin: u64) {
        self.bin = bin;
        self.points = 0;
        for line in self.lines.values_mut() {
            line.merge(bin);
            self.points += line.points.len();
        }
    }

    /// The lines, those with the most CPU time first.
    pub fn by_cpu_time(&self) -> Vec<&Line> {
        let mut lines: Vec<&Line> = self.lines.values().collect();
        lines.sort_by_key(|line| (std::cmp::Reverse(line.cpu_time), line.entity.clone()));
        lines
    }

    /// Over how many nanoseconds points are means, if they had to be merged.
    pub fn merged(&self) -> Option<u64> {
        (self.bin > 0).then_some(self.bin)
    }

    /// CPU time, in nanoseconds, of entities for which there was no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Nanoseconds from the beginning to the last row's end.
    pub fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Amounts, Event};
    use proptest::prelude::*;

    fn row(at: u64, interval: u64, phase: u64) -> Row {
        let mut amounts = Amounts::default();
        amounts.cpu_time = interval;
        Row {
            at,
            interval,
            entity: Entity::All,
            name: "".into(),
            pid: None,
            event: Event::Tick,
            set: Some(0),
            round: 0,
            phase,
            new_phase: false,
            broken: (phase > 0).then(|| at.saturating_sub(2 * interval)),
            amounts,
            readings: Default::default(),
            metrics: Default::default(),
        }
    }

    #[test]
    fn a_gap_cuts_a_line_and_the_turn_of_another_set_does_not() {
        let mut series = Series::default();
        for (at, value) in [
            (10, Some(1.0)),
            (20, None),
            (30, Some(3.0)),
            (90, Some(4.0)),
        ] {
            series.add(&row(at, 10, 0), &[value]);
        }
        let lines = series.by_cpu_time();
        let lengths = |turns: usize| -> Vec<usize> {
            let pieces = lines[0].pieces(0, turns);
            pieces.iter().map(Vec::len).collect()
        };
        assert_eq!(lengths(1), [1, 1, 1]);
        assert_eq!(lengths(2), [2, 1]);
        // Where there is no row at all, no other set had its turn.
        series.add(&row(110, 10, 0), &[Some(5.0)]);
        let lines = series.by_cpu_time();
        assert_eq!(lines[0].pieces(0, 2).len(), 3);
        assert!(lines[0].pieces(1, 1).is_empty());
    }

    #[test]
    fn phases_and_broken_rounds_are_kept() {
        let mut series = Series::default();
        series.add(&row(10, 10, 0), &[]);
        series.add(&row(40, 10, 1), &[]);
        series.add(&row(50, 10, 1), &[]);
        let line = series.by_cpu_time()[0];
        assert_eq!(line.changes, [30]);
        assert_eq!(line.broken, [(20, 30)]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut series = Series::default();
        let rows = 3 * MOST_POINTS as u64;
        for at in 1..=rows {
            series.add(&row(at * 10, 10, at / 1000), &[Some(1.0)]);
        }
        assert!(series.points <= MOST_POINTS);
        let line = series.by_cpu_time()[0];
        assert!(line.changes.len() <= 1200 && line.cpu_time == rows * 10);
        assert!(
            line.pieces(0, 1)
                .concat()
                .iter()
                .all(|span| span.value == 1.0)
        );
        assert_eq!(line.pieces(0, 1).len(), 1);
        for tid in 0..2 * MOST_LINES as u32 {
            let entity = Entity::Pu(tid);
            series.add(
                &Row {
                    entity,
                    ..row(rows * 10, 10, 0)
                },
                &[Some(1.0)],
            );
        }
        assert_eq!(series.lines.len(), MOST_LINES);
        assert_eq!(series.left_out(), 10 * (MOST_LINES as u64 + 1));
    }

    proptest! {
        #[test]
        fn merging_keeps_the_sum(
            values in proptest::collection::vec((1u64..50, proptest::option::of(0u32..1000)), 1..200),
            points in 1u64..50
        ) {
            let mut series = Series::default();
            let (mut at, mut sum) = (0, 0.0);
            for (interval, value) in values {
                at += interval;
                let value = value.map(f64::from);
                sum += value.unwrap_or(0.0) * interval as f64;
                series.add(&row(at, interval, 0), &[value]);
            }
            series.thin(points);
            let line = series.by_cpu_time()[0];
            let kept: f64 = line.points.iter().map(|point| point.values[0].sum).sum();
            prop_assert!((kept - sum).abs() <= 1e-6 * sum.max(1.0));
            prop_assert!(line.points.windows(2).all(|pair| pair[0].to <= pair[1].from));
            prop_assert!(line.points.last().map(|point| point.to) == Some(at));
        }
    }
}
