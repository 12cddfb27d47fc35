//! `perch report`: pages of recordings, as files and in a browser.

mod browser;
mod crafted;
mod in_browser;

use crafted::{Recording, hostile};
use proptest::prelude::*;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perch"));
        command
            .args(arguments)
            .env("PERCH_STATE_DIR", self.file("state"))
            .env("XDG_CONFIG_HOME", self.0.path())
            .env_remove("PERCH_POLICY")
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn succeeds(&self, arguments: &[&str]) {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The page of a recording, and its data.
    fn page(&self, recording: &str) -> (PathBuf, Value) {
        let page = self.file("page.html");
        self.succeeds(&["report", recording, "--html", "page.html"]);
        (page.clone(), data(&page))
    }

    /// A simulated machine under a policy that moves threads.
    fn simulated(&self) -> &'static str {
        let sim = [
            "sim",
            "-m",
            "amd-bulldozer",
            "-w",
            "fp-int-8",
            "-p",
            "workover",
        ];
        let more = ["-t", "20s", "--fidelity", "interval", "--log", "sim.jsonl"];
        self.succeeds(&[&sim[..], &more[..]].concat());
        "sim.jsonl"
    }
}

/// What a page holds.
fn data(page: &Path) -> Value {
    let text = fs::read_to_string(page).unwrap();
    let (_, after) = text.split_once("id=\"data\">").unwrap();
    let (data, _) = after.split_once("</script>").unwrap();
    serde_json::from_str(data).unwrap()
}

/// The periods of a recording.
fn periods(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
    records
        .filter(|record: &Value| record["record"] == "period")
        .collect()
}

/// The sum of a member over the rows of a table.
fn sum(rows: &Value, member: &str) -> f64 {
    let rows = rows.as_array().unwrap();
    rows.iter().map(|row| row[member].as_f64().unwrap()).sum()
}

fn notes(data: &Value) -> String {
    let notes: Vec<String> = serde_json::from_value(data["notes"].clone()).unwrap();
    notes.join("\n")
}

/// CPU time of all threads in a recording, in seconds.
fn recorded_time(periods: &[Value]) -> f64 {
    let threads = periods
        .iter()
        .flat_map(|period| period["observation"]["threads"].as_array().unwrap());
    threads
        .map(|thread| thread["cpu_time"].as_u64().unwrap() as f64 / 1e9)
        .sum()
}

#[test]
fn a_page_tells_what_the_recording_holds() {
    let folder = Folder::new();
    let recording = folder.simulated();
    let (_, data) = folder.page(recording);
    let periods = periods(&folder.file(recording));
    assert_eq!(data["starts"].as_array().unwrap().len(), periods.len());
    let recorded = recorded_time(&periods);
    assert!(recorded > 1.0);
    // Times on the page are whole microseconds.
    for table in ["threads", "processes"] {
        let shown = sum(&data[table], "cpu");
        assert!(
            (shown - recorded).abs() < 0.001,
            "{table}: {shown} {recorded}"
        );
    }
    let moves: Vec<&Value> = periods
        .iter()
        .flat_map(|period| period["moves"].as_array().unwrap())
        .collect();
    assert!(moves.len() >= 8, "{}", moves.len());
    let listed = data["moves"].as_array().unwrap();
    assert_eq!(listed.len(), moves.len());
    for (listed, made) in listed.iter().zip(&moves) {
        let reason = made["reason"]["text"].as_str().unwrap();
        assert!(listed["why"].as_str().unwrap().starts_with(reason));
        assert_eq!(listed["to"], format!("PU {}", made["to"].as_str().unwrap()));
    }
    // Each thread's CPU share, column by column.
    let series = &data["series"]["thread"];
    let total: f64 = series
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|series| series["values"][0].as_array().unwrap())
        .filter_map(Value::as_f64)
        .sum();
    let length = periods[0]["observation"]["interval"].as_u64().unwrap() as f64 / 1e9;
    assert!((total * length - recorded).abs() < 0.01 * recorded);
    assert_eq!(data["lanes"].as_array().unwrap().len(), 8);
}

#[test]
fn the_page_loads_nothing_and_holds_no_markup_of_others() {
    let folder = Folder::new();
    fs::write(folder.file("hostile.jsonl"), hostile().text()).unwrap();
    let (page, data) = folder.page("hostile.jsonl");
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("default-src 'none'"));
    for never in [
        "src=",
        "href=",
        "@import",
        "url(h",
        "url(\"",
        "alert(1)</script>",
        "<img",
    ] {
        let own = text.split("id=\"data\">").next().unwrap();
        assert!(!own.contains(never), "{never}");
    }
    assert_eq!(text.matches("</script>").count(), 2);
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
    let names: Vec<&str> = data["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"</script><b>x"), "{names:?}");
    assert!(names.contains(&"\\x1b[2J\\u{202e}"), "{names:?}");
}

