//! `perch stat` shows the regions of instrumented programs.

use perch_skip::skip;
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};
use tempfile::TempDir;

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The example program in C; `None` without a compiler.
    fn program(&self) -> Option<PathBuf> {
        self.build(&root().join("examples/regions/region.c"))
    }

    fn build(&self, source: &Path) -> Option<PathBuf> {
        // Cargo puts the library beside this test.
        let library = std::env::current_exe()
            .unwrap()
            .with_file_name("liblibperch.so");
        let link = self.path("libperch.so");
        std::os::unix::fs::symlink(&library, &link).unwrap();
        std::os::unix::fs::symlink(&library, self.path("libperch.so.0")).unwrap();
        let program = self.path("program");
        let built = Command::new("cc")
            .args(["-O2", "-std=gnu11", "-pthread", "-I"])
            .arg(root().join("crates/libperch/include"))
            .arg("-o")
            .arg(&program)
            .arg(source)
            .arg(&link)
            .arg(format!("-Wl,-rpath,{}", self.folder.path().display()))
            .output()
            .ok()?;
        assert!(built.status.success(), "{built:?}");
        Some(program)
    }

    fn script(&self, text: &str) -> PathBuf {
        let path = self.path("script");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn stat(&self, args: &[&str], program: &Path) -> (Output, String) {
        let file = self.path("out");
        let output = Command::new(env!("CARGO_BIN_EXE_perch"))
            .arg("stat")
            .args(args)
            .arg("-o")
            .arg(&file)
            .arg("--")
            .arg(program)
            .env("PERCH_STATE_DIR", self.folder.path())
            .env("TMPDIR", self.folder.path())
            .output()
            .unwrap();
        (output, fs::read_to_string(file).unwrap())
    }

    /// Folders for reports that are still there.
    fn left(&self) -> usize {
        let entries = fs::read_dir(self.folder.path()).unwrap().flatten();
        entries
            .filter(|entry| {
                entry
                    .file_name()
                    .to_string_lossy()
                    .starts_with("perch-regions-")
            })
            .count()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn totals(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn what_perch_stat_alone_can_do_does_not_end_the_program() {
    let bench = Bench::new();
    let Some(program) = bench.program() else {
        return skip!(Tool, "no cc: `apt-get install gcc`");
    };
    for args in [
        &["-e", "page-faults:every=100,minor-faults"][..],
        &["-m", "rate=page-faults/cpu_seconds"][..],
    ] {
        let (output, text) = bench.stat(&[&["--json"], args].concat(), &program);
        assert!(output.status.success(), "{args:?}: {output:?}");
        let regions = totals(&text)["regions"].as_array().unwrap().clone();
        assert!(!regions.is_empty(), "{args:?}: {text}");
        let counted = |region: &Value| {
            region["counts"]
                .as_object()
                .map_or(0, |counts| counts.len())
        };
        assert!(regions.iter().any(|region| counted(region) > 0), "{text}");
    }
}

#[test]
fn regions_of_all_processes_follow_the_totals() {
    let bench = Bench::new();
    let Some(program) = bench.program() else {
        return skip!(Tool, "no cc: `apt-get install gcc`");
    };
    // `-` in an event's name is no minus, with and without perch stat.
    let alone = Command::new(&program)
        .env("PERCH_REGION_EVENTS", "page-faults")
        .env("PERCH_REGION_METRICS", "rate=page-faults/cpu_seconds")
        .env("PERCH_REGION_REPORT", "stderr")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&alone.stderr);
    let is_row = |line: &&str| line.starts_with("round ") && !line.ends_with(" -");
    assert!(told.lines().any(|line| is_row(&line)), "{told}");
    let twice = bench.script(&format!("{0} & {0}; wait", program.display()));
    let args = [
        "-e",
        "page-faults",
        "-m",
        "rate=page_faults/cpu_seconds",
        "-V",
        "context_switches",
    ];

    let (output, text) = bench.stat(&[&["--json"], &args[..]].concat(), &twice);
    assert!(output.status.success(), "{output:?}");
    let totals = totals(&text);
    let regions = totals["regions"].as_array().unwrap();
    let paths: Vec<&Value> = regions.iter().map(|region| &region["path"]).collect();
    assert_eq!(
        paths,
        [
            &serde_json::json!(["round"]),
            &serde_json::json!(["round", "fill"]),
            &serde_json::json!(["round", "sum"])
        ]
    );
    for region in regions {
        assert_eq!(region["calls"], 120, "{region:#}");
        assert_eq!(
            (&region["threads"], &region["processes"], &region["open"]),
            (&6.into(), &2.into(), &0.into())
        );
        assert!(region["cpu_s"].as_f64().unwrap() > 0.0);
        // All switches of a region are known, where they are counted at all.
        let switches = &region["metrics"]["context_switches"]["confidence"];
        assert!(switches.is_null() || switches == 1.0, "{region:#}");
    }
    let faults = |value: &Value| value["counts"]["page-faults"]["value"].as_f64();
    if let (Some(round), Some(fill), Some(all)) = (
        faults(&regions[0]),
        faults(&regions[1]),
        faults(&totals["all"]),
    ) {
        assert!(round >= fill && fill >= 6.0 && all >= round, "{totals:#}");
        let rate = regions[0]["metrics"]["rate"]["value"].as_f64().unwrap();
        let expected = round / regions[0]["cpu_s"].as_f64().unwrap();
        assert!((rate - expected).abs() < 1e-6 * expected, "{totals:#}");
    } else {
        skip!(Perf, "no perf events here");
    }

    let (_, text) = bench.stat(&args, &twice);
    assert!(text.contains("regions of 2 processes\n\nregion "), "{text}");
    assert!(text.contains("\n  fill "), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );

    let (_, text) = bench.stat(&[&["--csv"], &args[..]].concat(), &twice);
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let header = rows.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|title| title == name).unwrap();
    let rows: Vec<csv::StringRecord> = rows.records().map(Result::unwrap).collect();
    let regions: Vec<_> = rows
        .iter()
        .filter(|row| &row[at("event")] == "region")
        .collect();
    let names: Vec<&str> = regions.iter().map(|row| &row[at("name")]).collect();
    assert_eq!(names, ["round", "round/fill", "round/sum"]);
    assert!(regions.iter().all(|row| &row[at("calls")] == "120"));
    assert_eq!(bench.left(), 0);
}

/// Kills itself as soon as its report is in perch's folder.
const KILLED: &str = r#"
#include <dirent.h>
#include <perch.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int has_report(void) {
    DIR *folder = opendir(getenv("PERCH_REGIONS"));
    int found = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        found |= strstr(entry->d_name, ".json") != NULL;
    }
    if (folder) closedir(folder);
    return found;
}

