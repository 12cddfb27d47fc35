//! A comparison as text, Markdown, CSV and JSON.

use super::{
    WIDTH, fit,
    table::{Align, table},
    wrapped,
};
use crate::{
    args::Format,
    command::compare::{
        metrics::MetricCompared,
        results::{Compared, Results, SideResults},
    },
};
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use perch_lab::statistics::{Estimate, Spread, Verdict};

/// Sides in a row of tables: more do not fit.
const SIDES: usize = 3;

/// The comparison in this format, with a line end.
///
/// # Errors
/// None that is expected: numbers and names can be written in every format.
pub fn render(results: &Results, format: Format) -> Result<String> {
    Ok(match format {
        Format::Text => text(results),
        Format::Markdown => markdown(results),
        Format::Csv => csv(results)?,
        Format::Json => super::json(&serde_json::to_string_pretty(results)?) + "\n",
    })
}

fn text(results: &Results) -> String {
    let command = fit(&command(results), WIDTH).trim_end().to_owned();
    let mut out = format!("{command}\n{}\n", of_each(results));
    for sides in results.sides.chunks(SIDES) {
        let titles = sides.iter().map(|side| (side.name.as_str(), Align::Right));
        let columns: Vec<(&str, Align)> = [("", Align::Left)].into_iter().chain(titles).collect();
        out += &format!("\n{}\n", table(&columns, rows(sides)));
    }
    out.push('\n');
    for side in &results.sides {
        if let Some(startup) = startup(results, side) {
            out += &wrapped("", &startup);
        }
    }
    for compared in &results.comparisons {
        out += &format!(
            "\n{} against {}, beyond start-up:\n",
            compared.side, compared.baseline
        );
        for line in numbers(compared) {
            out += &wrapped("  ", &line);
        }
        out += &wrapped("  ", &verdict(compared));
        for metric in &compared.metrics {
            out += &wrapped("  ", &of_metric(metric));
        }
    }
    if !results.remarks.is_empty() {
        out.push('\n');
    }
    for remark in &results.remarks {
        out += &wrapped("note: ", remark);
    }
    out
}

