//! What a page says in words: what was recorded, and what the page does not show.

use super::{
    course::{COLUMNS, Finished, MOVES},
    place::{LANES, Parts},
    tables::{PROCESSES, THREADS, UNITS},
    totals::Totals,
    values::MOST,
};
use crate::render::{bytes, count, fit};
use perch_core::{MetricSource, Topology};
use perch_engine::Cause;
use std::time::{Duration, UNIX_EPOCH};

/// Pairs of a label and a text: what was recorded, and how.
pub fn head(totals: &Totals, finished: &Finished) -> Vec<(&'static str, String)> {
    let header = &totals.header;
    let mut rows = vec![
        ("Program", header.command.join(" ")),
        ("Recorded", recorded(totals)),
        ("Machine", machine(&header.topology)),
    ];
    if let Some(what_if) = &header.what_if {
        let text = format!("{}, where nothing ran", machine(what_if));
        rows.push(("What-if machine", text));
    }
    let policy = match header.dry_run {
        true => format!(
            "{} (dry run: nothing was moved; threads are shown where the policy would have bound them)",
            header.policy
        ),
        false => header.policy.clone(),
    };
    rows.push(("Policy", policy));
    let period = header.interval.unwrap_or(header.period);
    rows.push((
        "Observed",
        format!(
            "{} of {}{}",
            count(totals.periods as usize, "period"),
            seconds(period.as_nanos() as u64),
            match header.interval {
                Some(_) => format!(
                    "; decided every {}",
                    seconds(header.period.as_nanos() as u64)
                ),
                None => String::new(),
            }
        ),
    ));
    rows.push(("Measured by", header.counting.clone()));
    rows.push(("Profile", header.profile.clone()));
    rows.push(("FP shares", known(totals)));
    rows.push(("Threads", threads(totals)));
    rows.push(("CPU time", cpu_time(totals)));
    rows.push(("Moves", moves(totals, finished)));
    rows.push(("End", end(totals)));
    rows.push((
        "perch",
        format!(
            "version {}; it took {} of CPU time, {:.2} % of one PU",
            header.perch,
            seconds(totals.own),
            100.0 * totals.own as f64 / totals.length() as f64
        ),
    ));
    rows
}

fn recorded(totals: &Totals) -> String {
    let length = seconds(totals.end.saturating_sub(totals.begin));
    // A time of day in years of four digits, as RFC 3339 has them.
    let started = UNIX_EPOCH.checked_add(Duration::from_secs(totals.header.started));
    let known = totals.header.started > 0 && totals.header.started < 253_402_300_800;
    match started.filter(|_| known) {
        Some(at) => {
            let at = humantime::format_rfc3339_seconds(at).to_string();
            let at = at.replace('T', " ").replace('Z', " UTC");
            format!("{at}, for {length}")
        }
        None => format!("for {length}"),
    }
}

fn machine(topology: &Topology) -> String {
    let mut text = format!(
        "{}: {}, {}, {}",
        topology.source,
        count(topology.packages.len(), "package"),
        count(topology.cores.len(), "core"),
        count(topology.pus.len(), "PU"),
    );
    let unusable = topology.pus.len() - topology.usable().len();
    if unusable > 0 {
        text += &format!(" ({unusable} not usable)");
    }
    let models = topology.packages.first().map(|package| &*package.model);
    if let Some(model) = models.filter(|model| !model.is_empty()) {
        text += &format!("; {model}");
    }
    if let Some(level) = topology.llc_level()
        && let Some(size) = topology.cache_size(level)
    {
        text += &format!("; L{level} {}", bytes(size));
    }
    text
}

fn known(totals: &Totals) -> String {
    let measured: f64 = totals.threads.values().map(|of| of.cpu as f64 / 1e9).sum();
    // As in the summary of `perch run`.
    let all = measured + totals.unmeasured as f64 / 1e9;
    let (time, confidence) = totals.known;
    if time <= 0.0 {
        return "not known".to_owned();
    }
    let sources = totals.sources.iter().map(|source| match source {
        MetricSource::Counters => "counters",
        MetricSource::Sampling => "sampling",
        MetricSource::Kernel => "the kernel",
        MetricSource::Model => "a model",
        MetricSource::Simulation => "the simulation",
        MetricSource::Sensor => "a sensor",
    });
    let sources: Vec<&str> = sources.collect();
    format!(
        "measured in the same period for {:.0} % of the CPU time, by {}, with a mean confidence of {:.2} (0 to 1)",
        (100.0 * time / all.max(f64::MIN_POSITIVE)).min(100.0),
        sources.join(" and "),
        confidence / time,
    )
}

fn threads(totals: &Totals) -> String {
    let mut text = format!(
        "{} measured, at most {} at once",
        totals.threads.len(),
        totals.most_threads
    );
    if totals.unseen > 0 {
        text += &format!("; {} more came and went unmeasured", totals.unseen);
    }
    text
}

