//! Regions of this very program. Counting is one per process: each test is a process of its own, this program run again.

use libperch::{Error, Options, Scope};
use perch_skip::skip;
use std::{
    collections::BTreeMap,
    hint::black_box,
    process::Command,
    time::{Duration, Instant},
};

/// The variable that tells the child what to do.
const CASE: &str = "LIBPERCH_TEST_CASE";

/// Runs a test of this program in a process of its own; in that process, returns true.
fn is_child(test: &str) -> bool {
    if std::env::var_os(CASE).is_some_and(|case| case == test) {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CASE, test)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{said}");
    false
}

fn events(sets: &[&str]) -> Options {
    Options {
        events: sets.iter().map(|set| (*set).to_owned()).collect(),
        ..Options::default()
    }
}

/// Touches this many pages that were never used.
fn touch(pages: usize) {
    // SAFETY: a private mapping of its own, used within its length, and unmapped.
    unsafe {
        let length = pages * 4096;
        let map = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(map, libc::MAP_FAILED);
        // One fault a page, whatever the machine's huge pages are.
        libc::madvise(map, length, libc::MADV_NOHUGEPAGE);
        for page in 0..pages {
            map.cast::<u8>().add(page * 4096).write_volatile(1);
        }
        libc::munmap(map, length);
    }
}

fn work(time: Duration) {
    let start = Instant::now();
    let mut x = 1u64;
    while start.elapsed() < time {
        for i in 0..1000u64 {
            x = black_box(x.wrapping_mul(i | 1));
        }
    }
}

fn counts_events() -> bool {
    // Not even own events may be counted in some containers.
    let nothing = libperch::report().unwrap().counted_by == "clocks only";
    if nothing {
        skip!(Perf, "no perf events here");
    }
    !nothing
}

#[test]
fn before_init_nothing_happens() {
    if !is_child("before_init_nothing_happens") {
        return;
    }
    assert!(!libperch::is_on());
    assert_eq!(libperch::start("a"), Err(Error::Off));
    assert_eq!(libperch::stop("a"), Err(Error::Off));
    assert_eq!(libperch::values("a", Scope::Thread), Err(Error::Off));
    assert_eq!(libperch::init_if_asked(&Options::default()), Ok(false));
    assert!(!libperch::is_on());
    let wrong = libperch::init(&Options {
        metrics: vec!["x".to_owned()],
        ..Options::default()
    });
    assert!(matches!(wrong, Err(Error::Setting(why)) if why.contains("metric x")));
    assert!(!libperch::is_on());
}

