//! The second reading of a recording: what happened in each column of time. Its memory does not grow with the recording.

use super::{
    data::{Lane, MoveRow, Name, SeriesSets, Short},
    place::{Parts, Whereabouts, named},
    round,
    totals::Totals,
    tracks::Tracks,
};
use crate::render::{
    explain::{action, as_before, outcome, why},
    fit,
};
use perch_core::{ActionKind, Outcome, PuSet, Reason, SettingValue, ThreadId};
use perch_engine::recording::PeriodRecord;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Columns of time, at most. In a longer recording, several periods are one column.
pub const COLUMNS: u64 = 400;

/// This many of the first and of the last moves are listed.
pub const MOVES: usize = 500;

/// What a page shows over time.
#[derive(Debug)]
pub struct Course<'a> {
    totals: &'a Totals,
    /// Periods in a column.
    periods: u64,
    seen: u64,
    whereabouts: Whereabouts,
    parts: Parts,
    ranks: FxHashMap<ThreadId, usize>,
    tracks: Tracks,
    open: Column,
    starts: Vec<f64>,
    ends: Vec<f64>,
    moved: Vec<u64>,
    unmeasured: Vec<f64>,
    unseen: Vec<u64>,
    lanes: Vec<Lane>,
    names: Vec<Name>,
    named: FxHashMap<ThreadId, i32>,
    first_moves: Vec<MoveRow>,
    last_moves: VecDeque<MoveRow>,
    moves_left_out: u64,
}

/// What came of it: members of [`super::data::Page`].
#[derive(Debug)]
pub struct Finished {
    /// Periods in a column.
    pub periods: u64,
    /// Begins of columns, in seconds.
    pub starts: Vec<f64>,
    /// Ends of columns, in seconds.
    pub ends: Vec<f64>,
    /// Moves in each column.
    pub moved: Vec<u64>,
    /// CPU time that belongs to no measured thread, in PUs.
    pub unmeasured: Vec<f64>,
    /// Threads that were not measured.
    pub unseen: Vec<u64>,
    /// What the lanes stand for.
    pub lane_kind: &'static str,
    /// The lanes.
    pub lanes: Vec<Lane>,
    /// The threads that lanes name.
    pub names: Vec<Name>,
    /// The series.
    pub series: SeriesSets,
    /// Moves that are listed.
    pub moves: Vec<MoveRow>,
    /// Moves between the first and the last half of these.
    pub moves_left_out: u64,
}

/// The column that is not complete yet. Times are in nanoseconds.
#[derive(Debug, Default)]
struct Column {
    periods: u64,
    start: u64,
    end: u64,
    /// Sum of the periods' lengths.
    length: u64,
    moved: u64,
    unmeasured: u64,
    unseen: u64,
    /// CPU time by lane and thread.
    time: FxHashMap<(usize, ThreadId), u64>,
    /// By lane: sums of time that was not idle, and of time that was watched, over PUs.
    busy: FxHashMap<usize, (u64, u64)>,
}

impl<'a> Course<'a> {
    /// Nothing read again yet.
    pub fn new(totals: &'a Totals) -> Self {
        let (parts, _) = Parts::lanes(&totals.topology, &totals.used());
        let lanes = parts.list.iter().map(|part| Lane {
            label: part.label.clone(),
            detail: part.detail.clone(),
            threads: Vec::new(),
            most: Vec::new(),
            all: Vec::new(),
            busy: Vec::new(),
        });
        let lanes = lanes.collect();
        let ranked = totals.by_time();
        let ranks = ranked.iter().enumerate();
        Self {
            totals,
            periods: totals.periods.div_ceil(COLUMNS).max(1),
            seen: 0,
            whereabouts: Whereabouts::new(&totals.header),
            parts,
            tracks: Tracks::new(totals, &ranked),
            ranks: ranks.map(|(rank, of)| (of.info.id, rank)).collect(),
            open: Column::default(),
            starts: Vec::new(),
            ends: Vec::new(),
            moved: Vec::new(),
            unmeasured: Vec::new(),
            unseen: Vec::new(),
            lanes,
            names: Vec::new(),
            named: FxHashMap::default(),
            first_moves: Vec::new(),
            last_moves: VecDeque::new(),
            moves_left_out: 0,
        }
    }

    /// Adds a period; those that were not there at the first reading, because the recording has grown, are ignored.
    pub fn period(&mut self, period: &PeriodRecord) {
        if self.seen >= self.totals.periods {
            return;
        }
        self.seen += 1;
        let observation = &*period.observation;
        let open = &mut self.open;
        if open.periods == 0 {
            open.start = observation.at.saturating_sub(observation.interval);
        }
        open.periods += 1;
        open.end = observation.at;
        open.length = open.length.saturating_add(observation.interval);
        open.unmeasured = open.unmeasured.saturating_add(observation.unmeasured);
        open.unseen = open.unseen.saturating_add(observation.unseen);
        for pu in &observation.pus {
            if let Some(lane) = self.parts.of.get(&pu.pu) {
                let sums = open.busy.entry(*lane).or_default();
                sums.0 = sums.0.saturating_add(pu.busy);
                sums.1 = sums.1.saturating_add(pu.interval);
            }
        }
        for sample in &observation.threads {
            let pu = self.whereabouts.of(sample);
            let lane = pu.and_then(|pu| self.parts.of.get(&pu));
            if let Some(lane) = lane.filter(|_| sample.cpu_time > 0) {
                let time = open.time.entry((*lane, sample.info.id)).or_default();
                *time = time.saturating_add(sample.cpu_time);
            }
            self.tracks.sample(self.totals, sample);
        }
        self.moves(period);
        self.whereabouts.follow(period);
        if self.open.periods == self.periods || self.seen == self.totals.periods {
            self.close();
        }
    }

