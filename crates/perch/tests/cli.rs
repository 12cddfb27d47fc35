//! The command as a user types it: exit codes, what is said on errors, and that the program's own output is untouched.

use perch_skip::skip;
use std::{
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::{Mutex, PoisonError},
};

/// perch with a state and a configuration folder of its own.
struct Perch {
    folder: tempfile::TempDir,
}

impl Perch {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perch"));
        command
            .args(args)
            .env("PERCH_STATE_DIR", self.folder.path().join("state"))
            .env("XDG_CONFIG_HOME", self.folder.path().join("config"))
            .env_remove("PERCH_POLICY")
            .stdin(Stdio::null());
        command
    }

    /// Runs it. One at a time: a second perch that is to place threads on the same PUs would only observe.
    fn run(&self, args: &[&str]) -> Output {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        self.command(args).output().unwrap()
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("perch was killed by a signal")
}

#[test]
fn the_exit_code_is_the_programs() {
    let perch = Perch::new();
    assert_eq!(
        code(&perch.run(&["run", "-q", "--", "sh", "-c", "exit 42"])),
        42
    );
    assert_eq!(code(&perch.run(&["run", "-q", "--", "true"])), 0);
}

#[test]
fn a_killed_program_gives_128_plus_the_signal() {
    assert_eq!(
        code(&Perch::new().run(&["run", "-q", "--", "sh", "-c", "kill -TERM $$"])),
        143
    );
}

#[test]
fn standard_output_is_the_programs_alone() {
    let output = Perch::new().run(&["run", "--explain", "--", "echo", "hello"]);
    assert_eq!(stdout(&output), "hello\n");
    assert!(stderr(&output).contains("echo"), "{}", stderr(&output));
}

