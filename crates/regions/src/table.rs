//! Regions as a table for people.

use crate::Merged;
use perch_stat::{
    Amounts, RowMetrics,
    text::{self, block, cells, count_text, fit, fits, header, metric_text, short, wrapped},
};
use std::sync::Arc;

/// The columns behind the times.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    /// Counts: title, and the event's alias.
    pub events: Vec<(Arc<str>, Arc<str>)>,
    /// Metrics: title, and name.
    pub metrics: Vec<(String, Arc<str>)>,
}

/// Regions that a table shows.
const MOST_SHOWN: usize = 200;

/// Columns of a region's name.
const NAME: usize = 20;

/// The table, with what the marks in it mean below; nothing without regions. The function computes the metrics of what
/// was done in so many nanoseconds.
pub fn table(
    regions: &[Merged],
    columns: &Columns,
    metrics: &dyn Fn(&Amounts, u64) -> RowMetrics,
) -> String {
    if regions.is_empty() {
        return String::new();
    }
    let threads = regions.iter().any(|region| region.amounts.members > 1);
    let titles = columns.events.iter().map(|(title, _)| title.to_string());
    let titles = titles.chain(columns.metrics.iter().map(|(title, _)| title.clone()));
    let numbers = text::columns(titles);
    let mut out = format!("{:<NAME$}  {:>7}", "region", "calls");
    if threads {
        out += &format!("  {:>7}", "threads");
    }
    out += &format!("  {:>11}  {:>11}", "wall (s)", "CPU (s)");
    let fit_in_line = fits(out.chars().count(), &numbers);
    if fit_in_line {
        out += &header(&numbers);
    }
    out.push('\n');
    let mut shown = Vec::new();
    for region in regions.iter().take(MOST_SHOWN) {
        let depth = region.path.len().saturating_sub(1).min(NAME / 2);
        let name = region.path.last().map_or("", |name| name);
        out += &fit(&format!("{:1$}{name}", "", 2 * depth.min(6)), NAME);
        out += &format!("  {:>7}", short(region.calls as f64));
        if threads {
            out += &format!("  {:>7}", region.amounts.members);
        }
        let seconds = |time: u64| time as f64 / 1e9;
        let (wall, cpu) = (seconds(region.wall), seconds(region.amounts.cpu_time));
        out += &format!("  {wall:>11.6}  {cpu:>11.6}");
        let counts = columns
            .events
            .iter()
            .map(|(_, alias)| count_text(&region.amounts, alias));
        let known = metrics(&region.amounts, region.wall);
        let values = columns
            .metrics
            .iter()
            .map(|(_, name)| metric_text(&known, name));
        let texts: Vec<String> = counts.chain(values).collect();
        shown.push(known);
        if fit_in_line {
            out += &cells(&numbers, &texts);
        }
        out.push('\n');
        if !fit_in_line && !texts.is_empty() {
            out += &block(&numbers, &texts);
        }
    }
    out + &notes(regions, columns, &shown)
}

