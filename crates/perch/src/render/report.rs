//! The report at the end, for people.

use super::{
    WIDTH, count, fit,
    table::{Align, table},
    wrapped,
};
use anstyle::{AnsiColor, Style};
use perch_core::{MetricSource, Outcome, Severity, ThreadId, Unmanaged, metric::names};
use perch_engine::report::{MoveReport, Placements, Report, Role, ThreadReport, ThreadStats};
use std::{collections::HashMap, fmt::Write};

/// Threads in the table.
const THREADS: usize = 26;
/// Groups of ended threads in the table.
const GROUPS: usize = 5;
/// Moves that are printed.
const MOVES: usize = 8;
/// PUs in the picture.
const ROWS: usize = 32;
/// Columns of the picture.
const COLUMNS: usize = WIDTH - 10;
/// Below this share of a PU a thread gets no row of its own.
const IDLE: f64 = 0.0005;
/// Two-sided 90 % quantile of the normal distribution.
const Z90: f64 = 1.645;

/// The report as text of at most 80 columns, with colour codes.
pub fn render(report: &Report) -> String {
    let mut text = heading(report);
    let letters = letters(report);
    text += &threads(report, &letters);
    text += &picture(&report.placements, &letters);
    text += &moves(report);
    text += &ending(report);
    text
}

fn heading(report: &Report) -> String {
    let bold = Style::new().bold();
    let command = report.command.join(" ");
    let mut text = format!(
        "\n{bold}perch{bold:#}: {}\n",
        fit(&command, WIDTH - 7).trim_end()
    );
    text += &wrapped(
        "",
        &format!(
            "{:.1} s with policy {}{}, profile {}; {} seen, at most {} at once",
            seconds(report.duration),
            report.policy,
            if report.dry_run { " (dry run)" } else { "" },
            report.profile,
            count(report.threads_seen as usize, "thread"),
            report.most_threads,
        ),
    );
    if let Some(what_if) = &report.what_if {
        text += &wrapped("what-if topology: ", what_if);
    }
    text += &wrapped("known by: ", &report.counting);
    text += &wrapped("          ", &trust(report));
    text
}

/// How far the FP shares can be trusted, as a sentence.
fn trust(report: &Report) -> String {
    let trust = &report.trust;
    let unmeasured = match trust.unmeasured * 100.0 {
        share if share >= 0.5 => format!(
            "; {share:.0} % ({:.1} s) went to threads that ended before they could be measured",
            seconds(report.unmeasured)
        ),
        _ => String::new(),
    };
    if trust.sources.is_empty() {
        return format!(
            "no FP shares are known: nothing ran for long enough, or nothing could be counted{unmeasured}"
        );
    }
    let sampled = trust
        .sources
        .iter()
        .any(|(source, _)| *source == MetricSource::Sampling);
    let limits = if sampled {
        format!(
            "; sampled shares are right within {} (docs/accuracy.md), IPC and FLOP/s cannot be sampled",
            points(report)
        )
    } else {
        String::new()
    };
    format!(
        "FP shares known for {:.0} % of the CPU time, mean confidence {:.2}{unmeasured}; FP-heavy from {} % on{limits}",
        trust.known * 100.0,
        trust.confidence,
        report.fp_threshold * 100.0
    )
}

/// How far the sampled FP shares may be off: the mean half-width of their 90 % intervals, by CPU time.
fn points(report: &Report) -> String {
    let known = report.threads.iter().filter_map(|thread| {
        let error = thread.stats.metric(names::FP_SHARE_ERROR)?;
        Some((thread.stats.cpu_time as f64, error.value))
    });
    let (time, sum) = known.fold((0.0, 0.0), |(time, sum), (busy, error)| {
        (time + busy, sum + busy * error)
    });
    // Recordings of versions that did not state the error.
    if time <= 0.0 {
        return "a few points".to_owned();
    }
    format!("{:.1} points (90 %)", Z90 * 100.0 * sum / time)
}

/// A letter for each of the busiest threads, for table and picture.
fn letters(report: &Report) -> HashMap<ThreadId, char> {
    let busy = report
        .threads
        .iter()
        .filter(|thread| thread.stats.activity() >= IDLE);
    busy.map(|thread| thread.thread).zip('a'..='z').collect()
}

