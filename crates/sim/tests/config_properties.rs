//! No text makes the reader panic, and every mistake has a place in the text.

use perch_sim::config::{
    ConfigError, machine_from_text, shipped_machines, shipped_workloads, workload_from_text,
};
use proptest::{prelude::*, sample::Index};
use std::path::Path;

/// What a mutation puts in: what files are made of, and what they should not be made of.
const PIECES: [&str; 32] = [
    "0",
    "-1",
    "1",
    "65536",
    "18446744073709551616",
    "1e400",
    "-0.0",
    "nan",
    "inf",
    "0x10",
    "\"\"",
    "\"0 B\"",
    "\"1e9 GHz\"",
    "\"9e18 TiB\"",
    "\"forever\"",
    "\"12 cycles\"",
    "true",
    "[]",
    "{}",
    "[[0, 1]]",
    "1979-05-27",
    "=",
    "\n",
    "\r\n",
    "\"",
    "[",
    "]",
    "[[cores]]\n",
    "[kinds.x]\n",
    "é",
    "\u{0}",
    "{ lock = \"l\" },",
];

/// Reads a text both ways; a mistake must be somewhere in it and be shown under its line.
fn read(text: &str) {
    let path = Path::new("some/file.toml");
    let results = [
        machine_from_text(text, path).err(),
        workload_from_text(text, path).err(),
    ];
    for error in results.into_iter().flatten() {
        let told = error.to_string();
        let ConfigError::Diagnostic(mistake) = error else {
            panic!("{told}");
        };
        assert!(
            mistake.line >= 1 && mistake.line <= text.matches('\n').count() + 1,
            "{told}"
        );
        assert!(mistake.column <= mistake.text.chars().count() + 1, "{told}");
        assert!(!mistake.message.is_empty());
        let start = format!("some/file.toml:{}:{}: ", mistake.line, mistake.column);
        assert!(told.starts_with(&start), "{told}");
        assert!(told.contains('^'), "{told}");
    }
}

fn shipped() -> Vec<&'static str> {
    let files = shipped_machines().into_iter().chain(shipped_workloads());
    files.map(|file| file.text).collect()
}

fn near(text: &str, at: Index) -> usize {
    let mut at = at.index(text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,200}") {
        read(&text);
    }

    #[test]
    fn anything_like_toml_is_read_or_refused(
        lines in proptest::collection::vec((
            "(about|scale|kinds|topology|caches|memory|mixes|programs|x)(\\.[a-z]{1,3})?",
            prop_oneof![Just(" = ".to_owned()), Just("".to_owned())],
            proptest::sample::select(&PIECES[..]),
        ), 0..12),
    ) {
        let text: String = lines
            .iter()
            .map(|(key, is, value)| match is.is_empty() {
                true => format!("[{key}]\n"),
                false => format!("{key}{is}{value}\n"),
            })
            .collect();
        read(&text);
    }

    /// Pieces of a shipped file are replaced, values among them: whole words, so that the file often stays TOML.
    #[test]
    fn shipped_files_with_mistakes_are_read_or_refused(
        file in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), 0usize..12, proptest::sample::select(&PIECES[..])), 1..4),
        value in any::<bool>(),
    ) {
        let files = shipped();
        let mut text = file.get(&files).to_string();
        for (at, length, piece) in changes {
            let values: Vec<usize> = text.match_indices(" = ").map(|(at, _)| at + 3).collect();
            let (from, to) = if value && !values.is_empty() {
                let from = *at.get(&values);
                let end = text[from..].find(['\n', ',', '}', ']']).map_or(text.len(), |end| from + end);
                (from, end)
            } else {
                let from = near(&text, at);
                let to = (from..=text.len()).filter(|to| text.is_char_boundary(*to)).take(length + 1).last();
                (from, to.unwrap_or(from))
            };
            text.replace_range(from..to, piece);
        }
        read(&text);
    }

    /// Every line of a shipped file is needed or has a default: without it the file is read or refused.
    #[test]
    fn shipped_files_without_a_line_are_read_or_refused(file in any::<Index>(), line in any::<Index>()) {
        let files = shipped();
        let lines: Vec<&str> = file.get(&files).lines().collect();
        let gone = line.index(lines.len());
        let kept: Vec<&str> = (0..lines.len()).filter(|at| *at != gone).map(|at| lines[at]).collect();
        read(&kept.join("\n"));
    }
}