fn markdown(results: &Results) -> String {
    let mut out = format!(
        "`{}`: {}\n",
        command(results).replace('`', "'"),
        of_each(results)
    );
    for sides in results.sides.chunks(SIDES) {
        let mut table = Table::new();
        let titles = sides.iter().map(|side| side.name.clone());
        table
            .load_style(presets::ASCII_MARKDOWN)
            .set_header([String::new()].into_iter().chain(titles));
        for row in rows(sides) {
            table.add_row(row.iter().map(|cell| cell.trim().replace('|', "\\|")));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        out += &format!("\n{table}\n");
    }
    out.push('\n');
    for startup in results
        .sides
        .iter()
        .filter_map(|side| startup(results, side))
    {
        out += &format!("- {startup}\n");
    }
    for compared in &results.comparisons {
        let numbers = numbers(compared).join("; ");
        out += &format!(
            "- {} against {}, beyond start-up: {numbers}. **{}**\n",
            compared.side,
            compared.baseline,
            verdict(compared)
        );
        for metric in &compared.metrics {
            out += &format!("  - {}\n", of_metric(metric));
        }
    }
    for remark in &results.remarks {
        out += &format!("- note: {remark}\n");
    }
    out
}

fn csv(results: &Results) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for run in &results.runs {
        writer.serialize(run)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(String::from_utf8(bytes)?)
}

fn command(results: &Results) -> String {
    results.program.join(" ")
}

fn of_each(results: &Results) -> String {
    format!("{} of each; medians", super::count(results.rounds, "run"))
}

/// The rows of the table: what is measured, and each side's value.
fn rows(sides: &[SideResults]) -> Vec<Vec<String>> {
    let row = |name: &str, value: &dyn Fn(&SideResults) -> Option<String>| {
        let values: Vec<Option<String>> = sides.iter().map(value).collect();
        let known = values.iter().any(Option::is_some);
        let cells = values
            .into_iter()
            .map(|value| value.unwrap_or_else(|| "–".to_owned()));
        known.then(|| {
            let name = [name.to_owned()].into_iter();
            name.chain(cells).collect::<Vec<String>>()
        })
    };
    let whole = |spread: &Spread| Some(format!("{:.0}", spread.median));
    [
        row("wall time", &|side| Some(time(side.wall_s.median))),
        row("  quartiles", &|side| {
            let (low, high) = (side.wall_s.lower_quartile, side.wall_s.upper_quartile);
            Some(range(low, high, " – "))
        }),
        row("user time", &|side| Some(time(side.user_s.median))),
        row("system time", &|side| Some(time(side.system_s.median))),
        row("voluntary switches", &|side| whole(&side.voluntary)),
        row("involuntary switches", &|side| whole(&side.involuntary)),
        row("energy of packages", &|side| {
            let energy = side.energy_j.as_ref()?;
            Some(format!("{:.1} J", energy.median))
        }),
        row("perch's CPU time", &|side| {
            Some(time(side.perch_cpu_s.as_ref()?.median))
        }),
        row("changes, all runs", &|side| Some(side.changes?.to_string())),
        row("failed runs", &|side| {
            let any = sides.iter().any(|side| side.failures > 0);
            any.then(|| side.failures.to_string())
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn startup(results: &Results, side: &SideResults) -> Option<String> {
    let found = side.startup_s?;
    Some(format!(
        "start-up of perch ({}): {}{}, from {} of `{}`",
        side.name,
        time(found.estimate),
        interval(&found, |low, high| range(low, high, " to ")),
        super::count(side.startup_pairs, "pair"),
        results.startup_program,
    ))
}

/// Difference, ratio and p value.
fn numbers(compared: &Compared) -> Vec<String> {
    let beyond = &compared.beyond;
    let mut lines = Vec::new();
    if let Some(difference) = beyond.difference {
        lines.push(format!(
            "difference {}{}",
            time(difference.estimate),
            interval(&difference, |low, high| range(low, high, " to ")),
        ));
    }
    lines.push(match beyond.ratio {
        Some(ratio) => format!(
            "ratio {:.3}{}",
            ratio.estimate,
            interval(&ratio, |low, high| format!("{low:.3} to {high:.3}")),
        ),
        None => "no ratio: the program is shorter than start-up varies".to_owned(),
    });
    lines.push(format!(
        "p = {} ({} test, {})",
        p_value(beyond.p),
        compared.test,
        super::count(beyond.pairs, "pair")
    ));
    lines
}

/// The verdict in words, with how sure it is.
fn verdict(compared: &Compared) -> String {
    let level = 100.0 * compared.beyond.level;
    let level = format!("{level:.2}");
    let level = level.trim_end_matches('0').trim_end_matches('.');
    let significant = match compared.beyond.verdict {
        Verdict::TooFew => String::new(),
        Verdict::NoDifference => format!(" (not significant at {level} %)"),
        Verdict::Faster | Verdict::Slower => format!(" (significant at {level} %)"),
    };
    let (first, cause) = match compared.sentence.split_once("; ") {
        Some((first, cause)) => (first, format!("; {cause}")),
        None => (compared.sentence.as_str(), String::new()),
    };
    format!("{first}{significant}{cause}")
}

/// A metric's verdict with its numbers.
fn of_metric(compared: &MetricCompared) -> String {
    let Some(ratio) = compared.ratio else {
        return compared.sentence.clone();
    };
    format!(
        "{}: ratio {:.3}{}, p = {}, {}",
        compared.sentence,
        ratio.estimate,
        interval(&ratio, |low, high| format!("{low:.3} to {high:.3}")),
        p_value(compared.p),
        super::count(compared.pairs, "pair"),
    )
}

/// The interval in brackets, if it is known.
fn interval(of: &Estimate, text: impl Fn(f64, f64) -> String) -> String {
    match (of.low, of.high) {
        (Some(low), Some(high)) => format!(" ({})", text(low, high)),
        _ => String::new(),
    }
}

fn p_value(p: f64) -> String {
    match p {
        p if p < 0.001 => format!("{p:.0e}"),
        p if p < 0.1 => format!("{p:.3}"),
        p => format!("{p:.2}"),
    }
}

/// Seconds in a unit that fits.
fn time(seconds: f64) -> String {
    let (factor, unit, digits) = unit(seconds);
    format!("{:.digits$} {unit}", seconds * factor)
}

/// Two times in one unit.
fn range(low: f64, high: f64, between: &str) -> String {
    let (factor, unit, digits) = unit(low.abs().max(high.abs()));
    format!(
        "{:.digits$}{between}{:.digits$} {unit}",
        low * factor,
        high * factor
    )
}

/// The factor from seconds, the unit and its digits.
fn unit(seconds: f64) -> (f64, &'static str, usize) {
    match seconds.abs() {
        large if large >= 100.0 => (1.0, "s", 1),
        large if large >= 1.0 => (1.0, "s", 3),
        _ => (1e3, "ms", 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::compare::{
        CompareMetric,
        results::tests::{results, results_of},
    };

    fn fits(text: &str) {
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn text_of_a_gain_with_energy() {
        let text = text(&results(0.9, 8, true));
        fits(&text);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn text_of_energy_and_its_product_with_time() {
        let metrics = [CompareMetric::Energy, CompareMetric::Edp];
        let text = text(&results_of(0.9, 8, true, &metrics));
        fits(&text);
        let from = text.find("workover against").unwrap();
        insta::assert_snapshot!(&text[from..]);
    }

    #[test]
    fn text_without_a_difference() {
        let mut results = results(1.0, 0, false);
        results.remarks.push("turbo is on".to_owned());
        let text = text(&results);
        fits(&text);
        assert!(!text.contains("energy"), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn as_markdown() {
        insta::assert_snapshot!(markdown(&results(0.9, 8, true)));
    }

    #[test]
    fn as_csv_with_a_row_a_run() {
        let text = csv(&results(0.9, 8, false)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 22 + 20);
        insta::assert_snapshot!(lines[..5].join("\n"));
    }

    #[test]
    fn as_json_with_null_where_there_is_no_energy() {
        let mut results = results(0.9, 8, false);
        results.runs.truncate(4);
        let text = render(&results, Format::Json).unwrap();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn units() {
        assert_eq!(time(0.0123), "12.3 ms");
        assert_eq!(time(-1.5), "-1.500 s");
        assert_eq!(range(-0.002, 1.2, " to "), "-0.002 to 1.200 s");
        assert_eq!(p_value(0.00002), "2e-5");
    }
}
