//! What maintainers and packagers rely on: documents that are true, manual pages, a package.

mod architecture;
mod commands;
mod extending;
mod manual;
mod metadata;
mod notebook;
mod packaging;
mod tests;
mod validation;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The root of the source tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the source tree.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text between the first two places of these marks.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text
        .split_once(start)
        .unwrap_or_else(|| panic!("no {start:?} in {text}"));
    rest.split_once(end).map_or(rest, |(inner, _)| inner)
}
