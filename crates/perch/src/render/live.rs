//! The table of the busiest threads, every period, while the program runs.

use super::{WIDTH, count, fit, stderr};
use perch_core::{Snapshot, ThreadState, metric::names};
use perch_engine::{Period, SessionSink, Start};
use std::{io::IsTerminal, time::Duration};

/// Threads shown.
const ROWS: usize = 12;

/// How long a table may wait for its reader.
const PATIENCE: Duration = Duration::from_millis(20);

/// Draws the table on standard error; each one over the last on a terminal where nothing else is written.
pub struct Live {
    over: bool,
    drawn: usize,
    policy: String,
    /// How many decimals of a second tell one table from the next.
    decimals: usize,
}

impl Live {
    /// With `alone`, nobody else writes to standard error while the tables are drawn. Otherwise a table must not be drawn
    /// over the last one: what was written between them would be lost.
    pub fn new(alone: bool) -> Self {
        Self {
            over: alone && std::io::stderr().is_terminal(),
            drawn: 0,
            policy: String::new(),
            decimals: 0,
        }
    }
}

impl SessionSink for Live {
    fn start(&mut self, start: &Start) {
        self.policy.clone_from(&start.policy);
        self.decimals = decimals(start.interval);
    }

    fn period(&mut self, period: &Period) {
        if period.last {
            return;
        }
        let text = table(&self.policy, period, self.decimals);
        let over = if self.over { self.drawn } else { 0 };
        // A table that nobody can see now is left out: the next one is newer.
        if stderr::write_within(&drawn(&text, over), PATIENCE) {
            self.drawn = text.lines().count();
        }
    }
}

/// The table as it is written, over this many lines of the last one. Only perch's own sequences act.
fn drawn(table: &str, over: usize) -> String {
    let up = match over {
        0 => String::new(),
        lines => format!("\x1b[{lines}A\x1b[J"),
    };
    up + &super::shown(table)
}

/// As few decimals of a second, three at most, as distinguish times that are this far apart.
fn decimals(interval: Duration) -> usize {
    let ms = interval.as_millis();
    let steps = [1000, 100, 10].into_iter();
    steps.take_while(|step| !ms.is_multiple_of(*step)).count()
}

/// The table as text, its time with so many decimals of a second.
pub fn table(policy: &str, period: &Period, decimals: usize) -> String {
    let snapshot = &period.snapshot;
    let mut threads: Vec<&ThreadState> = snapshot
        .threads
        .iter()
        .filter(|thread| thread.activity > 0.001)
        .collect();
    threads.sort_by(|a, b| {
        b.activity
            .total_cmp(&a.activity)
            .then(a.info.id.cmp(&b.info.id))
    });
    let own = period.observation.own_cpu_time as f64 / period.observation.interval.max(1) as f64;
    let title = format!(
        "{:.decimals$} s · {policy} · {}, {} busy · perch {:.1} % of a PU",
        snapshot.at as f64 / 1e9,
        count(snapshot.threads.len(), "thread"),
        threads.len(),
        own * 100.0
    );
    let mut text = format!("{}\n", fit(&title, WIDTH).trim_end());
    text += "     TID  thread          busy    FP  load store  mem  PU  bound to\n";
    for thread in threads.iter().take(ROWS) {
        text += &row(snapshot, thread);
    }
    if threads.len() > ROWS {
        text += &format!("          … and {} more\n", threads.len() - ROWS);
    }
    text
}

fn row(snapshot: &Snapshot, thread: &ThreadState) -> String {
    let percent = |name: &str| {
        let known = thread
            .metrics
            .get(name)
            .filter(|metric| metric.confidence > 0.0);
        known.map_or_else(
            || "-".to_owned(),
            |metric| format!("{:.0}", metric.value * 100.0),
        )
    };
    let floating = thread
        .metrics
        .value(names::FP_SHARE)
        .is_some_and(|share| snapshot.thresholds.reached(names::FP_SHARE, share));
    let style = if floating {
        anstyle::AnsiColor::Cyan.on_default()
    } else {
        anstyle::Style::new()
    };
    let bound = match (&thread.bound, thread.unmanaged) {
        (Some(pus), _) => pus.to_string(),
        (None, Some(why)) => super::unmanaged(why).to_owned(),
        (None, None) => "-".to_owned(),
    };
    let line = format!(
        "{:>8}  {} {:>4}  {style}{:>4}{style:#}  {:>4}  {:>4} {:>4} {:>3}  {}",
        thread.info.id.tid,
        fit(&thread.info.name, 15),
        format!("{:.0}", thread.activity * 100.0),
        percent(names::FP_SHARE),
        percent(names::LOAD_SHARE),
        percent(names::STORE_SHARE),
        percent(names::MEMORY_INTENSITY),
        thread
            .last_pu
            .map_or_else(|| "-".to_owned(), |pu| pu.to_string()),
        fit(&bound, 18).trim_end(),
    );
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_drawn_and_no_other_sequence() {
        assert_eq!(
            drawn("\x1b[36m24\x1b[0m\x1b[2J\n", 0),
            "\x1b[36m24\x1b[0m\\x1b[2J\n"
        );
        assert_eq!(drawn("a\n", 3), "\x1b[3A\x1b[Ja\n");
    }

    #[test]
    fn times_have_the_decimals_that_the_period_needs() {
        for (ms, wanted) in [
            (1000, 0),
            (2000, 0),
            (500, 1),
            (1500, 1),
            (250, 2),
            (125, 3),
            (10, 2),
        ] {
            assert_eq!(decimals(Duration::from_millis(ms)), wanted, "{ms} ms");
        }
    }
}
