//! `perch irq` and the policy `irq` for users who may not move interrupts.

use perch_skip::skip;
use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Output},
    time::{Duration, Instant},
};

/// perch as an ordinary user, from a folder that this user can read.
fn as_nobody(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = folder.path().join("perch");
    fs::copy(env!("CARGO_BIN_EXE_perch"), &copy).unwrap();
    let mut perch = Command::new(&copy);
    perch
        .args(args)
        .current_dir(folder.path())
        .env_clear()
        .env("PERCH_STATE_DIR", folder.path().join("state"))
        .env("XDG_RUNTIME_DIR", folder.path());
    perch.uid(65534).gid(65534).output().unwrap()
}

#[test]
fn who_may_move_no_interrupt_is_told_so_at_once() {
    if !rustix::process::geteuid().is_root() {
        return skip!(Root, "another user's perch cannot be started");
    }
    if fs::read_dir("/proc/irq").is_ok_and(|folder| folder.count() < 2) {
        eprintln!("this machine has no interrupts");
        return;
    }
    let start = Instant::now();
    let output = as_nobody(&["irq", "--apply", "--for", "10m"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("only root can move interrupts"), "{said}");
    assert!(output.stdout.is_empty());
    assert!(start.elapsed() < Duration::from_secs(60));

    let output = as_nobody(&["run", "-p", "irq", "--", "sleep", "0.2"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words
            .matches("only root can move interrupts: none is moved")
            .count(),
        1,
        "{said}"
    );
}
