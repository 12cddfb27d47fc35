//! Every command line of the documentation and of `--help` runs.
//!
//! A line that takes longer than a moment is stopped by Ctrl-C. So a page's command may fail here for what this machine
//! lacks, and then must say so; it may not name what perch does not have.

use crate::{extending::blocks, read, root};
use perch_linux::topology::{Source, export_xml};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::{
        fs::symlink,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Pages whose own tests follow them whole.
const FOLLOWED: [&str; 3] = ["extending.md", "notebook.md", "own-policy.md"];

/// How long a command may run before it is stopped, and how long it may take to end then, however busy the machine is.
const MOMENT: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(300);

/// The program of the examples: three threads that compute for a moment.
const APP: &str = r#"
#include <pthread.h>
#include <time.h>

static void *work(void *sum) {
    clock_t end = clock() + CLOCKS_PER_SEC / 10;
    while (clock() < end) *(volatile double *)sum += 1.5;
    return 0;
}

int main(void) {
    pthread_t threads[3];
    static double sums[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, &sums[i]);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
}
"#;

/// What pages take for granted, made before they are followed.
const BEFORE: [&str; 8] = [
    "perch run --log run.jsonl -- ./app",
    "perch calibrate -m intel-xeon-ht --quick -o zen.toml",
    "cp zen.toml calibration.toml",
    "perch record-trace -o lu.trace --skip 1M --instructions 1M --stop -- target/examples/scimark lu",
    "cp lu.trace sort.trace",
    "perch trace lu.trace --champsim 600.perlbench.champsimtrace.xz",
    "perch profiles show zen4 >my.toml",
    "perch stat -i 100ms -o rows.parquet -- ./mcf",
];

/// Files of these, which pages write again: what a command that was stopped has written is not whole.
const GIVEN: [&str; 6] = [
    "run.jsonl",
    "zen.toml",
    "calibration.toml",
    "lu.trace",
    "sort.trace",
    "rows.parquet",
];

/// Lines that are not run, by a part of them, and why.
const NOT_RUN: [(&str, &str); 8] = [
    (
        "-p ps-sched-",
        "moves all threads of this machine; tests in virtual machines run it",
    ),
    (
        "irq --apply",
        "moves this machine's interrupts; tests in virtual machines run it",
    ),
    (
        "--host ",
        "there is no other machine; a test of perch top has a script in place of ssh",
    ),
    ("$(", "those processes are not here"),
    ("-- make -j8", "there is nothing to make"),
    ("restore /tmp/", "there is no such journal"),
    ("perch man |", "opens a pager"),
    ("perch top  this machine", "the picture of a screen"),
];

/// What a machine may lack: a part of the lines that need it, perch's exit code, and what it says.
const LACKS: [(&str, i32, &str); 12] = [
    ("perch power", 125, "no counter of energy here"),
    ("perch power", 125, "the counters of energy stand still"),
    ("energy", 125, "no counter of energy here"),
    ("energy", 125, "the counters of energy stand still"),
    (
        "--metric ",
        125,
        "no processor package here has a counter of energy",
    ),
    ("--check energy", 1, ""),
    ("llc_occupancy", 125, "resctrl"),
    ("perch stat -e", 125, "nothing can be counted: event"),
    ("--tracer", 125, "the kernel has no tracer"),
    ("core:", 125, "there is no core:3"),
    ("--pus 2-3", 125, "perch may only use the PUs"),
    ("attach --cgroup ", 125, "no control group"),
];

/// One command line, and where it stands.
#[derive(Debug, Clone)]
struct Line {
    page: String,
    command: String,
}

/// The lines of indented and fenced blocks that start with perch, after `sudo` and variables.
fn commands(text: &str) -> Vec<String> {
    let mut fence: Option<&str> = None;
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            fence = fence.is_none().then_some(language);
            continue;
        }
        let is_code = match fence {
            Some(language) => matches!(language, "" | "sh"),
            None => line.starts_with("    "),
        };
        let mut command = line.trim().to_owned();
        if !is_code || !starts_perch(&command) {
            continue;
        }
        while let Some(first) = command.strip_suffix('\\') {
            command = first.to_owned() + lines.next().unwrap_or_default().trim();
        }
        found.push(command);
    }
    found
}

/// Whether perch and a subcommand come first, but for `sudo` and variables.
fn starts_perch(line: &str) -> bool {
    let is_before = |word: &&str| *word == "sudo" || word.contains('=');
    let mut words = line.split(' ').skip_while(is_before);
    let is_command = |word: &str| word.starts_with(|c: char| c.is_ascii_lowercase());
    words.next() == Some("perch") && words.next().is_some_and(is_command)
}

