//! `docs/pmctrack.md`: the options and functions that it names exist, and no name of PMCTrack is missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

/// A file, by its path from this crate's folder.
fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page() -> String {
    read("../../docs/pmctrack.md")
}

/// What stands in backquotes.
fn quoted(page: &str) -> Vec<&str> {
    let lines = page.lines();
    lines
        .flat_map(|line| {
            let marks = line.matches('`').count();
            assert!(marks.is_multiple_of(2), "a span over two lines: {line}");
            line.split('`').skip(1).step_by(2)
        })
        .collect()
}

/// perch's commands on the page with their options: of `perch stat -i 1s -- ./app -x`, `stat` with `-i`.
fn commands(page: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for span in quoted(page) {
        let words = span.split_whitespace().skip_while(|word| *word != "perch");
        let mut words = words.skip(1).peekable();
        if words.peek().is_none() {
            continue;
        }
        let command = words.next_if(|word| !word.starts_with('-'));
        let own = words.take_while(|word| *word != "--");
        let options = own.filter(|word| word.starts_with('-'));
        found
            .entry(command.unwrap_or_default())
            .or_default()
            .extend(options);
    }
    found
}

/// The options of a command, as its help lists them.
fn options(command: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_perch"))
        .args(command.split_whitespace())
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success(), "there is no perch {command}");
    let help = String::from_utf8(output.stdout).unwrap();
    let lines = help.lines().map(str::trim_start);
    let lines = lines.filter(|line| line.starts_with('-'));
    lines
        .flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-'))
        .map(str::to_owned)
        .collect()
}

/// The rows of all tables: PMCTrack's names, what perch has, the difference.
fn rows(page: &str) -> Vec<[&str; 3]> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = lines.map(|line| {
        let line = line.strip_suffix(" |").unwrap_or(line);
        let cells: Vec<&str> = line.split(" |").map(str::trim).collect();
        <[&str; 3]>::try_from(cells).unwrap_or_else(|cells| panic!("not three cells: {cells:?}"))
    });
    rows.filter(|row| row[0] != "PMCTrack" && row[0] != "---")
        .collect()
}

#[test]
fn every_option_is_in_the_help_of_its_command() {
    let page = page();
    let commands = commands(&page);
    assert!(commands.len() > 8, "{commands:?}");
    for (command, named) in commands {
        let known = options(command);
        for option in named {
            assert!(known.contains(option), "perch {command} has no {option}");
        }
    }
}

#[test]
fn every_function_is_declared_in_the_header() {
    let (page, header) = (page(), read("../libperch/include/perch.h"));
    let calls = quoted(&page).into_iter();
    let calls = calls.filter_map(|span| Some(span.split_once('(')?.0));
    let functions: BTreeSet<&str> = calls.filter(|name| name.starts_with("perch_")).collect();
    assert!(functions.len() > 10, "{functions:?}");
    for function in functions {
        let call = format!("{function}(");
        let mut declarations = header.lines().filter(|line| {
            // Neither the example in the comment nor what stands in for the library.
            !line.starts_with([' ', '#']) && line.ends_with(");")
        });
        assert!(
            declarations.any(|line| line.contains(&call)),
            "perch.h does not declare {function}"
        );
    }
}

#[test]
fn no_name_of_pmctrack_is_missing() {
    let (page, list) = (page(), read("tests/data/pmctrack-names.txt"));
    let mut named = BTreeSet::new();
    for [names, perch, _] in rows(&page) {
        assert!(!perch.is_empty(), "{names}: what does perch have?");
        for name in names.replace('`', "").split(", ") {
            assert!(named.insert(name.to_owned()), "{name} has two rows");
        }
    }
    let listed = list.lines().filter(|line| !line.starts_with('#'));
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    let missing: Vec<&String> = listed.difference(&named).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
    let unknown: Vec<&String> = named.difference(&listed).collect();
    assert!(unknown.is_empty(), "not in the list: {unknown:?}");
}