int main(void) {
    perch_init(NULL);
    for (;;) {
        perch_start("loop");
        usleep(1000);
        perch_stop("loop");
        if (has_report()) raise(SIGKILL);
    }
}
"#;

/// Of a program that does not exit by itself, all is known up to a second before its end.
#[test]
fn a_killed_program_leaves_its_regions() {
    let bench = Bench::new();
    let source = bench.path("killed.c");
    fs::write(&source, KILLED).unwrap();
    let Some(program) = bench.build(&source) else {
        return skip!(Tool, "no cc: `apt-get install gcc`");
    };
    let (output, text) = bench.stat(&["--json", "-e", "page-faults"], &program);
    assert_eq!(output.status.code(), Some(128 + 9));
    let totals = totals(&text);
    assert_eq!(totals["regions"][0]["path"], serde_json::json!(["loop"]));
    assert!(
        totals["regions"][0]["calls"].as_u64() > Some(0),
        "{totals:#}"
    );
    assert_eq!(totals["regions"][0]["complete"], false, "{totals:#}");
    let remarks = totals["region_remarks"].to_string();
    assert!(
        remarks.contains("1 process wrote no last report"),
        "{remarks}"
    );
}

#[test]
fn what_a_killed_perch_leaves_is_removed_by_the_next_one() {
    let bench = Bench::new();
    let another = || bench.stat(&["-e", "page-faults"], Path::new("/bin/true"));
    let started = bench.path("started");
    // Its input ends with this test.
    let program = bench.script(&format!("echo >{}; exec cat", started.display()));
    let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"))
        .args(["stat", "-e", "page-faults", "--"])
        .arg(program)
        .env("PERCH_STATE_DIR", bench.folder.path())
        .env("TMPDIR", bench.folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !started.exists() {
        assert!(perch.try_wait().unwrap().is_none(), "perch stat has ended");
        sleep(Duration::from_millis(10));
    }
    another();
    assert_eq!(bench.left(), 1, "one that is in use");
    perch.kill().unwrap();
    perch.wait().unwrap();
    assert_eq!(bench.left(), 1);
    another();
    assert_eq!(bench.left(), 0);
}

/// What programs leave is not believed.
#[test]
fn hostile_reports_are_told_and_do_no_harm() {
    let bench = Bench::new();
    let hostile = r#"
cd "$PERCH_REGIONS" || exit 1
printf '{"format":"perch-regions","version":1,"pid":1,"program":"x","remarks":["\\u001b[2Jr"],"events":[],
  "regions":[{"path":["\\u001b]0;evil\\u0007"],"tid":1,"thread":"t","calls":18446744073709551615,"wall_s":1e300,
  "cpu_s":1e300,"counted_s":-1,"counts":{"page_faults":{"counted":-1,"time_s":1e300}}}]}' >1.json
cp 1.json 2.json
echo '[[[[' >3.json
mkfifo 4.json
ln -s /dev/zero 5.json
head -c 20000000 /dev/zero >6.json
"#;
    let script = bench.script(hostile);
    for form in [
        &["-e", "page-faults"][..],
        &["-e", "page-faults", "--json"],
        &["-e", "page-faults", "--csv"],
    ] {
        let (output, text) = bench.stat(form, &script);
        assert!(output.status.success(), "{output:?}");
        assert!(!text.contains(['\x1b', '\x07']), "{text:?}");
        assert!(text.contains("evil"), "{text}");
    }
    let (_, text) = bench.stat(&["-e", "page-faults"], &script);
    let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plain.contains("3.json: not a report of regions"), "{text}");
    assert!(
        plain.contains("the regions of 2 processes are left out"),
        "{text}"
    );
    assert!(plain.contains("is longer than 16 MiB"), "{text}");
    assert_eq!(bench.left(), 0);
}

#[test]
fn programs_without_regions_have_no_table() {
    let bench = Bench::new();
    let (output, text) = bench.stat(&["-e", "page-faults"], Path::new("/bin/true"));
    assert!(output.status.success());
    assert!(!text.contains("region"), "{text}");
    let (_, text) = bench.stat(&["-e", "page-faults", "--json"], Path::new("/bin/true"));
    assert_eq!(totals(&text)["regions"], serde_json::json!([]));
}
