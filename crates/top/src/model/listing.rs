//! The rows of the table of threads: in a flat list, or below their processes.

use super::order::{Comparison, Filter, Key, Sort};
use crate::{Frame, frame::Thread, units::Layout};
use perch_core::{PuSet, ThreadId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{cmp::Ordering, ops::Range, sync::Arc};

/// Of which threads a table is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// Those of a process.
    Process(i32),
    /// Those that were last seen on a part of the machine, by level and number in a [`Layout`].
    Unit(usize, usize),
}

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chosen {
    /// A thread.
    Thread(ThreadId),
    /// A process.
    Process(i32),
}

/// A process in the tree.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessRow {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub name: Arc<str>,
    /// How many of its threads are shown, or hidden below it.
    pub threads: usize,
    /// The sum of their shares of a PU.
    pub cpu: f32,
    /// The sum of their waiting.
    pub waiting: f32,
    /// Whether its threads are hidden.
    pub folded: bool,
    /// The first of its threads in the order of the tree.
    first: usize,
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub enum Row {
    /// A process, in the tree.
    Process(ProcessRow),
    /// A thread, by its place in the frame, and whether it stands below its process.
    Thread(usize, bool),
}

impl Row {
    /// What it stands for.
    pub fn chosen(&self, frame: &Frame) -> Option<Chosen> {
        match self {
            Self::Process(process) => Some(Chosen::Process(process.pid)),
            Self::Thread(at, _) => frame.threads.get(*at).map(|of| Chosen::Thread(of.id)),
        }
    }
}

/// How threads are listed.
#[derive(Debug, Clone, Copy)]
pub struct How<'a> {
    /// Of which threads.
    pub scope: &'a Scope,
    /// Which of them are shown.
    pub filter: &'a Filter,
    /// In which order.
    pub sort: &'a Sort,
    /// Whether below their processes.
    pub tree: bool,
    /// The processes whose threads are hidden.
    pub folded: &'a FxHashSet<i32>,
    /// The machine's parts.
    pub layout: &'a Layout,
}

/// The rows of a frame. Making them is linear in threads; only the rows that are asked for are put in order, and in a tree
/// the processes.
#[derive(Debug)]
pub struct Listing {
    frame: Arc<Frame>,
    sort: Sort,
    /// The shown threads; in a tree process by process.
    order: Vec<u32>,
    /// In a tree, the processes in order, each with the number of its row.
    processes: Vec<(usize, ProcessRow)>,
    tree: bool,
    rows: usize,
    /// How many threads there are in all.
    pub threads: usize,
    /// How many of them are in the scope.
    pub in_scope: usize,
    /// How many of these the filter takes.
    pub taken: usize,
}

impl Listing {
    /// Lists the threads of a frame.
    pub fn new(frame: &Arc<Frame>, how: &How<'_>) -> Self {
        let pus = match how.scope {
            Scope::Unit(level, unit) => {
                let level = how.layout.levels.get(*level);
                let unit = level.and_then(|level| level.units.get(*unit));
                Some(unit.map_or_else(PuSet::new, |unit| unit.pus.clone()))
            }
            _ => None,
        };
        let within = |thread: &Thread| match (how.scope, &pus) {
            (Scope::Process(pid), _) => thread.pid == *pid,
            (_, Some(pus)) => thread.pu.is_some_and(|pu| pus.contains(pu)),
            _ => true,
        };
        let (mut in_scope, mut order) = (0, Vec::new());
        for (at, thread) in frame.threads.iter().enumerate() {
            if within(thread) {
                in_scope += 1;
                if how.filter.takes(thread) {
                    order.push(at as u32);
                }
            }
        }
        let mut listing = Self {
            frame: Arc::clone(frame),
            sort: how.sort.clone(),
            taken: order.len(),
            rows: order.len(),
            order,
            processes: Vec::new(),
            tree: how.tree,
            threads: frame.threads.len(),
            in_scope,
        };
        if how.tree {
            listing.grow(how.folded);
        }
        listing
    }

