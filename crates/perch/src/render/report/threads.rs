//! The table of threads: the busiest one by one, the others by name.

use super::super::{
    count, fit,
    table::{Align, table as aligned},
};
use perch_core::{ThreadId, Unmanaged, metric::names};
use perch_engine::report::{Report, ThreadReport, ThreadStats, name_pattern};
use std::collections::{BTreeMap, HashMap};

/// Threads with a row of their own, each with a letter.
const THREADS: usize = 26;
/// Rows of threads that share a name.
const GROUPS: usize = 5;
/// Below this share of a PU a thread counts as idle.
const IDLE: f64 = 0.0005;
/// Ended threads with less than this share of all CPU time that lived for less than this part of the session share a row,
const BRIEF: (f64, f64) = (0.01, 0.1);
/// if at least this many have the same name.
const FOLDED: usize = 3;
/// A thread has phases if it spent at least this share of its known CPU time FP-heavy, and as much not.
const PHASE: f64 = 0.1;

/// A letter for each of the busiest threads, for the table, the picture and the moves.
pub(super) fn letters(report: &Report) -> HashMap<ThreadId, char> {
    let (own, _) = busy(report);
    own.iter()
        .map(|thread| thread.thread)
        .zip('a'..='z')
        .collect()
}

/// The busy threads: those that are worth rows of their own, busiest first, and those that share one with others of their
/// name, as the many processes of a script that start and end.
fn busy(report: &Report) -> (Vec<&ThreadReport>, Vec<&ThreadReport>) {
    let busy = || report.threads.iter().filter(|thread| is_busy(thread));
    let all: u64 = busy().map(|thread| thread.stats.cpu_time).sum();
    let is_brief = |thread: &ThreadReport| {
        thread.ended
            && (thread.stats.cpu_time as f64) < BRIEF.0 * all as f64
            && (thread.stats.lifetime as f64) < BRIEF.1 * report.duration as f64
    };
    let name = |thread: &ThreadReport| (thread.process.clone(), name_pattern(&thread.name));
    let mut of_name = HashMap::<_, usize>::new();
    for thread in busy().filter(|thread| is_brief(thread)) {
        *of_name.entry(name(thread)).or_default() += 1;
    }
    busy().partition(|thread| !is_brief(thread) || of_name[&name(thread)] < FOLDED)
}

fn is_busy(thread: &ThreadReport) -> bool {
    thread.stats.activity() >= IDLE
}

/// Threads that share a row.
#[derive(Default)]
struct Group {
    threads: u64,
    stats: ThreadStats,
}

/// The groups, busiest first: those of ended threads as the report has them, together with the live ones that have no row.
fn groups(report: &Report, rest: &[&ThreadReport]) -> Vec<(String, Group)> {
    let mut groups = BTreeMap::<(&str, String), Group>::new();
    let ended = report.groups.iter();
    let ended = ended.map(|group| (&*group.process, &*group.name, group.threads, &group.stats));
    let live = rest.iter();
    let live = live.map(|thread| (&*thread.process, &*thread.name, 1, &thread.stats));
    for (process, name, threads, stats) in ended.chain(live) {
        let group = groups.entry((process, name_pattern(name))).or_default();
        group.threads += threads;
        group.stats.merge(stats);
    }
    let mut groups: Vec<(String, Group)> = groups
        .into_iter()
        .map(|((_, name), group)| (name, group))
        .collect();
    groups.sort_by_key(|(_, group)| u64::MAX - group.stats.cpu_time);
    groups
}

pub(super) fn table(report: &Report, letters: &HashMap<ThreadId, char>) -> String {
    let counted = report
        .threads
        .iter()
        .any(|thread| thread.stats.metric(names::IPC).is_some());
    let last = if counted { "IPC" } else { "mem" };
    let columns = [
        ("", Align::Left),
        ("thread", Align::Left),
        ("TID", Align::Right),
        ("busy", Align::Right),
        ("FP", Align::Right),
        ("vec", Align::Right),
        (last, Align::Right),
        ("wait", Align::Right),
        ("csw", Align::Right),
        ("migr", Align::Right),
        ("bound", Align::Left),
    ];
    let (mut own, folded) = busy(report);
    let idle = report.threads.len() - own.len() - folded.len();
    let mut rest = own.split_off(own.len().min(THREADS));
    rest.extend(folded);
    let mut rows: Vec<Vec<String>> = own
        .iter()
        .map(|thread| {
            let letter = letters.get(&thread.thread);
            let mut row = vec![
                letter.map_or_else(String::new, char::to_string),
                fit(&thread.name, 15).trim_end().to_owned(),
                thread.thread.tid.to_string(),
            ];
            row.extend(numbers(&thread.stats, counted));
            row.push(bound(thread));
            row
        })
        .collect();
    let groups = groups(report, &rest);
    let worth_a_row = groups
        .iter()
        .filter(|(_, group)| group.stats.activity() >= IDLE)
        .take(GROUPS);
    let mut in_rows = 0;
    rows.extend(worth_a_row.map(|(name, group)| {
        in_rows += group.threads;
        let name = match group.threads {
            1 => fit(name, 15),
            many => format!("{many}×{}", fit(name, 10)),
        };
        let mut row = vec![String::new(), name.trim_end().to_owned(), String::new()];
        row.extend(numbers(&group.stats, counted));
        row.push(String::new());
        row
    }));
    if rows.is_empty() {
        return "No thread was busy.\n".to_owned();
    }
    let in_all = rows.len() > 1;
    if in_all {
        let mut row = vec![String::new(), "all".to_owned(), String::new()];
        row.extend(numbers(&total(report), counted));
        row.push(String::new());
        rows.push(row);
    }
    let phases = own.iter().any(|of| phases(&of.stats).is_some());
    let mut text = format!("\n{}\n", aligned(&columns, rows));
    text += &more(
        groups.iter().map(|(_, group)| group.threads).sum::<u64>() - in_rows,
        idle,
    );
    text += match counted {
        true => "In %: busy, wait of its lifetime; FP of its instructions; vec of its FP\n",
        false => {
            "In %: busy, wait of its lifetime; FP of its instructions; vec of its FP; mem of\n\
             its time waiting for memory, only a rough estimate (see docs/accuracy.md)\n"
        }
    };
    if in_all {
        text += "all: busy and wait in % of one PU's time; shares are means over CPU time\n";
    }
    if phases {
        text += "FP a/b: a while FP-heavy, b while not (its two phases)\n";
    }
    text
}

