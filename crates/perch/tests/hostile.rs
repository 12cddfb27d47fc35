//! Names that a terminal would obey: a thread may choose its name, and a file may hold anything.

use std::{
    fs,
    process::{Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// Two threads with such names (the kernel keeps 15 bytes), busy for a while.
const NAMES: [&[u8]; 3] = [
    b"\x1b]0;x\x07\0",
    b"\x1b[2Jgone\0",
    b"\xc2\x9b2J\xe2\x80\xae\0",
];

/// Not a test: the program that runs under perch.
#[test]
#[ignore = "the program of the other test"]
fn program() {
    let threads = NAMES.map(|name| {
        thread::spawn(move || {
            // SAFETY: a C string.
            unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
            let start = std::time::Instant::now();
            let mut x = 1_u64;
            while start.elapsed() < Duration::from_millis(1200) {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Two perches would want the same PUs.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn perch(folder: &std::path::Path, args: &[&str]) -> Output {
    let _alone = alone();
    Command::new(env!("CARGO_BIN_EXE_perch"))
        .args(args)
        .env("PERCH_STATE_DIR", folder.join("state"))
        .env("XDG_CONFIG_HOME", folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// What was printed, without anything that a terminal would obey.
fn harmless(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(both).unwrap();
    let bad = |c: char| perch_core::text::acts(c) && c != '\n' && c != '\t';
    assert!(!text.contains(bad), "{text:?}");
    text
}

#[test]
fn names_of_threads_are_shown_and_not_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let log = log.to_str().unwrap();
    let own = std::env::current_exe().unwrap();
    let program = [
        "--",
        own.to_str().unwrap(),
        "--ignored",
        "--exact",
        "program",
        "--nocapture",
    ];
    let run = |flags: &[&str]| {
        let args = [
            &["run", "--period", "100ms", "--pin", "*=pu:0"],
            flags,
            &program,
        ]
        .concat();
        let output = perch(folder.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        harmless(&output)
    };
    for shown in [
        run(&["--explain", "--log", log]),
        run(&["--live"]),
        run(&["--json"]),
        harmless(&perch(folder.path(), &["replay", log, "--explain"])),
        harmless(&perch(folder.path(), &["replay", log, "--json"])),
    ] {
        assert!(shown.contains("x1b[2Jgone"), "{shown}");
    }
    // A recording that somebody else has written.
    let text = fs::read_to_string(log).unwrap();
    let wild = text.replace("\\\\x1b[2Jgone", "\\u001b[2Jgone");
    assert_ne!(text, wild);
    fs::write(log, wild).unwrap();
    let shown = harmless(&perch(folder.path(), &["replay", log, "--explain"]));
    assert!(shown.contains("\\x1b[2Jgone"), "{shown}");
}

#[test]
fn errors_do_not_carry_what_files_hold() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.toml");
    fs::write(&config, "policy = \"\\u001b[2J\"\n\x1b = 3\n").unwrap();
    let config = config.to_str().unwrap();
    let output = perch(folder.path(), &["run", "--config", config, "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    harmless(&output);
    fs::write(config, "policy = \"\\u001b[2J\"\n").unwrap();
    harmless(&perch(
        folder.path(),
        &["run", "--config", config, "--", "true"],
    ));
    harmless(&perch(
        folder.path(),
        &["sim", "-p", "\x1b[2J", "-m", "\x1b]0;x\x07"],
    ));
}

/// The refusal to attach names the process, which belongs to another user.
#[test]
fn the_refusal_to_attach_is_harmless() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: another user's process needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let own = fs::read(env!("CARGO_BIN_EXE_perch")).unwrap();
    // Where everybody may execute it.
    let copy = std::env::temp_dir().join(format!("perch-{}", std::process::id()));
    fs::write(&copy, own).unwrap();
    fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "named"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(500));
    let output = std::os::unix::process::CommandExt::uid(&mut Command::new(&copy), 65534)
        .args(["attach", &program.id().to_string()])
        .env("PERCH_STATE_DIR", "/tmp/perch-65534-test")
        .env("HOME", "/nonexistent")
        .current_dir("/")
        .output();
    program.kill().unwrap();
    program.wait().unwrap();
    fs::remove_file(&copy).unwrap();
    let _ = fs::remove_dir_all("/tmp/perch-65534-test");
    let shown = harmless(&output.unwrap());
    assert!(shown.contains("\\x1b[2Jgone"), "{shown}");
    assert!(shown.contains("0750"), "{shown}");
    drop(folder);
}

/// Not a test: a process with such a name.
#[test]
#[ignore = "the program of the other test"]
fn named() {
    let pid = std::process::id();
    fs::write(format!("/proc/{pid}/comm"), "\x1b[2Jgone").unwrap();
    thread::sleep(Duration::from_secs(20));
}

/// The tables of `--live` are on the program's terminal, whose lines stay there.
#[test]
fn what_a_program_prints_stays_between_the_tables() {
    let folder = tempfile::tempdir().unwrap();
    let printed = folder.path().join("printed");
    let program = "for n in 1 2 3 4 5; do echo line-$n; sleep 0.3; done";
    let command = format!(
        "'{}' run --live --period 100ms -- sh -c '{program}'",
        env!("CARGO_BIN_EXE_perch")
    );
    let _alone = alone();
    // A terminal (script(1)), of which all is kept.
    let output = Command::new("script")
        .args(["-qec", &command])
        .arg(&printed)
        .env("PERCH_STATE_DIR", folder.path().join("state"))
        .env("XDG_CONFIG_HOME", folder.path())
        .env("TERM", "xterm-256color")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut screen = vt100::Parser::new(
        std::num::NonZero::new(1000).unwrap(),
        std::num::NonZero::new(200).unwrap(),
        0,
    );
    screen.process(&fs::read(&printed).unwrap());
    let shown = screen.screen().contents();
    for n in 1..=5 {
        assert!(shown.contains(&format!("line-{n}")), "line-{n}:\n{shown}");
    }
    assert!(shown.matches("bound to").count() > 3, "{shown}");
}
