//! What people see: pictures and tables fit 80 columns, and look as they did.

use perch::render::{WIDTH, report, topology, tournament};
use perch_engine::{
    Report,
    report::{LeftThread, SystemReport},
};
use perch_lab::tournament::{Again, Line, Match, Outcome, Standing};
use perch_linux::topology::{Source, load};
use std::collections::BTreeMap;

fn sample() -> Report {
    serde_json::from_str(include_str!("data/report.json")).unwrap()
}

fn plain(report: &Report) -> String {
    anstream::adapter::strip_str(&report::render(report)).to_string()
}

fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(
            line.chars().count() <= WIDTH,
            "{} columns: {line}",
            line.chars().count()
        );
    }
}

fn draw(description: &str) -> String {
    let loaded = load(&Source::Synthetic(description.to_owned())).unwrap();
    topology::draw(&loaded.topology, &BTreeMap::new())
}

#[test]
fn a_report_of_a_recorded_run() {
    let text = plain(&sample());
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_report_with_long_names_and_large_numbers_fits() {
    let mut report = sample();
    report.command = vec!["/usr/lib/very/long/path/".repeat(20)];
    for thread in &mut report.threads {
        thread.name = "a-name-of-15-by".to_owned();
        thread.stats.switches = Some(u64::MAX);
        thread.stats.migrations = Some(u64::MAX / 2);
        thread.bound = Some((0..1000).filter(|pu| pu % 2 == 0).collect());
    }
    for made in &mut report.moves.first {
        made.reason.text = "because ".repeat(30);
        made.to = Some((0..1000).filter(|pu| pu % 2 == 0).collect());
    }
    report.remarks = vec![perch_core::Remark::note("long", "word ".repeat(100))];
    assert_fits(&plain(&report));
}

#[test]
fn the_operating_systems_work_is_summed_up() {
    let mut report = sample();
    let left = |tid: i32, name: &str, cpu_time: u64| LeftThread {
        thread: perch_core::ThreadId { tid, start: 1 },
        name: name.to_owned(),
        why: None,
        cpu_time,
    };
    report.system = Some(SystemReport {
        pus: "0-1".parse().unwrap(),
        threads: 187,
        bound: 120,
        names: vec![("cron".to_owned(), 1), ("sshd".to_owned(), 12)],
        left_by_reason: vec![(None, 60), (Some(perch_core::Unmanaged::PlacedBefore), 1)],
        left: vec![left(7, "kworker/2:1-events", 8_200_000), left(8, "idle", 0)],
        cpu_time_there: 12_300_000_000,
        cpu_time_elsewhere: 359_000_000,
        irqs: vec![24, 25],
        irqs_failed: vec![9],
        settings: vec![(
            perch_core::Setting::MaxFrequency(0),
            perch_core::SettingValue::Number(1_500_000),
        )],
    });
    let part = |report: &Report| {
        let text = plain(report);
        assert_fits(&text);
        let begin = text.find("operating system (").unwrap();
        let end = text[begin..].find("\n\n").unwrap();
        text[begin..begin + end].to_owned()
    };
    report.dry_run = false;
    let live = part(&report);
    report.dry_run = true;
    insta::assert_snapshot!([live, part(&report)].join("\n\n"));
}

/// As many threads as a large machine has, all busy but some.
fn crowd(busy: i32, idle: i32) -> Report {
    let mut report = sample();
    let model = report.threads[0].clone();
    report.threads = (0..busy + idle)
        .map(|at| {
            let mut thread = model.clone();
            thread.thread.tid = 1_000_000 + at;
            thread.name = format!("worker-{at}");
            thread.stats.lifetime = 1_000_000_000;
            thread.stats.cpu_time = if at < busy {
                999_000_000 - at as u64
            } else {
                0
            };
            thread
        })
        .collect();
    report
}

#[test]
fn many_short_lived_processes_of_a_script_share_a_row() {
    let mut report = crowd(30, 0);
    report.duration = 1_500_000_000;
    report.groups.clear();
    for thread in &mut report.threads[..24] {
        thread.name = "bash".to_owned();
        thread.ended = true;
        thread.stats.lifetime = 8_000_000;
        thread.stats.cpu_time = 4_000_000;
    }
    let text = plain(&report);
    assert_fits(&text);
    assert!(text.contains("24×bash"), "{text}");
    for (letter, at) in ('a'..'g').zip(24..) {
        let row = format!("\n{letter} ");
        let row = text.split(&row).nth(1).and_then(|rest| rest.lines().next());
        assert!(row.unwrap().contains(&format!("worker-{at}")), "{text}");
    }
}

#[test]
fn threads_without_a_row_of_their_own_are_counted_as_what_they_were() {
    let text = plain(&crowd(128, 3));
    assert_fits(&text);
    // 26 by name, the other busy ones in one row, and the idle ones.
    assert!(text.contains("\nz  worker-25"), "{text}");
    let rest = text.lines().find(|line| line.contains("102×worker-#"));
    let rest: Vec<&str> = rest.expect(&text).split_whitespace().collect();
    assert_eq!(rest[1], "100", "busy as each of them: {rest:?}");
    assert!(text.contains("\nand 3 idle threads ("), "{text}");
    // More names than have rows.
    let mut report = crowd(128, 3);
    for (at, thread) in report.threads.iter_mut().enumerate() {
        thread.name = format!("{}-worker", char::from(b'a' + (at % 20) as u8));
    }
    let text = plain(&report);
    // Twenty names, five or six threads each beyond the first 26; five of the names have a row.
    let in_rows: u64 = text
        .lines()
        .filter_map(|line| line.trim().split_once('×'))
        .filter_map(|(threads, _)| threads.parse::<u64>().ok())
        .sum();
    let more = format!("\nand {} threads more, 3 idle (", 102 - in_rows);
    assert!(in_rows > 20 && text.contains(&more), "{in_rows}: {text}");
}

/// A picture of that many PUs, two a core and 16 a last-level cache, of which the first half runs FP-heavy threads.
fn wide(pus: u32) -> String {
    let mut report = sample();
    let thread = report.threads[0].thread;
    let cell = perch_engine::report::Cell {
        thread,
        name: "worker".to_owned(),
        role: perch_engine::report::Role::FloatingPoint,
        bound: false,
        share: 1.0,
    };
    report.placements.columns = (1..=10).map(|at| at * 1_000_000_000).collect();
    report.placements.rows = (0..pus)
        .map(|pu| perch_engine::report::Row {
            pu,
            core: format!("core {}, L3 {}", pu / 2, pu / 16),
            cells: vec![(pu < pus / 2).then(|| cell.clone()); 10],
        })
        .collect();
    plain(&report)
}

#[test]
fn large_machines_are_drawn_by_core_by_cache_and_by_pus() {
    for (pus, kind, rows, name) in [
        (64, "cores", 32, "core 0, L3 0"),
        (512, "last-level caches", 32, "L3 15"),
        (4096, "PUs", 32, "PU 0-127"),
        (36, "cores", 18, "core 8, L3 1"),
    ] {
        let text = wide(pus);
        assert_fits(&text);
        let picture = text.split("Load of ").nth(1).expect(&text);
        let picture = picture.split("\n\n").next().unwrap();
        assert!(picture.starts_with(kind), "{picture}");
        let row = picture.lines().find(|line| line.trim().starts_with(name));
        let row = row.unwrap_or_else(|| panic!("{name}: {picture}"));
        assert!(row.ends_with("  ##########"), "{row}");
        // Two lines of heading.
        assert_eq!(picture.lines().count(), rows + 2, "{picture}");
        assert_eq!(picture.matches("##########").count(), rows / 2, "{picture}");
        assert_eq!(picture.matches("··········").count(), rows / 2, "{picture}");
    }
}

#[test]
fn a_thread_with_two_phases_shows_both_shares() {
    let mut report = sample();
    let stats = &mut report.threads[0].stats;
    (stats.fp_time, stats.integer_time) = (500, 500);
    (stats.fp_share_heavy, stats.fp_share_light) = (Some(0.48), Some(0.02));
    let text = plain(&report);
    let row = text
        .lines()
        .find(|line| line.starts_with("a  "))
        .expect(&text);
    assert!(row.contains(" 48/2 "), "{row}");
    assert!(text.contains("FP a/b:"), "{text}");
    // Too short for a phase.
    let stats = &mut report.threads[0].stats;
    (stats.fp_time, stats.integer_time) = (5, 995);
    assert!(!plain(&report).contains("48/2"));
}

#[test]
fn moves_carry_the_letters_and_tids_of_the_table() {
    let mut report = sample();
    let threads = report.threads.clone();
    let model = report.moves.first[0].clone();
    report.moves.first = (0..6)
        .map(|at| {
            let mut made = model.clone();
            made.thread = threads[at].thread;
            made.name = format!("before-{at}");
            made.to = Some(perch_core::PuSet::single(at as u32));
            // Four stay where they run.
            made.ran_on = Some(if at < 4 { at as u32 } else { 7 });
            made
        })
        .collect();
    report.moves.last.clear();
    report.moves.outcomes = vec![(perch_core::Outcome::Applied, 6)];
    let text = plain(&report);
    assert_fits(&text);
    let moves = text.split("Moves:").nth(1).expect(&text);
    let words: String = moves.split_whitespace().collect::<Vec<_>>().join(" ");
    let tid = |at: usize| threads[at].thread.tid;
    let folded = format!(
        "4 threads bound where they ran: a before-0 ({}) PU 0,",
        tid(0)
    );
    assert!(words.contains(&folded), "{moves}");
    let moved = format!("e before-4 ({}) → PU 4", tid(4));
    assert!(words.contains(&moved), "{moves}");
    assert!(!moves.contains("more;"), "{moves}");
}

#[test]
fn explanations_fit_and_threads_that_stay_share_a_line() {
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1.jsonl");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_perch"))
        .args([
            "replay",
            log,
            "--policy",
            "fixed",
            "--pin",
            "*=1",
            "--explain",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_fits(&text);
    assert!(text.contains("bound where they run: "), "{text}");
}

#[test]
fn how_far_sampled_shares_may_be_off_is_what_perch_states() {
    let mut report = sample();
    for (thread, error) in report.threads.iter_mut().zip([0.01, 0.03]) {
        thread.stats.cpu_time = 1_000_000_000;
        thread
            .stats
            .metrics
            .push(perch_engine::report::MetricReport {
                name: "fp_share_error".into(),
                value: error,
                confidence: 1.0,
                source: perch_core::MetricSource::Sampling,
            });
    }
    let text = plain(&report)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        text.contains("within ±3.3 points at 90 % confidence"),
        "{text}"
    );
}

