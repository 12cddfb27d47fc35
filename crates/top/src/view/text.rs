//! Numbers, bars and lines as text.

use crate::frame::{Unit, unit};
use ratatui::{buffer::Buffer, style::Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Eighths of a character, from none to a whole one: filled from the left, and from below.
const LEFT: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const BELOW: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Writes text of at most `width` columns, if the place is on the terminal; the column behind it.
pub fn put(buffer: &mut Buffer, x: u16, y: u16, width: usize, text: &str, style: Style) -> u16 {
    let area = buffer.area;
    if y >= area.bottom() || y < area.y || x >= area.right() {
        return x;
    }
    buffer.set_stringn(x, y, text, width, style).0
}

/// Text cut or padded to so many columns: on the right side, or on the left one.
pub fn fit(text: &str, columns: usize, right: bool) -> String {
    let wide = text.width();
    if wide <= columns {
        let padding = " ".repeat(columns - wide);
        return match right {
            true => padding + text,
            false => text.to_owned() + &padding,
        };
    }
    let mut used = 0;
    let mut cut = String::new();
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used + 1 > columns {
            break;
        }
        cut.push(c);
    }
    if columns > 0 {
        cut.push('…');
    }
    let padding = columns.saturating_sub(cut.width());
    cut + &" ".repeat(padding)
}

/// A share as percent, without the sign: `0.4`, `9.5`, `46`, `345`.
pub fn percent(share: f32) -> String {
    let percent = share * 100.0;
    match percent {
        p if p < 0.05 => "0".to_owned(),
        p if p < 9.95 => format!("{p:.1}"),
        p => format!("{p:.0}"),
    }
}

/// A metric's value in at most seven columns.
pub fn metric(name: &str, value: f32) -> String {
    match unit(name) {
        Unit::Share => percent(value),
        Unit::Bytes => bytes(f64::from(value)),
        Unit::Number => number(value),
    }
}

/// A number with about three digits.
pub fn number(value: f32) -> String {
    match value.abs() {
        v if v < 0.0005 => "0".to_owned(),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        v if v < 99_999.5 => format!("{value:.0}"),
        v if v < 1e9 => format!("{:.1}M", value / 1e6),
        _ => format!("{value:.0e}"),
    }
}

/// A size in the unit that fits: `512 B`, `1.5 MiB`.
pub fn bytes(size: f64) -> String {
    let mut units = ["B", "KiB", "MiB", "GiB"].into_iter();
    let (mut size, mut unit) = (size, units.next().unwrap_or("B"));
    for next in units {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    match size.fract() < 0.05 || size >= 10.0 {
        true => format!("{size:.0} {unit}"),
        false => format!("{size:.1} {unit}"),
    }
}

/// `2,000`.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 thread`, `2,000 threads`.
pub fn count(number: usize, one: &str, several: &str) -> String {
    format!(
        "{} {}",
        thousands(number),
        if number == 1 { one } else { several }
    )
}

/// A moment: `1:02:05`, with tenths of seconds if they matter.
pub fn time(nanoseconds: u64, interval: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let tenths = nanoseconds / 100_000_000 % 10;
    // An interval of a second may come out a little shorter.
    match interval < 900_000_000 {
        true => format!("{hours}:{minutes:02}:{rest:02}.{tenths}"),
        false => format!("{hours}:{minutes:02}:{rest:02}"),
    }
}

/// A bar for a share, 0 to 1.
pub fn bar(share: f32, columns: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * (columns * 8) as f32).round() as usize;
    let mut text = String::new();
    for column in 0..columns {
        text.push(LEFT[eighths.saturating_sub(column * 8).min(8)]);
    }
    text
}

/// A line of values, each relative to the greatest possible one; nothing where there is no value. Padded on the left side.
pub fn spark(values: &[Option<f32>], most: f32, columns: usize) -> String {
    let values = &values[values.len().saturating_sub(columns)..];
    let mut text = " ".repeat(columns - values.len());
    for value in values {
        text.push(match value {
            None => ' ',
            Some(value) => {
                let share = (value / most.max(f32::MIN_POSITIVE)).clamp(0.0, 1.0);
                // Zero is not nothing.
                BELOW[((share * 8.0).ceil() as usize).clamp(1, 8)]
            }
        });
    }
    text
}

/// Words in lines of so many columns.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if !line.is_empty() && line.width() + 1 + word.width() > columns {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_fitted_has_that_width(text in ".{0,30}", columns in 0usize..40, right: bool) {
            let text = perch_core::text::printable(&text).into_owned();
            prop_assert_eq!(fit(&text, columns, right).width(), columns);
        }

        #[test]
        fn bars_and_lines_have_their_width(share in -1.0..2.0f32, columns in 0usize..40, values in proptest::collection::vec(proptest::option::of(any::<f32>()), 0..60)) {
            prop_assert_eq!(bar(share, columns).width(), columns);
            prop_assert_eq!(spark(&values, 1.0, columns).width(), columns);
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(percent(0.0004), "0");
        assert_eq!(percent(0.0951), "9.5");
        assert_eq!(percent(0.0997), "10");
        assert_eq!(percent(3.451), "345");
        assert_eq!(number(1.234), "1.23");
        assert_eq!(number(12_345.6), "12346");
        assert_eq!(number(2_500_000.0), "2.5M");
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(bytes(33_554_432.0), "32 MiB");
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(time(3_725_400_000_000, 1_000_000_000), "1:02:05");
        assert_eq!(time(5_400_000_000, 100_000_000), "0:00:05.4");
        assert_eq!(spark(&[Some(0.0), None, Some(1.0)], 1.0, 5), "  ▁ █");
        assert_eq!(bar(0.5, 4), "██  ");
        assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
    }
}
