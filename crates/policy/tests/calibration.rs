//! The calibration file: what is read, what is refused and how errors are reported.

use perch_policy::{Calibration, Share};
use std::path::Path;

const GOOD: &str = r#"machine = "a machine"
date = "2026-11-22"
notes = ["turbo off"]

[[metric]]
name = "fp_load"
priority = 2
share = "core"
limit = 2.5e7

[[metric]]
name = "l2_load"
priority = 1
share = "l2"
limit = 9e6
ratio = 9.5e-6
spread = 0.02
"#;

#[test]
fn metrics_come_by_priority_and_a_written_file_reads_the_same() {
    let calibration = Calibration::parse(GOOD, "good.toml").unwrap();
    let names: Vec<&str> = calibration
        .metrics
        .iter()
        .map(|m| m.name.as_str())
        .collect();
    assert_eq!(names, ["l2_load", "fp_load"]);
    assert_eq!(calibration.metrics[0].share, Share::L2);
    assert_eq!(calibration.metrics[0].ratio, Some(9.5e-6));
    let again = Calibration::parse(&calibration.to_toml().unwrap(), "again.toml").unwrap();
    assert_eq!(again, calibration);
}

#[test]
fn mistakes_are_told_with_their_place() {
    let wrong = |from: &str, to: &str| {
        assert!(GOOD.contains(from));
        let error = Calibration::parse(&GOOD.replacen(from, to, 1), "bad.toml").unwrap_err();
        error.to_string()
    };
    let file = Calibration::read(Path::new("/nowhere/calibration.toml")).unwrap_err();
    insta::assert_snapshot!(
        [
            wrong("\"core\"", "\"cor\""),
            wrong("priority = 2", "priority = 1"),
            wrong("\"fp_load\"", "\"l2_load\""),
            wrong("2.5e7", "-1.0"),
            wrong("spread = 0.02", "spred = 0.02"),
            wrong("9.5e-6", "nan"),
            wrong("\"a machine\"", "\" \""),
            wrong("9e6", "many"),
            file.to_string(),
        ]
        .join("\n")
    );
}

const MEASURED: &str = r#"
machine = "m"
date = "2026-11-22"

[[metric]]
name = "fp_load"
priority = 1
share = "core"
limit = 1e9

[[kernel]]
name = "fp"
metrics = { ipc = 1.5, fp_share = 0.9 }

[[kernel]]
name = "integer"
metrics = { ipc = 2.0, fp_share = 0.0 }

[[coupling]]
share = "core"
kernel = "fp"
beside = ["integer", "fp"]
slowdown = 1.25
spread = 0.01

[[transfer]]
share = "machine"
seconds = 1.2e-7
"#;

#[test]
fn kernels_couplings_and_transfers_are_read_and_written() {
    let read = Calibration::parse(MEASURED, "c.toml").unwrap();
    assert_eq!(read.kernels[0].metrics["fp_share"], 0.9);
    assert_eq!(read.couplings[0].beside, ["integer", "fp"]);
    assert_eq!(read.transfers[0].seconds, 1.2e-7);
    assert_eq!(
        (read.transfers[0].low, read.transfers[0].high),
        (None, None)
    );
    let text = MEASURED.replace(
        "seconds = 1.2e-7",
        "seconds = 1.2e-7\nlow = 1e-7\nhigh = 1.6e-7",
    );
    let ranged = Calibration::parse(&text, "c.toml").unwrap();
    assert_eq!(ranged.transfers[0].high, Some(1.6e-7));
    for read in [read, ranged] {
        let again = Calibration::parse(&read.to_toml().unwrap(), "again").unwrap();
        assert_eq!(read, again);
    }
}

