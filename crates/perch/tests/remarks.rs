//! The codes of remarks are those that `docs/remarks.md` lists.

use std::{collections::BTreeSet, fs, path::Path};

/// Code and severity.
type Listed = BTreeSet<(String, String)>;

/// The remarks that a source file makes outside of its tests.
fn made(source: &str, found: &mut Listed) {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    for severity in ["note", "warning", "error"] {
        for call in [format!("Remark::{severity}("), "remark_once(".to_owned()] {
            if call == "remark_once(" && severity != "warning" {
                continue;
            }
            for after in source.split(&call).skip(1) {
                if let Some(code) = after.trim_start().strip_prefix('"') {
                    let code = code.split('"').next().unwrap();
                    found.insert((code.to_owned(), severity.to_owned()));
                }
            }
        }
    }
}

fn walk(folder: &Path, found: &mut Listed) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            made(&fs::read_to_string(&path).unwrap(), found);
        }
    }
}

#[test]
fn every_code_is_documented_and_every_documented_code_exists() {
    let mut found = Listed::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in fs::read_dir(crates).unwrap() {
        let sources = entry.unwrap().path().join("src");
        if sources.is_dir() {
            walk(&sources, &mut found);
        }
    }
    let page = include_str!("../../../docs/remarks.md");
    let listed: Listed = page
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            let code = cells.next()?.trim_end_matches('`');
            Some((code.to_owned(), cells.next()?.to_owned()))
        })
        .collect();
    assert_eq!(found, listed);
}