#[test]
fn an_empty_report_says_so() {
    let report = perch_engine::Collector::new(&["true".to_owned()]).report();
    let text = plain(&report);
    assert_fits(&text);
    assert!(text.contains("No thread was busy"), "{text}");
}

#[test]
fn machines_of_all_sizes_fit() {
    insta::assert_snapshot!(
        "two_nodes",
        draw("package:2 numanode:1 l3:1 l2:2 core:1 pu:2")
    );
    insta::assert_snapshot!("many_cores", draw("package:2 numanode:1 l3:8 core:8 pu:8"));
    for description in [
        "pu:1",
        "core:3 pu:4",
        "package:4 l3:2 core:5 pu:1",
        "package:8 numanode:1 core:128 pu:1",
    ] {
        assert_fits(&draw(description));
    }
}

#[test]
fn distances_between_nodes_are_a_table_or_a_range() {
    let with_distances = |description: &str| {
        let mut machine = load(&Source::Synthetic(description.to_owned()))
            .unwrap()
            .topology;
        let nodes = machine.numa_nodes.len() as u64;
        for (from, node) in (0u64..).zip(&mut machine.numa_nodes) {
            node.distances = (0..nodes).map(|to| 10 + 11 * from.abs_diff(to)).collect();
        }
        topology::draw(&machine, &BTreeMap::new())
    };
    let text = with_distances("package:2 numanode:1 core:1 pu:1");
    let table = text.split_once("NUMA distances").unwrap().1;
    assert_eq!(
        table,
        " (firmware's latencies; 10: the own memory)\n  from, to   0   1\n  0         10  21\n  1         21  10\n"
    );
    let most = with_distances("package:16 numanode:1 core:1 pu:1");
    assert_fits(&most);
    let more = with_distances("package:17 numanode:1 core:1 pu:1");
    assert!(more.ends_with("10: the own memory): 10 to 186\n"), "{more}");
}

