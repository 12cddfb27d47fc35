//! Events of single threads, as an ordinary user has them: which are open for which threads, and since when.

mod common;

use common::{actor, alone, role, until_end};
use perch_core::{
    EventChoice, EventPlan, EventSet, Launch, Machine, Observation, Source, Targets, ThreadSample,
    Wake, metric::names,
};
use perch_linux::{LinuxMachine, machine::CountersMode};
use perch_skip::skip;
use std::{
    fs,
    io::{Read, Write},
    path::Path,
    time::{Duration, Instant},
};

/// Perf events that this process holds.
fn perf_events() -> usize {
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|to| to == Path::new("anon_inode:[perf_event]"))
        .count()
}

/// Passes a byte between two threads on one PU, so that each pass is a switch; first of all there, if permitted, as a busy
/// machine leaves others too few switches.
fn ping_pong(time: Duration) {
    let _ = rustix::process::nice(-20);
    let mut one_pu = rustix::thread::CpuSet::new();
    one_pu.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &one_pu).unwrap();
    let ((mut ping_out, mut ping_in), (mut pong_out, mut pong_in)) =
        (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let other = std::thread::spawn(move || {
        let mut byte = [0];
        while ping_out.read_exact(&mut byte).is_ok() && pong_in.write_all(&byte).is_ok() {}
    });
    let end = Instant::now() + time;
    let mut byte = [1];
    while Instant::now() < end {
        ping_in.write_all(&byte).unwrap();
        pong_out.read_exact(&mut byte).unwrap();
    }
    drop(ping_in);
    other.join().unwrap();
}

/// Computes until this thread has used so much CPU time, however busy the machine is.
fn compute_for(cpu: Duration) {
    let clock = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let ran = || Duration::try_from(clock()).unwrap();
    while ran() < cpu {
        std::hint::black_box((0..10_000).sum::<u64>());
    }
}

fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::black_box((0..10_000).sum::<u64>());
    }
}

/// Not a test by itself: what the started copies of this program do.
#[test]
fn actor_role() {
    match role().as_deref() {
        Some("ping-pong") => ping_pong(Duration::from_secs(3)),
        // It switches often only when it was followed for a while.
        Some("late ping-pong") => {
            compute(Duration::from_millis(600));
            ping_pong(Duration::from_secs(3));
        }
        Some("calm") => {
            compute(Duration::from_millis(500));
            let creator = || {
                let child = || compute_for(Duration::from_millis(1_500));
                std::thread::Builder::new()
                    .name("child".into())
                    .spawn(child)
                    .unwrap()
                    .join()
                    .unwrap();
            };
            std::thread::Builder::new()
                .name("creator".into())
                .spawn(creator)
                .unwrap()
                .join()
                .unwrap();
        }
        _ => return,
    }
    std::process::exit(0);
}

/// A machine that watches single threads; `None` if that is not permitted here.
fn machine(actor: &Launch) -> Option<LinuxMachine> {
    let mut machine = LinuxMachine::builder()
        .per_thread(true)
        .counters(CountersMode::Sampling)
        .build()
        .unwrap();
    machine.configure(&EventPlan::default()).ok()?;
    machine.launch(actor).unwrap();
    Some(machine)
}

/// Periods until the program ends, each with how many perf events were open at its end.
fn run(machine: &mut LinuxMachine) -> Vec<(Observation, usize)> {
    let mut seen = Vec::new();
    loop {
        let wake = machine.wait(Duration::from_millis(300)).unwrap();
        let observation = machine.observe().unwrap();
        seen.push((observation, perf_events()));
        if wake != Wake::Period {
            return seen;
        }
    }
}

fn said(seen: &[(Observation, usize)], text: &str) -> bool {
    let mut remarks = seen.iter().flat_map(|(seen, _)| &seen.remarks);
    remarks.any(|remark| remark.text.contains(text))
}

#[test]
fn a_thread_that_switches_very_often_has_no_event() {
    let _alone = alone();
    let before = perf_events();
    for role in ["ping-pong", "late ping-pong"] {
        let fast = |thread: &ThreadSample| {
            thread.switches.unwrap_or(0) as f64 / thread.interval as f64 * 1e9 > 20_000.0
        };
        let is_fast = |(seen, _): &(Observation, usize)| seen.threads.iter().any(fast);
        let mut tries = (0..5).map(|_| Some(run(&mut machine(&actor(role))?)));
        let first = |seen: Option<Vec<_>>| match seen {
            None => Some(None),
            Some(seen) => seen
                .iter()
                .position(is_fast)
                .map(|first| Some((seen, first))),
        };
        let Some(found) = tries.find_map(first) else {
            return skip!(Perf, "the machine is too busy for 20,000 switches a second");
        };
        let Some((seen, first)) = found else {
            return skip!(Perf, "threads cannot be sampled");
        };
        // From the end of the period on in which it first switched so often there are no events but those by which
        // threads are sampled, one each at most; one that tells of new threads is needed for each thread and PU.
        for (seen, events) in &seen[first..] {
            let most = before + seen.threads.len();
            assert!(
                *events <= most,
                "{role}: {events} of {most} events: {:?}",
                seen.threads
            );
        }
        assert!(said(&seen, "would slow a thread"), "{role}");
    }
}

