//! What a user reads when their profile has an error.

use perch_profile::{Library, Profile};

const SOUND: &str = r#"name = "sound"
title = "a sound profile"

[[event]]
alias = "cycles"
spellings = ["cycles"]
source = "perf_event_open(2)"

[[event]]
alias = "instructions"
spellings = ["instructions"]
source = "perf_event_open(2)"

[[unit]]
class = "fp"
count = 2
share = "core"
source = "a manual"

[[set]]
name = "core"
events = ["cycles", "instructions"]

[[metric]]
name = "ipc"
formula = "instructions / cycles"
unit = "instructions / cycle"
description = "instructions per cycle"
source = "definition"

[limits]
cycles_per_second = [10e6, 8e9]
min_instructions_per_second = 1e6
max_instructions_per_cycle = 16
judge_after_ms = 10
source = "a manual"
"#;

/// The error for the sound profile with `old` replaced by `new`.
fn mistake(old: &str, new: &str) -> String {
    assert!(SOUND.contains(old));
    Profile::parse(&SOUND.replacen(old, new, 1), "my.toml")
        .unwrap_err()
        .to_string()
}

#[test]
fn the_sound_profile_is_sound() {
    Profile::parse(SOUND, "my.toml").unwrap();
}

#[test]
fn unknown_key() {
    insta::assert_snapshot!(mistake("formula =", "formul ="), @r#"
    my.toml:26:1: unknown key `formul`
      26 | formul = "instructions / cycles"
         | ^^^^^^
      did you mean `formula`?
    "#);
}

#[test]
fn missing_key() {
    insta::assert_snapshot!(mistake("unit = \"instructions / cycle\"\n", ""), @r#"
    my.toml:24:1: missing key `unit`
      24 | [[metric]]
         | ^^^^^^^^^^
    "#);
}

#[test]
fn unknown_event_in_a_formula() {
    insta::assert_snapshot!(mistake("instructions / cycles", "instructions / cylces"), @r#"
    my.toml:26:27: `cylces` is no event and no constant
      26 | formula = "instructions / cylces"
         |                           ^^^^^^
      did you mean `cycles`?
    "#);
}

#[test]
fn formula_that_cannot_be_read() {
    insta::assert_snapshot!(mistake("instructions / cycles", "instructions / (cycles"), @r#"
    my.toml:26:27: `(` without `)`
      26 | formula = "instructions / (cycles"
         |                           ^
    "#);
    insta::assert_snapshot!(mistake("instructions / cycles", "1e3 * instructions / cycles"), @r#"
    my.toml:26:12: `1e3` is no number: write it out, as in 1000 or 0.001
      26 | formula = "1e3 * instructions / cycles"
         |            ^^^
    "#);
    insta::assert_snapshot!(mistake("instructions / cycles", "instructions ÷ cycles"), @r#"
    my.toml:26:25: `÷` has no place in a formula
      26 | formula = "instructions ÷ cycles"
         |                         ^
    "#);
}

#[test]
fn bad_share_level() {
    insta::assert_snapshot!(mistake("share = \"core\"", "share = \"cores\""), @r#"
    my.toml:17:9: unknown share level `cores`, expected one of `pu`, `core`, `l2`, `llc`, `package`
      17 | share = "cores"
         |         ^^^^^^^
      did you mean `core`?
    "#);
}

#[test]
fn duplicate_metric() {
    let second = "\n[[metric]]\nname = \"ipc\"\nformula = \"1\"\nunit = \"\"\ndescription = \"\"\nsource = \"me\"\n";
    insta::assert_snapshot!(Profile::parse(&format!("{SOUND}{second}"), "my.toml").unwrap_err(), @r#"
    my.toml:39:8: a second metric `ipc`
      39 | name = "ipc"
         |        ^^^^^
    "#);
}

#[test]
fn duplicate_event() {
    insta::assert_snapshot!(mistake("alias = \"instructions\"", "alias = \"cycles\""), @r#"
    my.toml:10:9: a second event `cycles`
      10 | alias = "cycles"
         |         ^^^^^^^^
    "#);
}

#[test]
fn spelling_of_no_kind() {
    insta::assert_snapshot!(mistake("[\"cycles\"]", "[\"cycle\"]"), @r#"
    my.toml:6:14: `cycle`: neither `pmu::EVENT` (libpfm4), `device/term=number/` (kernel), `rHEX` (raw) nor one of the kernel's generic events; did you mean `cycles`?
      6 | spellings = ["cycle"]
        |              ^^^^^^^
    "#);
    insta::assert_snapshot!(mistake("[\"cycles\"]", "[\"cpu/event=0xzz/\"]"), @r#"
    my.toml:6:14: `cpu/event=0xzz/`: a device's event is `device/name/` or `device/term=number,term=number/`
      6 | spellings = ["cpu/event=0xzz/"]
        |              ^^^^^^^^^^^^^^^^^
    "#);
}

#[test]
fn event_of_a_set_that_is_not_defined() {
    insta::assert_snapshot!(mistake("[\"cycles\", \"instructions\"]", "[\"cycles\", \"instruction\"]"), @r#"
    my.toml:22:21: no event `instruction`
      22 | events = ["cycles", "instruction"]
         |                     ^^^^^^^^^^^^^
      did you mean `instructions`?
    "#);
}

#[test]
fn event_that_is_in_no_set() {
    insta::assert_snapshot!(mistake("[\"cycles\", \"instructions\"]", "[\"cycles\"]"), @r#"
    my.toml:10:9: `instructions` is in no set, so it would never be counted
      10 | alias = "instructions"
         |         ^^^^^^^^^^^^^^
    "#);
}

#[test]
fn empty_source() {
    insta::assert_snapshot!(mistake("source = \"definition\"", "source = \"\""), @r#"
    my.toml:29:10: an empty source
      29 | source = ""
         |          ^^
    "#);
}

#[test]
fn rule_of_two_architectures() {
    let both = "[[match]]\nvendor = \"A\"\nfamily = 1\nimplementer = 0x41\n\n[limits]";
    insta::assert_snapshot!(mistake("[limits]", both), @r#"
    my.toml:31:1: a rule has `vendor`, `family` and `models` (x86), or `implementer` and `parts` (Arm), or `pvr` and `cpu` (POWER), or `any = true`
      31 | [[match]]
         | ^^^^^^^^^
    "#);
}

#[test]
fn models_upside_down() {
    let models = "[[match]]\nvendor = \"A\"\nfamily = 1\nmodels = [\"0x20-0x10\"]\n\n[limits]";
    insta::assert_snapshot!(mistake("[limits]", models), @r#"
    my.toml:34:11: models are written `"0x47"` or `"0x30-0x3f"`
      34 | models = ["0x20-0x10"]
         |           ^^^^^^^^^^^
    "#);
}

#[test]
fn values_of_another_type() {
    insta::assert_snapshot!(mistake("count = 2", "count = \"two\""), @r#"
    my.toml:16:9: expected a whole number, found a string
      16 | count = "two"
         |         ^^^^^
      write a number without quotes, such as 25 or 0x19
    "#);
    let threshold = "[fp_threshold]\ncounters = \"5%\"\nsource = \"me\"\n\n[limits]";
    insta::assert_snapshot!(mistake("[limits]", threshold), @r#"
    my.toml:32:12: expected a number, found a string
      32 | counters = "5%"
         |            ^^^^
      write 0.05 for 5 %
    "#);
}

#[test]
fn plurals_and_synonyms_are_seen_through() {
    assert!(mistake("[[set]]", "[[sets]]").ends_with("did you mean `set`?"));
    let rule = "[[match]]\nvendor = \"A\"\nfamiliy = 1\n\n[limits]";
    assert!(mistake("[limits]", rule).ends_with("did you mean `family`?"));
    let share = mistake("share = \"core\"", "share = \"socket\"");
    assert!(share.ends_with("did you mean `package`?"), "{share}");
}

#[test]
fn keys_may_have_hyphens() {
    let text = SOUND.replace("judge_after_ms", "judge-after-ms");
    let text = text.replace("max_instructions_per_cycle", "max-instructions-per-cycle");
    let profile = Profile::parse(&text, "my.toml").unwrap();
    assert_eq!(
        profile.limits,
        Profile::parse(SOUND, "my.toml").unwrap().limits
    );
}

#[test]
fn not_toml() {
    insta::assert_snapshot!(mistake("name = \"sound\"", "name = sound"), @r#"
    my.toml:1:8: string values must be quoted, expected literal string
      1 | name = sound
        |        ^^^^^
    "#);
}

#[test]
fn limits_upside_down() {
    insta::assert_snapshot!(mistake("[10e6, 8e9]", "[8e9, 10e6]"), @r#"
    my.toml:32:21: `cycles_per_second` is `[least, greatest]`, the least first
      32 | cycles_per_second = [8e9, 10e6]
         |                     ^^^^^^^^^^^
    "#);
}

#[test]
fn unknown_profile() {
    let library = Library::embedded();
    insta::assert_snapshot!(library.find("zen6").unwrap_err(), @"no profile `zen6`; did you mean `zen5`?; `perch profiles` lists them, and a path to a file works too");
    insta::assert_snapshot!(library.find("x").unwrap_err(), @"no profile `x`; `perch profiles` lists them, and a path to a file works too");
}
