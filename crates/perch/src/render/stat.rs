//! Rows and totals of `perch stat`: as text here, as CSV and JSON in [`export`] (columns: [`fields`]); [`regions`] of programs;
//! several runs [`repeated`].

pub mod export;
pub mod fields;
pub mod regions;
pub mod repeated;

use super::{count, fit, wrapped};
use crate::command::stat::wanted::Wanted;
use perch_core::MetricScope;
use perch_linux::launch::Usage;
use perch_stat::{
    Amounts, By, Collector, Readings, Row, RowMetrics, SMALL, Total, Totals,
    text::{self, block, cells, count_text, fits, header, metric_text},
};
use std::time::Duration;

/// What a run was.
#[derive(Debug, Clone, Default)]
pub struct Heading {
    /// The program, the processes or the recording.
    pub title: String,
    /// Whether PUs, if they are counted, are those of the machine on which that runs.
    pub meanwhile: bool,
    /// How it was counted.
    pub counting: String,
    /// How long it was counted.
    pub took: Duration,
    /// What the program took, once it has ended, if perch started it.
    pub usage: Option<Usage>,
}

/// The part of an event's count that may be missing in the rows without a note.
const LACKING: f64 = 0.02;

/// Entities that totals show; of the others, their number and their share of the CPU time.
const MOST_TOTALS: usize = 30;

/// What a line is about: titles and texts of the columns before the counts.
fn about(by: By) -> Vec<(&'static str, usize)> {
    match by {
        By::Thread => vec![("TID", 7), ("thread", 15)],
        By::Process => vec![("PID", 7), ("process", 15)],
        By::Command => vec![("threads of", 15)],
        By::All => vec![("", 11)],
        By::Pu => vec![("PU", 7)],
        By::Core | By::Package | By::Node | By::Machine => vec![("PUs of", 11)],
    }
}

/// The titles and widths of the columns of counts and metrics.
fn columns(wanted: &Wanted) -> Vec<(String, usize)> {
    let events = wanted.events.iter().map(|event| event.name.to_string());
    let metrics = wanted.metrics.iter().map(|metric| metric.title.clone());
    text::columns(events.chain(metrics))
}

/// A line's beginning.
fn leading(by: By, entity: &perch_stat::Entity, name: &str) -> String {
    let texts = match by {
        By::Thread | By::Process => vec![entity.to_string(), name.to_owned()],
        By::Pu => vec![
            entity
                .number()
                .map_or_else(String::new, |number| number.to_string()),
        ],
        _ => vec![entity.to_string()],
    };
    let mut line = String::new();
    for ((title, width), text) in about(by).into_iter().zip(texts) {
        match matches!(title, "TID" | "PID" | "PU") {
            true => line += &format!("{text:>width$}  "),
            false => line += &format!("{}  ", fit(&text, width)),
        }
    }
    line
}

fn titles(by: By) -> String {
    let titles = about(by).into_iter().map(|(title, width)| match title {
        "TID" | "PID" | "PU" => format!("{title:>width$}  "),
        _ => format!("{title:<width$}  "),
    });
    titles.collect()
}

/// The texts of counts and metrics; of what `was_idle`, a count that is missing is 0.
fn texts(wanted: &Wanted, amounts: &Amounts, metrics: &RowMetrics, was_idle: bool) -> Vec<String> {
    let is_idle = was_idle && amounts.values.is_empty() && !wanted.by.is_of_pus();
    let events = wanted.events.iter().map(|event| match is_idle {
        true => "0".to_owned(),
        false => count_text(amounts, &event.alias),
    });
    let metrics = wanted
        .metrics
        .iter()
        .map(|column| metric_text(metrics, &column.name));
    events.chain(metrics).collect()
}

/// Busy time as a share of the interval.
fn share(amounts: &Amounts, interval: u64) -> String {
    format!(
        "{:.0}",
        100.0 * amounts.cpu_time as f64 / interval.max(1) as f64
    )
}

