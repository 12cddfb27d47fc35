//! Threads that end are accounted for to their last tick.

mod common;

use common::{Gate, actor, alone, machine, of_children, role, shell};
use perch_core::{Machine, Observation, Targets, ThreadId, Wake};
use perch_linux::{LinuxMachine, taskstats::ExitRecords};
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

const PERIOD: Duration = Duration::from_millis(500);

/// How many brief threads there are.
const BRIEF: usize = 33;

/// A tick of the kernel's accounts.
const TICK: u64 = 10_000_000;

#[test]
fn actor_role() {
    match role().as_deref() {
        // Two at a time, so that some begin and end within a period.
        Some("brief") => {
            let lives = |first: usize| {
                move || {
                    for number in (first..BRIEF).step_by(2) {
                        let name = format!("brief-{number}");
                        compute(&name, Duration::from_millis(150)).join().unwrap();
                    }
                }
            };
            let other = std::thread::spawn(lives(1));
            lives(0)();
            other.join().unwrap();
        }
        // In the middle of a period, on a machine that does nothing else.
        Some("four") => {
            let four = [0, 1, 2, 3].map(|number| {
                let name = format!("four-{number}");
                let time = 2 * PERIOD + PERIOD / 2 + Duration::from_millis(20 * number);
                compute_by(ClockId::ThreadCPUTime, &name, time)
            });
            four.into_iter().for_each(|thread| thread.join().unwrap());
        }
        // One that may not have the kernel's exit records.
        Some("observer") => {
            let before = of_children();
            let mut machine = machine();
            machine.launch(&actor("brief")).unwrap();
            let told = Told::of(&until_end(&mut machine));
            let counting = machine.counting();
            drop(machine);
            let all = of_children() - before;
            println!(
                "told {} {} {all} {counting}",
                told.measured, told.unmeasured
            );
        }
        _ => return,
    }
    std::process::exit(0);
}

fn compute(name: &str, time: Duration) -> JoinHandle<()> {
    compute_by(ClockId::Monotonic, name, time)
}

fn compute_by(clock: ClockId, name: &str, time: Duration) -> JoinHandle<()> {
    let work = move || {
        let now = || {
            let now = clock_gettime(clock);
            Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
        };
        let end = now() + time;
        while now() < end {
            std::hint::black_box((0..1_000).sum::<u64>());
        }
    };
    Builder::new().name(name.to_owned()).spawn(work).unwrap()
}

fn until_end(machine: &mut LinuxMachine) -> Vec<Observation> {
    let mut seen = Vec::new();
    loop {
        let wake = machine.wait(PERIOD).unwrap();
        seen.push(machine.observe().unwrap());
        match wake {
            Wake::Ended(_) => return seen,
            Wake::Period => assert!(seen.len() < 120, "the program does not end"),
            Wake::Stop(signal) => panic!("signal {signal}"),
        }
    }
}

/// What observations tell of CPU time, in nanoseconds, and of threads.
struct Told {
    measured: u64,
    unmeasured: u64,
    unseen: u64,
    /// Threads by these names, and whether each of them ended.
    named: BTreeSet<String>,
}

impl Told {
    fn of(seen: &[Observation]) -> Self {
        let samples = || seen.iter().flat_map(|seen| &seen.threads);
        let ended: BTreeSet<_> = seen.iter().flat_map(|seen| &seen.ended).collect();
        let gone = samples().filter(|sample| ended.contains(&sample.info.id));
        Self {
            measured: samples().map(|sample| sample.cpu_time).sum(),
            unmeasured: seen.iter().map(|seen| seen.unmeasured).sum(),
            unseen: seen.iter().map(|seen| seen.unseen).sum(),
            named: gone.map(|sample| sample.info.name.to_string()).collect(),
        }
    }

    fn count(&self, name: &str) -> usize {
        let named = self.named.iter();
        named.filter(|known| known.starts_with(name)).count()
    }
}

/// What a program's threads did, and all that the kernel has accounted for.
fn run(program: &str) -> Option<(Told, u64, Vec<Observation>)> {
    ExitRecords::open()?;
    let before = of_children();
    let mut machine = machine();
    machine.launch(&actor(program)).unwrap();
    let seen = until_end(&mut machine);
    assert!(machine.counting().contains("exit records"));
    drop(machine);
    Some((Told::of(&seen), of_children() - before, seen))
}

impl Told {
    /// All is known within 1 % and 2 ms, and next to all of it of threads. Ticks of a virtual machine may come late, so
    /// that a record lacks more than one of them.
    fn check(&self, all: u64) {
        let (measured, unmeasured) = (self.measured, self.unmeasured);
        let known = measured + unmeasured;
        let text = format!("{measured} measured and {unmeasured} unmeasured of {all} ns");
        assert!(known.abs_diff(all) <= all / 100 + 2_000_000, "{text}");
        assert!(unmeasured <= all / 30, "{text}");
    }
}

