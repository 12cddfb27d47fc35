//! The calibration file: what is read, what is refused and how it is told.

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
