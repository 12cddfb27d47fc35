//! Programs in C, C++, Fortran and Python: the examples are built with the system's compilers and run.

use perch_skip::skip;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where cargo put the libraries that it built for these tests.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// Whether a program is installed.
fn has(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

/// Builds examples; all tests share the folder.
fn make(goal: &str) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().unwrap());
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(root().join("examples")).args([
        format!("OUT={}", folder.path().join(goal).display()),
        format!("PERCH_LIB={}", built().display()),
        goal.to_owned(),
    ]);
    for variable in ["MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL"] {
        make.env_remove(variable);
    }
    run(&mut make);
    folder.path().join(goal)
}

/// The regions of a run with these events, and what it printed.
fn regions(command: &mut Command, events: &str) -> (perch_regions::Report, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    command
        .env("PERCH_REGION_EVENTS", events)
        .env("PERCH_REGION_REPORT", &file);
    let output = run(command);
    let report = perch_regions::parse(&std::fs::read(&file).unwrap()).unwrap();
    (report, text(&output.stdout))
}

/// Name, calls and threads.
fn seen(report: &perch_regions::Report) -> Vec<(String, u64, u32)> {
    let (merged, _) = perch_regions::merge([report]);
    merged
        .iter()
        .map(|region| (region.path.join("/"), region.calls, region.amounts.members))
        .collect()
}

fn faults(report: &perch_regions::Report, path: &str) -> f64 {
    let (merged, _) = perch_regions::merge([report]);
    let region = merged
        .iter()
        .find(|region| region.path.join("/") == path)
        .unwrap();
    region.amounts.value("page_faults").unwrap().counted
}

fn counts(report: &perch_regions::Report) -> bool {
    match report.counted_by.as_str() {
        "clocks only" => {
            skip!(Perf, "no perf events here");
            false
        }
        _ => true,
    }
}

#[test]
fn programs_in_c_and_cpp_and_those_for_likwid_and_papi() {
    if !has("make") || !has("cc") || !has("c++") {
        return skip!(Tool, "no make, cc or c++: `apt-get install make g++`");
    }
    let folder = make("regions");
    let program = |name: &str| Command::new(folder.join(name));
    let (report, told) = regions(&mut program("region-c"), "page-faults,task-clock");
    let expected = [
        ("round", 60, 3),
        ("round/fill", 60, 3),
        ("round/sum", 60, 3),
    ];
    let expected = expected.map(|(path, calls, threads)| (path.to_owned(), calls, threads));
    assert_eq!(seen(&report), expected);
    assert!(told.contains("fill: 60 calls in 3 threads"), "{told}");
    if counts(&report) {
        assert!(told.contains(" page-faults, counted for 100 %"), "{told}");
        // A thread's first megabyte is new memory.
        assert!(faults(&report, "round/fill") >= 3.0, "{report:?}");
        assert!(faults(&report, "round") >= faults(&report, "round/fill"));
    }

    let (report, told) = regions(&mut program("region-cpp"), "page-faults");
    let expected = [("step", 10, 1), ("step/sum", 10, 1)];
    let expected = expected.map(|(path, calls, threads)| (path.to_owned(), calls, threads));
    assert_eq!(seen(&report), expected);
    assert!(told.contains("step: 10 calls"), "{told}");

    let (report, told) = regions(&mut program("region-likwid"), "page-faults");
    // The other one was reset.
    assert_eq!(seen(&report), [("after".to_owned(), 1, 1)]);
    assert!(told.contains("triad: 5 calls"), "{told}");

    let (report, _) = regions(&mut program("region-papi"), "page-faults");
    assert_eq!(seen(&report), [("computation".to_owned(), 5, 1)]);

    // Not asked for, a program that was made for LIKWID runs as if it had no regions.
    let output = run(&mut program("region-likwid"));
    assert!(text(&output.stdout).contains("triad: 0 calls"));
    assert!(text(&output.stderr).contains("run the program under `perch stat`"));
    // What means nothing is told.
    let mut wrong = program("region-c");
    wrong.env("PERCH_REGION_METRICS", "x=(");
    let output = wrong.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("-m x=("), "{output:?}");
    // Also where the program does not look at what came of it.
    let mut wrong = program("region-likwid");
    wrong.env("PERCH_REGION_EVENTS", "page-fault");
    let told = text(&run(&mut wrong).stderr);
    assert!(
        told.contains("regions are not counted: no event is called `page-fault`; did you mean")
            && told.contains("PERCH_REGION_EVENTS=page-fault"),
        "{told}"
    );
    // And it can be switched off.
    let output = run(program("region-c").env("PERCH_REGION_OFF", "1"));
    assert!(!text(&output.stdout).contains("fill"), "{output:?}");
}

#[test]
fn switched_off_it_needs_no_library() {
    if !has("cc") || !has("c++") {
        return skip!(Tool, "no cc or c++: `apt-get install g++`");
    }
    let folder = tempfile::tempdir().unwrap();
    let include = root().join("crates/libperch/include");
    for (compiler, source, flags) in [
        ("cc", "region.c", &["-std=c99", "-pthread"][..]),
        ("c++", "region.cpp", &["-std=c++11"][..]),
        ("cc", "likwid.c", &["-std=c99", "-DLIKWID_PERFMON"][..]),
        // As LIKWID's own: without the switch, nothing is left.
        ("cc", "likwid.c", &["-std=c99"][..]),
    ] {
        let program = folder.path().join(format!("off-{source}"));
        let mut cc = Command::new(compiler);
        cc.args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-DPERCH_DISABLE",
        ])
        .args(flags)
        .arg("-I")
        .arg(&include)
        .arg("-I")
        .arg(include.join("perch/compat"))
        .arg("-o")
        .arg(&program)
        .arg(root().join("examples/regions").join(source));
        run(&mut cc);
        let output = run(&mut Command::new(&program));
        assert!(text(&output.stdout).contains("result "), "{output:?}");
    }
}