/// What all threads did together, while the session lasted.
fn total(report: &Report) -> ThreadStats {
    let mut all = ThreadStats::default();
    let groups = report.groups.iter().map(|group| &group.stats);
    for stats in report.threads.iter().map(|of| &of.stats).chain(groups) {
        all.merge(stats);
    }
    all.lifetime = report.duration;
    // These are the phases of one thread.
    (all.fp_share_heavy, all.fp_share_light) = (None, None);
    let amount = |name| all.metric(name).map(|metric| metric.value);
    let ipc = match (amount(names::INSTRUCTIONS), amount(names::CYCLES)) {
        (Some(instructions), Some(cycles)) if cycles > 0.0 => Some(instructions / cycles),
        _ => None,
    };
    // A mean over time would count slow threads' instructions for more than they are.
    let metric = all.metrics.iter_mut().find(|of| &*of.name == names::IPC);
    if let (Some(metric), Some(ipc)) = (metric, ipc) {
        metric.value = ipc;
    }
    all
}

/// How many threads have no part in any row.
fn more(busy: u64, idle: usize) -> String {
    let text = match (busy, idle) {
        (0, 0) => return String::new(),
        (0, idle) => format!("and {}", count(idle, "idle thread")),
        (busy, 0) => format!("and {} more", count(busy as usize, "thread")),
        (busy, idle) => format!("and {} more, {idle} idle", count(busy as usize, "thread")),
    };
    format!("{text} (details: --json)\n")
}

/// The columns from `busy` to `migr`.
fn numbers(stats: &ThreadStats, counted: bool) -> [String; 7] {
    let percent = |name: &str| {
        let metric = stats.metric(name);
        metric.map_or_else(|| "-".to_owned(), |metric| points(metric.value))
    };
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), short);
    let share_of_life = |time: u64| points(time as f64 / stats.lifetime.max(1) as f64);
    [
        points(stats.activity()),
        phases(stats).unwrap_or_else(|| percent(names::FP_SHARE)),
        percent(names::VECTOR_SHARE),
        match stats.metric(names::IPC) {
            Some(ipc) if counted => format!("{:.2}", ipc.value),
            _ if counted => "-".to_owned(),
            _ => percent(names::MEMORY_INTENSITY),
        },
        share_of_life(stats.wait_time),
        number(stats.switches),
        number(stats.migrations),
    ]
}

/// The FP shares of a thread that changed its role: `48/2`.
fn phases(stats: &ThreadStats) -> Option<String> {
    let (heavy, light) = (stats.fp_share_heavy?, stats.fp_share_light?);
    let least = PHASE * (stats.fp_time + stats.integer_time) as f64;
    let lasting = stats.fp_time.min(stats.integer_time) as f64 >= least;
    lasting.then(|| format!("{}/{}", points(heavy), points(light)))
}

fn points(share: f64) -> String {
    format!("{:.0}", share * 100.0)
}

fn bound(thread: &ThreadReport) -> String {
    match (&thread.bound, thread.unmanaged) {
        // Why, in full, is at the report's end.
        (_, Some(Unmanaged::PlacedBefore)) => "placed".to_owned(),
        (_, Some(Unmanaged::ChangedByOthers)) => "others'".to_owned(),
        (_, Some(Unmanaged::Unknown)) => "unknown".to_owned(),
        (_, Some(Unmanaged::NotPermitted)) => "denied".to_owned(),
        (Some(pus), None) => fit(&format!("PU {pus}"), 9).trim_end().to_owned(),
        (None, None) if thread.stats.bound_time > 0 => {
            format!(
                "{:.0} %",
                thread.stats.bound_time as f64 / thread.stats.cpu_time.max(1) as f64 * 100.0
            )
        }
        (None, None) => "-".to_owned(),
    }
}

/// A number in at most five columns: `950`, `12k`, `3.4M`.
fn short(number: u64) -> String {
    match number {
        0..=9_999 => number.to_string(),
        10_000..=999_999 => format!("{}k", number / 1_000),
        1_000_000..=99_999_999 => format!("{:.1}M", number as f64 / 1e6),
        _ => format!("{:.0e}", number as f64),
    }
}
