//! Detected changes against the true ones.

use super::{Course, LEAST};
use perch_stat::Row;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::AddAssign};

/// How a method did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// Rows with counts.
    pub rows: u64,
    /// Changes of instructions per cycle by [`LEAST`] or more.
    pub changes: u64,
    /// Those that were detected in the row in which they happened, or in the next.
    pub at_once: u64,
    /// Those that were detected later, before the next change.
    pub late: u64,
    /// Those that were not detected.
    pub missed: u64,
    /// Smaller changes.
    pub small: u64,
    /// Those of them that were detected before the next change.
    pub small_detected: u64,
    /// Announcements that belong to no change.
    pub false_alarms: u64,
    /// Rounds that are shown as whole: all sets of one phase, as far as the method knows.
    pub rounds: u64,
    /// Those of them that span a change of [`LEAST`] or more.
    pub mixed: u64,
    /// Rows that a round of one phase had to give up, since the method announced a change that was none.
    pub dropped: u64,
}

impl Score {
    /// Of one thread's rows, in order, with `sets` event sets in rotation.
    pub fn of(course: &Course, rows: &[Row], sets: usize) -> Self {
        let truth = Truth::of(course, rows);
        let mut score = Self {
            rows: rows.len() as u64,
            ..Self::default()
        };
        let announced: Vec<usize> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.new_phase)
            .map(|(at, _)| at)
            .collect();
        let mut belongs = vec![false; rows.len()];
        for (number, change) in truth.changes.iter().enumerate() {
            let next = truth.changes.get(number + 1);
            let until = next.map_or(rows.len(), |next| next.row);
            let within = |at: &&usize| (change.row..until.max(change.row + 1)).contains(*at);
            let first = announced.iter().find(within).copied();
            // The row of the change itself is of both phases, and may be taken for one of its own.
            let both = [change.row, change.row + 1];
            for at in announced
                .iter()
                .filter(|at| both.contains(at))
                .chain(&first)
            {
                belongs[*at] = true;
            }
            let Some(large) = change.is_large else {
                continue;
            };
            match (large, first) {
                (true, Some(at)) if at <= change.row + 1 => score.at_once += 1,
                (true, Some(_)) => score.late += 1,
                (true, None) => score.missed += 1,
                (false, found) => score.small_detected += u64::from(found.is_some()),
            }
            match large {
                true => score.changes += 1,
                false => score.small += 1,
            }
        }
        score.false_alarms = announced.iter().filter(|at| !belongs[**at]).count() as u64;
        score.rounds(&truth, rows, sets, &belongs);
        score
    }

    /// Counts the rounds that a reader may combine, and those that she was kept from needlessly.
    fn rounds(&mut self, truth: &Truth, rows: &[Row], sets: usize, belongs: &[bool]) {
        let mut rounds: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, row) in rows.iter().enumerate() {
            rounds.entry(row.round).or_default().push(at);
        }
        for members in rounds.values() {
            if members.len() < sets {
                // Broken by the announcement in the row behind it.
                let next = members.last().map_or(0, |last| last + 1);
                let announced = rows.get(next).is_some_and(|row| row.new_phase);
                if announced && !belongs[next] {
                    self.dropped += members.len() as u64;
                }
                continue;
            }
            self.rounds += 1;
            let (first, last) = (members[0], members[members.len() - 1]);
            let spans = |change: &Change| {
                change.is_large == Some(true) && first < change.row && change.row <= last
            };
            self.mixed += u64::from(truth.changes.iter().any(spans));
        }
    }
}

impl AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.changes += other.changes;
        self.at_once += other.at_once;
        self.late += other.late;
        self.missed += other.missed;
        self.small += other.small;
        self.small_detected += other.small_detected;
        self.false_alarms += other.false_alarms;
        self.rounds += other.rounds;
        self.mixed += other.mixed;
        self.dropped += other.dropped;
    }
}

/// A true change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    /// The first row that has instructions of the new phase.
    row: usize,
    /// Whether instructions per cycle differ by [`LEAST`] or more; `None` if one of the phases fills no row, so that its
    /// speed is not known.
    is_large: Option<bool>,
}

/// What really happened in the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Truth {
    changes: Vec<Change>,
}

