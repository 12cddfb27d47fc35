//! The report at the end, for people.

mod moves;
mod threads;

use super::{WIDTH, count, fit, wrapped};
use anstyle::{AnsiColor, Style};
use perch_core::{MetricSource, Severity, ThreadId, metric::names};
use perch_engine::report::{Placements, Report, Role};
use std::{collections::HashMap, fmt::Write};
use unicode_width::UnicodeWidthStr;

/// PUs in the picture.
const ROWS: usize = 32;
/// Columns of the picture.
const COLUMNS: usize = WIDTH - 10;
/// Two-sided 90 % quantile of the normal distribution.
const Z90: f64 = 1.645;

/// The report as text of at most 80 columns, with colour codes.
pub fn render(report: &Report) -> String {
    let mut text = heading(report);
    let letters = threads::letters(report);
    text += &threads::table(report, &letters);
    text += &picture(&report.placements, &letters);
    text += &moves::list(report, &letters);
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
    text += &wrapped("measured by: ", &report.counting);
    text += &wrapped("             ", &trust(report));
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
            "; sampled shares are within {} (docs/accuracy.md); IPC and FLOP/s cannot be sampled",
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
    format!("±{:.1} points at 90 % confidence", Z90 * 100.0 * sum / time)
}

/// Which thread was on which PU when: one row per PU, with the thread's letter, a capital while it was FP-heavy.
fn picture(placements: &Placements, letters: &HashMap<ThreadId, char>) -> String {
    if placements.columns.len() < 2 || placements.rows.is_empty() {
        return String::new();
    }
    let cores = cores(placements);
    let left = cores.iter().map(|core| core.width() + 2).max().unwrap_or(0);
    let fold = placements.columns.len().div_ceil(COLUMNS - left);
    let to = placements.columns.last().copied().map_or(0.0, seconds);
    let bold = Style::new().bold();
    let mut text = format!(
        "\nThreads by PU, 0 to {to:.0} s (capital: FP-heavy, {bold}bold{bold:#}: bound, * others)\n"
    );
    for (at, row) in placements.rows.iter().take(ROWS).enumerate() {
        let core = cores.get(at).map_or("", String::as_str);
        let _ = write!(text, "  {}PU {:>3}  ", fit(core, left), row.pu);
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

/// What stands before each row: its core before the first one, if there are several cores.
fn cores(placements: &Placements) -> Vec<String> {
    let rows = placements.rows.iter().take(ROWS);
    let names: Vec<&str> = rows.map(|row| row.core.as_str()).collect();
    if names.windows(2).all(|pair| pair[0] == pair[1]) {
        return Vec::new();
    }
    let new = |at: usize| at == 0 || names[at] != names[at - 1];
    let name = |at: usize| if new(at) { names[at] } else { "" };
    (0..names.len()).map(|at| name(at).to_owned()).collect()
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
