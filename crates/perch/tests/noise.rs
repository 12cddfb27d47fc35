//! `perch noise` against noise of known truth, which a thread on one PU makes meanwhile.

use perch_skip::skip;
use perch_testbed::inject::{self, Burst, Options, Truth, bursts, truth};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread::sleep,
    time::Duration,
};

/// How far off what perch finds may be.
const TOLERANCE: f64 = 0.05;
/// The name of the thread that makes noise.
const NAME: &str = "inject-noise";

/// One measurement at a time: a second one would be noise of the first.
fn one() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn perch(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perch"));
    command.arg("noise").args(args).stdin(Stdio::null());
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Value {
    let text = stdout(output);
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}{error}"))
}

fn first_pu() -> u32 {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1024).find(|pu| set.is_set(*pu)).unwrap() as u32
}

/// Not a test: the process that makes noise, as the variables say.
#[test]
#[ignore = "the program of other tests"]
fn program() {
    let Ok(how) = std::env::var("PERCH_TEST_INJECT") else {
        return;
    };
    let numbers: Vec<u64> = how.split(' ').map(|word| word.parse().unwrap()).collect();
    // The thread that libtest runs this on is the only one that does anything.
    println!("\nbegins");
    let made = inject::run(&Options {
        pu: numbers[0] as u32,
        period: numbers[1],
        burst: numbers[2],
        name: NAME.to_owned(),
        until_closed: true,
        seconds: 0.0,
    });
    println!("{}", serde_json::to_string(&made.unwrap()).unwrap());
}

/// A process that makes noise until it is told to end.
struct Injector {
    child: Child,
    end: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Injector {
    fn start(pu: u32, period: u64, burst: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "program",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("PERCH_TEST_INJECT", format!("{pu} {period} {burst}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line != "begins\n" {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it did not begin");
        }
        let end = child.stdin.take();
        Self { child, end, said }
    }

    fn end(mut self) -> Vec<Burst> {
        self.end = None;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.said, &mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        bursts(&text).unwrap()
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

fn near(found: f64, truth: f64, what: &str) {
    let off = (found / truth - 1.0).abs();
    assert!(off <= TOLERANCE, "{what}: {found} instead of {truth}");
}

/// What perch says of a PU is what the noise was, and whose it was.
fn judge(pu: &Value, truth: &Truth) {
    let sources = pu["sources"].as_array().unwrap();
    let found = sources.iter().find(|source| source["name"] == NAME);
    let found = found.unwrap_or_else(|| panic!("{NAME} is not in {sources:#?}"));
    assert_eq!(found["kind"], "task");
    let seconds = number(&pu["measured"]) * 1e-9;
    near(
        number(&found["rate"]),
        truth.bursts as f64 / seconds,
        "rate",
    );
    near(
        number(&found["lengths"]["median"]),
        truth.median as f64,
        "length",
    );
    let share = truth.total as f64 * 1e-9 / seconds;
    // Without the interrupts that came within bursts, which have rows of their own.
    let taken: f64 = sources.iter().map(|source| number(&source["share"])).sum();
    assert!(
        number(&found["share"]) <= share * (1.0 + TOLERANCE),
        "{found:#} of {share}"
    );
    assert!(taken >= share * (1.0 - TOLERANCE), "{taken} of {share}");
    // Quanta have lost at least what the bursts took.
    let lost = number(&pu["lost"]);
    assert!(lost >= share * (1.0 - TOLERANCE), "{lost} lost of {share}");
    // Where the bursts themselves were regular, so is what was found.
    if truth.regular >= 0.8 {
        near(
            number(&found["period"]["nanoseconds"]),
            truth.period as f64,
            "period",
        );
    }
}

#[test]
fn injected_noise_is_found_and_attributed() {
    let _one = one();
    let pu = first_pu();
    for (method, period, burst) in [("fwq", 10, 1000), ("ftq", 25, 2000), ("fwq", 5, 300)] {
        let injector = Injector::start(pu, period, burst);
        let list = pu.to_string();
        let args = ["--pus", &list, "--for", "4s", "--json", "--method", method];
        let output = perch(&args).output().unwrap();
        let bursts = injector.end();
        assert!(output.status.success(), "{output:?}");
        let report = json(&output);
        let of = &report["pus"][0];
        let time = |key: &str| of[key].as_u64().unwrap();
        let truth = truth(&bursts, time("start"), time("end")).unwrap();
        assert_eq!((time("pu"), time("lost_events")), (u64::from(pu), 0));
        assert!(number(&of["clock"]) > 0.0);
        // Known without tracepoints, too: as much was lost.
        let share = truth.total as f64 / time("measured") as f64;
        assert!(number(&of["lost"]) >= share * (1.0 - TOLERANCE));
        if let Some(why) = report["untraced"].as_str() {
            assert!(why.contains("root") || why.contains("CONFIG_"), "{why}");
            return skip!(SystemWidePerf, "{why}");
        }
        judge(of, &truth);
    }
}

#[test]
fn a_table_that_fits_and_a_picture() {
    let _one = one();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noise.svg");
    let plot = file.to_str().unwrap();
    let output = perch(&["--for", "300ms", "--no-trace", "--plot", plot])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    assert!(text.starts_with("Quanta of fixed work on "), "{text}");
    assert!(text.contains("not asked for"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let picture = std::fs::read_to_string(file).unwrap();
    assert!(
        picture.starts_with("<svg") && picture.contains("PU 0"),
        "{picture}"
    );
}

#[test]
fn a_signal_ends_it_early_with_the_results_so_far() {
    let _one = one();
    let mut child = perch(&["--for", "10m", "--no-trace", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Until it catches signals, and has measured a little.
    let threads = format!("/proc/{}/task", child.id());
    while std::fs::read_dir(&threads).unwrap().count() < 2 {
        sleep(Duration::from_millis(10));
        assert!(child.try_wait().unwrap().is_none());
    }
    sleep(Duration::from_millis(200));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let report = json(&output);
    assert_eq!(report["stopped"], "SIGINT");
    assert!(report["pus"][0]["quanta"].as_u64().unwrap() > 0);
}

#[test]
fn pus_that_there_are_not_are_refused() {
    let output = perch(&["--pus", "900"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("--pus 900: perch may only use the PUs"),
        "{said}"
    );
}
