//! Text from outside, made fit to be shown.
//!
//! Names of threads, devices and files are chosen by users and may contain control characters, which a terminal
//! executes: they retitle windows, hide lines, and on some terminals inject input as if typed. So names are made
//! printable where they enter, and all output passes [`printable_lines`] once more.

use std::{borrow::Cow, fmt::Write};

/// Whether a character does something to a terminal, or to the order of the text around it, instead of being shown.
pub fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Bidirectional marks, embeddings and isolates, and separators of lines.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, acts: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !acts(c) => shown.push(c),
            c if c.is_ascii() => {
                let _ = write!(shown, "\\x{:02x}", u32::from(c));
            }
            c => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
        }
    }
    Cow::Owned(shown)
}

/// The text with `\x1b` and the like for every character that a terminal would obey, line ends included.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, acts)
}

/// The same of text that may have several lines: line ends and tabs stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| acts(c) && c != '\n' && c != '\t')
}

/// A name as the kernel has it, any bytes but NUL, as printable text; bytes that are no UTF-8 are replaced.
pub fn name(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_that_acts_is_left(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            prop_assert!(!printable(&text).contains(acts));
            prop_assert!(!name(&bytes).contains(acts));
            prop_assert!(!printable_lines(&text).contains(|c| acts(c) && c != '\n' && c != '\t'));
            // And once is enough.
            let once = printable(&text).into_owned();
            prop_assert_eq!(printable(&once), once.as_str());
        }

        #[test]
        fn ordinary_text_is_unchanged(text in "[ -~äöüßé→·–日本語\\\\]*") {
            prop_assert_eq!(printable(&text), text.as_str());
            prop_assert_eq!(name(text.as_bytes()), text.as_str());
        }
    }

    #[test]
    fn what_acts_is_named() {
        for (text, shown) in [
            ("\x1b]0;x\x07", "\\x1b]0;x\\x07"),
            ("a\nb\tc\r\x7f", "a\\x0ab\\x09c\\x0d\\x7f"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("\u{202e}gpj", "\\u{202e}gpj"),
        ] {
            assert_eq!(printable(text), shown);
        }
        assert_eq!(printable_lines("a\nb\tc\x1b"), "a\nb\tc\\x1b");
    }
}