/// Threads that a program has begun with are looked at long before the period ends.
#[test]
fn a_thread_that_switches_very_often_is_spared_events_in_its_first_period_too() {
    let _alone = alone();
    // On a busy machine the look at the threads may come late.
    let mut late_looks = Vec::new();
    for _ in 0..5 {
        let before = perf_events();
        let Some(mut machine) = machine(&actor("ping-pong")) else {
            return skip!(Perf, "threads cannot be sampled");
        };
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let watcher = std::thread::spawn(move || {
            let mut last = perf_events();
            while stopped.recv_timeout(Duration::from_millis(10)).is_err() {
                last = perf_events();
            }
            last
        });
        let period = Duration::from_secs(2);
        assert_eq!(machine.wait(period).unwrap(), Wake::Period);
        stop.send(()).unwrap();
        let late = watcher.join().unwrap();
        let seen = machine.observe().unwrap();
        let switches = seen.threads.iter().filter_map(|thread| thread.switches);
        if switches.max() > Some(2 * 40_000) {
            // One for each may sample it; those that tell of new threads are one for each thread and PU.
            let most = before + seen.threads.len();
            if late <= most {
                return;
            }
            late_looks.push(format!("{late} of {most} events"));
        }
    }
    assert!(late_looks.is_empty(), "{late_looks:?}");
    skip!(Perf, "the machine is too busy for 20,000 switches a second");
}

#[test]
fn a_calm_program_s_threads_are_known_with_their_creators_and_sampled_soon() {
    let _alone = alone();
    let Some(mut machine) = machine(&actor("calm")) else {
        return skip!(Perf, "threads cannot be sampled");
    };
    let seen = run(&mut machine);
    assert!(!said(&seen, "would slow a thread"));
    let named = |name: &str| {
        seen.iter()
            .flat_map(|(seen, _)| &seen.threads)
            .find(|thread| *thread.info.name == *name)
            .unwrap()
            .info
            .id
    };
    let (creator, child) = (named("creator"), named("child"));
    let mut origins = seen.iter().flat_map(|(seen, _)| &seen.origins);
    let origin = origins.find(|origin| origin.thread == child);
    if said(&seen, "looking into /proc alone") {
        return skip!(Perf, "there are no records of new threads");
    }
    assert_eq!(
        origin.map(|origin| origin.from),
        Some(Source::Thread(creator))
    );
    // Samples are reported once there are enough of them: well before it has used the 1.5 s of CPU time that it runs for.
    let mut ran = 0;
    let of_child = seen.iter().flat_map(|(seen, _)| &seen.threads);
    let first = of_child
        .filter(|thread| thread.info.id == child)
        .inspect(|thread| ran += thread.cpu_time)
        .find_map(|thread| thread.metrics.value(names::SAMPLES));
    assert!(first.is_some_and(|samples| samples > 0.0), "{seen:?}");
    assert!(ran < 1_000_000_000, "not sampled before {ran} ns");
}

#[test]
fn a_program_that_starts_very_many_processes_has_no_records() {
    let _alone = alone();
    let many = "i=0; while [ $i -lt 1500 ]; do (:); i=$((i+1)); done; sleep 0.5";
    // Where other programs take the PUs, the shell may be found to switch often before it is found to start many.
    for _ in 0..5 {
        let Some(mut machine) = machine(&common::shell(many)) else {
            return skip!(Perf, "threads cannot be sampled");
        };
        let seen = run(&mut machine);
        let unseen: u64 = seen.iter().map(|(seen, _)| seen.unseen).sum();
        if said(&seen, "a thread that switches") || unseen < 100 {
            continue;
        }
        // Before they were closed they have told of the first ones.
        assert!(unseen < 1_400, "{unseen}");
        assert!(said(&seen, "a program that starts"));
        return;
    }
    skip!(Perf, "the machine is too busy, or tells of no new threads");
}

#[test]
fn a_program_that_ends_before_the_first_look_is_followed_too() {
    let _alone = alone();
    let Some(mut machine) = machine(&common::shell("exit 3")) else {
        return skip!(Perf, "threads cannot be sampled");
    };
    let (_, status) = until_end(&mut machine);
    assert_eq!(status.map(|status| status >> 8), Some(3));
}

#[test]
fn a_thread_that_starts_between_observations_is_counted_from_then_on() {
    let _alone = alone();
    let event = EventChoice {
        alias: "clock".into(),
        spellings: vec!["task-clock".to_owned()],
        pmu: None,
    };
    let plan = EventPlan {
        limits: None,
        sets: vec![EventSet::new("time", vec![event])],
    };
    for per_thread in [false, true] {
        let mut machine = LinuxMachine::builder()
            .per_thread(per_thread)
            .counters(CountersMode::Chosen { sample: false })
            .build()
            .unwrap();
        machine.configure(&plan).unwrap();
        machine.launch(&actor("calm")).unwrap();
        // No period ends before the program does.
        let wake = machine.wait(Duration::from_secs(600)).unwrap();
        assert!(matches!(wake, Wake::Ended(_)), "{wake:?}");
        let seen = machine.observe().unwrap();
        let child = |thread: &&ThreadSample| *thread.info.name == *"child";
        let child = seen.threads.iter().find(child).unwrap();
        // In milliseconds of the 1,500 that it ran for; where the kernel does not tell of it, it is found some time later.
        let counted: f64 = child.counts.iter().map(|count| count.value / 1e6).sum();
        let told = seen
            .remarks
            .iter()
            .all(|told| !told.text.contains("looking into /proc"));
        let least = if told { 1_400.0 } else { 1_000.0 };
        assert!(counted > least, "per thread {per_thread}: {counted} ms");
    }
}