#[test]
fn what_cannot_be_read_is_said() {
    let folder = Folder::new();
    let whole = hostile().text();
    let lines: Vec<&str> = whole.lines().collect();
    let page_of = |text: &str| {
        fs::write(folder.file("damaged.jsonl"), text).unwrap();
        let (_, data) = folder.page("damaged.jsonl");
        (data["starts"].as_array().unwrap().len(), notes(&data))
    };
    let (periods, said) = page_of(&whole);
    assert!(!said.contains("recording"), "{said}");
    assert!(periods > 3);
    // Cut within its last line but one.
    let end = whole.trim_end().rfind('\n').unwrap();
    let (read, said) = page_of(&whole[..end - 40]);
    assert_eq!(read, periods - 1);
    assert!(said.contains("cut short"), "{said}");
    // Without its last line.
    let (read, said) = page_of(&whole[..=end]);
    assert_eq!(read, periods);
    assert!(said.contains("has no end"), "{said}");
    // A line that is none of a recording.
    let mut broken = lines.clone();
    broken[2] = "{\"record\":\"period\",\"number\":tr";
    let (read, said) = page_of(&(broken.join("\n") + "\n"));
    assert_eq!(read, periods - 1);
    assert!(
        said.contains("1 line of the recording that cannot be read"),
        "{said}"
    );
    assert!(said.contains("line 3"), "{said}");
    // Twice the same period.
    let mut twice = lines.clone();
    twice.insert(2, lines[1]);
    let (read, said) = page_of(&(twice.join("\n") + "\n"));
    assert_eq!(read, periods);
    assert!(said.contains("out of order"), "{said}");
    // An older format.
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/version-1.jsonl");
    let (_, data) = folder.page(old.to_str().unwrap());
    assert!(data["head"].to_string().contains("two.sh"));
}

#[test]
fn errors_say_what_is_wrong_and_leave_the_page_that_is_there() {
    let folder = Folder::new();
    let write = |name: &str, text: &str| fs::write(folder.file(name), text).unwrap();
    write("text.txt", "not one\n");
    write("page.html", "the page of yesterday");
    let whole = hostile().text();
    write(
        "header.jsonl",
        &format!("{}\n", whole.lines().next().unwrap()),
    );
    for (file, why) in [
        ("text.txt", "text.txt:1: not a recording"),
        ("missing.jsonl", "missing.jsonl: No such file"),
        ("header.jsonl", "header.jsonl: it holds no period"),
        (".", "directory"),
    ] {
        let error = folder.fails(&["report", file, "--html", "page.html"]);
        assert!(error.contains(why), "{error}");
        assert!(!error.contains("os error"), "{error}");
        let page = fs::read_to_string(folder.file("page.html")).unwrap();
        assert_eq!(page, "the page of yesterday");
    }
    write("good.jsonl", &whole);
    let error = folder.fails(&["report", "good.jsonl", "--html", "no/such/folder.html"]);
    assert!(
        error.contains("--html: no/such/folder.html: cannot be written"),
        "{error}"
    );
    let error = folder.fails(&["report", "good.jsonl", "--html", "./good.jsonl"]);
    assert!(error.contains("that is what is read (FILE)"), "{error}");
    assert_eq!(
        fs::read_to_string(folder.file("good.jsonl")).unwrap(),
        whole
    );
    // Without a name, the recording's; but nothing is lost.
    folder.succeeds(&["report", "good.jsonl"]);
    let beside = folder.file("good.html");
    assert!(beside.exists());
    fs::write(&beside, "mine").unwrap();
    let error = folder.fails(&["report", "good.jsonl"]);
    assert!(error.contains("good.html exists"), "{error}");
    assert_eq!(fs::read_to_string(&beside).unwrap(), "mine");
    // What is no file is named as it was given, though a copy of it is read.
    let error = folder.fails(&["report", "/dev/null", "--html", "page.html"]);
    assert!(
        error.contains("/dev/null") && !error.contains(".tmp"),
        "{error}"
    );
    // One of that name is written over.
    folder.page("good.jsonl");
}