fn threads(report: &Report, letters: &HashMap<ThreadId, char>) -> String {
    let counted = report
        .threads
        .iter()
        .any(|thread| thread.stats.metric(names::IPC).is_some());
    let last = if counted { "IPC" } else { "mem" };
    let columns = [
        ("", Align::Left),
        ("thread", Align::Left),
        ("busy", Align::Right),
        ("FP", Align::Right),
        ("vec", Align::Right),
        ("load", Align::Right),
        ("store", Align::Right),
        (last, Align::Right),
        ("wait", Align::Right),
        ("switches", Align::Right),
        ("migr", Align::Right),
        ("bound", Align::Left),
    ];
    let row = |letter: String, name: String, stats: &ThreadStats, bound: String| {
        let percent = |name: &str| {
            stats.metric(name).map_or_else(
                || "-".to_owned(),
                |metric| format!("{:.0}", metric.value * 100.0),
            )
        };
        let last = match stats.metric(names::IPC) {
            Some(ipc) if counted => format!("{:.2}", ipc.value),
            _ if counted => "-".to_owned(),
            _ => percent(names::MEMORY_INTENSITY),
        };
        let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), short);
        vec![
            letter,
            name,
            format!("{:.0}", stats.activity() * 100.0),
            percent(names::FP_SHARE),
            percent(names::VECTOR_SHARE),
            percent(names::LOAD_SHARE),
            percent(names::STORE_SHARE),
            last,
            format!(
                "{:.0}",
                stats.wait_time as f64 / stats.lifetime.max(1) as f64 * 100.0
            ),
            number(stats.switches),
            number(stats.migrations),
            bound,
        ]
    };
    let busy: Vec<&ThreadReport> = report
        .threads
        .iter()
        .filter(|thread| letters.contains_key(&thread.thread))
        .take(THREADS)
        .collect();
    let mut rows: Vec<Vec<String>> = busy
        .iter()
        .map(|thread| {
            let letter = letters
                .get(&thread.thread)
                .map_or_else(String::new, char::to_string);
            row(
                letter,
                fit(&thread.name, 15).trim_end().to_owned(),
                &thread.stats,
                bound(thread),
            )
        })
        .collect();
    rows.extend(
        report
            .groups
            .iter()
            .filter(|group| group.stats.activity() >= IDLE)
            .take(GROUPS)
            .map(|group| {
                let name = format!("{}×{}", group.threads, fit(&group.name, 10).trim_end());
                row(String::new(), name, &group.stats, String::new())
            }),
    );
    if rows.is_empty() {
        return "No thread was busy.\n".to_owned();
    }
    let shown = busy.len();
    let mut text = format!("\n{}\n", table(&columns, rows));
    let more = report.threads.len() - shown;
    if more > 0 {
        let _ = writeln!(
            text,
            "and {} that did little; all are in --json",
            count(more, "thread")
        );
    }
    text += "In %: busy, wait of its time; FP, load, store of its instructions; vec of its FP\n";
    text
}

fn bound(thread: &ThreadReport) -> String {
    match (&thread.bound, thread.unmanaged) {
        (_, Some(Unmanaged::PlacedBefore)) => "no (placed)".to_owned(),
        (_, Some(Unmanaged::ChangedByOthers)) => "no (others)".to_owned(),
        (_, Some(Unmanaged::Unknown)) => "no (unknown)".to_owned(),
        (_, Some(Unmanaged::NotPermitted)) => "no (denied)".to_owned(),
        (Some(pus), None) => format!("PU {pus}"),
        (None, None) if thread.stats.bound_time > 0 => {
            format!(
                "{:.0} %",
                thread.stats.bound_time as f64 / thread.stats.cpu_time.max(1) as f64 * 100.0
            )
        }
        (None, None) => "-".to_owned(),
    }
}

