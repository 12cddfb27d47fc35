//! The rows of a page's tables.

use super::{
    data::{ProcessRow, ThreadRow, UnitRow},
    place::Parts,
    round,
    totals::{ThreadSum, Totals},
    values::Means,
};
use crate::render::{count, fit};
use rustc_hash::{FxHashMap, FxHashSet};

/// Threads with a row of their own.
pub const THREADS: usize = 1000;

/// Processes with a row of their own.
pub const PROCESSES: usize = 300;

/// Parts of one kind beyond these are not listed.
pub const UNITS: usize = 512;

fn seconds(nanoseconds: u64) -> f64 {
    (nanoseconds / 1000) as f64 / 1e6
}

fn means(totals: &Totals, means: &Means) -> Vec<Option<f32>> {
    let numbers = 0..totals.quantities.list().len();
    let mean = |number| means.get(number).map(|mean| round(f64::from(mean), 4));
    numbers.map(mean).collect()
}

/// Rows of threads, the busiest first, and one for those that have none.
pub fn threads(totals: &Totals) -> Vec<ThreadRow> {
    let ranked = totals.by_time();
    let (listed, others) = ranked.split_at(ranked.len().min(THREADS));
    let mut rows: Vec<ThreadRow> = listed.iter().map(|thread| row(totals, thread)).collect();
    if let Some(first) = others.first() {
        let mut all = row(totals, first);
        all.name = format!("{} together", count(others.len(), "other thread"));
        (all.tid, all.process) = (None, String::new());
        let (mut pus, mut sums) = (first.visited.clone(), first.means.clone());
        // Not of rounded times.
        let (mut cpu, mut wait) = (first.cpu, first.wait);
        for other in &others[1..] {
            all.from = all.from.min(totals.seconds(other.first));
            all.to = all.to.max(totals.seconds(other.last));
            cpu = cpu.saturating_add(other.cpu);
            wait = wait.saturating_add(other.wait);
            all.moves += other.moves;
            all.migrations = match (all.migrations, other.migrations) {
                (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
                (sum, more) => sum.or(more),
            };
            pus.insert_all(&other.visited);
            sums.add_all(&other.means);
        }
        (all.cpu, all.wait) = (seconds(cpu), seconds(wait));
        (all.pus, all.visited) = (pus.len(), fit(&pus.to_string(), 60).trim_end().to_owned());
        all.means = means(totals, &sums);
        rows.push(all);
    }
    rows
}

fn row(totals: &Totals, thread: &ThreadSum) -> ThreadRow {
    ThreadRow {
        name: thread.info.name.to_string(),
        tid: Some(thread.info.id.tid),
        process: format!("{} {}", thread.info.process, thread.info.pid),
        from: totals.seconds(thread.first),
        to: totals.seconds(thread.last),
        cpu: seconds(thread.cpu),
        wait: seconds(thread.wait),
        pus: thread.visited.len(),
        visited: fit(&thread.visited.to_string(), 60).trim_end().to_owned(),
        moves: thread.moves,
        migrations: thread.migrations,
        means: means(totals, &thread.means),
    }
}

/// Sums of a process.
pub struct Process {
    name: String,
    pid: i32,
    threads: u64,
    cpu: u64,
    wait: u64,
    moves: u64,
    means: Means,
}

/// All processes, the busiest first.
pub fn processes(totals: &Totals) -> Vec<Process> {
    let mut all: FxHashMap<i32, Process> = FxHashMap::default();
    for thread in totals.threads.values() {
        let pid = thread.info.pid;
        let process = all.entry(pid).or_insert_with(|| Process {
            name: String::new(),
            pid,
            threads: 0,
            cpu: 0,
            wait: 0,
            moves: 0,
            means: Means::default(),
        });
        // Threads of one process may have been seen before and after an execve; which is told must not vary.
        if process.name.is_empty() || *thread.info.process > *process.name {
            process.name = thread.info.process.to_string();
        }
        process.threads += 1;
        process.cpu = process.cpu.saturating_add(thread.cpu);
        process.wait = process.wait.saturating_add(thread.wait);
        process.moves += thread.moves;
        process.means.add_all(&thread.means);
    }
    let mut all: Vec<Process> = all.into_values().collect();
    all.sort_by_key(|process| (u64::MAX - process.cpu, process.pid));
    all
}

/// Rows of processes, the busiest first, and one for those that have none.
pub fn process_rows(totals: &Totals) -> Vec<ProcessRow> {
    let all = processes(totals);
    let (listed, others) = all.split_at(all.len().min(PROCESSES));
    let row = |process: &Process| ProcessRow {
        name: process.name.clone(),
        pid: Some(process.pid),
        threads: process.threads,
        cpu: seconds(process.cpu),
        wait: seconds(process.wait),
        moves: process.moves,
        means: means(totals, &process.means),
    };
    let mut rows: Vec<ProcessRow> = listed.iter().map(row).collect();
    if let Some(first) = others.first() {
        let mut sum = row(first);
        let mut sums = first.means.clone();
        let (mut cpu, mut wait) = (first.cpu, first.wait);
        sum.pid = None;
        sum.name = match others.len() {
            1 => "1 other process".to_owned(),
            number => format!("{number} other processes together"),
        };
        for other in &others[1..] {
            sum.threads += other.threads;
            cpu = cpu.saturating_add(other.cpu);
            wait = wait.saturating_add(other.wait);
            sum.moves += other.moves;
            sums.add_all(&other.means);
        }
        (sum.cpu, sum.wait) = (seconds(cpu), seconds(wait));
        sum.means = means(totals, &sums);
        rows.push(sum);
    }
    rows
}

/// Rows of the machine's parts, level by level.
pub fn units(totals: &Totals) -> Vec<UnitRow> {
    let mut rows = Vec::new();
    for parts in Parts::levels(&totals.topology) {
        if parts.list.len() > UNITS {
            continue;
        }
        let mut threads = vec![0; parts.list.len()];
        for thread in totals.threads.values() {
            let visited = thread.visited.iter().filter_map(|pu| parts.of.get(&pu));
            let visited: FxHashSet<usize> = visited.copied().collect();
            for part in visited {
                threads[part] += 1;
            }
        }
        let mut moves = vec![0; parts.list.len()];
        for (to, times) in &totals.targets {
            let part = to.first().and_then(|pu| parts.of.get(&pu));
            if let Some(part) = part.filter(|part| to.is_subset(&parts.list[**part].pus)) {
                moves[*part] += times;
            }
        }
        for (at, part) in parts.list.into_iter().enumerate() {
            let times = part.pus.iter().filter_map(|pu| totals.pus.get(&pu));
            let cpu = times.fold(0, |sum: u64, time| sum.saturating_add(*time));
            let whole = totals.length() as f64 * part.pus.len().max(1) as f64;
            rows.push(UnitRow {
                label: part.label,
                kind: parts.kind,
                pus: part.pus.to_string(),
                cpu: seconds(cpu),
                share: f64::from(round((cpu as f64 / whole).min(1.0), 4)),
                threads: threads[at],
                moves: moves[at],
            });
        }
    }
    rows
}