/// What a shell gets: without the explanation behind it, and without what only stands for something.
fn shell(line: &str, process: u32) -> Vec<String> {
    let line = line.split("  ").next().unwrap_or_default();
    let line = line.split(" # ").next().unwrap_or_default().trim();
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let line = line.replace("4711", &process.to_string());
    let line = line.replace("-- …", "-- ./app").replace(" args…", "");
    // `perch profiles | policies` is one line for several commands, and so is `run a|b`.
    if let Some((first, rest)) = line.split_once(" | ")
        && !rest.starts_with("man ")
    {
        let others = rest.split(" | ").map(|rest| format!("perch {rest}"));
        return [first.to_owned()].into_iter().chain(others).collect();
    }
    let Some(alternatives) = line.split(' ').find(|word| word.contains('|')) else {
        return vec![line];
    };
    let each = alternatives.split('|');
    each.map(|one| line.replace(alternatives, one)).collect()
}

/// All lines of the documents and of `--help`.
fn lines() -> Vec<Line> {
    let mut pages = vec![("README.md".to_owned(), read("README.md"))];
    let files = fs::read_dir(root().join("docs")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    names.retain(|name| !FOLLOWED.contains(&name.as_str()));
    names.sort();
    for name in names {
        let page = format!("docs/{name}");
        pages.push((page.clone(), read(&page)));
    }
    let help = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_perch"))
            .args(words)
            .arg("--help")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let all = help(&[]);
    let (_, listed) = all.split_once("\nCommands:\n").expect("a list of commands");
    let listed = listed.lines().take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.split_whitespace().next());
    for name in ["", "lab run", "lab list"].into_iter().chain(names) {
        let words: Vec<&str> = name.split_whitespace().collect();
        // Examples are indented by two there.
        let text = help(&words).replace("\n  ", "\n    ");
        pages.push((format!("perch {name} --help"), text));
    }
    let of_page = |(page, text): (String, String)| {
        let commands = commands(&text);
        let line = move |command| Line {
            page: page.clone(),
            command,
        };
        commands.into_iter().map(line)
    };
    let mut all: Vec<Line> = pages.into_iter().flat_map(of_page).collect();
    let mut seen = BTreeSet::new();
    all.retain(|line| seen.insert(line.command.clone()));
    all
}

/// A folder with what the pages take for granted.
struct Place {
    folder: tempfile::TempDir,
    path: String,
    plugin: PathBuf,
}

