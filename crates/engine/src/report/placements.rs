//! Who was where, in bounded memory.

use super::{Cell, Placements, Role, Row};
use perch_core::ThreadId;
use std::collections::{BTreeMap, HashMap};

/// When there are as many columns, two become one: at least half of them are always there.
const COLUMNS: usize = 128;

/// Builds the picture.
#[derive(Debug, Clone, Default)]
pub(super) struct Lanes {
    /// Ends of the columns, and how long each is.
    columns: Vec<(u64, u64)>,
    /// By PU; rows are filled up with nothing when a column is closed.
    rows: BTreeMap<u32, Vec<Option<Slot>>>,
    /// Periods a column.
    width: usize,
    open: HashMap<(u32, ThreadId), Slot>,
    open_periods: usize,
    open_time: u64,
}

/// Who used a PU most, and for how long.
#[derive(Debug, Clone)]
struct Slot {
    thread: ThreadId,
    name: String,
    role: Role,
    bound: bool,
    time: u64,
}

impl Lanes {
    /// A thread was on a PU in the period that is going on.
    pub fn add(
        &mut self,
        pu: u32,
        thread: ThreadId,
        name: &str,
        role: Role,
        bound: bool,
        time: u64,
    ) {
        if time == 0 {
            return;
        }
        let slot = self.open.entry((pu, thread)).or_insert_with(|| Slot {
            thread,
            name: name.to_owned(),
            role,
            bound,
            time: 0,
        });
        slot.time += time;
        slot.role = role;
        slot.bound = bound;
    }

    /// The period is over.
    pub fn close(&mut self, at: u64, interval: u64) {
        self.open_periods += 1;
        self.open_time += interval;
        if self.open_periods < self.width.max(1) {
            return;
        }
        self.close_column(at);
        if self.columns.len() == COLUMNS {
            self.halve();
        }
    }

    fn close_column(&mut self, at: u64) {
        let before = self.columns.len();
        self.columns.push((at, self.open_time));
        let mut open: Vec<_> = self.open.drain().collect();
        // The busiest last, so that it is the one that stays; equal ones always in the same order.
        open.sort_by_key(|((pu, thread), slot)| (*pu, slot.time, *thread));
        for ((pu, _), slot) in open {
            let row = self.rows.entry(pu).or_default();
            row.resize(before, None);
            row.push(Some(slot));
        }
        for row in self.rows.values_mut() {
            row.resize(before + 1, None);
        }
        self.open_periods = 0;
        self.open_time = 0;
    }

    fn halve(&mut self) {
        self.width = 2 * self.width.max(1);
        let columns = self.columns.chunks(2);
        self.columns = columns
            .filter_map(|pair| {
                let (at, _) = *pair.last()?;
                Some((at, pair.iter().map(|(_, time)| time).sum()))
            })
            .collect();
        for row in self.rows.values_mut() {
            *row = row.chunks(2).map(|pair| merge(pair.to_vec())).collect();
        }
    }

    /// The picture so far.
    pub fn finish(&self, at: u64) -> Placements {
        if self.open_periods > 0 {
            let mut closed = self.clone();
            closed.close_column(at);
            return closed.finish(at);
        }
        let cell = |(slot, (_, time)): (&Option<Slot>, &(u64, u64))| {
            slot.as_ref().map(|slot| Cell {
                thread: slot.thread,
                name: slot.name.clone(),
                role: slot.role,
                bound: slot.bound,
                share: (slot.time as f64 / (*time).max(1) as f64).min(1.0),
            })
        };
        Placements {
            rows: self
                .rows
                .iter()
                .map(|(pu, row)| Row {
                    pu: *pu,
                    cells: row.iter().zip(&self.columns).map(cell).collect(),
                })
                .collect(),
            columns: self.columns.iter().map(|(at, _)| *at).collect(),
        }
    }
}

/// Of two neighbours the one that used the PU longer; together, if they are the same.
fn merge(pair: Vec<Option<Slot>>) -> Option<Slot> {
    let mut slots = pair.into_iter().flatten();
    let first = slots.next()?;
    let Some(second) = slots.next() else {
        return Some(first);
    };
    if first.thread == second.thread {
        let time = first.time + second.time;
        return Some(Slot { time, ..second });
    }
    Some(if first.time > second.time {
        first
    } else {
        second
    })
}
