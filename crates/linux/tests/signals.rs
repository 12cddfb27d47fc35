//! A fault in perch itself ends it like any program. perch does not invent an exit status that another part of the
//! process has already reaped.

mod common;

use common::{alone, launch, machine, until_end};
use perch_core::Targets;
use perch_linux::signals::Signals;
use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

/// Recurses until the stack is full.
#[allow(unconditional_recursion)]
fn deeper(depth: u64) -> u64 {
    let room = [depth; 100];
    std::hint::black_box(&room);
    deeper(depth + 1) + std::hint::black_box(room[7])
}

/// Not a test: the program that the next one starts.
#[test]
#[ignore = "the program of the other test"]
fn faults() {
    let _signals = Signals::catch().unwrap();
    match std::env::var("PERCH_TEST_FAULT").unwrap().as_str() {
        // SAFETY: no valid address; this process is to die of it.
        "segv" => unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) },
        "abort" => std::process::abort(),
        "overflow" => {
            deeper(0);
        }
        // SAFETY: sends a signal to this process.
        "raise" => unsafe {
            libc::raise(libc::SIGSEGV);
            libc::raise(libc::SIGILL);
        },
        other => panic!("{other}"),
    }
}

#[test]
fn a_fault_of_its_own_ends_the_process() {
    let _alone = alone();
    for (fault, signal, said) in [
        ("segv", libc::SIGSEGV, ""),
        ("abort", libc::SIGABRT, ""),
        ("overflow", libc::SIGABRT, "has overflowed its stack"),
        ("raise", libc::SIGSEGV, ""),
    ] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "faults", "--nocapture"])
            .env("PERCH_TEST_FAULT", fault)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.signal(), Some(signal), "{fault}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(said), "{fault}: {text}");
    }
}

#[test]
fn a_status_that_other_code_has_reaped_is_not_known() {
    let _alone = alone();
    let mut machine = machine();
    let pid = machine.launch(&launch(&["false"])).unwrap();
    // SAFETY: reaps a child of this process.
    assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
    assert_eq!(until_end(&mut machine).1, None);
}