#[test]
fn nested_regions_count_what_is_in_them() {
    if !is_child("nested_regions_count_what_is_in_them") {
        return;
    }
    let options = Options {
        metrics: vec!["rate[1/s]=page_faults/cpu_seconds".to_owned()],
        virtuals: vec!["context_switches".to_owned(), "run_delay".to_owned()],
        ..events(&["page-faults,task-clock"])
    };
    libperch::init(&options).unwrap();
    assert_eq!(libperch::init(&options), Err(Error::On));
    for _ in 0..3 {
        let _outer = libperch::region("outer");
        touch(200);
        {
            let _inner = libperch::region("inner");
            touch(50);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let outer = libperch::values("outer", Scope::Thread).unwrap();
    let inner = libperch::values("inner", Scope::Process).unwrap();
    assert_eq!((outer.calls, outer.threads, outer.open), (3, 1, 0));
    assert_eq!(inner.calls, 3);
    assert!(outer.wall_seconds >= inner.wall_seconds && inner.wall_seconds >= 0.003);
    assert!(outer.cpu_seconds >= inner.cpu_seconds);
    assert_eq!(
        libperch::stop("inner"),
        Err(Error::NotStarted("inner".to_owned()))
    );
    assert_eq!(
        libperch::values("none", Scope::Thread),
        Err(Error::NoSuchRegion("none".to_owned()))
    );
    if !counts_events() {
        return;
    }
    let faults = |values: &libperch::Values| values.counts["page-faults"].clone();
    let (all, part) = (faults(&outer), faults(&inner));
    // Some more are the program's own; none is lost.
    assert!((750.0..900.0).contains(&all.value.unwrap()), "{all:?}");
    assert!((150.0..250.0).contains(&part.value.unwrap()), "{part:?}");
    assert_eq!(all.share, 1.0);
    let clock = outer.counts["task-clock"].value.unwrap() / 1e9;
    assert!(
        (clock - outer.cpu_seconds).abs() < 0.1 * clock + 1e-4,
        "{outer:?}"
    );
    let rate = all.value.unwrap() / outer.cpu_seconds;
    assert!(
        (outer.metrics["rate"] - rate).abs() < 1e-6 * rate,
        "{outer:?}"
    );
    // It slept three times.
    assert!(inner.metrics["context_switches"] >= 3.0, "{inner:?}");
    assert!(inner.metrics["run_delay"] >= 0.0, "{inner:?}");
    libperch::reset("outer").unwrap();
    assert!(libperch::values("inner", Scope::Thread).is_err());
    libperch::finish().unwrap();
    assert_eq!(libperch::start("outer"), Err(Error::Off));
    // And again, with other events.
    libperch::init(&events(&["context-switches"])).unwrap();
    drop(libperch::region("again"));
    let again = libperch::values("again", Scope::Thread).unwrap();
    assert!(again.counts.contains_key("context-switches"));
}

#[test]
fn regions_may_overlap_and_recur() {
    if !is_child("regions_may_overlap_and_recur") {
        return;
    }
    libperch::init(&events(&["page-faults"])).unwrap();
    libperch::start("a").unwrap();
    libperch::start("b").unwrap();
    libperch::stop("a").unwrap();
    touch(100);
    libperch::stop("b").unwrap();
    // The same region inside itself counts once.
    for name in ["a", "c", "a"] {
        libperch::start(name).unwrap();
    }
    touch(300);
    for name in ["a", "c", "a"] {
        libperch::stop(name).unwrap();
    }
    let of = |name: &str| libperch::values(name, Scope::Thread).unwrap();
    assert_eq!((of("a").calls, of("b").calls, of("c").calls), (2, 1, 1));
    let report = libperch::report().unwrap();
    let paths: Vec<String> = report
        .regions
        .iter()
        .map(|region| region.path.join("/"))
        .collect();
    assert_eq!(paths, ["a", "a/b", "a/c", "a/c/a"]);
    if !counts_events() {
        return;
    }
    let faults = |name: &str| of(name).counts["page-faults"].value.unwrap();
    assert!((300.0..350.0).contains(&faults("a")), "{}", faults("a"));
    assert!((100.0..150.0).contains(&faults("b")), "{}", faults("b"));
}

#[test]
fn each_thread_counts_itself_and_those_that_ended_are_kept() {
    if !is_child("each_thread_counts_itself_and_those_that_ended_are_kept") {
        return;
    }
    const THREADS: usize = 1100;
    libperch::init(&events(&["page-faults"])).unwrap();
    for _ in 0..THREADS / 10 {
        let work = || {
            let _region = libperch::region("work");
            touch(20);
        };
        let threads: Vec<_> = (0..10).map(|_| std::thread::spawn(work)).collect();
        // Not a scope's end, which does not wait for what threads do at their own end.
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
    let all = libperch::values("work", Scope::Process).unwrap();
    assert_eq!(
        (all.calls, all.threads as usize, all.open),
        (THREADS as u64, THREADS, 0)
    );
    assert!(
        libperch::values("work", Scope::Thread).is_err(),
        "this thread was not in it"
    );
    // One for each thread that is kept, and one for all others.
    assert!(libperch::report().unwrap().regions.len() <= 1001);
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(
        descriptors < 50,
        "{descriptors}: those of threads that ended are closed"
    );
    if counts_events() {
        let faults = all.counts["page-faults"].value.unwrap();
        assert!(faults >= 20.0 * THREADS as f64, "{faults}");
    }
}

#[test]
fn sets_take_turns_and_what_is_scaled_is_marked() {
    if !is_child("sets_take_turns_and_what_is_scaled_is_marked") {
        return;
    }
    libperch::init(&events(&["page-faults", "context-switches"])).unwrap();
    for _ in 0..10 {
        let _region = libperch::region("loop");
        work(Duration::from_millis(2));
        touch(40);
    }
    if !counts_events() {
        return;
    }
    let values = libperch::values("loop", Scope::Thread).unwrap();
    let faults = &values.counts["page-faults"];
    // Every other call counted them.
    assert!((200.0..240.0).contains(&faults.counted), "{faults:?}");
    assert!(faults.share > 0.05 && faults.share < 0.95, "{faults:?}");
    assert!(faults.value.unwrap() > faults.counted);
    assert!(values.counts["context-switches"].share < 0.95);
    // Switched by hand: within a region.
    let _region = libperch::region("hand");
    touch(100);
    libperch::next_set().unwrap();
    touch(100);
    let values = libperch::values("hand", Scope::Thread).unwrap();
    let faults = &values.counts["page-faults"];
    assert!((100.0..150.0).contains(&faults.counted), "{faults:?}");
    assert_eq!(values.open, 1);
}

#[test]
fn samples_of_a_region_add_up_to_it() {
    if !is_child("samples_of_a_region_add_up_to_it") {
        return;
    }
    let options = Options {
        interval: Some(Duration::from_millis(10)),
        ..events(&["page-faults"])
    };
    libperch::init(&options).unwrap();
    {
        let _outer = libperch::region("outer");
        let start = Instant::now();
        let samples = || libperch::report().unwrap().samples.len();
        while samples() < 8 {
            let _inner = libperch::region("inner");
            touch(30);
            work(Duration::from_millis(4));
            assert!(start.elapsed() < Duration::from_secs(60), "no samples come");
        }
    }
    libperch::start("marked").unwrap();
    libperch::read("marked").unwrap();
    libperch::stop("marked").unwrap();
    let report = libperch::report().unwrap();
    let mut sums: BTreeMap<String, (u64, u64, f64)> = BTreeMap::new();
    for sample in &report.samples {
        let sum = sums.entry(sample.path.join("/")).or_default();
        sum.0 += sample.wall;
        sum.1 += sample.amounts.cpu_time;
        sum.2 += sample
            .amounts
            .value("page_faults")
            .map_or(0.0, |value| value.counted);
    }
    assert!(
        report
            .samples
            .iter()
            .any(|sample| sample.end == perch_regions::End::Tick)
    );
    for region in &report.regions {
        let faults = region
            .amounts
            .value("page_faults")
            .map_or(0.0, |value| value.counted);
        let whole = (region.wall, region.amounts.cpu_time, faults);
        assert_eq!(sums[&region.path.join("/")], whole, "{:?}", region.path);
    }
    let ends: Vec<&str> = report
        .samples
        .iter()
        .filter(|sample| &*sample.path[0] == "marked")
        .map(|sample| sample.end.name())
        .collect();
    assert!(ends.contains(&"read") && ends.contains(&"stop"), "{ends:?}");
}

#[test]
fn a_forked_child_counts_itself_only() {
    if !is_child("a_forked_child_counts_itself_only") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("regions-%p.json");
    let options = Options {
        report: Some(file.to_str().unwrap().to_owned()),
        ..events(&["page-faults"])
    };
    libperch::init(&options).unwrap();
    drop(libperch::region("before"));
    libperch::start("across").unwrap();
    // SAFETY: the child uses what a forked child of a program with several threads may use here: the tests of this process
    // run one at a time, and libperch's locks are free.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let stopped = libperch::stop("across");
        drop(libperch::region("child"));
        let fine = stopped == Err(Error::NotStarted("across".to_owned()))
            && libperch::values("before", Scope::Process).is_err()
            && libperch::values("child", Scope::Process).is_ok_and(|child| child.calls == 1)
            && libperch::finish().is_ok();
        // SAFETY: ends the child without the parent's test runner.
        unsafe { libc::_exit(if fine { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child from above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    libperch::stop("across").unwrap();
    libperch::finish().unwrap();
    let paths = |pid: i32| -> Vec<String> {
        let text = std::fs::read(folder.path().join(format!("regions-{pid}.json"))).unwrap();
        let report = perch_regions::parse(&text).unwrap();
        assert_eq!(report.pid, pid);
        report
            .regions
            .iter()
            .map(|region| region.path.join("/"))
            .collect()
    };
    assert_eq!(paths(child), ["child"]);
    assert_eq!(paths(std::process::id() as i32), ["before", "across"]);
}

#[test]
fn a_guard_of_a_region_that_was_not_started_stops_no_other() {
    if !is_child("a_guard_of_a_region_that_was_not_started_stops_no_other") {
        return;
    }
    libperch::init(&events(&["page-faults"])).unwrap();
    fn recur(depth: usize) {
        let _level = libperch::region("recursion");
        if depth > 0 {
            recur(depth - 1);
        } else {
            touch(500);
        }
    }
    {
        let outermost = libperch::region("recursion");
        recur(perch_regions::DEEPEST + 5);
        // It goes on.
        touch(300);
        drop(outermost);
    }
    assert!(matches!(
        libperch::stop("recursion"),
        Err(Error::NotStarted(_))
    ));
    let values = libperch::values("recursion", Scope::Process).unwrap();
    let faults = values.counts["page-faults"].value.unwrap();
    assert!(faults >= 800.0, "{faults}");
}

#[test]
fn too_many_regions_are_told() {
    if !is_child("too_many_regions_are_told") {
        return;
    }
    libperch::init(&events(&["page-faults"])).unwrap();
    for depth in 0..perch_regions::DEEPEST {
        libperch::start(&format!("level {depth}")).unwrap();
    }
    let why = libperch::start("one more").unwrap_err();
    assert!(
        matches!(&why, Error::TooMany(why) if why.contains("inside each other")),
        "{why}"
    );
    for depth in 0..perch_regions::DEEPEST {
        libperch::stop(&format!("level {depth}")).unwrap();
    }
    let mut refused = 0;
    for number in 0..6000 {
        match libperch::start(&format!("region {number}")) {
            Ok(()) => libperch::stop(&format!("region {number}")).unwrap(),
            Err(why) => {
                assert!(matches!(why, Error::TooMany(_)));
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    let report = libperch::report().unwrap();
    let told = format!("{} starts of regions were not counted", refused + 1);
    assert!(
        report
            .remarks
            .iter()
            .any(|remark| remark.starts_with(&told)),
        "{:?}",
        report.remarks
    );
}
