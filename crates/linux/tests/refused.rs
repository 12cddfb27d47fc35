//! The kernel refuses something while a session runs: the session continues without it and prints one note.

mod common;

use common::{alone, launch, machine};
use perch_core::{
    EventPlan, Machine, MachineError, MetricInfo, Metrics, Module, ModuleContext, ModuleValues,
    Need, Observation, Targets, metric::names,
};
use perch_linux::LinuxMachine;
use rustix::{
    process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit},
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};
use std::{
    fs::{self, File},
    os::fd::AsRawFd,
    process::{Command, Stdio},
    time::Duration,
};

/// A program that computes on PU 0.
const BUSY: &[&str] = &["taskset", "-c", "0", "sh", "-c", "while :; do :; done"];

/// The end of a period in which the program ran, and whether it was sampled and its code known.
fn period(machine: &mut LinuxMachine) -> (Observation, bool) {
    machine.wait(Duration::from_millis(400)).unwrap();
    let observation = machine.observe().expect("the session goes on");
    let sampled = |metrics: &Metrics| {
        let of_kernel = metrics.value("kernel_share");
        metrics.value(names::SAMPLES).is_some_and(|n| n > 0.0) && of_kernel < Some(1.0)
    };
    let any = observation.threads.iter().any(|t| sampled(&t.metrics));
    (observation, any)
}

/// Periods until one in which the program was sampled; how often it was said that a CPU cannot be.
fn until_sampled(machine: &mut LinuxMachine) -> usize {
    let mut times = 0;
    // On a busy host it may run little, and be sampled seldom.
    for _ in 0..50 {
        let (observation, sampled) = period(machine);
        times += said(&observation);
        if sampled {
            return times;
        }
    }
    panic!("not sampled any more");
}

/// A program that is killed when the test is over, whatever its outcome.
struct Busy(i32);

impl Drop for Busy {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.0).expect("a number");
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// How often it was said that a CPU cannot be sampled.
fn said(observation: &Observation) -> usize {
    let remarks = observation.remarks.iter();
    remarks
        .filter(|remark| remark.text.contains("has come online cannot be sampled"))
        .count()
}

fn without_privileges() -> CapabilitySets {
    let before = capabilities(None).unwrap();
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        ..before
    };
    set_capabilities(None, none).unwrap();
    before
}

/// Not a test: run by the test below where `/sys/devices/system/cpu/online` is its file.
#[test]
#[ignore = "the process of another test"]
fn in_a_machine_that_grows() {
    let online = std::env::var("PERCH_TEST_ONLINE").expect("the test's");
    let mut machine = machine();
    machine.configure(&EventPlan::default()).unwrap();
    let _busy = Busy(machine.launch(&launch(BUSY)).unwrap());
    assert!(machine.counting().contains("on each busy CPU"));
    until_sampled(&mut machine);

    // Not one descriptor more: the list of CPUs cannot be read now.
    let limit = getrlimit(Resource::Nofile);
    let next = File::open("/").unwrap().as_raw_fd() as u64;
    machine.wait(Duration::from_millis(400)).unwrap();
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(next),
            ..limit
        },
    )
    .unwrap();
    let observed = machine.observe();
    setrlimit(Resource::Nofile, limit).unwrap();
    observed.expect("the session goes on");
    // The CPU's own event is still there.
    until_sampled(&mut machine);

    // A second CPU comes, but perch may not look at whole CPUs any more.
    let privileges = without_privileges();
    fs::write(online, "0-1\n").unwrap();
    let (observation, _) = period(&mut machine);
    assert_eq!(said(&observation), 1, "{:?}", observation.remarks);
    // What is left is sampled, and nothing said again.
    assert_eq!(until_sampled(&mut machine), 0);
    assert_eq!(until_sampled(&mut machine), 0);
    set_capabilities(None, privileges).unwrap();
    until_sampled(&mut machine);
    println!("went on");
}

#[test]
fn a_cpu_that_cannot_be_sampled_does_not_end_the_session() {
    let _alone = alone();
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let refuses = paranoid.trim().parse::<i32>().is_ok_and(|level| level > 0);
    let cpus = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    if !rustix::process::geteuid().is_root() || !refuses || cpus.trim() == "0" {
        eprintln!("skipped: needs root, two CPUs and kernel.perf_event_paranoid above 0");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let online = folder.path().join("online");
    fs::write(&online, "0\n").unwrap();
    let script =
        "mount --bind \"$PERCH_TEST_ONLINE\" /sys/devices/system/cpu/online && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "in_a_machine_that_grows", "--ignored"])
        .arg("--nocapture")
        .env("PERCH_TEST_ONLINE", &online)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}{errors}");
    assert!(told.contains("went on"), "{told}{errors}");
}

/// A module of a user's own that never succeeds.
struct Failing(usize);

impl Module for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn provides(&self) -> Vec<MetricInfo> {
        Vec::new()
    }

    fn period(&mut self, _: &ModuleContext<'_>) -> Result<ModuleValues, MachineError> {
        self.0 += 1;
        Err(MachineError::Other(format!("failure {}", self.0)))
    }

    fn description(&self) -> String {
        "nothing".to_owned()
    }
}

#[test]
fn a_module_that_fails_does_not_end_the_session() {
    let _alone = alone();
    let builder = LinuxMachine::builder().module(Box::new(Failing(0)));
    let mut machine = builder.build().unwrap();
    machine.launch(&launch(&["sleep", "1"])).unwrap();
    let mut remarks = Vec::new();
    for _ in 0..3 {
        machine.wait(Duration::from_millis(100)).unwrap();
        let observation = machine.observe().expect("the session goes on");
        assert!(!observation.threads.is_empty());
        remarks.extend(observation.remarks);
    }
    remarks.retain(|remark| remark.text.contains("failing"));
    let expected = "module `failing` fails, so that less is known: failure 1".to_owned();
    assert_eq!(remarks.len(), 1);
    assert_eq!(remarks[0].text, expected);
    while machine.wait(Duration::from_secs(2)).unwrap() == perch_core::Wake::Period {}
}

/// A module of a user's own that needs what nothing measures.
struct Needy;

impl Module for Needy {
    fn name(&self) -> &str {
        "needy"
    }

    fn provides(&self) -> Vec<MetricInfo> {
        Vec::new()
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Metric("watts".into())]
    }

    fn period(&mut self, _: &ModuleContext<'_>) -> Result<ModuleValues, MachineError> {
        Ok(ModuleValues::default())
    }

    fn description(&self) -> String {
        "nothing".to_owned()
    }
}

#[test]
fn a_module_that_needs_what_no_module_provides_is_refused_before_anything_runs() {
    let _alone = alone();
    let builder = LinuxMachine::builder().module(Box::new(Needy));
    let mut machine = builder.build().unwrap();
    let told = machine.configure(&EventPlan::default()).unwrap_err();
    let told = told.to_string();
    assert!(
        told.contains("`needy`") && told.contains("`watts`"),
        "{told}"
    );
}