    /// Puts threads below their processes.
    fn grow(&mut self, folded: &FxHashSet<i32>) {
        let mut members: FxHashMap<i32, (ProcessRow, Vec<u32>)> = FxHashMap::default();
        for at in &self.order {
            let thread = &self.frame.threads[*at as usize];
            let (process, threads) = members.entry(thread.pid).or_insert_with(|| {
                let process = ProcessRow {
                    pid: thread.pid,
                    name: Arc::clone(&thread.process),
                    threads: 0,
                    cpu: 0.0,
                    waiting: 0.0,
                    folded: folded.contains(&thread.pid),
                    first: 0,
                };
                (process, Vec::new())
            });
            process.threads += 1;
            process.cpu += thread.cpu;
            process.waiting += thread.waiting;
            threads.push(*at);
        }
        let mut members: Vec<(ProcessRow, Vec<u32>)> = members.into_values().collect();
        let comparison = Comparison::new(&self.frame, &self.sort);
        // Where there is no sum, a process stands where its first thread would.
        for (_, threads) in &mut members {
            if let Some(least) =
                (0..threads.len()).min_by(|a, b| comparison.compare(threads[*a], threads[*b]))
            {
                threads.swap(0, least);
            }
        }
        let descending = self.sort.key.descends() != self.sort.reversed;
        let turned = |ordering: Ordering| {
            if descending {
                ordering.reverse()
            } else {
                ordering
            }
        };
        members.sort_unstable_by(|(a, of_a), (b, of_b)| {
            let by = match self.sort.key {
                Key::Cpu => turned(a.cpu.total_cmp(&b.cpu)),
                Key::Waiting => turned(a.waiting.total_cmp(&b.waiting)),
                Key::Tid | Key::Pid => turned(a.pid.cmp(&b.pid)),
                Key::Name | Key::Process => turned(a.name.cmp(&b.name)),
                _ => comparison.compare(of_a[0], of_b[0]),
            };
            by.then(a.pid.cmp(&b.pid))
        });
        self.order.clear();
        let mut row = 0;
        for (mut process, threads) in members {
            process.first = self.order.len();
            let shown = if process.folded { 0 } else { threads.len() };
            self.order.extend(threads);
            self.processes.push((row, process));
            row += 1 + shown;
        }
        self.rows = row;
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// How many rows are processes.
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// The rows of a range, in order.
    pub fn rows(&mut self, range: Range<usize>) -> Vec<Row> {
        let range = range.start.min(self.rows)..range.end.min(self.rows);
        let comparison = Comparison::new(&self.frame, &self.sort);
        if !self.tree {
            comparison.sort(&mut self.order, range.clone());
            let threads = self.order[range].iter();
            return threads.map(|at| Row::Thread(*at as usize, false)).collect();
        }
        let mut rows = Vec::with_capacity(range.len());
        let after = self
            .processes
            .partition_point(|(row, _)| *row <= range.start);
        for (row, process) in &self.processes[after.saturating_sub(1)..] {
            if *row >= range.end {
                break;
            }
            if range.contains(row) {
                rows.push(Row::Process(process.clone()));
            }
            if process.folded {
                continue;
            }
            let threads = &mut self.order[process.first..process.first + process.threads];
            let from = range.start.saturating_sub(row + 1).min(threads.len());
            let to = (range.end - row - 1).min(threads.len());
            comparison.sort(threads, from..to);
            let threads = threads[from..to].iter();
            rows.extend(threads.map(|at| Row::Thread(*at as usize, true)));
        }
        rows
    }

    /// The number of the row that stands for this. A thread that is hidden below its process has none.
    pub fn find(&self, chosen: Chosen) -> Option<usize> {
        let row_of = |pid: i32| self.processes.iter().find(|(_, of)| of.pid == pid);
        let id = match chosen {
            Chosen::Process(pid) => return row_of(pid).map(|(row, _)| *row),
            Chosen::Thread(id) => id,
        };
        let at = self.frame.find(id)? as u32;
        let comparison = Comparison::new(&self.frame, &self.sort);
        let (offset, threads) = match self.tree {
            false => (0, &self.order[..]),
            true => {
                let pid = self.frame.threads[at as usize].pid;
                let (row, process) = row_of(pid).filter(|(_, of)| !of.folded)?;
                let threads = &self.order[process.first..process.first + process.threads];
                (row + 1, threads)
            }
        };
        let mut shown = false;
        let before = threads.iter().filter(|other| {
            shown |= **other == at;
            comparison.compare(**other, at).is_lt()
        });
        let before = before.count();
        shown.then_some(offset + before)
    }
}