/// 64 cores without caches are alike: a few lines, and what runs on them.
#[test]
fn cores_that_are_alike_are_folded() {
    let loaded = load(&Source::Synthetic("core:64 pu:1".to_owned())).unwrap();
    let text = topology::draw(&loaded.topology, &BTreeMap::new());
    assert!(text.lines().count() < 10, "{text}");
    assert!(text.contains("cores 0-63"), "{text}");
    let load = (0..64).map(|pu| {
        let thread = (pu % 2 == 0).then(|| "a-long-name-of-20-by".to_owned());
        let busy = f64::from(pu) / 64.0;
        (pu, topology::PuLoad { busy, thread })
    });
    let text = topology::draw(&loaded.topology, &load.collect());
    assert_fits(&text);
    assert!(
        text.contains("busy: PU 63 98 %, PU 62 97 % a-long-name-of…"),
        "{text}"
    );
    assert!(text.lines().count() < 20, "{text}");
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("and 48 more"), "{text}");
}

#[test]
fn cores_are_named_with_their_last_level_cache_where_there_are_several() {
    let label = |description: &str, core: usize| {
        let loaded = load(&Source::Synthetic(description.to_owned())).unwrap();
        loaded.topology.core_label(core)
    };
    assert_eq!(label("package:1 l3:2 core:4 pu:2", 5), "core 5, L3 1");
    assert_eq!(label("package:1 l3:1 core:4 pu:2", 3), "core 3");
    assert_eq!(label("core:2 pu:2", 1), "core 1");
}