#[test]
fn threads_that_live_for_less_than_a_period_are_measured() {
    let _alone = alone();
    let Some((told, all, seen)) = run("brief") else {
        return perch_skip::skip!(Root, "exit records are refused here");
    };
    assert_eq!(told.count("brief-"), BRIEF, "{:?}", told.named);
    assert_eq!(told.unseen, 0);
    told.check(all);
    // Some began and ended between two looks: no mask was read of them.
    let mut short = Vec::new();
    for seen in &seen {
        assert!(seen.threads.is_sorted_by_key(|sample| sample.info.id));
        let whole = seen
            .threads
            .iter()
            .filter(|sample| sample.info.name.starts_with("brief-"));
        let whole = whole.filter(|sample| seen.ended.contains(&sample.info.id));
        short.extend(whole.filter(|sample| sample.mask.is_none() && sample.migrations.is_none()));
    }
    let known = |id: ThreadId| {
        seen.iter()
            .flat_map(|seen| &seen.threads)
            .filter(|s| s.info.id == id)
            .count()
    };
    short.retain(|sample| known(sample.info.id) == 1);
    assert!(!short.is_empty());
    // A single record may lack several ticks that came late.
    let mean = short.iter().map(|sample| sample.cpu_time).sum::<u64>() / short.len() as u64;
    assert!(mean > 5_000_000, "{short:?}");
    for sample in short {
        assert!(
            (145_000_000..700_000_000).contains(&sample.interval),
            "{sample:?}"
        );
        assert!(
            sample.cpu_time > 0 && sample.cpu_time <= sample.interval,
            "{sample:?}"
        );
        assert!(
            sample.switches.is_some_and(|switches| switches > 0),
            "{sample:?}"
        );
    }
}

/// The sample of a thread that ended counts until then, not until it was taken.
#[test]
fn the_last_sample_ends_with_the_thread() {
    let _alone = alone();
    if ExitRecords::open().is_none() {
        return perch_skip::skip!(Root, "exit records are refused here");
    }
    let (gate, folder) = (Gate::new(), tempfile::tempdir().unwrap());
    let ended = folder.path().join("ended");
    let script = format!(
        "sleep 1000 & read x < {}; kill $!; wait $!; : > {}; exec sleep 5",
        gate.path(),
        ended.display()
    );
    let mut machine = machine();
    machine.launch(&shell(&script)).unwrap();
    let named = |seen: &Observation| {
        let mut samples = seen.threads.iter();
        samples
            .find(|sample| &*sample.info.name == "sleep")
            .cloned()
    };
    let child = (0..120).find_map(|_| {
        machine.wait(PERIOD).unwrap();
        named(&machine.observe().unwrap()).map(|child| child.info.id)
    });
    let child = child.expect("the child is seen");
    let before = Instant::now();
    machine.observe().unwrap();
    gate.open();
    while !ended.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let most = before.elapsed().as_nanos() as u64 + TICK;
    std::thread::sleep(PERIOD);
    let seen = machine.observe().unwrap();
    let mut samples = seen.threads.iter();
    let last = samples.find(|sample| sample.info.id == child).unwrap();
    assert!(seen.ended.contains(&child));
    assert!(last.interval <= most, "{last:?}: at most {most} ns");
}

#[test]
fn the_last_moments_of_threads_are_measured() {
    let _alone = alone();
    let Some((told, all, _)) = run("four") else {
        return perch_skip::skip!(Root, "exit records are refused here");
    };
    assert_eq!(told.count("four-"), 4, "{:?}", told.named);
    told.check(all);
}

#[test]
fn processes_that_come_and_go_are_measured_and_nobody_elses() {
    let _alone = alone();
    if ExitRecords::open().is_none() {
        return perch_skip::skip!(Root, "exit records are refused here");
    }
    // What others start and end meanwhile.
    let noise = "while :; do sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; done";
    let mut noise = Command::new("sh").args(["-c", noise]).spawn().unwrap();
    let before = of_children();
    let mut machine = machine();
    let script = "i=0; while [ $i -lt 60 ]; do \
                  sh -c 'j=0; while [ $j -lt 20000 ]; do j=$((j+1)); done'; i=$((i+1)); done";
    machine.launch(&shell(script)).unwrap();
    let seen = until_end(&mut machine);
    drop(machine);
    let all = of_children() - before;
    noise.kill().unwrap();
    noise.wait().unwrap();
    let told = Told::of(&seen);
    assert_eq!(told.unseen, 0);
    let mut ended = BTreeMap::<ThreadId, Vec<String>>::new();
    for (number, seen) in seen.iter().enumerate() {
        for id in &seen.ended {
            let sample = seen.threads.iter().filter(|sample| sample.info.id == *id);
            let told = format!("in {number}: {:?}", sample.collect::<Vec<_>>());
            ended.entry(*id).or_default().push(told);
        }
    }
    let twice: Vec<_> = ended.values().filter(|told| told.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:#?}");
    assert_eq!(ended.len(), 61, "{ended:#?}");
    // The kernel's accounts of a process that is waited for hold more than its record: since its last tick, and the
    // freeing of its memory.
    let known = told.measured + told.unmeasured;
    assert!(told.measured > all * 3 / 4, "{} of {all} ns", told.measured);
    assert!(
        known.abs_diff(all) <= all / 100 + 2 * TICK,
        "{known} of {all} ns"
    );
}

#[test]
fn without_the_privilege_the_rest_is_known_of_processes() {
    let _alone = alone();
    let actor = actor("observer");
    let mut command = Command::new("setpriv");
    command
        .arg("--bounding-set=-net_admin")
        .args(&actor.command);
    command.arg("--nocapture").envs(actor.environment);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return perch_skip::skip!(Tool, "setpriv: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let Some((_, told)) = text.split_once("told ") else {
        return perch_skip::skip!(Root, "setpriv: {}", String::from_utf8_lossy(&output.stderr));
    };
    let mut words = told.splitn(4, ' ');
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (measured, unmeasured, all) = (number(), number(), number());
    assert!(!words.next().unwrap().contains("exit records"), "{told}");
    assert!(unmeasured > all / 10, "{told}");
    let known = measured + unmeasured;
    // User and system time are rounded down apart.
    assert!(
        known <= all + 2_000_000 && known + 2 * TICK >= all,
        "{told}"
    );
}
