//! A program whose memory may not be read, and a FIFO under the name of a library that it has mapped: perch reads code
//! from files there, and must not wait at the FIFO.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Computes with nothing but its own code, and once the FIFO is there with the library's.
const PROGRAM: &str = "
    my ($start, $x) = (time, 1);
    while (time - $start < 4) { for (1 .. 100_000) { $x = ($x * 5 + 1) % 1_000_003 } }
    while (time - $start < 8) { for (1 .. 100_000) { $x += sin($x) } }
";

/// Starts that program and puts the FIFO there.
const SCRIPT: &str = "
    mkfifo \"$2.fifo\"
    LD_PRELOAD=\"$2\" \"$1\" -e \"$3\" &
    sleep 2
    mv -f \"$2.fifo\" \"$2\"
    wait
    echo the program is done >&2
";

/// perch as an ordinary user who may sample whole CPUs, and so also threads whose memory is closed to him.
const USER: &[&str] = &[
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=+perfmon",
    "--ambient-caps=+perfmon",
];

fn copy(from: &str, to: &Path, mode: u32) {
    fs::copy(from, to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).unwrap();
}

/// The mathematical library that Perl is linked with.
fn library() -> String {
    let output = Command::new("ldd").arg("/usr/bin/perl").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("libm.so"));
    let path = line.and_then(|line| line.split_whitespace().nth(2));
    path.expect("Perl is linked with libm").to_owned()
}

fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < patience {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

#[test]
fn a_fifo_for_a_library_does_not_hold_perch_up() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, for a user with CAP_PERFMON");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = |name| folder.path().join(name);
    let (perch, program, libm) = (path("perch"), path("hidden"), path("libm.so.6"));
    copy(env!("CARGO_BIN_EXE_perch"), &perch, 0o755);
    copy(&library(), &libm, 0o755);
    // What may not be read has memory that may not be read.
    copy("/usr/bin/perl", &program, 0o711);
    let mut child = Command::new("setpriv")
        .args(USER)
        .arg(&perch)
        .args(["run", "--counters", "sampling", "--policy", "observe", "--"])
        .args(["sh", "-c", SCRIPT, "sh"])
        .args([&program, &libm])
        .arg(PROGRAM)
        .env("PERCH_STATE_DIR", path("state"))
        .env("XDG_CONFIG_HOME", path("config"))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(path("told")).unwrap())
        .spawn()
        .unwrap();
    let status = wait(&mut child, Duration::from_secs(60));
    let told = fs::read_to_string(path("told")).unwrap();
    let status = status.unwrap_or_else(|| panic!("perch waits for ever: {told}"));
    assert!(status.success(), "{status}: {told}");
    assert!(told.contains("the program is done"), "{told}");
    assert!(told.contains("on each busy CPU"), "{told}");
}
