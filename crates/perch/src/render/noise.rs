//! Noise as tables and histograms.

use super::{
    count, fit,
    table::{Align, table as columns},
    wrapped,
};
use crate::command::noise::{Latency, Method, Pu, Report, Taker};
use perch_core::PuSet;
use perch_linux::noise::{
    event::{Kind, Source},
    statistics::{Bin, Lengths, Period},
    tracer::Context,
};

/// Width of a source's name.
const NAME: usize = 22;
/// Width of the bars of a histogram.
const BAR: usize = 44;
/// So many sources are shown unless all are wanted.
const SOURCES: usize = 12;
/// More PUs than these are folded where they are alike.
const MANY: usize = 8;
/// The lost shares of PUs that are folded differ by less than this factor.
const ALIKE: f64 = 1.5;

/// All that a person reads.
pub fn text(report: &Report, all: bool) -> String {
    let mut text = heading(report);
    text += "\n";
    text += &pus(report, all);
    text += "\n\n";
    if report.untraced.is_none() {
        text += &sources(report, all);
        text += "\n\n";
    }
    text += &histogram(report);
    text += &notes(report);
    text
}

/// A time in three digits, with its unit.
pub fn time(nanoseconds: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let unit = units
        .iter()
        .find(|(scale, _)| nanoseconds >= 0.9995 * scale);
    let (scale, unit) = *unit.unwrap_or(&(1.0, "ns"));
    let value = nanoseconds / scale;
    match value {
        _ if unit == "ns" => format!("{value:.0} ns"),
        value if value >= 99.95 => format!("{value:.0} {unit}"),
        value if value >= 9.995 => format!("{value:.1} {unit}"),
        value => format!("{value:.2} {unit}"),
    }
}

/// A share in percent.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        0.0 => "0".to_owned(),
        percent if percent < 0.0005 => "<0.001".to_owned(),
        percent if percent < 0.1 => format!("{percent:.3}"),
        percent if percent < 9.995 => format!("{percent:.2}"),
        percent => format!("{percent:.1}"),
    }
}

/// A rate a second.
fn rate(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn period(of: Option<&Period>) -> String {
    of.map_or("-".to_owned(), |period| time(period.nanoseconds as f64))
}

/// Median, 99th percentile and worst.
fn lengths(of: &Lengths) -> [String; 3] {
    match of.count {
        0 => ["-"; 3].map(str::to_owned),
        _ => [of.median, of.p99, of.worst].map(|length| time(length as f64)),
    }
}

fn heading(report: &Report) -> String {
    let Some(first) = report.pus.first() else {
        return "No PU was measured.\n".to_owned();
    };
    let pus: PuSet = report.pus.iter().map(|of| of.pu).collect();
    let most = report.pus.iter().map(|of| of.measured).max().unwrap_or(0);
    let clock = report.pus.iter().map(|of| of.clock).fold(0.0, f64::max);
    let (method, quantum) = match report.method {
        Method::Fwq => ("fixed work", "the shortest took"),
        Method::Ftq => ("fixed time", "each takes"),
        Method::Osnoise => {
            return wrapped(
                "",
                &format!(
                    "The kernel's tracer osnoise on {} ({pus}): samples of {} each, {} in all.",
                    count(report.pus.len(), "PU"),
                    time(first.quantum as f64),
                    time(most as f64),
                ),
            );
        }
    };
    wrapped(
        "",
        &format!(
            "Quanta of {method} on {} ({pus}) for {}; {quantum} {}, and a quantum that lost more than {} was interrupted. \
             Reading the clock takes {}.",
            count(report.pus.len(), "PU"),
            time(most as f64),
            time(first.quantum as f64),
            time(first.threshold as f64),
            time(clock),
        ),
    )
}

fn pus(report: &Report, all: bool) -> String {
    let heading = [
        ("PU", Align::Left),
        ("lost %", Align::Right),
        ("1/s", Align::Right),
        ("median", Align::Right),
        ("99 %", Align::Right),
        ("worst", Align::Right),
        ("period", Align::Right),
        ("most by", Align::Left),
    ];
    let known = report.untraced.is_none();
    let heading = &heading[..heading.len() - usize::from(!known)];
    let folds = folds(&report.pus, !all && report.pus.len() > MANY);
    let rows = folds.iter().map(|fold| {
        let names: PuSet = fold.iter().map(|of| of.pu).collect();
        let mean =
            |of: fn(&Pu) -> f64| fold.iter().map(|pu| of(pu)).sum::<f64>() / fold.len() as f64;
        let most = |of: fn(&Pu) -> u64| fold.iter().map(|pu| of(pu)).max().unwrap_or(0);
        let together = Lengths {
            count: most(|pu| pu.lengths.count),
            total: 0,
            median: most(|pu| pu.lengths.median),
            p99: most(|pu| pu.lengths.p99),
            worst: most(|pu| pu.lengths.worst),
        };
        let [median, p99, worst] = lengths(&together);
        let mut cells = vec![
            fit(&names.to_string(), 14).trim_end().to_owned(),
            percent(mean(|pu| pu.lost)),
            rate(mean(|pu| pu.rate)),
            median,
            p99,
            worst,
            period(fold.first().and_then(|pu| pu.period.as_ref())),
        ];
        cells.extend(known.then(|| fit(most_by(fold[0]), 16).trim_end().to_owned()));
        cells
    });
    let mut text = columns(heading, rows);
    if folds.len() < report.pus.len() {
        text += "\n";
        text += wrapped(
            "",
            "PUs that are alike share a row: means of lost and 1/s, and of the lengths the greatest. --all shows each.",
        )
        .trim_end();
    }
    text
}

fn most_by(pu: &Pu) -> &str {
    pu.sources.first().map_or("-", |taker| &taker.source.name)
}

/// PUs that lost similarly much, most of it to the same source, together; or each alone.
fn folds(pus: &[Pu], fold: bool) -> Vec<Vec<&Pu>> {
    let mut folds: Vec<Vec<&Pu>> = Vec::new();
    for pu in pus {
        let alike = |other: &Pu| {
            let (least, most) = (pu.lost.min(other.lost), pu.lost.max(other.lost));
            most <= ALIKE * least && most_by(pu) == most_by(other)
        };
        match folds.iter_mut().find(|of| fold && alike(of[0])) {
            Some(of) => of.push(pu),
            None => folds.push(vec![pu]),
        }
    }
    folds
}

/// What a kind is called.
pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Task => "thread",
        Kind::KernelThread => "kernel",
        Kind::Work => "workqueue",
        Kind::Softirq => "softirq",
        Kind::Irq => "IRQ",
        Kind::LocalIrq => "local IRQ",
        Kind::Nmi => "NMI",
        Kind::Idle => "idle",
        Kind::Perch => "perch's own",
    }
}