#[test]
fn a_program_that_is_not_there_is_127() {
    let output = Perch::new().run(&["run", "--", "perch-no-such-program"]);
    assert_eq!(code(&output), 127);
    assert!(
        stderr(&output).contains("perch-no-such-program"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_program_that_cannot_be_executed_is_126() {
    let perch = Perch::new();
    let file = perch.file("data.txt", "no program");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = perch.run(&["run", "--", file.to_str().unwrap()]);
    assert_eq!(code(&output), 126, "{}", stderr(&output));
    assert_eq!(code(&perch.run(&["run", "--", "/"])), 126);
}

#[test]
fn an_empty_command_is_refused() {
    let perch = Perch::new();
    assert_eq!(code(&perch.run(&["run", "--"])), 2);
    assert_eq!(code(&perch.run(&["run"])), 2);
    assert_ne!(code(&perch.run(&["run", "--", ""])), 0);
}

#[test]
fn misspelt_names_get_suggestions() {
    let perch = Perch::new();
    let policy = perch.run(&["run", "--policy", "workovr", "--", "true"]);
    assert_eq!(code(&policy), 125);
    assert!(stderr(&policy).contains("workover"), "{}", stderr(&policy));
    let flag = perch.run(&["run", "--polcy", "workover", "--", "true"]);
    assert_eq!(code(&flag), 2);
    assert!(stderr(&flag).contains("--policy"), "{}", stderr(&flag));
    let profile = perch.run(&["run", "--profile", "skylak-sp", "--", "true"]);
    assert_eq!(code(&profile), 125);
    assert!(
        stderr(&profile).contains("skylake-sp"),
        "{}",
        stderr(&profile)
    );
}

#[test]
fn a_time_of_two_words_is_told() {
    let output = Perch::new().run(&["run", "--period", "10", "s", "--", "true"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("write --period 10s"), "{said}");
    let output = Perch::new().run(&["attach", "--period", "10", "s", "1"]);
    assert!(stderr(&output).contains("write --period 10s"), "{output:?}");
}

#[test]
fn pus_that_the_machine_has_not_are_refused() {
    for place in [
        &["run"][..],
        &["run", "--dry-run", "--topology", "core:2 pu:2"],
    ] {
        let args = [place, &["--pus", "0,60000-60001", "--", "true"]].concat();
        let output = Perch::new().run(&args);
        assert_eq!(code(&output), 125, "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("no PU 60000-60001 here"), "{said}");
        assert!(said.contains("the machine has the PUs 0"), "{said}");
    }
}

#[test]
fn a_broken_profile_is_told_with_file_line_and_column() {
    let perch = Perch::new();
    let file = perch.file("mine.toml", "name = \"mine\"\nnonsense = 3\n");
    for args in [
        ["run", "--profile", file.to_str().unwrap(), "true"],
        ["profiles", "check", file.to_str().unwrap(), "--json"],
    ] {
        let output = perch.run(&args);
        assert_eq!(code(&output), 125, "{}", stderr(&output));
        assert!(
            stderr(&output).contains("mine.toml:2:1"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_misspelt_event_of_another_processor_is_noticed() {
    let perch = Perch::new();
    let good = include_str!("../../../profiles/zen4.toml");
    let wrong = good.replacen("::RETIRED_INSTRUCTIONS", "::RETIRED_INSTRUCTION", 1);
    let check = |text: &str| {
        let file = perch.file("foreign.toml", text);
        let output = perch.run(&["profiles", "check", file.to_str().unwrap()]);
        let said = stdout(&output)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        (code(&output), said)
    };
    let (status, said) = check(&wrong);
    assert!(said.contains("the file is valid"), "{said}");
    if said.contains("Not checked") {
        return skip!(Tool, "there is no libpfm4 that knows Zen 4");
    }
    assert_eq!(status, 1, "{said}");
    assert!(
        said.contains("has no `amd64_fam19h_zen4::RETIRED_INSTRUCTION`"),
        "{said}"
    );
    let (status, said) = check(good);
    assert_eq!(status, 0, "{said}");
    assert!(
        said.contains("libpfm4 knows") && !said.contains("WRONG"),
        "{said}"
    );
}

#[test]
fn moves_and_a_json_report_are_not_mixed() {
    let perch = Perch::new();
    let output = perch.run(&["run", "--json", "--explain", "--", "true"]);
    assert_eq!(code(&output), 125);
    assert!(stderr(&output).contains("--output FILE"));
    let report = perch.folder.path().join("report.json");
    let report = report.to_str().unwrap();
    let output = perch.run(&["run", "--json", "--explain", "-o", report, "--", "true"]);
    assert_eq!(code(&output), 0);
    let text = std::fs::read_to_string(report).unwrap();
    assert!(
        serde_json::from_str::<serde_json::Value>(&text).is_ok(),
        "{text}"
    );
}

#[test]
fn a_broken_configuration_is_told_with_its_line() {
    let perch = Perch::new();
    let file = perch.file(
        "config.toml",
        "policy = \"workover\"\n[policies.workover]\nno-such-setting = 1\n",
    );
    let output = perch.run(&["run", "--config", file.to_str().unwrap(), "--", "true"]);
    assert_eq!(code(&output), 125);
    let text = stderr(&output);
    assert!(
        text.contains("config.toml:3:1: unknown key `no-such-setting` of policy workover"),
        "{text}"
    );
}

#[test]
fn settings_come_from_flag_before_environment_before_file() {
    let perch = Perch::new();
    let file = perch.file("config.toml", "policy = \"workover\"\nperiod = \"2s\"\n");
    let config = |extra: &[(&str, &str)]| {
        let mut command = perch.command(&["config", "--config", file.to_str().unwrap()]);
        command.envs(extra.iter().copied());
        stdout(&command.output().unwrap())
    };
    assert!(
        config(&[]).contains("policy = \"workover\""),
        "{}",
        config(&[])
    );
    let with = config(&[("PERCH_POLICY", "observe")]);
    assert!(with.contains("policy = \"observe\""), "{with}");
    // Each line says where its value comes from, and all of it is a file that can be read.
    let source = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_once(" # ").unwrap().1.to_owned()
    };
    assert_eq!(source(&with, "policy"), "from PERCH_POLICY");
    assert_eq!(source(&with, "period"), format!("from {}", file.display()));
    assert_eq!(source(&with, "counters"), "default");
    let without = config(&[]);
    assert_eq!(
        source(&without, "policy"),
        format!("from {}", file.display())
    );
    assert_eq!(source(&without, "patience"), "default of policy workover");
    assert!(without.parse::<toml::Table>().is_ok(), "{without}");
}

#[test]
fn keys_are_read_with_hyphens_and_underscores() {
    let perch = Perch::new();
    let text = "policy = \"workover\"\ntake_over = true\nsampling_rate = 99\n[policies.workover]\nmin-activity = 0.3\n";
    let file = perch.file("config.toml", text);
    let output = perch.run(&["config", "--config", file.to_str().unwrap()]);
    let shown = stdout(&output);
    for setting in [
        "take-over = true",
        "sampling-rate = 99",
        "min_activity = 0.3",
    ] {
        assert!(shown.contains(setting), "{shown}{}", stderr(&output));
    }
    assert_eq!(shown.matches("activity").count(), 1, "{shown}");
}

#[test]
fn settings_that_no_run_can_use_are_shown_and_refused() {
    let perch = Perch::new();
    for (text, why) in [
        ("pus = \"4000\"\n", "4000"),
        (
            "policy = \"cpi\"\nperiod = \"1s\"\ninterval = \"2s\"\n",
            "is longer than the period",
        ),
        ("profile = \"zne4\"\n", "zne4"),
    ] {
        let file = perch.file("config.toml", text);
        let output = perch.run(&["config", "--config", file.to_str().unwrap()]);
        assert_eq!(code(&output), 125, "{text}");
        let last = text.lines().last().unwrap();
        assert!(stdout(&output).contains(last), "{}", stdout(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
        // As a run says it.
        let run = perch.run(&["run", "--config", file.to_str().unwrap(), "--", "true"]);
        assert_eq!(stderr(&run), stderr(&output), "{text}");
    }
    // The rules may come with the run.
    let fixed = perch.file("config.toml", "policy = \"fixed\"\n");
    let output = perch.run(&["config", "--config", fixed.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn defaults_and_schema_agree_with_what_is_read() {
    let perch = Perch::new();
    let defaults = perch.run(&["config", "--defaults"]);
    let file = perch.file("defaults.toml", &stdout(&defaults));
    let again = perch.run(&["config", "--config", file.to_str().unwrap()]);
    assert_eq!(code(&again), 0, "{}", stderr(&again));
    let schema: serde_json::Value =
        serde_json::from_str(&stdout(&perch.run(&["config", "--schema"]))).unwrap();
    assert!(schema["properties"]["period"].is_object(), "{schema}");
}

#[test]
fn the_report_is_json_on_demand() {
    let perch = Perch::new();
    let file = perch.folder.path().join("report.json");
    let output = perch.run(&[
        "run",
        "--json",
        "-o",
        file.to_str().unwrap(),
        "--",
        "sleep",
        "0.2",
    ]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(report["threads"].is_array(), "{report}");
}

#[test]
fn a_run_is_recorded_and_replayed() {
    let perch = Perch::new();
    let log = perch.folder.path().join("run.jsonl");
    let program = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let run = perch.run(&[
        "run",
        "-q",
        "--period",
        "100ms",
        "--log",
        log.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        program,
    ]);
    assert_eq!(code(&run), 0, "{}", stderr(&run));
    let replay = perch.run(&[
        "replay",
        log.to_str().unwrap(),
        "--policy",
        "workover",
        "--json",
    ]);
    assert_eq!(code(&replay), 0, "{}", stderr(&replay));
    let report: serde_json::Value = serde_json::from_str(&stdout(&replay)).unwrap();
    assert!(report["periods"].as_u64().unwrap() > 0, "{report}");
    let garbage = perch.file("garbage.jsonl", "{\"no\": \"recording\"}\n");
    let refused = perch.run(&["replay", garbage.to_str().unwrap()]);
    assert_eq!(code(&refused), 125);
    assert!(
        stderr(&refused).contains("garbage.jsonl:1"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn a_policy_is_shown_with_its_options() {
    let perch = Perch::new();
    let output = perch.run(&["policies", "workover"]);
    assert_eq!(code(&output), 0);
    let text = stdout(&output);
    assert!(
        text.contains("\npatience = 2\n") && text.contains("--set"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_slice(&perch.run(&["policies", "ps-sched-1", "--json"]).stdout).unwrap();
    let names = json["options"].as_array().unwrap().iter();
    let names: Vec<&str> = names
        .map(|option| option["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["clock", "goal", "max_slowdown", "min_activity", "system"]
    );
    let output = perch.run(&["policies", "wrokover"]);
    assert!(code(&output) != 0 && stderr(&output).contains("did you mean `workover`?"));
}

/// A recording from before is not lost because a program's name was mistyped.
#[test]
fn what_cannot_be_started_empties_no_file() {
    let perch = Perch::new();
    let log = perch.file("log.jsonl", "kept");
    let log = log.to_str().unwrap();
    for command in [&["run", "--log"][..], &["stat", "-o"]] {
        let output = perch.run(&[command, &[log, "--", "/no/such/program"]].concat());
        assert_eq!(code(&output), 127, "{output:?}");
        assert_eq!(std::fs::read_to_string(log).unwrap(), "kept");
    }
    let output = perch.run(&["run", "--config", log, "--log", log, "--", "true"]);
    assert_eq!(code(&output), 125);
    assert!(stderr(&output).contains("give another file"), "{output:?}");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "kept");
}

#[test]
fn a_rule_that_was_for_no_thread_is_noted() {
    let perch = Perch::new();
    let rules = [
        "--pin",
        "nosuch=0",
        "--pin",
        "sleep=0",
        "--weight",
        "neither=50",
    ];
    let words = ["--period", "100ms", "--", "sleep", "0.4"];
    let output = perch.run(&[&["run"], &rules[..], &words].concat());
    let text = stderr(&output)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for (rule, noted) in [("nosuch", true), ("neither", true), ("sleep", false)] {
        let note = format!("had a name for the rule '{rule}=");
        assert_eq!(text.contains(&note), noted, "{rule}: {text}");
    }
}

#[test]
fn pin_rules_bind_and_are_undone() {
    let perch = Perch::new();
    // The program prints its mask once it is bound; the last line is the mask while perch still watches.
    let program =
        "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; grep Cpus_allowed_list /proc/$$/status; done";
    let output = perch.run(&[
        "run", "-q", "--period", "100ms", "--pin", "sh=pu:0", "--", "sh", "-c", program,
    ]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let last = stdout(&output).lines().last().unwrap().to_owned();
    assert!(last.ends_with("\t0"), "{last}");
    let wrong = perch.run(&["run", "--pin", "sh=pu:99999", "--", "true"]);
    assert_eq!(code(&wrong), 125);
    assert!(stderr(&wrong).contains("99999"), "{}", stderr(&wrong));
}

#[test]
fn another_machine_is_drawn_and_listed() {
    let perch = Perch::new();
    let text = perch.run(&["topology", "--topology", "package:2 l3:1 core:4 pu:2"]);
    assert_eq!(code(&text), 0, "{}", stderr(&text));
    assert!(
        stdout(&text).lines().all(|line| line.chars().count() <= 80),
        "{}",
        stdout(&text)
    );
    let json = perch.run(&[
        "topology",
        "--topology",
        "package:2 l3:1 core:4 pu:2",
        "--json",
    ]);
    let value: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(value["pus"].as_array().unwrap().len(), 16);
    let wrong = perch.run(&["topology", "--topology", "package:two"]);
    assert_eq!(code(&wrong), 125);
}

#[test]
fn nothing_to_restore_is_no_error() {
    let output = Perch::new().run(&["restore"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn a_process_that_is_not_there_is_told() {
    let output = Perch::new().run(&["attach", "2147483646"]);
    assert_eq!(code(&output), 125);
    assert!(
        stderr(&output).contains("2147483646"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_process_that_has_exited_does_not_keep_perch_from_the_others() {
    let perch = Perch::new();
    let mut sleep = Command::new("sleep").arg("1").spawn().unwrap();
    let here = sleep.id().to_string();
    let output = perch.run(&["attach", "-p", "observe", "2147483646", &here]);
    sleep.wait().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let told = stderr(&output);
    assert!(told.contains("no process 2147483646"), "{told}");
    assert!(told.contains("attaches to the others"), "{told}");
    let none = perch.run(&["attach", "2147483646", "2147483645"]);
    assert_eq!(code(&none), 125);
    assert!(stderr(&none).contains("2147483646"), "{}", stderr(&none));
}

#[test]
fn help_man_and_completions_come_from_one_source() {
    let perch = Perch::new();
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["completions", "bash"],
        &["man"],
    ] {
        let output = perch.run(args);
        assert_eq!(code(&output), 0);
        assert!(stdout(&output).contains("perch"));
    }
    let pages = perch.folder.path().join("share/man/man1");
    assert_eq!(code(&perch.run(&["man", pages.to_str().unwrap()])), 0);
    let page = std::fs::read_to_string(pages.join("perch-run.1")).unwrap();
    let version = concat!("perch ", env!("CARGO_PKG_VERSION"));
    assert!(
        page.contains(version) && page.contains(".SH EXAMPLES"),
        "{page}"
    );
    assert!(
        !page.contains("EXTRA") && !page.contains("\"run 0"),
        "{page}"
    );
    assert!(pages.join("perch.1").exists() && pages.join("perch-lab-run.1").exists());
}

#[test]
fn what_the_environment_says_of_taking_over_is_yes_or_no() {
    let perch = Perch::new();
    let with = |value: &str, args: &[&str]| {
        let mut command = perch.command(args);
        command.env("PERCH_TAKE_OVER", value).output().unwrap()
    };
    let shown = with("true", &["config"]);
    assert!(
        stdout(&shown).contains("take-over = true"),
        "{}",
        stdout(&shown)
    );
    assert!(stdout(&with("0", &["config"])).contains("take-over = false"));
    assert_eq!(code(&with("foo", &["run", "--", "true"])), 2);
    assert_eq!(code(&with("foo", &["config"])), 2);
}

#[test]
fn folders_of_profiles_that_are_named_must_be_there() {
    let perch = Perch::new();
    let with = |folders: &str| {
        let mut command = perch.command(&["profiles"]);
        command.env("PERCH_PROFILES", folders).output().unwrap()
    };
    let here = perch.folder.path().display().to_string();
    for folders in ["", &here] {
        assert_eq!(code(&with(folders)), 0, "{folders}");
    }
    let refused = with(&format!("{here}:/nonexistent"));
    assert_eq!(code(&refused), 125);
    let told = stderr(&refused);
    assert!(
        told.contains("PERCH_PROFILES=") && told.contains("/nonexistent: cannot be read: No such"),
        "{told}"
    );
}

#[test]
fn a_dry_run_on_another_machine_is_replayed_on_that_machine() {
    let perch = Perch::new();
    let log = perch.folder.path().join("run.jsonl");
    let log = log.to_str().unwrap();
    let run = perch.run(&[
        "run",
        "--dry-run",
        "--topology",
        "package:1 core:4 pu:2",
        "--log",
        log,
        "--",
        "sleep",
        "0.1",
    ]);
    assert_eq!(code(&run), 0, "{}", stderr(&run));
    let replayed = perch.run(&["replay", log]);
    assert!(
        stdout(&replayed).contains("package:1 core:4 pu:2"),
        "{}",
        stdout(&replayed)
    );
}

#[test]
fn what_irq_saw_is_recorded_and_leads_to_the_same_plan_again() {
    let perch = Perch::new();
    let (log, again) = (perch.folder.path().join("irq.jsonl"), "again.jsonl");
    let again = perch.folder.path().join(again);
    let (log, again) = (log.to_str().unwrap(), again.to_str().unwrap());
    let seen = perch.run(&["irq", "--interval", "200ms", "--json", "--log", log]);
    assert_eq!(code(&seen), 0, "{}", stderr(&seen));
    let seen: serde_json::Value = serde_json::from_str(&stdout(&seen)).unwrap();
    let rate = |line: &serde_json::Value| line["rate"].as_f64().unwrap();
    let interrupts = seen["interrupts"].as_array().unwrap();
    assert!(interrupts.iter().map(rate).sum::<f64>() > 0.0, "{seen}");
    let seconds = seen["seconds"].as_f64().unwrap();
    assert!((0.1..10.0).contains(&seconds), "{seen}");
    assert!(seen["moves"].is_array() && seen["packages"].is_array());
    assert!(seen["outcomes"].is_null(), "nothing was to be applied");
    let replayed = perch.run(&["replay", log, "--log", again]);
    assert_eq!(code(&replayed), 0, "{}", stderr(&replayed));
    let plans = |path: &str| -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let periods = lines.filter(|line: &serde_json::Value| line["record"] == "period");
        periods.map(|period| period["plan"].clone()).collect()
    };
    let recorded = plans(log);
    assert!(recorded[0].is_object(), "{recorded:?}");
    assert_eq!(recorded, plans(again));
}

#[test]
fn a_simulated_machine_has_no_interrupts_to_balance() {
    let output = Perch::new().run(&[
        "sim",
        "-m",
        "cmt-4x4",
        "-w",
        "cmt-table1",
        "-p",
        "irq",
        "-t",
        "1s",
    ]);
    assert_eq!(code(&output), 125);
    let said = stderr(&output);
    assert!(said.contains("no interrupts to observe"), "{said}");
}

#[test]
fn options_of_a_policy_are_set_on_the_command_line() {
    let perch = Perch::new();
    let with = |option: &str| {
        let args = ["run", "--dry-run", "-p", "workover", "--set", option];
        perch.run(&[&args[..], &["--", "true"]].concat())
    };
    for option in ["variant=paper", "min-activity = 0.2", "patience=3"] {
        let output = with(option);
        assert_eq!(code(&output), 0, "{option}: {}", stderr(&output));
    }
    for (option, hint) in [
        ("varient=paper", "`variant`"),
        ("variant=peper", "paper"),
        ("min_activity=much", "min_activity"),
        ("min_activity=2", "0 to 1"),
        ("patience", "`=`"),
        ("=3", "`=`"),
    ] {
        let output = with(option);
        assert_ne!(code(&output), 0, "{option}");
        let said = stderr(&output);
        assert!(
            said.contains("--set") && said.contains(hint),
            "{option}: {said}"
        );
    }
    // What was set is in force, and told with a recording.
    let log = perch.folder.path().join("log.jsonl");
    let log = log.to_str().unwrap();
    let args = [
        "run",
        "-n",
        "-q",
        "--log",
        log,
        "-p",
        "workover",
        "--set",
        "variant=paper",
    ];
    perch.run(&[&args[..], &["--", "true"]].concat());
    let recorded = std::fs::read_to_string(log).unwrap();
    assert!(
        recorded.lines().next().unwrap().contains("paper"),
        "{recorded}"
    );
}
