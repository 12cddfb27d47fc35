//! The report at the end, for people.

mod moves;
mod occupancy;
mod system;
mod threads;

use super::{WIDTH, count, fit, wrapped};
use anstyle::Style;
use perch_core::{MetricSource, Setting, Severity, metric::names, text::printable};
use perch_engine::{
    RestoreCounts,
    report::{PackageEnergy, Report},
};
use std::{collections::BTreeMap, fmt::Write};

/// Two-sided 90 % quantile of the normal distribution.
const Z90: f64 = 1.645;

/// The report as text of at most 80 columns, with colour codes.
pub fn render(report: &Report) -> String {
    let mut text = heading(report);
    let letters = threads::letters(report);
    text += &threads::table(report, &letters);
    text += &occupancy::picture(&report.placements, &letters);
    text += &moves::list(report, &letters);
    text += &system::summary(report);
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
            "{:.1} s with policy {}{}, profile {}; {} seen{}",
            seconds(report.duration),
            report.policy,
            if report.dry_run { " (dry run)" } else { "" },
            report.profile,
            count(report.threads_seen as usize, "thread"),
            // Threads that came and went between two observations were never seen together.
            match report.most_threads {
                0 => String::new(),
                most => format!(", at most {most} at once"),
            },
        ),
    );
    if let Some(what_if) = &report.what_if {
        text += &wrapped("what-if topology: ", what_if);
    }
    text += &wrapped("measured by: ", &report.counting);
    text += &wrapped("             ", &trust(report));
    if !report.energy.is_empty() {
        text += &wrapped("energy:      ", &energy(report));
    }
    text
}

/// What the packages used, as a sentence.
fn energy(report: &Report) -> String {
    let of = |used: &PackageEnergy| {
        let is_partial = (used.time as f64) < 0.95 * report.duration as f64;
        let watts = used.energy / seconds(used.time).max(f64::MIN_POSITIVE);
        format!(
            "package {} {}{:.1} J, {watts:.1} W on average",
            used.package,
            if is_partial { "at least " } else { "" },
            used.energy
        )
    };
    let mut parts: Vec<String> = report.energy.iter().take(NAMED).map(of).collect();
    if report.energy.len() > 1 {
        let all: f64 = report.energy.iter().map(|used| used.energy).sum();
        parts.push(format!("{all:.1} J together"));
    }
    format!("{} (whatever ran there)", parts.join("; "))
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
            "no FP shares are known: no thread ran for long enough, or counters and sampling are not available{unmeasured}"
        );
    }
    let sampled = trust
        .sources
        .iter()
        .any(|(source, _)| *source == MetricSource::Sampling);
    let limits = if sampled {
        format!(
            "; sampled FP shares are within {} (docs/accuracy.md); IPC and FLOP/s cannot be sampled",
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

/// The code with which policies say why they bind nothing.
const NOTHING_TO_PLACE: &str = "nothing-to-place";

/// What was given CPU weights and ways of caches, and which.
fn given(report: &Report) -> String {
    let mut names: BTreeMap<(u32, String), Vec<&str>> = BTreeMap::new();
    for thread in &report.threads {
        let weight = thread.weight.iter();
        let weight = weight.map(|weight| (weight.get(), format!("CPU weight {weight}")));
        let ways = thread.cache_ways.iter();
        let ways = ways.map(|ways| (u32::MAX, format!("fill only ways {ways}")));
        for what in weight.chain(ways) {
            names.entry(what).or_default().push(&thread.name);
        }
    }
    let lines = names.into_iter().map(|((_, what), mut names)| {
        let threads = count(names.len(), "thread");
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        names.truncate(NAMED);
        wrapped(
            "",
            &format!("{what}: {threads} ({}{more})", names.join(", ")),
        )
    });
    lines.collect()
}

/// Names that a line lists at most.
const NAMED: usize = 8;

fn ending(report: &Report) -> String {
    let mut text = given(report);
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
    text += &settings(&report.restored.settings);
    // Why nothing was bound for a while is no news once something was.
    let bound = report.moves.bound > 0;
    let mut latest = report.remarks.iter().rev();
    let last = latest
        .find(|remark| remark.code == NOTHING_TO_PLACE)
        .filter(|_| !bound);
    let told = report.remarks.iter().filter(|remark| {
        remark.code != NOTHING_TO_PLACE || last.is_some_and(|last| std::ptr::eq(last, *remark))
    });
    for remark in told {
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

/// What became of settings of the machine at the end.
fn settings(counts: &RestoreCounts<Setting>) -> String {
    let mut text = String::new();
    let lines = [
        (counts.restored, "restored at the end"),
        (counts.left_alone, "left as another process changed it"),
    ];
    for (number, what) in lines {
        if number > 0 {
            let _ = writeln!(text, "{} {what}", count(number, "setting"));
        }
    }
    for (setting, why) in &counts.failed {
        let what = setting
            .as_ref()
            .map_or_else(String::new, |of| format!("{of} "));
        text += &wrapped("", &format!("{}not restored: {why}", printable(&what)));
    }
    text
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
