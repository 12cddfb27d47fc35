//! What the papers say, as a table: experiments take their published values from it, never from code.

use include_dir::{Dir, include_dir};
use std::sync::LazyLock;

pub(crate) static EXPERIMENTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");

/// How a published value is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number as it is.
    Exact,
    /// Between two numbers, `1.7..2.1`.
    Range,
    /// At least or at most.
    Bound,
    /// Which of some is greater, in words.
    Ordering,
    /// About a number.
    Approx,
    /// What an experiment was given, not what came of it.
    Input,
}

impl Kind {
    const NAMES: [(&'static str, Self); 6] = [
        ("exact", Self::Exact),
        ("range", Self::Range),
        ("bound", Self::Bound),
        ("ordering", Self::Ordering),
        ("approx", Self::Approx),
        ("input", Self::Input),
    ];
}

/// One published value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// By which experiments name it: `fedorova04-fig3-cpu-b`.
    pub id: String,
    /// The paper: first author and year.
    pub paper: String,
    /// Figure, table or section.
    pub place: String,
    /// What was run on what.
    pub configuration: String,
    /// What was measured.
    pub metric: String,
    /// The value, as published.
    pub value: String,
    /// How it is meant.
    pub kind: Kind,
}

impl Published {
    /// The value, if it is a number.
    pub fn number(&self) -> Option<f64> {
        self.value.parse().ok()
    }
}

static TABLE: LazyLock<Vec<Published>> = LazyLock::new(|| {
    let file = EXPERIMENTS.get_file("published.tsv");
    let text = file.and_then(|file| file.contents_utf8()).unwrap_or("");
    match parse(text) {
        Ok(table) => table,
        // A test reads the table of this source tree.
        Err(why) => panic!("experiments/published.tsv: {why}"),
    }
});

/// All published values that perch knows, in the order of `experiments/published.tsv`.
///
/// # Panics
/// Never with the table of this source tree: a test reads it.
pub fn all() -> &'static [Published] {
    &TABLE
}

/// The published value of that name.
pub fn find(id: &str) -> Option<&'static Published> {
    all().iter().find(|row| row.id == id)
}

/// Reads a table: a line of names, then a row a line, columns separated by tabs.
///
/// # Errors
/// The first line that is no row, and why.
pub fn parse(text: &str) -> Result<Vec<Published>, String> {
    let mut rows: Vec<Published> = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        let wrong = |why: String| format!("line {}: {why}", number + 1);
        let columns: Vec<&str> = line.split('\t').collect();
        let [id, paper, place, configuration, metric, value, kind] = columns[..] else {
            return Err(wrong(format!("{} columns instead of 7", columns.len())));
        };
        let known = Kind::NAMES.iter().find(|(name, _)| *name == kind);
        let Some((_, kind)) = known else {
            return Err(wrong(format!("`{kind}` is no kind of value")));
        };
        if rows.iter().any(|row| row.id == id) {
            return Err(wrong(format!("a second row `{id}`")));
        }
        rows.push(Published {
            id: id.to_owned(),
            paper: paper.to_owned(),
            place: place.to_owned(),
            configuration: configuration.to_owned(),
            metric: metric.to_owned(),
            value: value.to_owned(),
            kind: *kind,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_table_is_read() {
        let rows = parse(
            EXPERIMENTS
                .get_file("published.tsv")
                .unwrap()
                .contents_utf8()
                .unwrap(),
        );
        let rows = rows.unwrap();
        assert!(!rows.is_empty());
        for row in &rows {
            let number = row.number().is_some();
            let wants = matches!(row.kind, Kind::Exact | Kind::Approx | Kind::Bound);
            assert!(number || !wants, "{}: {} is no number", row.id, row.value);
        }
    }

    #[test]
    fn lines_that_are_no_rows_are_refused() {
        let head = "id\tpaper\tplace\tconfiguration\tmetric\tvalue\tkind\n";
        let row = "a\tp\tfigure 1\tc\tm\t1\texact\n";
        assert_eq!(parse(&format!("{head}{row}")).unwrap().len(), 1);
        for (more, why) in [
            ("x\ty\n", "line 3: 2 columns instead of 7"),
            (
                "b\tp\tf\tc\tm\t1\tfirm\n",
                "line 3: `firm` is no kind of value",
            ),
            (row, "line 3: a second row `a`"),
        ] {
            assert_eq!(parse(&format!("{head}{row}{more}")).unwrap_err(), why);
        }
    }
}
