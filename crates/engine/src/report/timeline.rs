//! Who was where, in bounded memory.

use super::{Cell, Placements, Role, Row};
use perch_core::ThreadId;
use std::{collections::BTreeMap, sync::Arc};

/// When there are as many columns, two become one: at least half of them are always there.
const COLUMNS: usize = 128;

/// While a column is open, the time on a PU is kept for this many threads. A column may last for days and see millions
/// of threads, but only the busiest is shown.
const KEPT: usize = 64;

/// Builds the picture.
#[derive(Debug, Clone, Default)]
pub(super) struct PlacementTimeline {
    /// Ends of the columns, and how long each is.
    columns: Vec<(u64, u64)>,
    /// By PU; rows are filled up with nothing when a column is closed.
    rows: BTreeMap<u32, Vec<Option<Slot>>>,
    /// Periods a column.
    width: usize,
    /// By PU.
    open: BTreeMap<u32, Vec<Open>>,
    open_periods: usize,
    open_time: u64,
}

/// Who used a PU most, and for how long.
#[derive(Debug, Clone)]
struct Slot {
    thread: ThreadId,
    name: Arc<str>,
    role: Role,
    bound: bool,
    time: u64,
}

/// A thread in the column that is still open.
#[derive(Debug, Clone)]
struct Open {
    /// With the time that it certainly had.
    slot: Slot,
    /// Time that it may have had besides, before it was kept: that of those whose place it took.
    unsure: u64,
}

impl PlacementTimeline {
    /// A thread was on a PU in the period that is going on.
    ///
    /// Where more than [`KEPT`] threads share a PU the one with the least time makes way, and the new one notes how much
    /// that was (the Space-Saving algorithm of Metwally, Agrawal and El Abbadi, 2005). So the busiest is found to
    /// within a KEPTth of the PU's time.
    pub fn add(
        &mut self,
        pu: u32,
        thread: ThreadId,
        name: &Arc<str>,
        role: Role,
        bound: bool,
        time: u64,
    ) {
        if time == 0 {
            return;
        }
        let open = self.open.entry(pu).or_default();
        if let Some(Open { slot, .. }) = open.iter_mut().find(|open| open.slot.thread == thread) {
            slot.time += time;
            slot.role = role;
            slot.bound = bound;
            return;
        }
        let slot = Slot {
            thread,
            name: Arc::clone(name),
            role,
            bound,
            time,
        };
        if open.len() < KEPT {
            open.push(Open { slot, unsure: 0 });
        } else if let Some(least) = open.iter_mut().min_by_key(|open| open.most()) {
            let unsure = least.most();
            *least = Open { slot, unsure };
        }
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
        for (pu, open) in std::mem::take(&mut self.open) {
            let slots = open.into_iter().map(|open| open.slot);
            // Of equal ones always the same.
            let busiest = slots.max_by_key(|slot| (slot.time, slot.thread));
            let row = self.rows.entry(pu).or_default();
            row.resize(before, None);
            row.push(busiest);
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
                name: slot.name.to_string(),
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
                    core: String::new(),
                    cells: row.iter().zip(&self.columns).map(cell).collect(),
                })
                .collect(),
            columns: self.columns.iter().map(|(at, _)| *at).collect(),
        }
    }
}

impl Open {
    /// The most time that it can have had.
    fn most(&self) -> u64 {
        self.slot.time + self.unsure
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

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: i32) -> ThreadId {
        ThreadId { tid, start: 7 }
    }

    fn add(timeline: &mut PlacementTimeline, pu: u32, tid: i32, time: u64) {
        timeline.add(
            pu,
            thread(tid),
            &"worker".into(),
            Role::Integer,
            false,
            time,
        );
    }

    /// Entries that are kept, open and closed.
    fn kept(timeline: &PlacementTimeline) -> usize {
        let open: usize = timeline.open.values().map(Vec::len).sum();
        let rows = timeline.rows.values();
        open + rows.map(|row| row.iter().flatten().count()).sum::<usize>()
    }

    #[test]
    fn a_million_threads_take_no_more_room_than_a_few() {
        const PERIODS: i32 = 10_000;
        const SHORT: i32 = 100;
        let mut timeline = PlacementTimeline::default();
        let mut most = 0;
        for period in 0..PERIODS {
            // One that stays, among as many as come and go, on either PU, each a hundredth of its time.
            for pu in 0..2 {
                add(&mut timeline, pu, pu as i32 + 1, 2_000);
            }
            for short in 0..SHORT {
                let tid = 1000 + period * SHORT + short;
                add(&mut timeline, (short % 2) as u32, tid, 160);
            }
            most = most.max(kept(&timeline));
            timeline.close(period as u64 + 1, 10_000);
        }
        assert!(most <= 2 * (KEPT + COLUMNS), "{most} entries");
        let picture = timeline.finish(PERIODS as u64);
        assert_eq!(picture.rows.len(), 2);
        for (row, tid) in picture.rows.iter().zip([1, 2]) {
            assert!(row.cells.len() >= COLUMNS / 2);
            for cell in row.cells.iter().flatten() {
                assert_eq!(cell.thread, thread(tid));
                assert!((cell.share - 0.2).abs() < 0.02, "{}", cell.share);
            }
            assert!(row.cells.iter().all(Option::is_some));
        }
    }

    #[test]
    fn the_busiest_is_found_however_late_it_came() {
        let mut timeline = PlacementTimeline::default();
        for tid in 0..10_000 {
            add(&mut timeline, 0, 100 + tid, 10);
        }
        // More than a KEPTth of the time of all others.
        for _ in 0..100 {
            add(&mut timeline, 0, 1, 40);
        }
        for tid in 0..10 {
            add(&mut timeline, 0, 50_000 + tid, 10);
        }
        timeline.close(1, 200_000);
        let picture = timeline.finish(1);
        let cell = picture.rows[0].cells[0].as_ref().expect("somebody");
        assert_eq!(cell.thread, thread(1));
        assert!((cell.share - 0.02).abs() < 1e-9, "{}", cell.share);
    }

    #[test]
    fn few_threads_are_told_exactly() {
        let mut timeline = PlacementTimeline::default();
        for round in 1..=5 {
            for tid in 1..=KEPT as i32 {
                add(&mut timeline, 3, tid, tid as u64 * round);
            }
        }
        let exact =
            |open: &Open| open.unsure == 0 && open.slot.time == 15 * open.slot.thread.tid as u64;
        assert!(timeline.open[&3].iter().all(exact));
        timeline.close(1, 15 * KEPT as u64);
        let picture = timeline.finish(1);
        let cell = picture.rows[0].cells[0].as_ref().expect("somebody");
        assert_eq!((cell.thread, cell.share), (thread(KEPT as i32), 1.0));
    }
}
