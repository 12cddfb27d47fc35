//! Counts and tables as text for people, of at most 80 columns.

use crate::{Amounts, RowMetrics};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The width that everything fits.
pub const WIDTH: usize = 80;

/// The mark before a count that is scaled up.
pub const SCALED: &str = "~";
/// The mark before a count that is a lower bound.
pub const PARTIAL: &str = ">";
/// The mark before a metric that is about more than its row.
pub const WIDER: &str = "^";
/// The mark in place of a count that cannot be true.
pub const DOUBTFUL: &str = "?";
/// The mark in place of a count that is missing.
pub const MISSING: &str = "-";

/// A number with four digits and the unit prefix that fits: `1.961G`.
pub fn short(value: f64) -> String {
    let size = value.abs();
    let (scale, prefix) = match size {
        _ if size >= 1e12 => (1e12, "T"),
        _ if size >= 1e9 => (1e9, "G"),
        _ if size >= 1e6 => (1e6, "M"),
        _ if size >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let scaled = value / scale;
    let decimals = match scaled.abs() {
        _ if scaled.fract() == 0.0 && prefix.is_empty() => 0,
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{scaled:.decimals$}{prefix}")
}

/// A time in nanoseconds with four digits and the unit that fits: `1.073 s`, `42.57 ms`.
pub fn short_time(nanoseconds: f64) -> String {
    let (scale, unit) = match nanoseconds.abs() {
        size if size >= 1e9 => (1e9, "s"),
        size if size >= 1e6 => (1e6, "ms"),
        size if size >= 1e3 => (1e3, "µs"),
        0.0 => (1.0, "s"),
        _ => (1.0, "ns"),
    };
    format!("{} {unit}", short(nanoseconds / scale))
}

/// A count of this event: a time if it is one of the kernel's clocks, which count nanoseconds.
pub fn amount_text(event: &str, value: f64) -> String {
    let name = event.split(':').next().unwrap_or_default();
    match name.replace('_', "-").as_str() {
        "task-clock" | "cpu-clock" => short_time(value),
        _ => short(value),
    }
}

/// A count with the marks for one that is scaled up, a lower bound, doubtful or missing.
pub fn count_text(amounts: &Amounts, alias: &str) -> String {
    let Some(value) = amounts.value(alias) else {
        return MISSING.to_owned();
    };
    if value.doubt.is_some() {
        return DOUBTFUL.to_owned();
    }
    let Some(estimate) = value.estimate(amounts.covered) else {
        return MISSING.to_owned();
    };
    let scaled = value.is_scaled(amounts.covered);
    let estimate = estimate.round();
    let mark = if amounts.is_partial() { PARTIAL } else { "" };
    let scaled = if scaled { SCALED } else { "" };
    format!("{mark}{scaled}{}", amount_text(alias, estimate))
}

/// A metric, with the marks for one that is about more than the row, for a lower bound, and for one over counts that are
/// scaled up; or the mark of one that is missing.
pub fn metric_text(metrics: &RowMetrics, name: &str) -> String {
    let metric = metrics.values.get(name);
    let Some(metric) = metric.filter(|metric| metric.confidence > 0.0) else {
        return MISSING.to_owned();
    };
    let wider = match metrics.wider.contains_key(name) {
        true => WIDER,
        false => "",
    };
    format!("{wider}{}{}", metrics.mark(name), short(metric.value))
}

/// Whether columns of these titles and widths fit in a line, behind this many characters.
pub fn fits(before: usize, columns: &[(String, usize)]) -> bool {
    before + columns.iter().map(|(_, width)| width + 2).sum::<usize>() <= WIDTH
}

/// The titles and widths of columns of numbers.
pub fn columns(titles: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    titles
        .map(|title| {
            let width = title.chars().count().max(8);
            (title, width)
        })
        .collect()
}

/// The columns' titles.
pub fn header(columns: &[(String, usize)]) -> String {
    let titles = columns
        .iter()
        .map(|(title, width)| format!("  {title:>width$}"));
    titles.collect()
}

/// Texts under the columns' titles.
pub fn cells(columns: &[(String, usize)], texts: &[String]) -> String {
    let cells = columns.iter().zip(texts);
    cells
        .map(|((_, width), text)| format!("  {text:>width$}"))
        .collect()
}

/// Counts and metrics in as many lines as they need, each with its name.
pub fn block(columns: &[(String, usize)], texts: &[String]) -> String {
    let (mut out, mut line) = (String::new(), String::new());
    for ((title, _), text) in columns.iter().zip(texts) {
        let cell = format!("{title}={text}");
        if !line.is_empty() && line.chars().count() + cell.chars().count() + 6 > WIDTH {
            out += &format!("    {}\n", line.trim_end());
            line.clear();
        }
        line += &format!("{cell}  ");
    }
    out + &format!("    {}\n", line.trim_end())
}

/// The text cut or padded to this many columns.
pub fn fit(text: &str, columns: usize) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    let fitting = match clean.width() <= columns {
        true => clean,
        false => {
            let room = columns.saturating_sub(1);
            let mut used = 0;
            let fits = |c: &char| {
                used += c.width().unwrap_or(0);
                used <= room
            };
            let cut: String = clean.chars().take_while(fits).collect();
            match columns {
                0 => cut,
                _ => cut + "…",
            }
        }
    };
    let padding = columns.saturating_sub(fitting.width());
    fitting + &" ".repeat(padding)
}

/// The text behind a label, in lines that fit, the following ones indented.
pub fn wrapped(label: &str, text: &str) -> String {
    wrapped_to(WIDTH, label, text)
}

/// The same in lines of at most so many columns, as far as words allow.
pub fn wrapped_to(columns: usize, label: &str, text: &str) -> String {
    let mut out = String::new();
    let mut line = label.to_owned();
    for word in text.split_whitespace() {
        if line.width() + word.width() + 1 > columns && line.trim() != label.trim() {
            out += line.trim_end();
            out.push('\n');
            line = " ".repeat(label.width());
        }
        line += word;
        line.push(' ');
    }
    out + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_and_a_prefix() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (0.8123, "0.812"),
            (9999.0, "9999"),
            (12_345.0, "12.35k"),
            (1_961_001_132.0, "1.961G"),
            (234.56, "234.6"),
            (-15_488_307.0, "-15.49M"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn the_kernel_s_clocks_are_times() {
        for (event, value, text) in [
            ("task_clock", 1_073_000_000.0, "1.073 s"),
            ("cpu-clock:u", 42_570_000.0, "42.57 ms"),
            ("cpu-clock", 1_500.0, "1.500 µs"),
            ("cpu-clock", 12.0, "12 ns"),
            ("task-clock", 0.0, "0 s"),
            ("page_faults", 1_073_000_000.0, "1.073G"),
        ] {
            assert_eq!(amount_text(event, value), text);
        }
    }

    #[test]
    fn narrow_lines() {
        let text = wrapped_to(12, "a: ", "one two three four");
        assert_eq!(text, "a: one two\n   three\n   four\n");
        assert_eq!(wrapped_to(4, "a: ", "three four"), "a: three\n   four\n");
    }

    #[test]
    fn fitting() {
        assert_eq!(fit("abc", 5), "abc  ");
        assert_eq!(fit("abcdef", 5), "abcd…");
        assert_eq!(fit("a\x1b[31m", 3), "a?…");
        assert_eq!(fit("abc", 0), "");
        // Wide characters take two columns, and half of one cannot be shown.
        assert_eq!(fit("日本語", 6), "日本語");
        assert_eq!(fit("日本語", 8), "日本語  ");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日… ");
    }
}
