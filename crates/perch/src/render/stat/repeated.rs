//! Mean and spread of several runs.

use crate::command::stat::wanted::Wanted;
use perch_linux::launch::Usage;
use perch_stat::{Amounts, Collector, RowMetrics, text::amount_text};
use statrs::statistics::Statistics;
use std::time::Duration;

/// What one of several runs came to.
pub struct Counted {
    /// All rows together.
    all: Amounts,
    metrics: RowMetrics,
    /// CPU time, in nanoseconds.
    cpu_time: u64,
    usage: Option<Usage>,
}

impl Counted {
    /// A run that is over.
    pub fn of(collector: &Collector, usage: Option<Usage>) -> Self {
        let totals = collector.totals();
        let all = totals.all();
        Self {
            metrics: collector.metrics(&all, totals.readings(), totals.interval),
            cpu_time: totals.cpu_time(),
            all,
            usage,
        }
    }
}

/// Mean and spread of the sums and metrics of several runs.
pub fn repeated(wanted: &Wanted, runs: &[Counted]) -> String {
    let mut out = match runs.len() {
        1 => "\n1 run\n\n".to_owned(),
        runs => format!("\n{runs} runs: mean, standard deviation, least and greatest\n\n"),
    };
    for (name, spread) in spreads(wanted, runs) {
        let Some(spread) = spread else {
            out += &format!("{name:<28}not counted in every run\n");
            continue;
        };
        let Some(deviation) = spread.deviation else {
            out += &format!("{name:<28}{:>10}\n", amount_text(&name, spread.mean));
            continue;
        };
        let relative = match spread.mean {
            0.0 => 0.0,
            mean => 100.0 * deviation / mean.abs(),
        };
        out += &format!(
            "{name:<28}{:>10}  ±{relative:>5.1} %  {:>10} – {}\n",
            amount_text(&name, spread.mean),
            amount_text(&name, spread.least),
            amount_text(&name, spread.greatest)
        );
    }
    out
}

/// How a sum differs from run to run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Its mean.
    pub mean: f64,
    /// Its standard deviation, which a single run has none of.
    pub deviation: Option<f64>,
    /// Its least value.
    pub least: f64,
    /// Its greatest value.
    pub greatest: f64,
}

/// Times, counts and metrics of several runs, each with its spread; `None` if it was not counted in every run.
pub fn spreads(wanted: &Wanted, runs: &[Counted]) -> Vec<(String, Option<Spread>)> {
    let spread = |values: Vec<f64>| {
        (values.len() == runs.len() && !values.is_empty()).then(|| Spread {
            mean: Statistics::mean(&values),
            deviation: (values.len() > 1).then(|| Statistics::std_dev(&values)),
            least: Statistics::min(&values),
            greatest: Statistics::max(&values),
        })
    };
    type Part = fn(&Usage) -> Duration;
    let parts: [(&str, Part); 3] = [
        ("elapsed time (s)", |usage| usage.elapsed),
        ("user time (s)", |usage| usage.user),
        ("system time (s)", |usage| usage.system),
    ];
    let mut all = Vec::new();
    for (name, part) in parts {
        let known = runs.iter().filter_map(|run| run.usage.as_ref());
        let values = known.map(|usage| part(usage).as_secs_f64()).collect();
        all.push((name.to_owned(), spread(values)));
    }
    let cpu_times = runs.iter().map(|run| run.cpu_time as f64 / 1e9);
    let cpu_times = cpu_times.collect();
    all.push(("CPU time (s)".to_owned(), spread(cpu_times)));
    for event in &wanted.events {
        let values = runs.iter().map(|run| &run.all);
        let values = values.filter_map(|sum| sum.value(&event.alias)?.estimate(sum.covered));
        all.push((event.name.to_string(), spread(values.collect())));
    }
    for metric in &wanted.metrics {
        let values = runs
            .iter()
            .filter_map(|run| run.metrics.values.get(&metric.name));
        let values = values.filter(|value| value.confidence > 0.0);
        let values = values.map(|value| value.value).collect();
        all.push((metric.title.clone(), spread(values)));
    }
    all
}