/// The name, and whose it is.
fn named(source: &Source) -> String {
    match &source.user {
        Some(user) => format!("{} ({user})", source.name),
        None => source.name.clone(),
    }
}

fn sources(report: &Report, all: bool) -> String {
    let heading = [
        ("taken by", Align::Left),
        ("kind", Align::Left),
        ("time %", Align::Right),
        ("1/s", Align::Right),
        ("median", Align::Right),
        ("99 %", Align::Right),
        ("worst", Align::Right),
        ("period", Align::Right),
    ];
    let shown = if all { usize::MAX } else { SOURCES };
    let row = |taker: &Taker| {
        let [median, p99, worst] = lengths(&taker.lengths);
        vec![
            fit(&named(&taker.source), NAME).trim_end().to_owned(),
            kind(taker.source.kind).to_owned(),
            percent(taker.share),
            rate(taker.rate),
            median,
            p99,
            worst,
            period(taker.period.as_ref()),
        ]
    };
    let mut rows: Vec<Vec<String>> = report.sources.iter().take(shown).map(row).collect();
    let rest = report.sources.get(shown..).unwrap_or_default();
    let mut bare = |name: &str, share: f64| {
        let mut cells = vec![name.to_owned(), String::new(), percent(share)];
        cells.resize(heading.len(), String::new());
        rows.push(cells);
    };
    if !rest.is_empty() {
        let share = rest.iter().map(|taker| taker.share).sum();
        bare(&format!("{} more (--all)", rest.len()), share);
    }
    bare("(around these)", report.around.unwrap_or(0.0));
    bare("(unattributed)", report.unattributed.unwrap_or(0.0));
    columns(&heading, rows)
}