/// Rows as a table; as blocks if the columns do not fit.
pub fn rows(wanted: &Wanted, rows: &[Row], first: bool) -> String {
    let by = wanted.by;
    let columns = columns(wanted);
    let several = wanted.request.sets.len() > 1;
    let mut before = format!("{:>9}  {}{:>5}", "time (s)", titles(by), "CPU %");
    if several {
        before += "  set";
    }
    let fits = fits(before.chars().count(), &columns);
    let mut out = String::new();
    if first {
        out += &before;
        if fits {
            out += &header(&columns);
        }
        out.push('\n');
    }
    for row in rows {
        let mut line = format!(
            "{:>9.3}  {}{:>5}",
            row.at as f64 / 1e9,
            leading(by, &row.entity, &row.name),
            share(&row.amounts, row.interval)
        );
        if several {
            // `*`: a new phase.
            let set = row
                .set
                .map_or_else(|| "-".to_owned(), |set| (set + 1).to_string());
            line += &format!("  {:>3}", set + if row.new_phase { "*" } else { "" });
        }
        // Nothing is known of a thread that ended since it was last looked at.
        let was_idle = row.amounts.cpu_time == 0 && row.amounts.switches.is_some();
        let texts = texts(wanted, &row.amounts, &row.metrics, was_idle);
        out += &filled(line, fits, &columns, &texts);
    }
    out
}