#[test]
fn a_recording_may_come_through_a_pipe() {
    let folder = Folder::new();
    fs::write(folder.file("run.jsonl"), hostile().text()).unwrap();
    let (page, _) = folder.page("run.jsonl");
    let from_file = fs::read(&page).unwrap();
    let perch = env!("CARGO_BIN_EXE_perch");
    let script = format!("cat run.jsonl | {perch} report /dev/stdin --html page.html");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder.0.path());
    assert!(shell.status().unwrap().success());
    assert_eq!(fs::read(&page).unwrap(), from_file);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn no_time_is_lost_whatever_is_merged(
        threads in 1..60_usize, periods in 1..1200_u64, cores in 1..100_u32, siblings in 1..4_u32,
    ) {
        let folder = Folder::new();
        let recording = Recording::of(threads, periods.min(12_000 / threads as u64)).on(cores, siblings);
        fs::write(folder.file("run.jsonl"), recording.text()).unwrap();
        let (_, data) = folder.page("run.jsonl");
        let recorded = recorded_time(&self::periods(&folder.file("run.jsonl")));
        for table in ["threads", "processes"] {
            let shown = sum(&data[table], "cpu");
            prop_assert!((shown - recorded).abs() < 1e-4, "{table}: {shown} {recorded}");
        }
        let times = |name: &str| -> Vec<f64> { serde_json::from_value(data[name].clone()).unwrap() };
        let (starts, ends) = (times("starts"), times("ends"));
        prop_assert!(starts.len() <= 400 && starts.len() == ends.len());
        prop_assert!(starts.iter().zip(&ends).all(|(start, end)| start < end) && ends.is_sorted());
        // Each kind of series, and the lanes, which have as many PUs each.
        // Their numbers have three digits.
        let near = |shown: f64| (shown - recorded).abs() <= 0.006 * recorded + 1e-4;
        let lengths: Vec<f64> = starts.iter().zip(&ends).map(|(start, end)| end - start).collect();
        let area = |values: &Value| -> f64 {
            let values = values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap_or(0.0));
            values.zip(&lengths).map(|(value, length)| value * length).sum()
        };
        for kind in ["thread", "process", "name"] {
            let series = data["series"][kind].as_array().unwrap();
            prop_assert!(near(series.iter().map(|one| area(&one["values"][0])).sum()), "{kind}");
        }
        let lanes = data["lanes"].as_array().unwrap();
        prop_assert!(!lanes.is_empty() && lanes.len() <= 64);
        let said = notes(&data);
        let whole = !said.contains("lanes are not shown") && (cores * siblings) as usize == lanes.len();
        if whole && threads < 4 {
            // A lane shows no more than all of its time, which more threads in a test could exceed.
            prop_assert!(near(lanes.iter().map(|lane| area(&lane["all"])).sum()), "{said}");
        }
    }
}

#[test]
fn a_large_recording_gives_a_small_page_that_says_what_it_leaves_out() {
    let folder = Folder::new();
    // Many threads.
    let many = Recording::of(20_000, 3).on(64, 2);
    fs::write(folder.file("many.jsonl"), many.text()).unwrap();
    let (page, data) = folder.page("many.jsonl");
    let size = fs::metadata(&page).unwrap().len();
    assert!(size < 4 << 20, "{size}");
    let recorded = recorded_time(&periods(&folder.file("many.jsonl")));
    for table in ["threads", "processes"] {
        let shown = sum(&data[table], "cpu");
        assert!(
            (shown - recorded).abs() < 1e-4 * recorded,
            "{table}: {shown} {recorded}"
        );
    }
    let said = notes(&data);
    for wanted in [
        "19000 of 20000 threads have no row of their own",
        "19960 other threads share one",
        "2200 of 2500 processes share a row of the table",
        "Placement is shown by core, not by PU: the machine has 128 PUs",
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    assert_eq!(data["lanes"].as_array().unwrap().len(), 64);
    // Many periods, each with a move.
    let long = Recording::of(3, 5_000);
    fs::write(folder.file("long.jsonl"), long.text()).unwrap();
    let (page, data) = folder.page("long.jsonl");
    let size = fs::metadata(&page).unwrap().len();
    assert!(size < 1 << 20, "{size}");
    let columns = data["starts"].as_array().unwrap().len();
    assert_eq!(columns, 5_000_usize.div_ceil(13));
    let moved: Vec<u64> = serde_json::from_value(data["moved"].clone()).unwrap();
    assert_eq!(moved.iter().sum::<u64>(), 5_000);
    let said = notes(&data);
    for wanted in [
        "5000 periods are shown in 385 columns of time, 13 periods each",
        "4000 moves are not listed",
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    assert_eq!(data["moves"].as_array().unwrap().len(), 1000);
}
