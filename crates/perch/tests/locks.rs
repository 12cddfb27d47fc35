//! Two perch at once: the second one observes, or fails if it was asked for a policy, unless it is another user's; root's
//! goes before.
//!
//! Each test has a `/run` of its own, in a mount namespace, so that nothing else on the machine plays a part.

use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixDatagram},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Said by a perch that found a PU locked.
const OBSERVES: &str = "this one only observes";

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root, for a mount namespace and two users");
    }
    root
}

/// A mount namespace with an empty `/run`, in which commands are executed.
struct World {
    folder: tempfile::TempDir,
    holder: Child,
    seconds: AtomicUsize,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder.path(), everybody.clone()).unwrap();
        let perch = folder.path().join("perch");
        fs::copy(env!("CARGO_BIN_EXE_perch"), &perch).unwrap();
        fs::set_permissions(&perch, everybody).unwrap();
        let ready = folder.path().join("ready");
        // Two users have a directory for their locks there; others take /tmp.
        let script = "mount -t tmpfs -o mode=755 tmpfs /run && for user in 65533 65534; do mkdir -p /run/user/$user && \
                      chown $user /run/user/$user || exit; done && touch \"$1\" && exec sleep 1000";
        let holder = Command::new("unshare")
            .args(["-m", "sh", "-c", script, "sh"])
            .arg(&ready)
            .spawn()
            .unwrap();
        let world = Self {
            folder,
            holder,
            seconds: AtomicUsize::new(0),
        };
        until(|| ready.exists());
        world
    }

    /// A command in that namespace.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()))
            .arg(program)
            .args(args)
            .current_dir("/")
            .env("XDG_CONFIG_HOME", self.folder.path().join("config"))
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::null());
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// perch, which keeps its journal at a place of its own.
    fn perch(&self, journal: &str, prefix: &[&str], args: &[&str]) -> Command {
        let perch = self.path("perch");
        let words = [prefix, &[perch.to_str().unwrap()], args].concat();
        let mut command = self.command(words[0], &words[1..]);
        command.env("PERCH_STATE_DIR", self.path(journal));
        command
    }

    /// A perch that binds a program, already at work.
    fn at_work(&self, journal: &str, prefix: &[&str]) -> Working {
        let mask = self.path(&format!("mask-of-{journal}"));
        // Tells when it is bound.
        let script = "until grep -q 'Cpus_allowed_list:.0$' /proc/$$/status; do sleep 0.05; done; echo >\"$1\"; \
                      exec sleep 1000";
        let mut args = vec!["run", "-q", "--period", "100ms", "--policy", "fixed"];
        args.extend(["--pin", "*=pu:0", "--", "sh", "-c", script, "sh"]);
        args.push(mask.to_str().unwrap());
        let mut command = self.perch(journal, prefix, &args);
        // A group of its own, so that the program does not outlive it.
        let child = command.process_group(0).spawn().unwrap();
        let working = Working(child);
        until(|| mask.exists());
        working
    }

    /// What a second perch of the default policy says.
    fn second(&self, prefix: &[&str]) -> String {
        told(&self.other(prefix, &["run", "--", "true"]))
    }

    /// A second perch.
    fn other(&self, prefix: &[&str], args: &[&str]) -> Output {
        // Another user has another journal.
        let journal = format!("second-{}", self.seconds.fetch_add(1, Ordering::Relaxed));
        self.perch(&journal, prefix, args).output().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

struct Working(Child);

impl Working {
    /// Kills perch itself, and leaves its program to the end of the test.
    fn kill_perch(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

fn told(output: &Output) -> String {
    let text = words(output);
    assert!(output.status.success(), "{text}");
    text
}

/// Standard error without the wrapping of lines.
fn words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn until(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "never");
        thread::sleep(Duration::from_millis(20));
    }
}

/// As an ordinary user.
const USER: &[&str] = &[
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
];

#[test]
fn the_second_perch_observes_and_says_so() {
    if !root() {
        return;
    }
    let world = World::new();
    let mut first = world.at_work("first", &[]);
    let told = world.second(&[]);
    assert!(told.contains(OBSERVES), "{told}");
    assert!(told.contains("places threads on PUs 0"), "{told}");
    assert!(told.contains("another perch (PID "), "{told}");
    assert!(told.contains("perch run -q"), "{told}");
    // A policy that is asked for and cannot act is an error.
    for asked in [
        &["--policy", "workover"][..],
        &["--policy", "fixed", "--pin", "*=pu:0"],
        &["--pin", "*=pu:0"],
    ] {
        let args = [&["run"], asked, &["--", "true"]].concat();
        let output = world.other(&[], &args);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let said = words(&output);
        assert!(said.contains("cannot act: another perch (PID "), "{said}");
    }
    let args = ["run", "--policy", "observe", "--", "true"];
    assert!(!self::told(&world.other(&[], &args)).contains(OBSERVES));
    // A network namespace, where abstract sockets are others, is the same machine.
    let told = world.second(&["unshare", "-n"]);
    assert!(told.contains(OBSERVES), "{told}");
    // So it is for an ordinary user.
    let told = world.second(USER);
    assert!(told.contains(OBSERVES), "{told}");
    first.kill_perch();
    let told = world.second(&[]);
    assert!(!told.contains(OBSERVES), "{told}");
}

#[test]
fn a_second_perch_does_not_compare_what_it_could_only_observe() {
    if !root() {
        return;
    }
    let world = World::new();
    let mut first = world.at_work("first", &[]);
    let compare = |policy| {
        let mark = world.path("mark");
        let args = [
            "compare",
            "-N",
            "1",
            "--prepare",
            "true",
            "-p",
            policy,
            "--",
            "touch",
        ];
        let args = [&args[..], &[mark.to_str().unwrap()]].concat();
        let output = world.perch("second", &[], &args).output().unwrap();
        (output.status.code(), output.stderr, mark.exists())
    };
    let (code, said, ran) = compare("cpi");
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(code, Some(125), "{said}");
    assert!(
        said.contains("another perch (PID ") && said.contains(") places threads on PUs 0") && !ran,
        "{said}"
    );
    // That is what `observe` does anyway.
    let (code, said, ran) = compare("observe");
    assert!(code == Some(0) && ran, "{}", String::from_utf8_lossy(&said));
    first.kill_perch();
    assert_eq!(compare("cpi").0, Some(0));
}

#[test]
fn weights_are_given_by_one_perch_even_if_each_has_its_own_pus() {
    if !root() {
        return;
    }
    let world = World::new();
    let first = world.path("niced");
    let script = "until [ $(cut -d' ' -f19 /proc/$$/stat) = 3 ]; do sleep 0.05; done; echo >\"$1\"; exec sleep 1000";
    let args = ["run", "-q", "--period", "100ms", "--policy", "fixed"];
    let niced = ["--weight", "*=50", "--pus", "0", "--", "sh", "-c", script];
    let args = [&args[..], &niced, &["sh", first.to_str().unwrap()]].concat();
    let mut command = world.perch("first", &[], &args);
    let mut first_perch = Working(command.process_group(0).spawn().unwrap());
    until(|| first.exists());
    let weigh = |pus| {
        let args = ["run", "--policy", "fixed", "--weight", "*=20", "--pus", pus];
        let args = [&args[..], &["--", "true"]].concat();
        world.perch("second", &[], &args).output().unwrap()
    };
    // A machine of one PU has none left for a perch of its own.
    if std::thread::available_parallelism().unwrap().get() > 1 {
        let refused = weigh("1");
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        let said = words(&refused);
        assert!(said.contains("gives threads CPU weights"), "{said}");
    }
    first_perch.kill_perch();
    told(&weigh("0"));
}

#[test]
fn another_user_is_in_nobody_s_way() {
    if !root() {
        return;
    }
    let world = World::new();
    let _first = world.at_work("first", USER);
    // The same user, with a network namespace of his own or not.
    let told = world.second(USER);
    assert!(told.contains(OBSERVES), "{told}");
    for prefix in [
        &[][..],
        &[
            "setpriv",
            "--reuid=65533",
            "--regid=65533",
            "--clear-groups",
        ],
    ] {
        let told = world.second(prefix);
        assert!(!told.contains(OBSERVES), "{told}");
        assert!(!told.contains("no lock"), "{told}");
    }
}

#[test]
fn the_runtime_folder_of_another_user_is_passed_over() {
    if !root() {
        return;
    }
    let world = World::new();
    // As `su` without `-` leaves it.
    let prefix = [
        &[
            "env",
            "-u",
            "PERCH_STATE_DIR",
            "XDG_RUNTIME_DIR=/run/user/65533",
        ],
        USER,
    ]
    .concat();
    let told = world.second(&prefix);
    assert!(!told.contains("no lock"), "{told}");
    let mut look = world.command("stat", &["-c", "%u", "/run/user/65534/perch"]);
    let seen = look.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "65534\n");
}