#[test]
fn mistakes_in_what_was_measured_are_named_with_their_place() {
    let cases = [
        (
            "beside = [\"integer\", \"fp\"]",
            "beside = [\"interger\"]",
            "c.toml:22:11: no kernel `interger`; did you mean `integer`?",
        ),
        (
            "beside = [\"integer\", \"fp\"]",
            "beside = []",
            "c.toml:22:10: `beside` is empty: name at least one co-running kernel",
        ),
        (
            "name = \"integer\"",
            "name = \"fp\"",
            "c.toml:16:8: a second kernel `fp`",
        ),
        (
            "slowdown = 1.25",
            "slowdown = 0",
            "c.toml:23:12: the slowdown 0 is not above 0",
        ),
        (
            "fp_share = 0.9",
            "fp_share = -1",
            "c.toml:13:35: `fp_share` is a number from 0 on",
        ),
        (
            "seconds = 1.2e-7",
            "seconds = 1.2e-7\nlow = 2e-7",
            "c.toml:29:7: the cost 0.00000012 does not lie from 0.0000002 to 0.00000012",
        ),
        (
            "share = \"machine\"",
            "share = \"machin\"",
            "c.toml:27:9: unknown value `machin`, expected one of `fp`, `core`, `l2`, `llc`, `node`, `package`, `machine`; did you mean `machine`?",
        ),
    ];
    for (from, to, expected) in cases {
        let text = MEASURED.replacen(from, to, 1);
        assert_ne!(text, MEASURED);
        let error = Calibration::parse(&text, "c.toml").unwrap_err();
        let told = error.to_string();
        let lines: Vec<&str> = told.lines().collect();
        let hint = lines[3..].concat().trim().to_owned();
        let short = [lines[0], &hint].join("; ");
        assert_eq!(short.trim_end_matches("; "), expected);
    }
}

/// A calibration that an earlier perch wrote, as it wrote it.
const VERSION_1: &str = include_str!("data/calibration-version-1.toml");

#[test]
fn a_file_of_version_1_still_loads_and_what_is_within_its_spread_has_no_effect() {
    let old = Calibration::parse(VERSION_1, "old.toml").unwrap();
    assert_eq!(old.version, 1);
    assert!(old.tells_of_kernels());
    let (mut counts, mut noise) = (0, 0);
    for coupling in &old.couplings {
        let spread = coupling.spread.unwrap();
        match coupling.slowdown > 1.0 + spread {
            true => {
                counts += 1;
                assert_eq!(coupling.known(), coupling.slowdown);
            }
            false => {
                noise += 1;
                assert_eq!(coupling.known(), 1.0);
            }
        }
    }
    assert!(
        counts + noise == old.couplings.len() && noise > 0,
        "{counts} {noise}"
    );
    assert!(old.metrics.iter().all(|metric| metric.is_of_use()));
    let written = old.to_toml().unwrap();
    assert!(!written.contains("version"), "it stays a file of version 1");
    assert_eq!(Calibration::parse(&written, "again.toml").unwrap(), old);
}

#[test]
fn intervals_and_significance_are_read_and_written() {
    let text = format!("version = 2\n{}", MEASURED.trim_start()).replace(
        "spread = 0.01",
        "spread = 0.01\nlow = 1.1\nhigh = 1.4\nsignificant = true",
    );
    let read = Calibration::parse(&text, "c.toml").unwrap();
    let coupling = &read.couplings[0];
    assert_eq!((coupling.low, coupling.high), (Some(1.1), Some(1.4)));
    assert!(coupling.is_significant() && read.shows_slowdowns());
    assert_eq!(
        Calibration::parse(&read.to_toml().unwrap(), "again").unwrap(),
        read
    );
    let not = Calibration::parse(
        &text.replace("significant = true", "significant = false"),
        "c",
    )
    .unwrap();
    assert_eq!(not.couplings[0].known(), 1.0);
    assert!(!not.shows_slowdowns());
    let wrong = |from: &str, to: &str| {
        let text = text.replacen(from, to, 1);
        let error = Calibration::parse(&text, "c.toml").unwrap_err().to_string();
        error.lines().next().unwrap().to_owned()
    };
    assert_eq!(
        wrong("low = 1.1", "low = 1.3"),
        "c.toml:25:7: the slowdown 1.25 does not lie from 1.3 to 1.4"
    );
    assert_eq!(
        wrong("version = 2", "version = 9\nnew = 1"),
        "c.toml:1:11: this perch reads calibrations of versions 1 to 3, not 9"
    );
}

#[test]
fn two_measurements_agree_if_their_intervals_meet() {
    let of = |low: Option<f64>, high: Option<f64>| {
        let mut calibration = Calibration::parse(MEASURED, "c.toml").unwrap();
        let mut coupling = calibration.couplings.remove(0);
        (coupling.low, coupling.high) = (low, high);
        coupling
    };
    let (small, large) = (of(Some(1.0), Some(1.1)), of(Some(1.2), Some(1.3)));
    assert!(!small.agrees(&large) && !large.agrees(&small));
    let between = of(Some(1.05), Some(1.25));
    assert!(small.agrees(&between) && between.agrees(&large));
    assert!(large.agrees(&of(None, None)));
}
