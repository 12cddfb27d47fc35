//! The data of a page, as its script reads it: JSON. Times are seconds since the recording began, shares are 0 to 1.

use serde::{Serialize, Serializer};

/// Everything that a page shows.
#[derive(Debug, Serialize)]
pub struct Page {
    /// The command line that was recorded.
    pub title: String,
    /// What was recorded and how: pairs of a label and a text.
    pub head: Vec<(&'static str, String)>,
    /// What the page leaves out, merges or could not read, one sentence each.
    pub notes: Vec<String>,
    /// What perch said while it recorded.
    pub remarks: Vec<RemarkRow>,
    /// The begin of each column of time.
    pub starts: Vec<f64>,
    /// The end of each column of time.
    pub ends: Vec<f64>,
    /// What lanes, series and tables name, by number.
    pub quantities: Vec<Quantity>,
    /// Threads that lanes show; `Lane::threads` has places in this list.
    pub names: Vec<Name>,
    /// One lane for each PU, or for each larger part of a large machine.
    pub lanes: Vec<Lane>,
    /// What the lanes stand for: `PU`, `core`, …
    pub lane_kind: &'static str,
    /// CPU time of each column that belongs to no measured thread, in PUs.
    pub unmeasured: Vec<f64>,
    /// Threads of each column that came and went without being measured.
    pub unseen: Vec<u64>,
    /// Moves of each column.
    pub moved: Vec<u64>,
    /// Series over time.
    pub series: SeriesSets,
    /// Moves, in the order in which they were made.
    pub moves: Vec<MoveRow>,
    /// Moves that are left out between the first and the last half of `moves`.
    pub moves_left_out: u64,
    /// Rows of tables, the busiest first.
    pub threads: Vec<ThreadRow>,
    /// The processes, the busiest first.
    pub processes: Vec<ProcessRow>,
    /// The machine's parts, from PUs to packages.
    pub units: Vec<UnitRow>,
}

/// A number of a chart, to three digits: most of a page are such numbers. One that is not known is `null`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Short(f32);

impl Short {
    /// What is not known.
    pub const UNKNOWN: Self = Self(f32::NAN);

    /// Rounds a number.
    pub fn new(value: f64) -> Self {
        Self(super::round(value, 3))
    }
}

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Without the `.0` of a whole number.
        match self.0.fract() == 0.0 && self.0.abs() < 1e15 {
            true => to.serialize_i64(self.0 as i64),
            false => to.serialize_f32(self.0),
        }
    }
}

/// A remark, told once.
#[derive(Debug, Clone, Serialize)]
pub struct RemarkRow {
    /// When it was said first.
    pub at: f64,
    /// `note`, `warning` or `error`.
    pub severity: &'static str,
    /// What was said.
    pub text: String,
    /// How often.
    pub times: u64,
}

/// What a number is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quantity {
    /// The name in links to the page.
    pub key: String,
    /// The name for people.
    pub label: String,
    /// How it is written: `share`, `bytes` or `number`.
    pub unit: &'static str,
}

/// A thread in a lane.
#[derive(Debug, Serialize)]
pub struct Name {
    /// The thread's name.
    pub name: String,
    /// Its TID.
    pub tid: i32,
    /// Its rank by CPU time, from 0.
    pub rank: usize,
}

/// What ran on a PU, or on several, in each column of time.
#[derive(Debug, Serialize)]
pub struct Lane {
    /// `PU 3`.
    pub label: String,
    /// Its core, or its PUs.
    pub detail: String,
    /// The thread that used it most, as a place in [`Page::names`]; -1 where none ran.
    pub threads: Vec<i32>,
    /// That thread's share of it.
    pub most: Vec<Short>,
    /// The share of all measured threads.
    pub all: Vec<Short>,
    /// The share of time in which it was not idle, whatever ran there. Empty where that was not recorded.
    pub busy: Vec<Short>,
}

/// Series by what they belong to. The last of each list may stand for all that have none of their own.
#[derive(Debug, Serialize)]
pub struct SeriesSets {
    /// Of single threads.
    pub thread: Vec<Series>,
    /// Of processes.
    pub process: Vec<Series>,
    /// Of threads with the same name.
    pub name: Vec<Series>,
}

/// The values of a thread, or of several, over time.
#[derive(Debug, Serialize)]
pub struct Series {
    /// Whose.
    pub label: String,
    /// For each quantity, a value for each column of time; `null` where nothing is known. Empty if it never is.
    pub values: Vec<Vec<Option<Short>>>,
}

/// A move, or another change.
#[derive(Debug, Serialize)]
pub struct MoveRow {
    /// When the period ended in which it was decided.
    pub at: f64,
    /// What was moved: a thread, or an interrupt.
    pub who: String,
    /// Its TID, if it is a thread.
    pub tid: Option<i32>,
    /// Where it was.
    pub from: String,
    /// Where it was put.
    pub to: String,
    /// Why, in words.
    pub why: String,
    /// Why it could not be made; empty if it was.
    pub problem: &'static str,
}

/// A thread, or several that have no row of their own.
#[derive(Debug, Serialize)]
pub struct ThreadRow {
    /// Its name.
    pub name: String,
    /// Its TID; `None` for several threads.
    pub tid: Option<i32>,
    /// Its process's name and number.
    pub process: String,
    /// When it was first and last measured.
    pub from: f64,
    /// See `from`.
    pub to: f64,
    /// Seconds on a PU.
    pub cpu: f64,
    /// Seconds in which it waited for a PU.
    pub wait: f64,
    /// How many PUs it was seen on.
    pub pus: usize,
    /// Which.
    pub visited: String,
    /// How often it was moved.
    pub moves: u64,
    /// How often it went from one PU to another, as the kernel counts; `None` if that is not known.
    pub migrations: Option<u64>,
    /// The mean of each quantity from the third on; `None` if it is not known.
    pub means: Vec<Option<f32>>,
}

/// A process.
#[derive(Debug, Serialize)]
pub struct ProcessRow {
    /// Its name.
    pub name: String,
    /// Its PID; `None` for several processes.
    pub pid: Option<i32>,
    /// Threads that were measured.
    pub threads: u64,
    /// Seconds on a PU.
    pub cpu: f64,
    /// Seconds in which threads waited for a PU.
    pub wait: f64,
    /// Moves of its threads.
    pub moves: u64,
    /// As of a thread.
    pub means: Vec<Option<f32>>,
}

/// A part of the machine.
#[derive(Debug, Serialize)]
pub struct UnitRow {
    /// `core 7`.
    pub label: String,
    /// `PU`, `core`, …
    pub kind: &'static str,
    /// Its PUs.
    pub pus: String,
    /// Seconds of measured threads on it.
    pub cpu: f64,
    /// The share of its PUs' time that measured threads used.
    pub share: f64,
    /// How many different threads were seen on it.
    pub threads: u64,
    /// Moves of threads to some of its PUs.
    pub moves: u64,
}
