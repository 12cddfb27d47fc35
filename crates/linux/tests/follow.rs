//! Threads and processes are found, told apart, and let go.

mod common;

use common::{actor, alone, by_tid, launch, machine, period, role, shell, until_end};
use perch_core::{EventChoice, EventPlan, EventSet, Machine, MachineError, Wake, metric::names};
use perch_linux::{LinuxMachine, affinity::SESSION_VARIABLE, machine::CountersMode};
use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

fn busy(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::black_box((0..1000).sum::<u64>());
    }
}

/// Not a test by itself: what the started copies of this program do.
#[test]
fn actor_role() {
    let spawn = |name: &str, work: fn()| {
        std::thread::Builder::new()
            .name(name.into())
            .spawn(work)
            .unwrap()
    };
    match role().as_deref() {
        Some("threads") => {
            let threads = [
                spawn("idle", || std::thread::sleep(Duration::from_millis(700))),
                spawn("busy", || busy(Duration::from_millis(700))),
            ];
            for thread in threads {
                thread.join().unwrap();
            }
        }
        Some("storm") => {
            let keeper = spawn("keeper", || std::thread::sleep(Duration::from_secs(2)));
            for _ in 0..3000 {
                std::thread::spawn(|| ()).join().unwrap();
            }
            keeper.join().unwrap();
        }
        Some("exec") => {
            // Not the first thread: it takes over the first one's number.
            spawn("execer", || {
                use std::os::unix::process::CommandExt;
                let error = Command::new("sleep").arg("0.5").exec();
                panic!("{error}");
            })
            .join()
            .unwrap();
        }
        _ => {}
    }
}

#[test]
fn threads_come_with_names_times_and_masks() {
    let _alone = alone();
    let mut machine = machine();
    let pid = machine.launch(&actor("threads")).unwrap();
    let (seen, status) = until_end(&mut machine);
    assert_eq!(status, Some(0));
    let threads = by_tid(&seen);
    let named = |name: &str| {
        threads
            .values()
            .find(|samples| samples.iter().any(|s| s.info.name == name))
            .unwrap_or_else(|| panic!("no thread {name}"))
    };
    let (idle, busy) = (named("idle"), named("busy"));
    let total =
        |samples: &[&perch_core::ThreadSample]| samples.iter().map(|s| s.cpu_time).sum::<u64>();
    assert!(total(busy) > 100_000_000, "{}", total(busy));
    assert!(total(idle) < 50_000_000, "{}", total(idle));
    for sample in threads.values().flatten() {
        assert_eq!(sample.info.pid, pid);
        assert!(sample.cpu_time <= sample.interval, "{sample:?}");
    }
    // Masks come with the first sample, and last PUs are real.
    assert_eq!(busy[0].mask.as_ref(), Some(&machine.default_mask()));
    let usable = machine.topology().usable();
    assert!(busy.iter().all(|s| usable.contains(s.last_pu.unwrap())));
    // Each thread ended once, in some observation; ids rise within one.
    let ended: Vec<_> = seen.iter().flat_map(|o| &o.ended).collect();
    assert_eq!(ended.iter().collect::<BTreeSet<_>>().len(), ended.len());
    assert_eq!(ended.len(), threads.len());
    assert!(
        seen.iter()
            .all(|o| o.threads.is_sorted_by_key(|s| s.info.id))
    );
    assert!(seen.iter().all(|o| o.own_cpu_time > 0 && o.interval > 0));
}

#[test]
fn descendants_are_followed_and_the_program_alone_decides_the_end() {
    let _alone = alone();
    let mut machine = machine();
    // A grandchild, and a process that outlives the program.
    let pid = machine
        .launch(&shell(
            "sleep 30 & (sh -c 'sleep 0.6; exit 3' ; true) ; exit 5",
        ))
        .unwrap();
    let (seen, status) = until_end(&mut machine);
    assert_eq!(status, Some(5 << 8));
    let processes: BTreeSet<i32> = seen
        .iter()
        .flat_map(|o| &o.threads)
        .map(|s| s.info.pid)
        .collect();
    assert!(
        processes.len() >= 3 && processes.contains(&pid),
        "{processes:?}"
    );
    let last = seen.last().unwrap();
    let left: Vec<_> = last
        .threads
        .iter()
        .filter(|s| !last.ended.contains(&s.info.id))
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].info.name, "sleep");
    Command::new("kill")
        .arg(left[0].info.pid.to_string())
        .status()
        .unwrap();
}

#[test]
fn a_daemon_that_forked_twice_is_still_followed() {
    let _alone = alone();
    let mut machine = machine();
    let mut program = shell("(setsid sh -c 'sleep 0.8; true' > /dev/null 2>&1 &) ; sleep 0.5");
    program
        .environment
        .push((SESSION_VARIABLE.into(), "test-daemon".into()));
    machine.launch(&program).unwrap();
    let (seen, _) = until_end(&mut machine);
    let last = seen.last().unwrap();
    let alive: Vec<_> = last
        .threads
        .iter()
        .filter(|s| !last.ended.contains(&s.info.id))
        .collect();
    assert!(!alive.is_empty());
    // When it ends it is reaped, not left behind as a zombie child of perch.
    let daemon = alive[0].info.pid;
    let mut waited = 0;
    while std::path::Path::new(&format!("/proc/{daemon}")).exists() {
        let _ = machine.wait(Duration::from_millis(50));
        std::thread::sleep(Duration::from_millis(20));
        waited += 1;
        assert!(waited < 300, "process {daemon} is still there");
    }
}