fn cpu_time(totals: &Totals) -> String {
    let measured: u64 = totals
        .threads
        .values()
        .fold(0, |sum, thread| sum.saturating_add(thread.cpu));
    let mut text = format!(
        "{}, as much as {:.2} PUs over the whole time",
        seconds(measured),
        measured as f64 / totals.length() as f64,
    );
    if totals.unmeasured > 0 {
        let all = measured as f64 + totals.unmeasured as f64;
        text += &format!(
            "; {} more ({:.1} % of all) belong to no measured thread",
            seconds(totals.unmeasured),
            100.0 * totals.unmeasured as f64 / all
        );
    }
    text
}

fn moves(totals: &Totals, finished: &Finished) -> String {
    let [bound, moved, released] = totals.made;
    if bound + moved + released + totals.refused == 0 && finished.moves.is_empty() {
        return "none".to_owned();
    }
    let mut text = format!("{bound} bound, {moved} moved on, {released} released");
    if totals.refused > 0 {
        text += &format!("; {} could not be made", totals.refused);
    }
    text
}

fn end(totals: &Totals) -> String {
    let Some(end) = &totals.ended else {
        return "not recorded: perch was killed, or is still recording".to_owned();
    };
    match end.cause {
        Cause::Ended(None) => "all processes had ended".to_owned(),
        // As wait(2) says it.
        Cause::Ended(Some(status)) => match (status & 0x7f, (status >> 8) & 0xff) {
            (0, 0) => "the program ended, with exit code 0".to_owned(),
            (0, code) => format!("the program ended, with exit code {code}"),
            (signal, _) => format!("the program was killed by signal {signal}"),
        },
        Cause::Stopped(signal) => format!("perch was stopped, by signal {signal}"),
        Cause::Commanded => "the program that drives perch stopped it".to_owned(),
    }
}

/// What is left out, merged or not certain, one sentence each.
pub fn notes(totals: &Totals, finished: &Finished) -> Vec<String> {
    let mut notes = Vec::new();
    if finished.periods > 1 {
        notes.push(format!(
            "{} periods are shown in {} columns of time, {} periods each: a page has at most {COLUMNS}. A column shows \
             sums and means.",
            totals.periods,
            finished.starts.len(),
            finished.periods,
        ));
    }
    let threads = totals.threads.len();
    if threads > THREADS {
        notes.push(format!(
            "{} of {threads} threads have no row of their own in the table: it has the {THREADS} with most CPU time, and a \
             row for all others.",
            threads - THREADS
        ));
    }
    let processes = super::tables::processes(totals).len();
    if processes > PROCESSES {
        notes.push(format!(
            "{} of {processes} processes share a row of the table.",
            processes - PROCESSES
        ));
    }
    let series = [
        (&finished.series.thread, "threads"),
        (&finished.series.process, "processes"),
        (&finished.series.name, "names"),
    ];
    for (list, what) in series {
        if let Some(last) = list.last()
            && last.label.ends_with(" together")
        {
            notes.push(format!(
                "Series over time: {} {what} have one of their own; {}.",
                list.len() - 1,
                last.label.replace("together", "share one")
            ));
        }
    }
    if finished.moves_left_out > 0 {
        notes.push(format!(
            "{} moves are not listed: the list has the first {MOVES} and the last {MOVES}. The charts mark all.",
            finished.moves_left_out
        ));
    }
    let (_, lanes) = Parts::lanes(&totals.topology, &totals.used());
    if finished.lane_kind != "PU" {
        let (noun, whole) = (finished.lane_kind, totals.topology.pus.len());
        notes.push(format!(
            "Placement is shown by {noun}, not by PU: the machine has {whole} PUs, and a page has {LANES} lanes."
        ));
    }
    if lanes > 0 {
        notes.push(format!("{lanes} more lanes are not shown."));
    }
    let hidden = Parts::levels(&totals.topology)
        .into_iter()
        .filter(|parts| parts.list.len() > UNITS);
    for parts in hidden {
        notes.push(format!(
            "The table of units has no rows for each {}: there are {}.",
            parts.kind,
            parts.list.len()
        ));
    }
    let left_out = totals.quantities.left_out();
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|name| &**name).collect();
        notes.push(format!(
            "{} more metrics and events are not shown, because a page has {MOST}: {}",
            left_out.len(),
            fit(&names.join(", "), 400).trim_end()
        ));
    }
    if totals.quantities.scaled {
        notes.push(
            "Some events were not counted all the time; their counts are scaled up.".to_owned(),
        );
    }
    if totals.quantities.implausible > 0 {
        notes.push(format!(
            "{} counts are left out because they are not possible.",
            totals.quantities.implausible
        ));
    }
    if totals.remarks_left_out > 0 {
        notes.push(format!(
            "{} remarks are not listed.",
            totals.remarks_left_out
        ));
    }
    notes
}

/// A time, in the unit that fits.
pub fn seconds(nanoseconds: u64) -> String {
    let seconds = nanoseconds as f64 / 1e9;
    match seconds {
        s if s >= 600.0 => {
            humantime::format_duration(Duration::from_secs(s.round() as u64)).to_string()
        }
        s if s >= 99.95 => format!("{s:.0} s"),
        s if s >= 0.9995 => format!("{s:.1} s"),
        s => format!("{:.0} ms", s * 1000.0),
    }
}