/// Latencies of timers as a table.
pub fn latencies(report: &Latency) -> String {
    let heading = [
        ("PU", Align::Left),
        ("latency of", Align::Left),
        ("timers", Align::Right),
        ("median", Align::Right),
        ("99 %", Align::Right),
        ("worst", Align::Right),
    ];
    if report.rows.is_empty() {
        return "The kernel's tracer timerlat told nothing in this time.\n".to_owned();
    }
    let rows = report.rows.iter().map(|row| {
        let [median, p99, worst] = lengths(&row.lengths);
        let context = match row.context {
            Context::Irq => "interrupt",
            Context::Thread => "thread",
        };
        vec![
            row.pu.to_string(),
            context.to_owned(),
            row.lengths.count.to_string(),
            median,
            p99,
            worst,
        ]
    });
    let mut text = "The kernel's tracer timerlat: how late a timer's interrupt and the thread \
                    that it\nwakes up were.\n\n"
        .to_owned();
    text += &columns(&heading, rows);
    text += "\n\n";
    for (context, title) in [
        (Context::Irq, "Latencies of interrupts"),
        (Context::Thread, "Latencies of threads"),
    ] {
        let rows = report.rows.iter().filter(|row| row.context == context);
        text += &bars(title, rows.flat_map(|row| &row.histogram)).unwrap_or_default();
    }
    if report.rows.iter().any(|row| row.lost_events > 0) {
        text += "\nEvents of the kernel were lost: not all latencies are here.\n";
    }
    if let Some(signal) = &report.stopped {
        text += &format!("\nStopped by {signal}: these are the results so far.\n");
    }
    text
}

/// How many interruptions of all PUs there were of which length.
fn histogram(report: &Report) -> String {
    let bins = report.pus.iter().flat_map(|pu| &pu.histogram);
    bars("Interruptions", bins).unwrap_or("No quantum was interrupted.\n".to_owned())
}

/// Lengths as bars; `None` if there are none.
fn bars<'a>(title: &str, all: impl Iterator<Item = &'a Bin>) -> Option<String> {
    let mut bins = std::collections::BTreeMap::<u64, Bin>::new();
    for bin in all {
        let all = bins.entry(bin.from).or_insert(Bin {
            count: 0,
            total: 0,
            ..*bin
        });
        all.count += bin.count;
        all.total += bin.total;
    }
    let most = bins.values().map(|bin| bin.count).max().unwrap_or(0);
    if most == 0 {
        return None;
    }
    let mut text = format!("{title} by length (bars are logarithmic):\n");
    // A single one has a bar, too.
    let width = |count: u64| (1.0 + count as f64).ln() / (1.0 + most as f64).ln() * BAR as f64;
    for bin in bins.values() {
        let bar = match bin.count {
            0 => String::new(),
            count => "█".repeat((width(count).round() as usize).max(1)),
        };
        let bounds = format!("{} -", time(bin.from as f64));
        text += &format!(
            "{bounds:>9} {:<8}{:>9}  {bar}\n",
            time(bin.to as f64),
            bin.count
        );
    }
    Some(text)
}

/// What else must be known to read the tables.
fn notes(report: &Report) -> String {
    let mut notes = Vec::new();
    match &report.untraced {
        Some(why) => notes.push(format!("Who interrupted is not known: {why}.")),
        None => notes.push(
            "(around these): entry and exit of the kernel, and refilled caches, in interruptions whose source was seen. \
             (unattributed): interruptions in which nothing was seen (hypervisor, SMI, cache misses?)."
                .to_owned(),
        ),
    }
    let stolen: Vec<&Pu> = report.pus.iter().filter(|pu| pu.steal > 0.0).collect();
    if !stolen.is_empty() {
        let pus: PuSet = stolen.iter().map(|pu| pu.pu).collect();
        let most = stolen.iter().map(|pu| pu.steal).fold(0.0, f64::max);
        notes.push(format!(
            "The hypervisor took up to {} % of the time on PU {pus} (steal time in /proc/stat, in ticks of 10 ms).",
            percent(most)
        ));
    }
    if report.throttled > 0 {
        notes.push(format!(
            "The CPU limit of perch's control group stopped it for {} (cpu.max): that is no noise of the machine.",
            time(report.throttled as f64)
        ));
    }
    let lost: u64 = report.pus.iter().map(|pu| pu.lost_events).sum();
    if lost > 0 {
        notes.push(format!(
            "{lost} events of the kernel were lost: sources took more than the table says."
        ));
    }
    if report.pus.iter().any(|pu| pu.full) {
        notes.push(
            "There were more results than perch keeps: it ended early. Give a shorter --for."
                .to_owned(),
        );
    }
    if let Some(signal) = &report.stopped {
        notes.push(format!(
            "Stopped by {signal}: these are the results so far."
        ));
    }
    if let Some(tracers) = &report.tracers {
        notes.push(match tracers.is_empty() {
            true => "The kernel has neither of its own tracers osnoise and timerlat (CONFIG_OSNOISE_TRACER, \
                     CONFIG_TIMERLAT_TRACER)."
                .to_owned(),
            false => format!("The kernel has its own tracers, too: {}.", tracers.join(", ")),
        });
    }
    let notes = notes.iter().map(|note| wrapped("", note));
    format!("\n{}", notes.collect::<String>())
}