/// Not a test: takes the names of the sockets that once were locks, another user's directory in /tmp, and root's file if it
/// can.
#[test]
#[ignore = "the process of the next test"]
fn squatter() {
    let path = |name| PathBuf::from(std::env::var_os(name).expect("the test's"));
    let bind = |pu: u32| {
        let name = SocketAddr::from_abstract_name(format!("perch-pu-{pu}")).unwrap();
        UnixDatagram::bind_addr(&name).unwrap()
    };
    let _sockets: Vec<UnixDatagram> = (0..64).map(bind).collect();
    fs::create_dir(path("TEST_TEMPORARY")).unwrap();
    let file = "/run/perch/pus.lock";
    let read = fs::File::open(file).is_ok();
    let opened = read || fs::File::options().write(true).open(file).is_ok();
    let made = path("TEST_MADE");
    let text = if opened { "opened" } else { "refused" };
    fs::write(made.with_extension("new"), text).unwrap();
    fs::rename(made.with_extension("new"), made).unwrap();
    thread::sleep(Duration::from_secs(1000));
}

#[test]
fn a_squatter_changes_nothing() {
    if !root() {
        return;
    }
    let world = World::new();
    let temporary = Path::new("/tmp/perch-65532");
    // Of a test that was broken off.
    let _ = fs::remove_dir(temporary);
    let made = world.path("squatted");
    let program = world.path("squatter");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    // So that the file is there.
    let told = world.second(&[]);
    assert!(!told.contains(OBSERVES), "{told}");
    let words = [&["-n"], USER, &[program.to_str().unwrap()]].concat();
    let mut squat = world.command("unshare", &words);
    squat.args(["--exact", "squatter", "--ignored"]);
    squat
        .env("TEST_MADE", &made)
        .env("TEST_TEMPORARY", temporary);
    let squatter = Working(squat.process_group(0).spawn().unwrap());
    until(|| made.exists());
    assert_eq!(fs::read_to_string(&made).unwrap(), "refused");
    let inside = format!("--net=/proc/{}/ns/net", squatter.0.id());
    let told = world.second(&["nsenter", &inside]);
    assert!(!told.contains(OBSERVES), "{told}");
    assert!(!told.contains("no lock"), "{told}");
    // The user whose directory was taken goes on without a lock, and is told what to do.
    let other = [
        "setpriv",
        "--reuid=65532",
        "--regid=65532",
        "--clear-groups",
    ];
    let told = world.second(&other);
    assert!(!told.contains(OBSERVES), "{told}");
    assert!(told.contains("no lock against another perch"), "{told}");
    assert!(told.contains("set XDG_RUNTIME_DIR"), "{told}");
    fs::remove_dir(temporary).unwrap();
}

#[test]
fn without_a_place_for_locks_perch_goes_on_and_says_so() {
    if !root() {
        return;
    }
    let world = World::new();
    let mut read_only = world.command("mount", &["-o", "remount,ro", "/run"]);
    assert!(read_only.status().unwrap().success());
    let told = world.second(&[]);
    assert!(!told.contains(OBSERVES), "{told}");
    assert!(told.contains("no lock against another perch"), "{told}");
    assert!(told.contains("/run/perch"), "{told}");
}

#[test]
fn the_directory_lets_others_see_which_file_it_is() {
    if !root() {
        return;
    }
    let world = World::new();
    let _first = world.at_work("first", &[]);
    let mut look = world.command(
        "stat",
        &["-c", "%a %u", "/run/perch", "/run/perch/pus.lock"],
    );
    let seen = look.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "755 0\n600 0\n");
}
