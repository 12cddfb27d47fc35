//! `ARCHITECTURE.md` is true: its paths exist, all crates and policies are in it, and crates use what it says.

use crate::{between, read, root};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

/// What stands in backquotes, fenced blocks left out, and where links lead.
fn quoted(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in page.lines().filter(|line| !line.starts_with("    ")) {
        found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        let links = line.split("](").skip(1);
        found.extend(links.filter_map(|link| Some(link.split_once(')')?.0.to_owned())));
    }
    found
}

/// Whether it is written as a path: `a/b`, or a file of the kinds that there are.
fn is_path(word: &str) -> bool {
    let ending = word.rsplit_once('.').map(|(_, ending)| ending);
    !word.contains([' ', ':', '|', '('])
        && (word.contains('/') || matches!(ending, Some("rs" | "md" | "toml" | "tsv" | "sh")))
}

/// The rows of the table with this first column's title, without backquotes.
fn rows(page: &str, title: &str) -> Vec<Vec<String>> {
    let table = page
        .lines()
        .skip_while(|line| !line.starts_with(&format!("| {title} |")))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells
            .map(|cell| cell.trim().replace('`', ""))
            .collect::<Vec<_>>()
    };
    table.map(cells).collect()
}

/// Each crate of the workspace by its folder, with what it depends on of the workspace when it is built.
fn crates() -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let manifest: toml::Table = read(&format!("crates/{name}/Cargo.toml")).parse().unwrap();
        let uses = manifest.get("dependencies").and_then(toml::Value::as_table);
        let uses = uses.into_iter().flat_map(toml::Table::keys);
        let uses = uses.filter_map(|used| Some(used.strip_prefix("perch-")?.to_owned()));
        found.insert(name, uses.collect());
    }
    found
}

fn list(cell: &str) -> BTreeSet<String> {
    let names = cell.split(", ").filter(|name| *name != "–");
    names.map(str::to_owned).collect()
}

#[test]
fn every_path_exists() {
    let page = read("ARCHITECTURE.md");
    let paths: Vec<String> = quoted(&page).into_iter().filter(|w| is_path(w)).collect();
    assert!(paths.len() > 60, "{paths:?}");
    let root = root();
    let missing: Vec<&String> = paths
        .iter()
        .filter(|path| *path != "crates/NAME")
        .filter(|path| !root.join(path).exists() && !root.join("crates").join(path).exists())
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:?}");
}

#[test]
fn every_crate_is_listed_with_what_it_uses() {
    let page = read("ARCHITECTURE.md");
    let listed: BTreeMap<String, BTreeSet<String>> = rows(&page, "crate")
        .into_iter()
        .map(|row| (row[0].clone(), list(&row[2])))
        .collect();
    assert_eq!(listed, crates());
}

/// Crates that are shipped stand in a layer, and use none of a higher one.
#[test]
fn no_crate_uses_one_of_a_higher_layer() {
    let page = read("ARCHITECTURE.md");
    let mut layers = BTreeMap::new();
    for row in rows(&page, "layer") {
        let layer: u32 = row[0].parse().unwrap();
        for name in list(&row[1]) {
            layers.insert(name, layer);
        }
    }
    for (name, uses) in crates() {
        let row = rows(&page, "crate").into_iter().find(|row| row[0] == name);
        let shipped = !row.unwrap()[1].contains("not shipped");
        assert_eq!(layers.contains_key(&name), shipped, "{name}");
        for used in uses.iter().filter(|_| shipped) {
            assert!(layers[used] <= layers[&name], "{name} uses {used}");
        }
    }
}

#[test]
fn every_policy_is_named() {
    let page = read("ARCHITECTURE.md");
    let row = page.lines().find(|line| line.starts_with("| `policy` |"));
    let named = quoted(row.expect("a row of the crate policy"));
    for policy in perch_policy::registry::names() {
        assert!(named.contains(policy), "{policy} is not in {named:?}");
    }
}

/// The other pages for maintainers lead to files that are there, too.
#[test]
fn links_of_the_documents_lead_somewhere() {
    let root = root();
    let docs = fs::read_dir(root.join("docs")).unwrap();
    let docs = docs.map(|entry| format!("docs/{}", entry.unwrap().file_name().display()));
    let pages = docs.filter(|page| page.ends_with(".md")).chain(
        [
            "README.md",
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "CHANGELOG.md",
        ]
        .map(str::to_owned),
    );
    for page in pages {
        let text = read(&page);
        let folder = root.join(&page);
        let folder = folder.parent().unwrap();
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap();
            let elsewhere = target.is_empty() || target.contains("://");
            assert!(
                elsewhere || folder.join(target).exists(),
                "{page} links to {target}"
            );
        }
    }
}

#[test]
fn the_check_of_paths_finds_what_is_missing() {
    let words = quoted("see `a/b.rs`, `two words/x`, `Trait::method` and [c](d.md)");
    let paths: Vec<&String> = words.iter().filter(|word| is_path(word)).collect();
    assert_eq!(paths, ["a/b.rs", "d.md"]);
    assert_eq!(between("x <y> z", "<", ">"), "y");
}
