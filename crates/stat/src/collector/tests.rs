use super::*;
use perch_core::{Count, CountQuality, CountedSet, ThreadInfo, Work};

fn sample(tid: i32, interval: u64, cpu_time: u64, counted: bool) -> ThreadSample {
    let counts = match counted {
        true => vec![Count {
            alias: "x".into(),
            value: 7.0,
            quality: CountQuality::Exact,
        }],
        false => Vec::new(),
    };
    ThreadSample {
        info: ThreadInfo {
            id: ThreadId { tid, start: 1 },
            pid: 1,
            name: "short".into(),
            process: "short".into(),
            work: Work::Program,
        },
        interval,
        cpu_time,
        wait_time: 0,
        switches: None,
        migrations: None,
        last_pu: None,
        mask: None,
        event_set: counted.then_some(CountedSet {
            number: 0,
            enabled: cpu_time,
        }),
        counts,
        metrics: Metrics::default(),
    }
}

fn rows(samples: Vec<ThreadSample>, ended: &[i32]) -> Vec<Row> {
    let options = Options {
        by: By::Command,
        sets: 1,
        derived: Vec::new(),
        of_profile: Vec::new(),
        given: Vec::new(),
        given_amounts: Vec::new(),
        phases: Method::Off,
        complete_rounds: false,
        windows: false,
    };
    let observation = Observation {
        at: 1_000,
        interval: 1_000,
        threads: samples,
        ended: ended
            .iter()
            .map(|tid| ThreadId {
                tid: *tid,
                start: 1,
            })
            .collect(),
        ..Observation::default()
    };
    let topology = Topology {
        source: "test".into(),
        packages: Vec::new(),
        numa_nodes: Vec::new(),
        caches: Vec::new(),
        cores: Vec::new(),
        kinds: Vec::new(),
        pus: Vec::new(),
    };
    let mut library = perch_profile::Library::load(&[]).unwrap();
    let profile = library.choose("zen4").unwrap().clone();
    Collector::new(options, profile).take(&observation, &topology)
}

/// 0.5 us on a PU in 0.1 us would be impossible.
#[test]
fn threads_that_come_one_after_the_other_have_the_time_of_all() {
    let samples = (1..=5).map(|tid| sample(tid, 100, 100, true)).collect();
    let rows = rows(samples, &[1, 2, 3, 4, 5]);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].interval, rows[0].amounts.cpu_time), (500, 500));
}

#[test]
fn no_row_lasts_longer_than_its_interval() {
    let samples = (1..=20).map(|tid| sample(tid, 900, 100, true)).collect();
    let all: Vec<i32> = (1..=20).collect();
    assert_eq!(rows(samples, &all)[0].interval, 1_000);
    let alive = (1..=20).map(|tid| sample(tid, 900, 100, true)).collect();
    assert_eq!(rows(alive, &[])[0].interval, 900);
}

#[test]
fn what_was_not_counted_is_in_the_row_of_what_was() {
    let rows = rows(
        vec![sample(1, 900, 300, false), sample(2, 900, 100, true)],
        &[1],
    );
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((rows[0].set, rows[0].amounts.members), (Some(0), 2));
    assert_eq!(
        (rows[0].amounts.cpu_time, rows[0].amounts.covered),
        (400, 100)
    );
    assert!(rows[0].amounts.is_partial());
}

/// Of a thread without CPU time: one that came a moment ago has not shown yet what it does, and of one that has ended
/// nobody may know.
#[test]
fn only_what_was_there_for_an_interval_has_done_nothing() {
    let was_idle = |interval: u64, switches: Option<u64>| {
        let sample = ThreadSample {
            switches,
            ..sample(1, interval, 0, false)
        };
        let mut totals = Totals::new(By::Thread);
        totals.thread(&sample, &Amounts::of_thread(&sample), 1_000);
        totals.by_cpu_time()[0].was_idle()
    };
    assert!(was_idle(1_000, Some(0)));
    assert!(!was_idle(10, Some(0)));
    assert!(!was_idle(1_000, None));
}
