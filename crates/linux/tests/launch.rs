//! Programs that are started, and those that cannot be.

mod common;

use common::{alone, launch, machine, shell, until_end};
use perch_core::{Machine, MachineError, Targets};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

fn status_of(script: &str) -> i32 {
    let mut machine = machine();
    machine.launch(&shell(script)).unwrap();
    until_end(&mut machine).1.unwrap()
}

#[test]
fn exit_status_and_signals_are_told_as_wait_does() {
    let _alone = alone();
    assert_eq!(status_of("exit 7"), 7 << 8);
    assert_eq!(status_of("exit 0"), 0);
    assert_eq!(status_of("kill -9 $$") & 0x7f, 9);
}

#[test]
fn the_child_inherits_what_perch_inherited() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out");
    let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let lowered = rustix::process::Rlimit {
        current: Some(300),
        maximum: before.maximum,
    };
    // As long as no machine was opened in this process; others of these tests may have been first.
    rustix::process::setrlimit(rustix::process::Resource::Nofile, lowered).unwrap();
    let mut machine = machine();
    let inherited = perch_linux::limits::inherited_open_files().current;
    let script = |to: &Path| {
        format!(
            "{{ ulimit -Sn; echo $PERCH_TEST_MARK; ps -o pgid= -p $$; ls /proc/self/fd | wc -l; \
             exec grep -E 'Sig(Blk|Ign)' /proc/self/status; }} > {}",
            to.display()
        )
    };
    let mut program = shell(&script(&file));
    program
        .environment
        .push(("PERCH_TEST_MARK".into(), "here".into()));
    machine.launch(&program).unwrap();
    until_end(&mut machine);
    // The same by the standard library's means: nothing of perch's leaks.
    let control = directory.path().join("control");
    let status = std::process::Command::new("sh")
        .args(["-c", &script(&control)])
        .env("PERCH_TEST_MARK", "here")
        .status();
    assert!(status.unwrap().success());
    let lines = |path: &Path| -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    };
    let (mut ours, mut control) = (lines(&file), lines(&control));
    // Signals 32 and 33 are the C library's own affair, which it arranges differently for posix_spawn.
    for out in [&mut ours, &mut control] {
        let ignored = out.pop().unwrap();
        let mask = u64::from_str_radix(ignored.trim_start_matches("SigIgn:\t"), 16).unwrap();
        out.push((mask & 0x7fff_ffff).to_string());
    }
    assert_eq!(ours[0].parse().ok(), inherited);
    assert_eq!(ours[1], "here");
    assert_eq!(ours[1..], control[1..]);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, before).unwrap();
}

#[test]
fn what_cannot_be_started_is_told_as_a_shell_does() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, mode: u32, text: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_string_lossy().into_owned()
    };
    let refusal = |program: &str| machine().launch(&launch(&[program])).unwrap_err();
    assert!(matches!(
        refusal("/no/such/program"),
        MachineError::NotFound { .. }
    ));
    assert!(matches!(
        refusal("no-such-program-anywhere"),
        MachineError::NotFound { .. }
    ));
    assert!(matches!(
        machine().launch(&launch(&[])),
        Err(MachineError::NotFound { .. })
    ));
    for (program, words) in [
        (
            file("data", 0o755, b"\x00\x01\x02\x03 binary"),
            "not a format that this machine executes",
        ),
        (
            file("orphan", 0o755, b"#!/no/such/interpreter\n"),
            "interpreter /no/such/interpreter does not exist",
        ),
        (file("plain", 0o644, b"#!/bin/sh\n"), "chmod +x"),
        (directory.path().to_string_lossy().into_owned(), "directory"),
    ] {
        let error = refusal(&program);
        assert!(
            matches!(&error, MachineError::NotExecutable { why, .. } if why.contains(words)),
            "{error}"
        );
    }
}

#[test]
fn a_script_without_interpreter_line_runs_in_the_shell() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    fs::write(&script, "exit $(($1 + 1))\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut machine = machine();
    machine
        .launch(&launch(&[script.to_str().unwrap(), "41"]))
        .unwrap();
    assert_eq!(until_end(&mut machine).1, Some(42 << 8));
}

#[test]
fn one_machine_follows_one_program() {
    let _alone = alone();
    let mut machine = machine();
    machine.launch(&launch(&["true"])).unwrap();
    assert!(machine.launch(&launch(&["true"])).is_err());
    assert_eq!(until_end(&mut machine).1, Some(0));
}

/// However long perch takes before it starts the program.
#[test]
fn what_pus_did_before_the_program_is_not_counted() {
    let _alone = alone();
    let mut machine = machine();
    machine.watch_pus(true).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    machine.launch(&shell("exit 0")).unwrap();
    while !matches!(
        machine.wait(Duration::from_secs(1)).unwrap(),
        perch_core::Wake::Ended(_)
    ) {}
    let seen = machine.observe().unwrap();
    let took = start.elapsed().as_nanos() as u64;
    assert!(!seen.pus.is_empty());
    assert!(
        seen.pus.iter().all(|pu| pu.interval <= took),
        "{took}: {:?}",
        seen.pus
    );
}
