//! `docs/extending.md` and `docs/own-policy.md`: their files are written, their commands run, their code is compiled.

use crate::{between, read, root};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

/// The text of one `## ` section.
fn section<'a>(page: &'a str, title: &str) -> &'a str {
    between(page, &format!("\n## {title}\n"), "\n## ")
}

/// The blocks of this language.
pub fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("```{language}\n");
    let parts = text.split(start.as_str()).skip(1);
    let block = |part: &'a str| part.split_once("```").expect("a block has an end").0;
    parts.map(block).collect()
}

/// The files of a section: each TOML block by the last name in backquotes before it.
fn files(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("```toml\n") {
        let (file, next) = after.split_once("```").expect("a block has an end");
        let name = before.rsplit('`').nth(1).expect("a name before the block");
        assert!(name.starts_with("my-") && name.ends_with(".toml"), "{name}");
        found.insert(name.to_owned(), file.to_owned());
        rest = next;
    }
    found
}

/// A folder that looks like the root of the repository, for the files of the page.
pub fn place() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["crates", "profiles", "machines", "workloads", "experiments"] {
        symlink(root().join(name), folder.path().join(name)).unwrap();
    }
    folder
}

/// Writes the files of a section and runs its commands, as a user would copy them; gives back what they print.
pub fn follow(folder: &Path, text: &str) -> String {
    for (name, file) in files(text) {
        fs::write(folder.join(name), file).unwrap();
    }
    let perch = Path::new(env!("CARGO_BIN_EXE_perch")).parent().unwrap();
    let path = format!("{}:{}", perch.display(), std::env::var("PATH").unwrap());
    let scripts = blocks(text, "sh");
    assert!(!scripts.is_empty(), "{text}");
    let mut printed = String::new();
    for script in scripts {
        let output = Command::new("sh")
            .args(["-e", "-c", script])
            .current_dir(folder)
            .env("PATH", &path)
            .env("XDG_CONFIG_HOME", folder.join("config"))
            .env("PERCH_STATE_DIR", folder.join("state"))
            .env_remove("PERCH_PROFILES")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}\n{errors}");
        printed += &String::from_utf8_lossy(&output.stdout);
    }
    printed
}

fn extending(title: &str) -> (tempfile::TempDir, String) {
    let page = read("docs/extending.md");
    let folder = place();
    let printed = follow(folder.path(), section(&page, title));
    (folder, printed)
}

#[test]
fn the_profile_is_sound_and_is_the_one_for_its_processor() {
    let (folder, printed) = extending("A processor profile");
    assert!(printed.contains("my-cpu: you asked for it"), "{printed}");
    assert!(
        printed.contains("2 PUs of each core share its floating-point units"),
        "{printed}"
    );
    let library = perch_profile::Library::load(&[folder.path().to_owned()]).unwrap();
    assert_eq!(library.find("my-cpu").unwrap().metrics.len(), 1);
}

#[test]
fn the_metric_is_computed_for_every_thread() {
    let (folder, _) = extending("A metric");
    let report = fs::read_to_string(folder.path().join("my-run.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let threads = report["threads"].as_array().unwrap();
    let ratio = |thread: &serde_json::Value| {
        let metrics = thread["stats"]["metrics"].as_array().unwrap();
        let metric = metrics.iter().find(|m| m["name"] == "l1_miss_ratio");
        metric.expect("the page's metric")["value"]
            .as_f64()
            .unwrap()
    };
    let ratios: Vec<f64> = threads.iter().map(ratio).collect();
    assert_eq!(ratios.len(), 8);
    assert!(ratios.iter().all(|r| (0.0..=1.0).contains(r)), "{ratios:?}");
    assert!(ratios.iter().any(|ratio| *ratio > 0.1), "{ratios:?}");
}

#[test]
fn the_machine_is_simulated_under_a_policy() {
    let (_, printed) = extending("A machine");
    assert!(printed.contains("mixed on my-chip: 4 PUs"), "{printed}");
    assert!(printed.contains("\nworkover "), "{printed}");
}

#[test]
fn the_experiment_runs_on_the_machine_and_its_claim_holds() {
    let page = read("docs/extending.md");
    let folder = place();
    for (name, file) in files(section(&page, "A machine")) {
        fs::write(folder.path().join(name), file).unwrap();
    }
    let printed = follow(folder.path(), section(&page, "An experiment"));
    assert!(printed.contains(" holds"), "{printed}");
    assert!(!printed.contains("MISSES"), "{printed}");
}

/// What the steps of a policy name is there, and so is what they say of the code.
#[test]
fn the_steps_of_a_policy_name_what_there_is() {
    let page = read("docs/extending.md");
    for word in page.split('`').skip(1).step_by(2) {
        let is_file = word.starts_with("crates/") || word.starts_with("experiments/");
        if is_file && !word.contains(['N', 'G']) {
            assert!(root().join(word).exists(), "{word}");
        }
    }
    let registry = read("crates/policy/src/registry.rs");
    assert!(registry.contains("static ENTRIES"));
    assert!(read("crates/core/src/module.rs").contains("pub trait Module"));
}

/// Lines without what depends on where they stand.
fn flat(code: &str) -> String {
    let lines = code.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// The page has the whole policy, in pieces, and nothing that the compiled program does not have.
#[test]
fn the_code_of_a_policy_is_that_of_the_program() {
    let page = read("docs/own-policy.md");
    let program = read("crates/lab/examples/own_policy.rs");
    let pieces: Vec<String> = blocks(&page, "rust").into_iter().map(flat).collect();
    let whole = flat(&program);
    for piece in &pieces {
        assert!(
            whole.contains(piece.as_str()),
            "not in the program:\n{piece}"
        );
    }
    let policy = between(&program, "struct Deal;", "\n}\n");
    let shown = pieces.join("\n");
    for line in flat(policy).lines() {
        assert!(shown.contains(line), "not on the page: {line}");
    }
}