/// A row that is begun, with its columns: in the same line, or below it where they do not fit.
fn filled(mut line: String, fits: bool, columns: &[(String, usize)], texts: &[String]) -> String {
    if fits {
        line += &cells(columns, texts);
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    if !fits {
        line += &block(columns, texts);
    }
    line
}

/// What a run came to.
pub fn totals(wanted: &Wanted, heading: &Heading, collector: &Collector) -> String {
    let totals = collector.totals();
    let by = wanted.by;
    let columns = columns(wanted);
    let mut out = String::from("\n");
    let title = match heading.meanwhile && by.is_of_pus() {
        true => format!("this machine, while {} runs", heading.title),
        false => heading.title.clone(),
    };
    out += &wrapped("perch stat: ", &title);
    out += &took(heading);
    out += &wrapped("counted by: ", &heading.counting);
    let before = format!("{}{:>9}", titles(by), "CPU (s)");
    let fits = fits(before.chars().count(), &columns);
    out.push('\n');
    out += &before;
    if fits {
        out += &header(&columns);
    }
    out.push('\n');
    let entities = shown(by, totals);
    let mut line = |leading: &str,
                    cpu_time: u64,
                    amounts: &Amounts,
                    readings: &Readings,
                    interval: u64,
                    was_idle: bool| {
        let metrics = collector.metrics(amounts, readings, interval);
        let texts = texts(wanted, amounts, &metrics, was_idle);
        let line = format!("{leading}{:>9.3}", cpu_time as f64 / 1e9);
        out += &filled(line, fits, &columns, &texts);
    };
    for total in entities.iter().take(MOST_TOTALS) {
        line(
            &leading(by, &total.entity, &total.name),
            total.amounts.cpu_time,
            &total.amounts,
            &total.readings,
            total.interval,
            total.was_idle(),
        );
    }
    if entities.len() > MOST_TOTALS {
        let mut rest = Amounts::default();
        entities[MOST_TOTALS..]
            .iter()
            .for_each(|total| rest.add(&total.amounts));
        let width = titles(by).chars().count();
        line(
            &fit(&format!("{} more", entities.len() - MOST_TOTALS), width),
            rest.cpu_time,
            &rest,
            // Values of several rows may tell the same.
            &Readings::default(),
            totals.interval,
            entities[MOST_TOTALS..].iter().all(|total| total.was_idle()),
        );
    }
    if entities.len() != 1 || totals.is_whole() {
        let width = titles(by).chars().count();
        let all = fit("all", width);
        line(
            &all,
            totals.cpu_time(),
            &totals.all(),
            totals.readings(),
            totals.interval,
            entities.iter().all(|total| total.was_idle()),
        );
    }
    out += &notes(wanted, collector);
    out
}

/// The rows of totals. One for all threads would be a part of `all`, which has those too that were too short-lived for rows.
fn shown(by: By, totals: &Totals) -> Vec<&Total> {
    match by == By::All && totals.is_whole() {
        true => Vec::new(),
        false => totals.by_cpu_time(),
    }
}

/// How long it was counted, and what the program took.
fn took(heading: &Heading) -> String {
    let counted = heading.took.as_secs_f64();
    match heading.usage {
        None => format!("{counted:.3} s\n"),
        Some(usage) => format!(
            "{counted:.3} s counted; program: {:.3} s elapsed, {:.3} s user, {:.3} s system\n",
            usage.elapsed.as_secs_f64(),
            usage.user.as_secs_f64(),
            usage.system.as_secs_f64()
        ),
    }
}

/// What the numbers do not say.
fn notes(wanted: &Wanted, collector: &Collector) -> String {
    let totals = collector.totals();
    let all = totals.all();
    let mut out = String::new();
    let scaled = wanted.events.iter().filter_map(|event| {
        let value = all.value(&event.alias)?;
        let share = value.share(all.covered);
        (share > 0.0 && value.is_scaled(all.covered))
            .then(|| format!("{} {:.1} %", event.name, share * 100.0))
    });
    let scaled: Vec<String> = scaled.collect();
    let metrics = all_metrics(collector);
    if !scaled.is_empty() {
        let text = format!(
            "scaled up; counted for this share of the time: {}",
            scaled.join(", ")
        );
        out += &wrapped("~  ", &text);
    } else if metrics.iter().any(|metrics| !metrics.scaled.is_empty()) {
        out += &wrapped(
            "~  ",
            "an estimate: its events were counted for a part of the time",
        );
    }
    let partial = shown(wanted.by, totals)
        .iter()
        .any(|total| total.amounts.is_partial() && !total.amounts.values.is_empty());
    if partial {
        let text = match wanted.by.is_of_pus() {
            false => "a lower bound: threads ran before perch found them",
            true => "a lower bound: counted for a part of the time",
        };
        out += &wrapped(">  ", text);
    } else if metrics.iter().any(|metrics| !metrics.partial.is_empty()) {
        out += &wrapped(">  ", "a lower bound: unknown for a part of the time");
    }
    let is_uncounted = |amounts: &Amounts| amounts.cpu_time > 0 && amounts.values.is_empty();
    let mut rows = shown(wanted.by, totals).into_iter();
    let of_threads = !wanted.events.is_empty() && !wanted.by.is_of_pus();
    if of_threads && rows.any(|total| is_uncounted(&total.amounts)) {
        let text =
            "not counted: the thread ended before perch found it, or there were no counters left";
        out += &wrapped("-  ", text);
    }
    out += &wider_note(wanted, &metrics);
    let doubts: Vec<String> = wanted
        .events
        .iter()
        .filter_map(|event| {
            Some(format!(
                "{}: {}",
                event.name,
                all.value(&event.alias)?.doubt?
            ))
        })
        .collect();
    if !doubts.is_empty() {
        out += &wrapped("?  ", &doubts.join("; "));
    }
    if totals.unmeasured > 0 && !wanted.by.is_of_pus() {
        let known = match totals.is_whole() {
            true => totals.cpu_time(),
            false => all.cpu_time.saturating_add(totals.unmeasured),
        };
        let share = 100.0 * totals.unmeasured as f64 / known as f64;
        if share >= 0.05 {
            let unseen = match usize::try_from(totals.unseen).unwrap_or(usize::MAX) {
                0 => String::new(),
                number => format!(
                    "that of {} too short-lived to be observed, and ",
                    count(number, "thread")
                ),
            };
            let text = format!(
                "{:.3} s of CPU time ({share:.1} %) are in no row: {}the last moments of threads{}",
                totals.unmeasured as f64 / 1e9,
                unseen,
                if totals.is_whole() {
                    "; they are counted in `all`"
                } else {
                    ""
                },
            );
            out += &wrapped("note: ", &text);
        }
    }
    if totals.is_whole() && all.is_partial() {
        let text = format!(
            "the counts of `all` are those of {:.3} s: what the kernel does to start the program and to end threads is \
             not counted, nor are set-user-ID programs without root's rights",
            all.covered as f64 / 1e9
        );
        out += &wrapped("note: ", &text);
    }
    if totals.is_whole() && of_threads {
        out += &lacking(wanted, totals, &all);
    }
    if wanted.uses_switches() && all.switches.is_some() {
        let unknown = all.cpu_time.saturating_sub(all.switches_known);
        if unknown > SMALL && all.known_switches() < 0.98 {
            let text = format!(
                "context switches and migrations are lower bounds: those of {:.3} s of CPU time, the last moments of \
                 threads, are unknown",
                unknown as f64 / 1e9
            );
            out += &wrapped("note: ", &text);
        }
    }
    if collector.broken_rounds() > 0 {
        let text = format!(
            "{} of event sets spanned a change of phase (*)",
            count(
                usize::try_from(collector.broken_rounds()).unwrap_or(usize::MAX),
                "round"
            )
        );
        out += &wrapped("note: ", &text);
    }
    if !out.is_empty() {
        out.insert(0, '\n');
    }
    out
}

/// Which part of the program's counts is in no row, though it may have taken no time worth a mark.
fn lacking(wanted: &Wanted, totals: &Totals, all: &Amounts) -> String {
    let mut rows = Amounts::default();
    let entities = totals.by_cpu_time();
    entities.iter().for_each(|total| rows.add(&total.amounts));
    let lacking = wanted.events.iter().filter_map(|event| {
        let of = |amounts: &Amounts| {
            let value = amounts.value(&event.alias).unwrap_or_default();
            // Two estimates differ anyway.
            let is_estimate =
                value.doubt.is_some() || value.time > 0.0 && value.is_scaled(amounts.covered);
            (!is_estimate).then_some(value.counted)
        };
        let (all, rows) = (of(all)?, of(&rows)?);
        let share = 1.0 - rows / all;
        (all > 0.0 && share > LACKING).then(|| format!("{:.0} % of {}", 100.0 * share, event.name))
    });
    let lacking: Vec<String> = lacking.collect();
    match lacking.is_empty() {
        true => String::new(),
        false => wrapped(
            "note: ",
            &format!(
                "{} are in `all`, but in no row: from before perch found the threads, or from threads that ended too soon",
                lacking.join(", ")
            ),
        ),
    }
}

/// The metrics of the totals that are shown, and of all together.
fn all_metrics(collector: &Collector) -> Vec<RowMetrics> {
    let totals = collector.totals();
    let entities = totals.by_cpu_time();
    let rows = entities
        .iter()
        .take(MOST_TOTALS)
        .map(|total| collector.metrics(&total.amounts, &total.readings, total.interval));
    let all = collector.metrics(&totals.all(), totals.readings(), totals.interval);
    rows.chain([all]).collect()
}

/// Which metrics are about more than their rows.
fn wider_note(wanted: &Wanted, all: &[RowMetrics]) -> String {
    let mut wider: std::collections::BTreeMap<MetricScope, Vec<&str>> = Default::default();
    for metrics in all {
        for column in &wanted.metrics {
            if let Some(scope) = metrics.wider.get(&column.name) {
                let names = wider.entry(*scope).or_default();
                if !names.contains(&&*column.name) {
                    names.push(&column.name);
                }
            }
        }
    }
    let notes = wider.iter().map(|(scope, names)| {
        wrapped(
            "^  ",
            &format!("{}: of {}", names.join(", "), whole(*scope)),
        )
    });
    notes.collect()
}

/// What a metric that is about more than its row is about.
pub fn whole(scope: MetricScope) -> &'static str {
    match scope {
        MetricScope::Thread | MetricScope::Process => "the whole process, with all its threads",
        MetricScope::Pu | MetricScope::Package => "the whole package, whatever runs there",
        MetricScope::Machine => "the whole machine, whatever runs there",
    }
}
