//! Manual pages have the sections of man-pages(7), in its order, and are clean for groff.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// The sections that there may be, in the order in which they must stand.
const SECTIONS: [&str; 11] = [
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "OPTIONS",
    "COMMANDS",
    "EXIT STATUS",
    "ENVIRONMENT",
    "FILES",
    "NOTES",
    "EXAMPLES",
    "SEE ALSO",
];

/// Every page by name.
fn pages(folder: &Path) -> Vec<(String, String)> {
    let status = Command::new(env!("CARGO_BIN_EXE_perch"))
        .arg("man")
        .arg(folder)
        .status();
    assert!(status.unwrap().success());
    let page = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    };
    fs::read_dir(folder).unwrap().map(page).collect()
}

fn headings(page: &str) -> Vec<&str> {
    let lines = page.lines().filter_map(|line| line.strip_prefix(".SH "));
    lines.map(|heading| heading.trim_matches('"')).collect()
}

#[test]
fn every_page_has_the_standard_sections_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let pages = pages(folder.path());
    let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    for name in ["perch.1", "perch-run.1", "perch-lab-run.1"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!names.contains(&"perch-kernel.1"), "that one is hidden");
    for (name, page) in &pages {
        let found = headings(page);
        let expected = SECTIONS.iter().filter(|section| found.contains(section));
        assert!(found.iter().eq(expected), "{name}: {found:?}");
        for needed in ["NAME", "SYNOPSIS", "EXIT STATUS", "FILES", "SEE ALSO"] {
            assert!(found.contains(&needed), "{name}: {found:?}");
        }
        let title = page.lines().find(|line| line.starts_with(".TH ")).unwrap();
        let command = name.trim_end_matches(".1");
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(".TH {command} 1 \" \" \"perch {version}\" \"perch manual\"");
        assert_eq!(title, expected);
    }
}

#[test]
fn sections_say_what_help_says() {
    let folder = tempfile::tempdir().unwrap();
    let pages = pages(folder.path());
    let run = &pages
        .iter()
        .find(|(name, _)| name == "perch-run.1")
        .unwrap()
        .1;
    let section = |title: &str| {
        let (_, rest) = run.split_once(&format!(".SH {title}\n")).unwrap();
        rest.split_once("\n.SH").map_or(rest, |(text, _)| text)
    };
    assert!(section("EXAMPLES").contains(".nf\nperch run "), "{run}");
    assert!(section("\"EXIT STATUS\"").contains("127"), "{run}");
    for variable in ["PERCH_POLICY", "PERCH_STATE_DIR", "XDG_RUNTIME_DIR"] {
        assert!(section("ENVIRONMENT").contains(variable), "{run}");
    }
    // Groups of options are below the one heading.
    assert!(section("OPTIONS").contains(".SS "), "{run}");
    assert!(section("OPTIONS").contains("dry\\-run"), "{run}");
}

#[test]
fn groff_has_no_warnings() {
    let folder = tempfile::tempdir().unwrap();
    for (name, page) in pages(folder.path()) {
        let output = Command::new("groff")
            .args(["-man", "-ww", "-K", "utf8", "-T", "utf8", "-z"])
            .arg(folder.path().join(&name))
            .stdin(Stdio::null())
            .output();
        let output = match output {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return perch_skip::skip!(Tool, "groff is not installed");
            }
            other => other.unwrap(),
        };
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && warnings.is_empty(),
            "{warnings}{page}"
        );
    }
}