impl Place {
    /// `None` without a C compiler or the example programs.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["target", "machines", "workloads", "profiles", "experiments"] {
            symlink(root().join(name), at(name)).unwrap();
        }
        fs::write(at("app.c"), APP).unwrap();
        let cc = Command::new("cc")
            .args(["-O1", "-pthread", "-o", "app", "app.c"])
            .current_dir(folder.path())
            .status();
        if !cc.is_ok_and(|status| status.success()) || !at("target/examples/scimark").exists() {
            return None;
        }
        for name in ["mcf", "nightly"] {
            fs::hard_link(at("app"), at(name)).unwrap();
        }
        symlink("target/examples/scimark", at("scimark")).unwrap();
        for (from, to) in [
            ("docs/images/two-phases.toml", "two-phases.toml"),
            ("examples/modules/interrupts.py", "interrupts.py"),
            ("examples/modules/interrupts.py", "my.py"),
            ("experiments/cmt/figure3.toml", "my-experiment.toml"),
            ("machines/cmt-4x4.toml", "my-machine.toml"),
            ("workloads/mixed.toml", "my-load.toml"),
        ] {
            fs::copy(root().join(from), at(to)).unwrap();
        }
        let machine = Source::Synthetic("package:1 core:2 pu:2".into());
        fs::write(at("saved.xml"), export_xml(&machine).unwrap()).unwrap();
        fs::write(at("best.pins"), "*=0-3\n").unwrap();
        fs::write(at("train.py"), "print(sum(range(1000000)))\n").unwrap();
        let traces = read("docs/traces.md");
        let both = blocks(&traces, "toml");
        fs::write(at("both.toml"), both.first().expect("a workload")).unwrap();
        for name in [".config/perch", ".local/share/bash-completion/completions"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let perch = Path::new(env!("CARGO_BIN_EXE_perch")).parent().unwrap();
        let path = format!("{}:{}", perch.display(), std::env::var("PATH").unwrap());
        // Cargo puts the library beside this test.
        let plugin = std::env::current_exe().unwrap();
        let plugin = plugin.with_file_name("libperch_trace_plugin.so");
        Some(Self {
            folder,
            path,
            plugin,
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A shell in a process group of its own, as in a terminal. `perch top` gets a terminal, and is left by a key.
    fn start(&self, command: &str) -> Child {
        let has_screen = command.starts_with("perch top") && !command.contains("--json");
        let script = match has_screen {
            true => "{ sleep 1; printf q; } | script -qec \"$LINE\" /dev/null",
            false => command,
        };
        Command::new("sh")
            .args(["-c", script])
            .current_dir(self.folder.path())
            .env("LINE", command)
            .env("PATH", &self.path)
            .env("HOME", self.folder.path())
            .env("SHELL", "/bin/sh")
            .env("PERCH_TRACE_PLUGIN", &self.plugin)
            .env("PERCH_STATE_DIR", self.file("state"))
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("PERCH_PROFILES")
            .env_remove("PERCH_POLICY")
            .stdin(Stdio::null())
            .stdout(File::create(self.file("printed")).unwrap())
            .stderr(File::create(self.file("said")).unwrap())
            .process_group(0)
            .spawn()
            .unwrap()
    }

    /// Runs a line, stops it where it takes long, and tells what is wrong with it.
    fn run(&self, command: &str, stop: bool) -> Result<(), String> {
        let mut child = self.start(command);
        let status = ended(&mut child, stop);
        let said = String::from_utf8_lossy(&fs::read(self.file("said")).unwrap()).into_owned();
        let Some(status) = status else {
            return Err(format!("does not end\n{said}"));
        };
        const INTERRUPT: i32 = 2;
        let is_stopped =
            stop && (status.signal() == Some(INTERRUPT) || status.code() == Some(128 + INTERRUPT));
        let lacks = |(part, code, message): &(&str, i32, &str)| {
            command.contains(part) && status.code() == Some(*code) && said.contains(message)
        };
        match status.success() || is_stopped || LACKS.iter().any(lacks) {
            true => Ok(()),
            false => Err(format!("{status}\n{said}")),
        }
    }
}

/// A process that ends with the test.
struct Sleeping(Child);

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the end, which Ctrl-C brings if it does not come by itself; `None` if nothing does.
fn ended(child: &mut Child, stop: bool) -> Option<ExitStatus> {
    let start = Instant::now();
    let group = rustix::process::Pid::from_child(child);
    let signal = |signal| {
        let _ = rustix::process::kill_process_group(group, signal);
    };
    let mut stopped = !stop;
    while start.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if !stopped && start.elapsed() > MOMENT {
            stopped = true;
            signal(rustix::process::Signal::INT);
        }
        sleep(Duration::from_millis(10));
    }
    signal(rustix::process::Signal::KILL);
    let _ = child.wait();
    None
}

#[test]
fn every_command_line_of_the_documents_and_of_help_runs() {
    let lines = lines();
    assert!(lines.len() > 150, "{}", lines.len());
    let Some(place) = Place::new() else {
        return perch_skip::skip!(Tool, "no cc, or `make examples` has not run");
    };
    for command in BEFORE {
        place
            .run(command, false)
            .unwrap_or_else(|error| panic!("{command}: {error}"));
    }
    let given: Vec<Vec<u8>> = GIVEN
        .iter()
        .map(|name| fs::read(place.file(name)).unwrap())
        .collect();
    // The process to which a number in the documents refers.
    let process = Sleeping(Command::new("sleep").arg("3600").spawn().unwrap());
    let mut wrong = Vec::new();
    let mut run = 0;
    let mut unused: Vec<&str> = NOT_RUN.iter().map(|(part, _)| *part).collect();
    for line in &lines {
        let of_line = |(part, _): &&(&str, &str)| {
            line.command.contains(part) && !line.command.contains("--dry-run")
        };
        if let Some((part, _)) = NOT_RUN.iter().find(of_line) {
            unused.retain(|other| other != part);
            continue;
        }
        for command in shell(&line.command, process.0.id()) {
            run += 1;
            for (name, bytes) in GIVEN.iter().zip(&given) {
                fs::write(place.file(name), bytes).unwrap();
            }
            if let Err(error) = place.run(&command, true) {
                wrong.push(format!("{}: {command}: {error}", line.page));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {run}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(unused.is_empty(), "no line has {unused:?}");
}

#[test]
fn lines_are_found_and_made_ready_for_a_shell() {
    let text = "text perch run\n\n    sudo A=1 perch run -- ./app      explained\n    perch a \\\n        -b\n\
                ```sh\nperch c\nother\n```\n```toml\nperch = 1\nperch d\n```\nperch e\n    perch    aligned 3\n";
    assert_eq!(
        commands(text),
        [
            "sudo A=1 perch run -- ./app      explained",
            "perch a -b",
            "perch c"
        ]
    );
    let ready = |line| shell(line, 7).join(";");
    assert_eq!(ready("sudo perch attach 4711      # all"), "perch attach 7");
    assert_eq!(ready("perch a | b --c | d"), "perch a;perch b --c;perch d");
    assert_eq!(
        ready("perch lab run a|b  two"),
        "perch lab run a;perch lab run b"
    );
    assert_eq!(ready("perch run -- …"), "perch run -- ./app");
}