/// What the numbers do not say.
fn notes(regions: &[Merged], columns: &Columns, metrics: &[RowMetrics]) -> String {
    let mut out = String::new();
    if regions.len() > MOST_SHOWN {
        out += &format!("{} more regions\n", regions.len() - MOST_SHOWN);
    }
    let values = |alias: &str| {
        regions
            .iter()
            .filter_map(|region| Some((region, region.amounts.value(alias)?)))
            .collect::<Vec<_>>()
    };
    let (mut scaled, mut doubts) = (Vec::new(), Vec::new());
    for (title, alias) in &columns.events {
        let values = values(alias);
        let shares = values.iter().filter_map(|(region, value)| {
            let covered = region.amounts.covered;
            let share = value.share(covered);
            (share > 0.0 && value.is_scaled(covered)).then_some(share)
        });
        if let Some(least) = shares.reduce(f64::min) {
            scaled.push(format!("{title} {:.1} %", least * 100.0));
        }
        if let Some(why) = values.iter().find_map(|(_, value)| value.doubt.as_ref()) {
            doubts.push(format!("{title}: {why}"));
        }
    }
    let from_scaled = columns.metrics.iter().filter(|(_, name)| {
        let mut metrics = metrics.iter();
        metrics.any(|metrics| metrics.scaled.contains(name))
    });
    let from_scaled: Vec<&str> = from_scaled.map(|(title, _)| title.as_str()).collect();
    let said = [
        (
            "scaled up; counted for this share of the time at least",
            scaled.join(", "),
        ),
        ("from counts that are scaled up", from_scaled.join(", ")),
    ];
    let said = said.iter().filter(|(_, which)| !which.is_empty());
    let said: Vec<String> = said
        .map(|(what, which)| format!("{what}: {which}"))
        .collect();
    if !said.is_empty() {
        out += &wrapped("~  ", &said.join("; "));
    }
    let partial =
        |region: &&Merged| region.amounts.is_partial() && !region.amounts.values.is_empty();
    if regions.iter().any(|region| partial(&region)) {
        out += &wrapped(
            ">  ",
            "a lower bound: the events were not counted in all of the region's time",
        );
    } else if metrics.iter().any(|metrics| !metrics.partial.is_empty()) {
        out += &wrapped(">  ", "a lower bound: unknown for a part of the time");
    }
    if !doubts.is_empty() {
        out += &wrapped("?  ", &doubts.join("; "));
    }
    let open: u32 = regions.iter().map(|region| region.open).sum();
    if open > 0 {
        let many = match open {
            1 => "1 region had".to_owned(),
            many => format!("{many} regions had"),
        };
        out += &wrapped(
            "note: ",
            &format!("{many} not been stopped when the report was made: counted up to then"),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{Metric, MetricSource};
    use perch_stat::Value;

    fn merged(path: &[&str], calls: u64, threads: u32, share: f64) -> Merged {
        let value = Value {
            counted: 5000.0,
            time: 2e9 * share,
            doubt: None,
        };
        let mut amounts = Amounts::default();
        amounts.members = threads;
        (amounts.cpu_time, amounts.covered) = (2_000_000_000, 2_000_000_000);
        amounts.values = [("page_faults".into(), value)].into();
        Merged {
            path: path.iter().map(|name| (*name).into()).collect(),
            calls,
            processes: 1,
            wall: 2_500_000_000,
            amounts,
            ..Merged::default()
        }
    }

    fn columns(names: &[&str]) -> Columns {
        Columns {
            events: names
                .iter()
                .map(|name| ((*name).into(), "page_faults".into()))
                .collect(),
            metrics: Vec::new(),
        }
    }

    fn no_metrics(_: &Amounts, _: u64) -> RowMetrics {
        RowMetrics::default()
    }

    #[test]
    fn nested_regions_are_indented_and_marks_are_explained() {
        let mut open = merged(&["solve", "a region with a very long name"], 12_345, 1, 1.0);
        open.open = 1;
        open.amounts.cpu_time *= 2;
        let regions = [merged(&["solve"], 1, 1, 0.25), open];
        insta::assert_snapshot!(table(&regions, &columns(&["page-faults"]), &no_metrics));
    }

    #[test]
    fn metrics_have_the_marks_of_their_counts() {
        let columns = Columns {
            events: Vec::new(),
            metrics: vec![("faults/s".to_owned(), "rate".into())],
        };
        let text = |scaled: bool, partial: bool| {
            let metrics = |_: &Amounts, _: u64| {
                let mut shown = RowMetrics::default();
                let name: Arc<str> = "rate".into();
                let metric = Metric {
                    value: 25.5,
                    confidence: 1.0,
                    source: MetricSource::Counters,
                };
                shown.values.set(Arc::clone(&name), metric);
                shown.scaled.extend(scaled.then(|| Arc::clone(&name)));
                shown.partial.extend(partial.then_some(name));
                shown
            };
            table(&[merged(&["solve"], 1, 1, 1.0)], &columns, &metrics)
        };
        assert!(!text(false, false).contains(['~', '>']));
        assert!(text(true, false).contains(" ~25.50\n"));
        assert!(text(true, false).contains("~  from counts that are scaled up: faults/s\n"));
        assert!(text(false, true).contains(" >25.50\n"));
        assert!(text(false, true).contains(">  a lower bound: unknown for a part of the time\n"));
    }

    #[test]
    fn many_columns_stand_below() {
        let regions = [merged(&["solve"], 3, 8, 1.0)];
        let names = [
            "page-faults",
            "instructions",
            "llc-misses",
            "branch-misses",
            "cycles",
            "x",
            "y",
            "z",
        ];
        let text = table(&regions, &columns(&names), &no_metrics);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        insta::assert_snapshot!(text);
        assert_eq!(table(&[], &columns(&names), &no_metrics), "");
    }
}