#[test]
fn a_program_may_contain_the_library() {
    if !has("cc") || !has("objcopy") {
        return skip!(Tool, "no cc or objcopy: `apt-get install gcc binutils`");
    }
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("libperch.a");
    run(Command::new("sh")
        .arg(root().join("packaging/static.sh"))
        .arg(built().join("liblibperch.a"))
        .arg(&archive));
    let symbols = run(Command::new("nm")
        .args(["-g", "--defined-only"])
        .arg(&archive));
    let symbols = text(&symbols.stdout);
    let others = symbols.lines().filter_map(|line| line.split(' ').nth(2));
    let others: Vec<&str> = others.filter(|name| !name.starts_with("perch_")).collect();
    assert_eq!(
        others, [""; 0],
        "they would clash with other libraries in Rust"
    );
    let program = folder.path().join("static");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-pthread", "-I"])
        .arg(root().join("crates/libperch/include"))
        .arg("-o")
        .arg(&program)
        .arg(root().join("examples/regions/region.c"))
        .arg(&archive)
        // As `Libs.private` of packaging/perch.pc.in has it.
        .args(private_libraries());
    run(&mut cc);
    let (report, _) = regions(&mut Command::new(&program), "page-faults");
    assert_eq!(seen(&report).len(), 3);
}

/// What the Makefile writes into the pkg-config file.
fn private_libraries() -> Vec<String> {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let line = makefile
        .lines()
        .find_map(|line| line.strip_prefix("STATIC_LIBS := "))
        .unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_program_in_fortran() {
    if !has("gfortran") || !has("make") {
        return skip!(Tool, "no gfortran: `apt-get install gfortran`");
    }
    let folder = make("regions-fortran");
    let (report, told) = regions(
        &mut Command::new(folder.join("region-fortran")),
        "page-faults",
    );
    assert_eq!(seen(&report), [("fill".to_owned(), 8, 1)]);
    assert!(told.contains("fill: 8 calls"), "{told}");
}

#[test]
fn a_program_in_python() {
    if !has("python3") {
        return skip!(Tool, "no python3: `apt-get install python3`");
    }
    let mut python = Command::new("python3");
    python
        .arg("-B")
        .arg(root().join("examples/regions/region.py"))
        .env("PYTHONPATH", root().join("python"))
        .env("PERCH_LIBRARY", built().join("liblibperch.so"));
    let (report, told) = regions(&mut python, "page-faults,task-clock");
    let expected = [("outer", 5, 1), ("outer/fill", 5, 1)];
    let expected = expected.map(|(path, calls, threads)| (path.to_owned(), calls, threads));
    assert_eq!(seen(&report), expected);
    assert!(told.contains("fill: 5 calls"), "{told}");
    if counts(&report) {
        assert!(faults(&report, "outer/fill") >= 5.0, "{report:?}");
    }
}

/// Prints what each call returns, and the words for it.
const ERRORS: &str = r#"
#include <perch.h>
#include <stdio.h>
#include <stdlib.h>

static void say(int status) { printf("%d %s\n", status, status ? perch_error() : "fine"); }

int main(void) {
    say(perch_start("early"));
    setenv("PERCH_REGION_INTERVAL", "soon", 1);
    say(perch_init(NULL));
    unsetenv("PERCH_REGION_INTERVAL");
    say(perch_init(NULL));
    say(perch_init(NULL));
    say(perch_stop("never"));
    say(perch_finish());
    say(perch_stop("late"));
}
"#;

#[test]
fn errors_have_words() {
    if !has("make") || !has("cc") || !has("c++") {
        return skip!(Tool, "no make, cc or c++: `apt-get install make g++`");
    }
    let library = make("regions");
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("errors.c"), folder.path().join("errors"));
    std::fs::write(&source, ERRORS).unwrap();
    let mut cc = Command::new("cc");
    cc.args([Path::new("-o"), &program, &source])
        .arg(format!(
            "-I{}",
            root().join("crates/libperch/include").display()
        ))
        .arg(format!("-L{}", library.display()))
        .args(["-lperch", &format!("-Wl,-rpath,{}", library.display())]);
    run(&mut cc);
    let told = text(&run(&mut Command::new(program)).stdout);
    let lines: Vec<&str> = told.lines().collect();
    let off = "-1 nothing is counted: perch_init was not called, or perch_finish was";
    assert_eq!(lines[0], off);
    assert!(
        lines[1].starts_with("-8 ") && lines[1].contains("soon"),
        "{told}"
    );
    assert_eq!(lines[2], "0 fine");
    assert!(lines[3].starts_with("-2 ") && lines[3].len() > 10, "{told}");
    assert!(
        lines[4].starts_with("-3 ") && lines[4].contains("never"),
        "{told}"
    );
    assert_eq!(lines[5], "0 fine");
    assert_eq!(lines[6], off);
}