#[test]
fn a_storm_of_short_threads_leaks_nothing_and_loses_no_long_one() {
    let _alone = alone();
    let mut machine = machine();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    machine.launch(&actor("storm")).unwrap();
    let before = open();
    let (seen, status) = until_end(&mut machine);
    assert_eq!(status, Some(0));
    let threads = by_tid(&seen);
    let keeper = threads
        .values()
        .find(|s| s.iter().any(|s| s.info.name == "keeper"));
    assert!(keeper.is_some_and(|samples| samples.len() >= 10));
    assert!(open() <= before, "{} descriptors, {before} before", open());
    let counted = threads.len() as u64 + seen.iter().map(|o| o.unseen).sum::<u64>();
    let told = seen
        .iter()
        .flat_map(|o| &o.remarks)
        .any(|r| r.contains("are not counted"));
    assert!(told || counted >= 3000, "{counted} threads counted");
}

#[test]
fn a_running_process_is_attached_to_with_its_descendants() {
    let _alone = alone();
    let mut process = Command::new("sh")
        .args(["-c", "sleep 0.7 & sleep 0.5; wait"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(150));
    let mut machine = machine();
    machine.attach(process.id() as i32).unwrap();
    let (wake, first) = period(&mut machine);
    assert_eq!(wake, Wake::Period);
    assert_eq!(first.threads.len(), 3, "{:?}", first.threads);
    // Time before the attachment is not counted.
    assert!(first.threads.iter().all(|s| s.cpu_time < 50_000_000));
    let (_, status) = until_end(&mut machine);
    assert_eq!(status, None);
    process.wait().unwrap();
}

#[test]
fn what_cannot_be_attached_to_is_refused() {
    let _alone = alone();
    for pid in [0, -1, i32::MAX] {
        assert!(matches!(machine().attach(pid), Err(MachineError::NoSuchProcess(p)) if p == pid));
    }
    let own = std::process::id() as i32;
    assert!(machine().attach(own).is_err());
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let error = machine().attach(tid).unwrap_err().to_string();
    assert!(
        tid == own || error.contains("is a thread, not a process"),
        "{error}"
    );
}

#[test]
fn a_signal_stops_the_wait_and_perch_lives() {
    let _alone = alone();
    let mut machine = machine();
    machine.launch(&launch(&["sleep", "30"])).unwrap();
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
        .unwrap();
    let wake = machine.wait(Duration::from_secs(20)).unwrap();
    assert_eq!(wake, Wake::Stop(15));
    machine.forward(15);
    let (_, status) = until_end(&mut machine);
    assert_eq!(status, Some(15));
}

#[test]
fn a_program_that_another_than_its_first_thread_executes_is_followed() {
    let _alone = alone();
    let mut machine = machine();
    let pid = machine.launch(&actor("exec")).unwrap();
    let (seen, status) = until_end(&mut machine);
    assert_eq!(status, Some(0));
    let last = seen.last().unwrap();
    let alive: Vec<_> = last
        .threads
        .iter()
        .map(|s| (s.info.pid, &*s.info.name))
        .collect();
    assert_eq!(alive, [(pid, "sleep")]);
    // No time is made up when the numbers change hands.
    assert!(
        seen.iter()
            .flat_map(|o| &o.threads)
            .all(|s| s.cpu_time <= s.interval)
    );
}

#[test]
fn busy_threads_are_characterised_or_the_refusal_is_told() {
    let _alone = alone();
    let mut machine = LinuxMachine::builder()
        .counters(CountersMode::Auto)
        .build()
        .unwrap();
    machine.configure(&EventPlan::default()).unwrap();
    machine.launch(&actor("threads")).unwrap();
    let (seen, _) = until_end(&mut machine);
    let busy: Vec<_> = seen
        .iter()
        .flat_map(|o| &o.threads)
        .filter(|s| s.info.name == "busy")
        .collect();
    let sampled = busy
        .iter()
        .any(|s| s.metrics.value(names::FP_SHARE).is_some());
    let told = seen
        .iter()
        .flat_map(|o| &o.remarks)
        .any(|r| r.contains("sampled"));
    assert!(sampled || told);
    assert_eq!(
        sampled,
        machine.counting().contains("sampling"),
        "{}",
        machine.counting()
    );
}

#[test]
fn counters_that_are_demanded_and_not_there_are_an_error() {
    let _alone = alone();
    let mut machine = LinuxMachine::builder()
        .counters(CountersMode::Pmu)
        .build()
        .unwrap();
    let plan = EventPlan {
        sets: vec![EventSet {
            name: "one".into(),
            events: vec![EventChoice {
                alias: "nothing".into(),
                spellings: vec!["cpu/no-such-event/".into()],
                pmu: None,
            }],
        }],
    };
    let error = machine.configure(&plan).unwrap_err().to_string();
    assert!(!error.is_empty());
}