#[test]
fn rows_of_the_timeline_name_their_cores() {
    let mut report = sample();
    for (at, row) in report.placements.rows.iter_mut().enumerate() {
        row.core = format!("core {}, L3 0", at / 2);
    }
    let text = plain(&report);
    assert_fits(&text);
    assert!(report.placements.rows.len() > 2);
    assert!(text.contains("  core 0, L3 0  PU   0  "), "{text}");
    assert!(text.contains("\n                PU   1  "), "{text}");
}

/// A tournament of made-up numbers.
fn played() -> Outcome {
    let policies = [
        "default",
        "workover",
        "masa",
        "cpi",
        "sos",
        "symbiosis",
        "symbiosis, sampled",
    ];
    let standing = |machine: &str, at: usize| Standing {
        name: policies[at].to_owned(),
        machine: machine.to_owned(),
        workloads: 320,
        mean_regret: 0.061 - 0.01 * at as f64,
        worst_regret: 0.4321 - 0.05 * at as f64,
        ratio: 1.0 + 0.0123 * at as f64,
        worst_ratio: 0.98765,
        wins: 40 * at,
        losses: 7 * at,
        moves: 12.3456 * at as f64,
        harmonic: 0.61,
        fairness: 0.31,
    };
    let standings =
        |machine: &'static str| (0..policies.len()).map(move |at| standing(machine, at));
    let line = Line {
        speedup: 1.0,
        regret: 0.0,
        ratio: 1.0,
        moves: 0.0,
        harmonic: 1.0,
        fairness: 1.0,
        placement: vec![0],
    };
    let found = |exhaustive| Match {
        machine: "numa-2".to_owned(),
        workload: 0,
        threads: 1,
        best: 1.0,
        best_placement: Vec::new(),
        exhaustive,
        default: line.clone(),
        lines: vec![line.clone(); policies.len() - 1],
    };
    let again = |interval, cycle| Again {
        machine: "numa-2".to_owned(),
        workload: 0,
        contestant: "masa".to_owned(),
        interval,
        cycle,
        settled: interval > 1.0,
    };
    let machines = ["ibm-power7-smt4", "intel-xeon-ht", "numa-2"];
    Outcome {
        standings: standings("").collect(),
        by_machine: machines.into_iter().flat_map(standings).collect(),
        matches: vec![found(true), found(false), found(false)],
        again: vec![again(1.1, 1.08), again(0.9, 1.01)],
    }
}

#[test]
fn a_tournament() {
    let text = tournament::tournament(&played());
    assert_fits(&text);
    insta::assert_snapshot!(text);
    let none = Outcome {
        again: Vec::new(),
        ..played()
    };
    assert!(!tournament::tournament(&none).contains("judged again"));
}