/// Which thread was on which PU when: one row per PU, with the thread's letter, a capital while it was FP-heavy.
fn picture(placements: &Placements, letters: &HashMap<ThreadId, char>) -> String {
    if placements.columns.len() < 2 || placements.rows.is_empty() {
        return String::new();
    }
    let fold = placements.columns.len().div_ceil(COLUMNS);
    let to = placements.columns.last().copied().map_or(0.0, seconds);
    let bold = Style::new().bold();
    let mut text = format!(
        "\nThreads by PU, 0 to {to:.0} s (capital: FP-heavy, {bold}bold{bold:#}: bound, * others)\n"
    );
    for row in placements.rows.iter().take(ROWS) {
        let _ = write!(text, "  PU {:>3}  ", row.pu);
        for cells in row.cells.chunks(fold) {
            let most = cells
                .iter()
                .flatten()
                .max_by(|a, b| a.share.total_cmp(&b.share));
            let Some(cell) = most else {
                text.push('·');
                continue;
            };
            let letter = letters.get(&cell.thread).copied().unwrap_or('*');
            let (letter, style) = match cell.role {
                Role::FloatingPoint => (letter.to_ascii_uppercase(), AnsiColor::Cyan.on_default()),
                Role::Integer => (letter, AnsiColor::Yellow.on_default()),
                Role::Unknown => (letter, Style::new()),
            };
            let style = if cell.bound { style.bold() } else { style };
            let _ = write!(text, "{style}{letter}{style:#}");
        }
        text.push('\n');
    }
    if placements.rows.len() > ROWS {
        let _ = writeln!(
            text,
            "  and {} more; all are in --json",
            count(placements.rows.len() - ROWS, "PU")
        );
    }
    text
}

fn moves(report: &Report) -> String {
    let moves = &report.moves;
    let total: u64 = moves.outcomes.iter().map(|(_, number)| number).sum();
    if total == 0 {
        return String::new();
    }
    let mut text = format!(
        "\nMoves: {} bound, {} moved, {} unbound",
        moves.bound, moves.moved, moves.released
    );
    for (outcome, number) in &moves.outcomes {
        let what = match outcome {
            Outcome::Applied | Outcome::NotApplied => continue,
            Outcome::Gone => "had ended",
            Outcome::ChangedByOthers => "left alone, placed by others",
            Outcome::NotPermitted => "not permitted",
            Outcome::Failed => "failed for want of descriptors or memory",
            Outcome::NoUsablePu => "without a usable PU",
        };
        let _ = write!(text, "; {number} {what}");
    }
    text.push('\n');
    let all: Vec<&MoveReport> = moves.first.iter().chain(&moves.last).collect();
    for made in all.iter().take(MOVES) {
        text += &move_line(made);
    }
    if all.len() > MOVES {
        let _ = writeln!(
            text,
            "  … {} more; --explain prints each as it happens",
            total as usize - MOVES
        );
    }
    text
}

fn move_line(made: &MoveReport) -> String {
    let target = match &made.to {
        Some(pus) => format!("→ {pus}"),
        None => "unbound".to_owned(),
    };
    let label = format!(
        "  {:>5.1} s  {} {}  ",
        seconds(made.at),
        fit(&made.name, 12),
        fit(&target, 7)
    );
    wrapped(&label, &made.reason.text)
}

fn ending(report: &Report) -> String {
    let mut text = String::new();
    for (why, number) in &report.unmanaged {
        let _ = writeln!(
            text,
            "{} left alone: {}",
            count(*number as usize, "thread"),
            super::unmanaged(*why)
        );
    }
    let (masks, weights) = (&report.restored.masks, &report.restored.weights);
    for (counts, what, left_alone) in [
        (masks, "mask", "left as another process set it"),
        (
            weights,
            "CPU weight",
            "left alone: another process has set it, or may have",
        ),
    ] {
        if counts.restored > 0 {
            let _ = writeln!(text, "{} restored at the end", count(counts.restored, what));
        }
        if counts.left_alone > 0 {
            let _ = writeln!(text, "{} {left_alone}", count(counts.left_alone, what));
        }
        for (thread, why) in &counts.failed {
            let _ = match thread {
                Some(thread) => writeln!(text, "{what} of thread {thread} not restored: {why}"),
                None => writeln!(text, "not restored: {why}"),
            };
        }
    }
    for remark in &report.remarks {
        let label = match remark.severity {
            Severity::Note => "note: ",
            Severity::Warning => "warning: ",
            Severity::Error => "error: ",
        };
        text += &wrapped(label, &remark.text);
    }
    let own = &report.own;
    let _ = writeln!(
        text,
        "perch itself took {:.0} ms of CPU time: {:.2} % of one PU",
        own.cpu_time as f64 / 1e6,
        own.share * 100.0
    );
    format!("\n{text}")
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// A number in few columns: `950`, `12k`, `3.4M`.
fn short(number: u64) -> String {
    match number {
        0..=9_999 => number.to_string(),
        10_000..=999_999 => format!("{}k", number / 1_000),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}
