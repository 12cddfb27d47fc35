//! Workloads that import mixes from other files.

use perch_sim::{
    config::{
        ConfigError, expanded, find_workload, read_shipped, shipped_mixes, workload,
        workload_from_text, workload_with,
    },
    workload::{Depends, WorkloadModel},
};
use std::{fs, path::Path};
use tempfile::TempDir;

const SHARED: &str = r#"about = "Shared mixes"
sources = ["measured"]
[mixes.busy]
shares = { alu = 0.7, load = 0.3 }
depends = 3
[mixes.streaming]
shares = { load = 1 }
working-sets = [{ size = "1 MiB", pattern = "stride" }]
"#;

const PROGRAMS: &str = r#"
[[programs]]
name = "main"
[[programs.threads]]
name = "a"
steps = [{ compute = "busy", instructions = "1k" }]
"#;

/// A workload with these mixes in a folder with these files.
fn read(mixes: &str, files: &[(&str, &str)]) -> Result<WorkloadModel, String> {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let file = folder.path().join("own/work.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = format!("about = \"Imports\"\nsources = [\"mine\"]\n{mixes}{PROGRAMS}");
    fs::write(&file, text).unwrap();
    let within = format!("{}/", folder.path().display());
    workload(&file).map_err(|error| error.to_string().replace(&within, ""))
}

#[test]
fn an_imported_mix_is_the_one_of_the_file() {
    let files = [("shared/mixes.toml", SHARED)];
    let mixes = r#"
[mixes.busy]
from = "../shared/mixes.toml"
[mixes.walk]
from = "../shared/mixes.toml"
mix = "streaming"
"#;
    let imported = read(mixes, &files).unwrap();
    let (_, own) = SHARED.split_once("[mixes").unwrap();
    let copied = read(&format!("[mixes{}", own.replace("streaming", "walk")), &[]).unwrap();
    assert_eq!(imported.mixes, copied.mixes);
    assert_eq!(imported.sources, ["mine", "measured"]);
}

#[test]
fn imported_mixes_may_be_imported_themselves() {
    let files = [
        ("shared/mixes.toml", SHARED),
        (
            "other/all.toml",
            "about = \"All\"\nsources = [\"measured\", \"elsewhere\"]\n\
             [mixes]\nx = { from = \"../shared/mixes.toml\", mix = \"busy\" }\n",
        ),
    ];
    let mixes = "[mixes]\nbusy = { from = \"../other/all.toml\", mix = \"x\" }\n";
    let found = read(mixes, &files).unwrap();
    assert_eq!(
        (found.mixes[0].name.as_str(), &found.mixes[0].depends),
        ("busy", &3.into())
    );
    assert_eq!(found.sources, ["mine", "measured", "elsewhere"]);
}

#[test]
fn mistakes_name_both_files() {
    let all = |cases: &[(&str, &[(&str, &str)])]| -> String {
        let mistakes = cases
            .iter()
            .map(|(mixes, files)| read(mixes, files).unwrap_err());
        mistakes.collect::<Vec<_>>().join("\n\n")
    };
    let busy = "[mixes.busy]\nfrom = \"../a.toml\"\n";
    let file = |mix: &str| format!("about = \"A\"\n[mixes.busy]\n{mix}\n");
    let (wrong, unknown) = (file("shares = { alu = -1 }"), file("share = { alu = 1 }"));
    let (to_b, to_a) = (file("from = \"b.toml\""), file("from = \"a.toml\""));
    let through = [("a.toml", to_b.as_str()), ("b.toml", unknown.as_str())];
    let around = [("a.toml", to_b.as_str()), ("b.toml", to_a.as_str())];
    let whole = format!("{SHARED}{PROGRAMS}");
    let told = all(&[
        (busy, &[("a.toml", &wrong)]),
        (busy, &through),
        (busy, &around),
        (busy, &[("a.toml", &to_a)]),
        (busy, &[]),
        (
            busy,
            &[(
                "a.toml",
                "about = \"A\"\n[mixes.bussy]\nshares = { alu = 1 }\n",
            )],
        ),
        (busy, &[("a.toml", "about = \n")]),
        (busy, &[("a.toml", &whole)]),
        ("[mixes.busy]\nfrom = \"masa-spec200\"\n", &[]),
        ("[mixes.busy]\nfrom = \"../a.toml\"\ndepends = 2\n", &[]),
        ("[mixes.busy]\nshares = { alu = 1 }\nmix = \"busy\"\n", &[]),
    ]);
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!("imports", told) });
}

#[test]
fn shipped_files_of_mixes_are_sound_and_found_by_name() {
    assert!(!shipped_mixes().is_empty());
    for file in shipped_mixes() {
        let mixes: toml::Table = file.text.parse().unwrap();
        for name in mixes["mixes"].as_table().unwrap().keys() {
            let mixes = format!("[mixes.busy]\nfrom = \"{}\"\nmix = \"{name}\"\n", file.name);
            read(&mixes, &[]).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    // A shipped workload imports from its neighbours in the binary.
    let text = format!(
        "about = \"Embedded\"\n[mixes.busy]\nfrom = \"./mixes/masa-spec2000.toml\"\nmix = \"parser\"\n{PROGRAMS}"
    );
    let path = Path::new("workloads/embedded.toml");
    let found = workload_with(&text, path, &read_shipped).unwrap();
    assert_eq!(found.mixes[0].depends, Depends::geometric(4.2));
    let nowhere = workload_with(&text.replace("masa", "none"), path, &read_shipped);
    let told = nowhere.unwrap_err().to_string();
    assert!(told.starts_with("workloads/embedded.toml:3:8: "), "{told}");
    assert!(find_workload("mixes/masa-spec2000").is_err());
}

#[test]
fn an_expanded_workload_is_the_same() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("a.toml"), SHARED).unwrap();
    let mixes = "[mixes]\nbusy = { from = \"a.toml\" }\nwalk = { from = \"a.toml\", mix = \"streaming\" }\n";
    let text = format!("about = \"Imports\"\n{mixes}{PROGRAMS}");
    let path = folder.path().join("work.toml");
    let read = |path: &Path| fs::read_to_string(path);
    let whole = expanded(&text, &path, &read).unwrap();
    assert!(!whole.contains("from"), "{whole}");
    let alone = workload_from_text(&whole, Path::new("work.toml")).unwrap();
    let imported = workload_from_text(&text, &path).unwrap();
    assert_eq!(
        (alone.mixes, alone.programs),
        (imported.mixes, imported.programs)
    );
    assert_eq!(expanded(&whole, &path, &read), None);
    let missing = workload_from_text(&text, Path::new("nowhere/work.toml"));
    assert!(matches!(missing, Err(ConfigError::Diagnostic(_))));
}