    fn moves(&mut self, period: &PeriodRecord) {
        let at = period.observation.at;
        for made in &period.moves {
            self.open.moved += u64::from(is_done(made.outcome));
            let from = match &made.from {
                Some(from) => shown(from),
                None => "not bound".to_owned(),
            };
            let to = made
                .to
                .as_ref()
                .map_or_else(|| "released".to_owned(), shown);
            self.listed(at, Ok(made.thread), (from, to), &made.reason, made.outcome);
        }
        for taken in &period.actions {
            let known = taken.to.as_ref().or(taken.from.as_ref());
            let given = |kind: &Option<ActionKind>| match kind {
                Some(kind) => action(kind),
                None => as_before(known),
            };
            let change = (given(&taken.from), given(&taken.to));
            self.listed(at, Ok(taken.thread), change, &taken.reason, taken.outcome);
        }
        for made in &period.irq_moves {
            let place =
                |pus: &Option<PuSet>| pus.as_ref().map_or_else(|| "as before".into(), shown);
            let change = (place(&made.from), place(&made.to));
            let who = format!("IRQ {}", made.irq);
            self.listed(at, Err(who), change, &made.reason, made.outcome);
        }
        for made in &period.setting_moves {
            let value = |value: &Option<SettingValue>| {
                let value = value.as_ref().map(SettingValue::to_string);
                value.unwrap_or_else(|| "as before".to_owned())
            };
            let change = (value(&made.from), value(&made.to));
            let who = made.setting.to_string();
            self.listed(at, Err(who), change, &made.reason, made.outcome);
        }
    }

    fn listed(
        &mut self,
        at: u64,
        who: Result<ThreadId, String>,
        (from, to): (String, String),
        reason: &Reason,
        result: Outcome,
    ) {
        let (who, tid) = match who {
            Ok(id) => {
                let known = self.totals.threads.get(&id);
                let name = known.map_or_else(|| "?".to_owned(), |of| of.info.name.to_string());
                (name, Some(id.tid))
            }
            Err(name) => (name, None),
        };
        let row = MoveRow {
            at: self.totals.seconds(at),
            who,
            tid,
            from,
            to,
            // A reason may be as long as its recording; nobody reads on for ever.
            why: fit(&why(reason), 600).trim_end().to_owned(),
            problem: outcome(result).trim_matches([' ', '[', ']']),
        };
        if self.first_moves.len() < MOVES {
            self.first_moves.push(row);
            return;
        }
        self.last_moves.push_back(row);
        if self.last_moves.len() > MOVES {
            self.last_moves.pop_front();
            self.moves_left_out += 1;
        }
    }

    /// Completes a column.
    fn close(&mut self) {
        let column = std::mem::take(&mut self.open);
        let length = column.length.max(1) as f64;
        self.starts.push(self.totals.seconds(column.start));
        self.ends.push(self.totals.seconds(column.end));
        self.moved.push(column.moved);
        self.unseen.push(column.unseen);
        self.unmeasured
            .push(f64::from(round(column.unmeasured as f64 / length, 4)));
        self.tracks.close(column.length.max(1));
        // The busiest thread of each lane, and the sum of all.
        let mut lanes: Vec<(u64, Option<ThreadId>, u64)> = vec![(0, None, 0); self.lanes.len()];
        for ((lane, id), time) in column.time {
            let (most, thread, all) = &mut lanes[lane];
            *all = all.saturating_add(time);
            if thread.is_none_or(|thread| (*most, id) < (time, thread)) {
                (*most, *thread) = (time, Some(id));
            }
        }
        let columns = self.starts.len();
        for (at, (most, thread, all)) in lanes.into_iter().enumerate() {
            let number = thread.map_or(-1, |id| self.name(id));
            let whole = length * self.parts.list[at].pus.len() as f64;
            let lane = &mut self.lanes[at];
            lane.threads.push(number);
            lane.most.push(Short::new((most as f64 / whole).min(1.0)));
            lane.all.push(Short::new((all as f64 / whole).min(1.0)));
            if let Some((busy, watched)) = column.busy.get(&at) {
                lane.busy.resize(columns - 1, Short::UNKNOWN);
                let share = *busy as f64 / (*watched).max(1) as f64;
                lane.busy.push(Short::new(share.min(1.0)));
            }
        }
    }

    /// A thread's place in the list of names.
    fn name(&mut self, id: ThreadId) -> i32 {
        if let Some(number) = self.named.get(&id) {
            return *number;
        }
        let number = self.names.len() as i32;
        let known = self.totals.threads.get(&id);
        self.names.push(Name {
            name: known.map_or_else(String::new, |of| of.info.name.to_string()),
            tid: id.tid,
            rank: self.ranks.get(&id).copied().unwrap_or(usize::MAX),
        });
        self.named.insert(id, number);
        number
    }

    /// The lists of the page.
    pub fn finish(mut self) -> Finished {
        if self.open.periods > 0 {
            self.close();
        }
        let mut moves = self.first_moves;
        moves.extend(self.last_moves);
        for lane in &mut self.lanes {
            if !lane.busy.is_empty() {
                lane.busy.resize(self.starts.len(), Short::UNKNOWN);
            }
        }
        Finished {
            periods: self.periods,
            starts: self.starts,
            ends: self.ends,
            moved: self.moved,
            unmeasured: self.unmeasured,
            unseen: self.unseen,
            lane_kind: self.parts.kind,
            lanes: self.lanes,
            names: self.names,
            series: self.tracks.finish(),
            moves,
            moves_left_out: self.moves_left_out,
        }
    }
}

fn is_done(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Applied | Outcome::NotApplied)
}

fn shown(pus: &PuSet) -> String {
    fit(&named(pus), 60).trim_end().to_owned()
}