impl Truth {
    fn of(course: &Course, rows: &[Row]) -> Self {
        let counted = |row: &Row, alias: &str| {
            let value = row.amounts.value(alias);
            value.map_or(0.0, |value| value.counted)
        };
        // Instructions before each row, and after the last.
        let mut before = vec![0.0];
        for row in rows {
            before.push(before[before.len() - 1] + counted(row, "instructions"));
        }
        let ends = course.ends();
        let row_of = |end: u64| before[1..].iter().position(|after| *after > end as f64);
        let changes: Vec<usize> = ends.iter().map_while(|end| row_of(*end)).collect();
        // The rows that are wholly of a phase.
        let inner = |phase: usize| {
            let from = match phase {
                0 => 0,
                _ => changes[phase - 1] + 1,
            };
            from..changes.get(phase).copied().unwrap_or(rows.len()).max(from)
        };
        let speed = |phase: usize| {
            let rows = &rows[inner(phase)];
            let sum = |alias: &str| rows.iter().map(|row| counted(row, alias)).sum::<f64>();
            (!rows.is_empty()).then(|| sum("instructions") / sum("cycles"))
        };
        let change = |(number, row): (usize, &usize)| Change {
            row: *row,
            is_large: match (speed(number), speed(number + 1)) {
                (Some(old), Some(new)) => Some((new - old).abs() >= LEAST * old),
                _ => None,
            },
        };
        Self {
            changes: changes.iter().enumerate().map(change).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phases::Phase;
    use perch_stat::{Amounts, Entity, Event, Value};

    /// Rows of 100 cycles with these instructions, of which those in `announced` begin a phase.
    fn rows(instructions: &[f64], announced: &[usize], sets: usize) -> Vec<Row> {
        let (mut round, mut members) = (0, 0);
        let row = |(at, instructions): (usize, &f64)| {
            let value = |counted: f64| Value {
                counted,
                time: 1_000.0,
                doubt: None,
            };
            let mut amounts = Amounts::default();
            (amounts.cpu_time, amounts.covered) = (1_000, 1_000);
            amounts.values = BTreeMap::from([
                ("instructions".into(), value(*instructions)),
                ("cycles".into(), value(100.0)),
            ]);
            let new_phase = announced.contains(&at);
            if members == sets || (new_phase && members > 0) {
                (round, members) = (round + 1, 0);
            }
            members += 1;
            Row {
                at: at as u64,
                interval: 1,
                entity: Entity::All,
                name: "".into(),
                pid: None,
                event: Event::Tick,
                set: Some(0),
                round,
                phase: 0,
                new_phase,
                broken: None,
                amounts,
                readings: Default::default(),
                metrics: Default::default(),
            }
        };
        instructions.iter().enumerate().map(row).collect()
    }

    fn course(lengths: &[u64]) -> Course {
        let phases = lengths.iter().enumerate().map(|(mix, instructions)| Phase {
            mix,
            instructions: *instructions,
        });
        Course {
            mixes: Vec::new(),
            phases: phases.collect(),
        }
    }

    #[test]
    fn hits_misses_and_false_alarms_are_told_apart() {
        // Three phases: 100 a row, from the middle of row 4 on 200, from row 8 on 205.
        let counts = [
            100.0, 100.0, 100.0, 100.0, 150.0, 200.0, 200.0, 200.0, 205.0, 205.0, 205.0, 205.0,
        ];
        let course = course(&[450, 700, u64::MAX]);
        let score = |announced: &[usize]| Score::of(&course, &rows(&counts, announced, 2), 2);
        let found = score(&[4]);
        assert_eq!((found.changes, found.at_once, found.missed), (1, 1, 0));
        assert_eq!((found.small, found.small_detected), (1, 0));
        assert_eq!((found.rounds, found.mixed, found.dropped), (6, 0, 0));
        let late = score(&[7]);
        assert_eq!((late.at_once, late.late, late.false_alarms), (0, 1, 0));
        // The round of rows 4 and 5 spans nothing of row 3.
        assert_eq!(late.mixed, 0);
        let missed = score(&[2]);
        assert_eq!((missed.missed, missed.false_alarms), (1, 1));
        let needless = score(&[1, 4]);
        assert_eq!((needless.false_alarms, needless.dropped), (1, 1));
        // Rounds of rows 1 and 2, 3 and 4.
        assert_eq!(score(&[1]).mixed, 1);
    }
}
