//! Threads and processes are found, told apart, and released.

mod common;

use common::{
    Gate, actor, alone, by_tid, launch, machine, period, period_until, role, shell, until_end,
};
use perch_core::{
    EventChoice, EventPlan, EventSet, Machine, MachineError, Observation, Targets, ThreadSample,
    Wake, metric::names,
};
use perch_linux::{LinuxMachine, machine::CountersMode};
use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
    time::Duration,
};

/// Computes until the thread has had this much time on a PU.
fn busy(time: Duration) {
    let spent = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    while spent() < time {
        std::hint::black_box((0..1000).sum::<u64>());
    }
}

/// Waits for the gate that the environment names.
fn pass_gate() {
    drop(std::fs::File::open(std::env::var_os("PERCH_TEST_GATE").unwrap()).unwrap());
}

fn actor_with_gate(role: &str, gate: &Gate) -> perch_core::Launch {
    let mut launch = actor(role);
    let variable = ("PERCH_TEST_GATE".into(), gate.path().into());
    launch.environment.push(variable);
    launch
}

/// Not a test by itself: what the started copies of this program do.
#[test]
fn actor_role() {
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let builder = std::thread::Builder::new().name(name.into());
        builder.spawn(work).unwrap()
    };
    match role().as_deref() {
        Some("threads") => {
            let (done, wait) = std::sync::mpsc::channel::<()>();
            let idle = spawn("idle", Box::new(move || assert!(wait.recv().is_err())));
            let work = Box::new(|| busy(Duration::from_millis(700)));
            spawn("busy", work).join().unwrap();
            drop(done);
            idle.join().unwrap();
        }
        Some("storm") => {
            let keeper = spawn("keeper", Box::new(pass_gate));
            for _ in 0..3000 {
                std::thread::spawn(|| ()).join().unwrap();
            }
            keeper.join().unwrap();
        }
        Some("worked") => {
            busy(Duration::from_millis(300));
            pass_gate();
            std::thread::sleep(Duration::from_secs(600));
        }
        Some("exec") => {
            // Not the first thread: it takes over the first one's number.
            let execute = || {
                use std::os::unix::process::CommandExt;
                let error = Command::new("cat")
                    .arg(std::env::var_os("PERCH_TEST_GATE").unwrap())
                    .exec();
                panic!("{error}");
            };
            spawn("execer", Box::new(execute)).join().unwrap();
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
            .find(|samples| samples.iter().any(|s| *s.info.name == *name))
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
fn orphans_of_the_observer_s_own_children_are_strangers() {
    let _alone = alone();
    let (begin, gate) = (Gate::new(), Gate::new());
    // As after `server & exec perch run PROGRAM`, while the server starts a daemon.
    let script = format!("read x < {}; (sleep 600 & echo $!)", begin.path());
    let mut server = Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut machine = machine();
    let pid = machine
        .launch(&shell(&format!("read x < {}; true", gate.path())))
        .unwrap();
    begin.open();
    let mut daemon = String::new();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut daemon).unwrap();
    let daemon: i32 = daemon.trim().parse().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
    let adopted = || status().contains(&format!("PPid:\t{}\n", std::process::id()));
    // The shell that has started it ends a moment after it has said so.
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !adopted() && std::time::Instant::now() < limit {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let opened = gate.open_later();
    let (seen, _) = until_end(&mut machine);
    opened.join().unwrap();
    let (status, adopted) = (status(), adopted());
    let daemon = rustix::process::Pid::from_raw(daemon).unwrap();
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
    server.wait().ok();
    assert!(adopted, "{status}");
    let pids: BTreeSet<i32> = by_tid(&seen)
        .values()
        .flatten()
        .map(|sample| sample.info.pid)
        .collect();
    assert_eq!(pids, BTreeSet::from([pid]));
}

fn alive(observation: &Observation) -> Vec<&ThreadSample> {
    let ended = &observation.ended;
    let threads = observation.threads.iter();
    threads
        .filter(|sample| !ended.contains(&sample.info.id))
        .collect()
}

#[test]
fn descendants_are_followed_and_the_program_alone_decides_the_end() {
    let _alone = alone();
    let mut machine = machine();
    let gate = Gate::new();
    // A grandchild, and a process that outlives the program.
    let script = format!(
        "sleep 600 & (sh -c 'read x < {}; exit 3'; true); exit 5",
        gate.path()
    );
    let pid = machine.launch(&shell(&script)).unwrap();
    let all = period_until(&mut machine, |o| {
        let threads = alive(o);
        threads.len() == 4 && threads.iter().any(|s| *s.info.name == *"sleep")
    });
    assert!(all.threads.iter().any(|s| s.info.pid == pid));
    gate.open();
    let (seen, status) = until_end(&mut machine);
    assert_eq!(status, Some(5 << 8));
    let left = alive(seen.last().unwrap());
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(&*left[0].info.name, "sleep");
    let kill = Command::new("kill")
        .arg(left[0].info.pid.to_string())
        .status();
    assert!(kill.unwrap().success());
}

#[test]
fn a_daemon_that_forked_twice_is_still_followed() {
    let _alone = alone();
    let mut machine = machine();
    let (program_gate, daemon_gate) = (Gate::new(), Gate::new());
    let script = format!(
        "(setsid sh -c 'read x < {}' > /dev/null 2>&1 &) ; read x < {}",
        daemon_gate.path(),
        program_gate.path()
    );
    let mut program = shell(&script);
    let mark = (
        perch_core::machine::SESSION_VARIABLE.into(),
        "test-daemon".into(),
    );
    program.environment.push(mark);
    let pid = machine.launch(&program).unwrap();
    let daemon_of = |o: &Observation| {
        // Alone with the program, so its parent is gone.
        let threads = alive(o);
        let other = threads.iter().find(|s| s.info.pid != pid)?.info.pid;
        (threads.len() == 2).then_some(other)
    };
    let both = period_until(&mut machine, |o| daemon_of(o).is_some());
    let daemon = daemon_of(&both).unwrap();
    program_gate.open();
    let (seen, _) = until_end(&mut machine);
    assert!(
        alive(seen.last().unwrap())
            .iter()
            .any(|s| s.info.pid == daemon)
    );
    // When it ends it is reaped, not left behind as a zombie child of perch.
    daemon_gate.open();
    let mut waited = 0;
    while std::path::Path::new(&format!("/proc/{daemon}")).exists() {
        let _ = machine.wait(Duration::from_millis(50));
        std::thread::sleep(Duration::from_millis(20));
        waited += 1;
        assert!(waited < 1000, "process {daemon} is still there");
    }
}

#[test]
fn a_storm_of_short_threads_leaks_nothing_and_loses_no_long_one() {
    let _alone = alone();
    let mut machine = machine();
    let gate = Gate::new();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    machine.launch(&actor_with_gate("storm", &gate)).unwrap();
    let before = open();
    let is_keeper = |s: &&ThreadSample| *s.info.name == *"keeper";
    let mut seen = vec![period_until(&mut machine, |o| {
        o.threads.iter().any(|s| is_keeper(&s))
    })];
    gate.open();
    let (rest, status) = until_end(&mut machine);
    seen.extend(rest);
    assert_eq!(status, Some(0));
    // Seen in every observation until it ended.
    let had = |o: &Observation| alive(o).iter().any(&is_keeper);
    let first = seen.iter().position(had).expect("a keeper");
    let last = seen.iter().rposition(had).expect("a keeper");
    assert!(seen[first..=last].iter().all(had));
    assert!(open() <= before, "{} descriptors, {before} before", open());
    // Numbers may be given out again meanwhile.
    let samples = seen.iter().flat_map(|o| &o.threads);
    let known: BTreeSet<_> = samples.map(|sample| sample.info.id).collect();
    let counted = known.len() as u64 + seen.iter().map(|o| o.unseen).sum::<u64>();
    let told = |o: &Observation| o.remarks.iter().any(|r| r.text.contains("are not counted"));
    assert!(
        counted >= 3000 || seen.iter().any(told),
        "{counted} threads counted"
    );
}

#[test]
fn a_running_process_is_attached_to_with_its_descendants() {
    let _alone = alone();
    let gate = Gate::new();
    let script = format!("(read x < {0}) & read x < {0}; wait", gate.path());
    let mut process = Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut machine = machine();
    machine.attach(process.id() as i32).unwrap();
    period_until(&mut machine, |o| alive(o).len() == 2);
    // Both wait at the same gate.
    let helper = gate.open_later();
    gate.open();
    let (_, status) = until_end(&mut machine);
    assert_eq!(status, None);
    process.wait().unwrap();
    drop(helper);
}

#[test]
fn attaching_to_a_process_again_takes_no_more_descriptors() {
    let _alone = alone();
    let mut process = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = process.id() as i32;
    let mut machine = machine();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let target = machine.attach(pid).unwrap();
    let before = descriptors();
    for _ in 0..50 {
        assert_eq!(machine.attach(pid).unwrap(), target);
    }
    // Tests beside this one, which wait for it, may open a few.
    let after = descriptors();
    assert!(after < before + 25, "{after} after {before}");
    process.kill().unwrap();
    let (_, status) = until_end(&mut machine);
    assert_eq!(status, None);
    process.wait().unwrap();
}

#[test]
fn what_was_done_before_the_attachment_is_not_counted() {
    let _alone = alone();
    let gate = Gate::new();
    let mut launch = actor_with_gate("worked", &gate);
    let mut process = Command::new(launch.command.remove(0))
        .args(launch.command)
        .envs(launch.environment)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = process.id() as i32;
    // It has worked once it waits.
    gate.open();
    let mut machine = machine();
    machine.attach(pid).unwrap();
    let (_, first) = period(&mut machine);
    let counted: u64 = first.threads.iter().map(|s| s.cpu_time).sum();
    assert!(counted < 300_000_000, "{counted}");
    process.kill().unwrap();
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
    let gate = Gate::new();
    let pid = machine.launch(&actor_with_gate("exec", &gate)).unwrap();
    let is_cat = |o: &Observation| {
        alive(o)
            .iter()
            .map(|s| (s.info.pid, &*s.info.name))
            .eq([(pid, "cat")])
    };
    period_until(&mut machine, is_cat);
    // And stays so.
    assert!(is_cat(&period(&mut machine).1));
    gate.open();
    assert_eq!(until_end(&mut machine).1, Some(0));
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
        .filter(|s| *s.info.name == *"busy")
        .collect();
    let sampled = busy
        .iter()
        .any(|s| s.metrics.value(names::FP_SHARE).is_some());
    let told = seen
        .iter()
        .flat_map(|o| &o.remarks)
        .any(|r| r.text.contains("sampled"));
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
        limits: None,
        sets: vec![EventSet::new(
            "one",
            vec![EventChoice {
                alias: "nothing".into(),
                spellings: vec!["cpu/no-such-event/".into()],
                pmu: None,
            }],
        )],
    };
    let error = machine.configure(&plan).unwrap_err().to_string();
    assert!(!error.is_empty());
}

#[test]
fn what_a_process_starts_after_it_was_let_go_is_not_followed() {
    let _alone = alone();
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).spawn().unwrap()
    };
    let mut stays = shell("exec sleep 60");
    let mut goes = shell("while :; do sleep 0.02; done");
    let mut machine = LinuxMachine::builder()
        .counters(CountersMode::Nothing)
        .build()
        .unwrap();
    machine.configure(&EventPlan::default()).unwrap();
    machine.attach(stays.id() as i32).unwrap();
    let target = machine.attach(goes.id() as i32).unwrap();
    let looks = |machine: &mut LinuxMachine, count: usize| -> BTreeSet<i32> {
        let look = |_| {
            machine.wait(Duration::from_millis(200)).unwrap();
            machine.observe().unwrap().threads
        };
        let threads = (0..count).flat_map(look);
        threads.map(|sample| sample.info.pid).collect()
    };
    assert!(looks(&mut machine, 2).contains(&(goes.id() as i32)));
    machine.detach(target);
    let seen = looks(&mut machine, 12);
    for child in [&mut stays, &mut goes] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(seen, BTreeSet::from([stays.id() as i32]));
}

#[test]
fn the_first_period_is_a_whole_one_however_long_the_start_takes() {
    let _alone = alone();
    let mut machine = machine();
    let gate = Gate::new();
    machine
        .launch(&shell(&format!("read x < {}; true", gate.path())))
        .unwrap();
    let period = Duration::from_millis(100);
    std::thread::sleep(3 * period / 2);
    let begun = std::time::Instant::now();
    machine.wait(period).unwrap();
    assert!(begun.elapsed() >= period);
    gate.open();
    until_end(&mut machine);
}
