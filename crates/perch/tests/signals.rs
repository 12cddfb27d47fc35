//! Signals: none that can be caught ends perch without giving masks back, and the program gets those that are for it.

use std::{
    fs,
    os::fd::AsRawFd,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

/// Signals that ask to stop.
const STOP: [i32; 13] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// Signals that are for the program, besides the real-time ones.
const PASSED: [i32; 8] = [
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];

/// Writes down each signal that it gets, until a file tells it to end; then ends with status 7.
const PROGRAM: &str = r#"
cd "$1" || exit 1
for s in {1..64}; do
    case $s in 9|1[789]|2[0-2]|28|32|33) ;; *) trap "echo $s >> got" $s ;; esac
done
echo $$ > pid
while [ ! -e end ]; do sleep 0.05; eval "$2"; done
exit 7
"#;

fn one() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same for a test in which a thread is bound, which cannot be where there is only one PU to be on.
fn one_that_binds() -> Option<MutexGuard<'static, ()>> {
    if status(std::process::id(), "Cpus_allowed_list") == "0" {
        eprintln!("skipped: this machine has one PU only");
        return None;
    }
    Some(one())
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let due = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < due, "{what}");
        sleep(Duration::from_millis(10));
    }
}

fn send(pid: u32, signal: i32) {
    // SAFETY: sends a signal to a child of this test that is not reaped.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

/// A line of a process' status.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default()
        .trim_start_matches(':')
        .trim()
        .to_owned()
}

/// perch with the program, whose thread it binds.
struct Run {
    folder: tempfile::TempDir,
    perch: Child,
    program: u32,
    /// The program's mask before.
    before: String,
}

impl Run {
    /// Starts the program under perch, and waits until it is bound.
    fn new(each_time: &str) -> Self {
        let mut run = Self::prepare();
        run.perch = run.command(&["run"], each_time).spawn().unwrap();
        run.find_program();
        run.await_bound();
        run
    }

    fn prepare() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            perch: Command::new("true").spawn().unwrap(),
            program: 0,
            before: status(std::process::id(), "Cpus_allowed_list"),
        }
    }

    fn perch(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perch"));
        command
            .args(args)
            .args(["--period", "50ms", "--pin", "bash=pu:0"])
            .env("PERCH_STATE_DIR", self.folder.path().join("state"))
            .env("XDG_CONFIG_HOME", self.folder.path())
            .stdin(Stdio::null())
            .stderr(fs::File::create(self.path("stderr")).unwrap());
        // Started by nohup(1) or in the background of a shell, this test ignores some of them, and perch would too.
        let defaults = || {
            for signal in STOP {
                // SAFETY: asks for the default, as no handler of this process is installed.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe { command.pre_exec(defaults) };
        command
    }

    fn command(&self, args: &[&str], each_time: &str) -> Command {
        let mut command = self.perch(args);
        command.arg("--").args(self.program(each_time));
        command
    }

    fn program(&self, each_time: &str) -> [String; 6] {
        let folder = self.folder.path().display().to_string();
        ["bash", "-c", PROGRAM, "bash", &folder, each_time].map(str::to_owned)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn find_program(&mut self) {
        let file = self.path("pid");
        let pid = || fs::read_to_string(&file).ok()?.trim().parse::<u32>().ok();
        eventually("the program does not start", || pid().is_some());
        self.program = pid().unwrap();
    }

    fn mask(&self) -> String {
        status(self.program, "Cpus_allowed_list")
    }

    fn await_bound(&self) {
        eventually(&format!("not bound: {}", self.said()), || {
            self.mask() == "0"
        });
    }

    fn await_restored(&self) {
        eventually(&format!("still bound: {}", self.said()), || {
            self.mask() == self.before
        });
    }

    fn said(&self) -> String {
        fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }

    /// The signals that the program got.
    fn got(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.path("got")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn lives(&mut self) -> bool {
        self.perch.try_wait().unwrap().is_none()
    }

    /// Ends the program; perch's exit code.
    fn end(&mut self) -> Option<i32> {
        fs::write(self.path("end"), "").unwrap();
        let code = self.perch.wait().unwrap().code();
        assert_eq!(journals(&self.path("state")), 0);
        code
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::write(self.path("end"), "");
        let _ = self.perch.kill();
        let _ = self.perch.wait();
    }
}

fn journals(state: &Path) -> usize {
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "journal"))
        .count()
}

#[test]
fn a_signal_that_asks_to_stop_gives_masks_back_and_reaches_the_program() {
    let Some(_one) = one_that_binds() else {
        return;
    };
    for signal in STOP {
        let mut run = Run::new("");
        send(run.perch.id(), signal);
        run.await_restored();
        eventually(&format!("signal {signal} is not passed on"), || {
            run.got() == [signal]
        });
        assert!(run.lives(), "signal {signal}");
        // Neither a second one nor any of the others ends perch while it waits for the program.
        send(run.perch.id(), libc::SIGTERM);
        send(run.perch.id(), libc::SIGUSR1);
        eventually("a later signal is not passed on", || {
            let got = &run.got()[1..];
            got.contains(&libc::SIGTERM) && got.contains(&libc::SIGUSR1)
        });
        assert_eq!(run.mask(), run.before);
        assert_eq!(run.end(), Some(7), "signal {signal}: {}", run.said());
    }
}

#[test]
fn a_signal_for_the_program_reaches_it_and_perch_goes_on_placing() {
    let Some(_one) = one_that_binds() else {
        return;
    };
    let mut run = Run::new("");
    let mut sent = Vec::new();
    for signal in PASSED
        .into_iter()
        .chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
    {
        send(run.perch.id(), signal);
        sent.push(signal);
        eventually(&format!("signal {signal} is not passed on"), || {
            run.got() == sent
        });
        assert!(run.lives(), "signal {signal}");
    }
    // The C library's own: nothing can be made of them, but they must not kill.
    for signal in [32, 33] {
        send(run.perch.id(), signal);
    }
    sleep(Duration::from_millis(200));
    assert!(run.lives(), "signal 32 or 33");
    assert_eq!(run.mask(), "0");
    assert_eq!(run.end(), Some(7), "{}", run.said());
}

#[test]
fn what_a_terminal_sends_to_the_whole_group_is_not_passed_on() {
    let Some(_one) = one_that_binds() else {
        return;
    };
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        let mut run = Run::new("");
        // A signal of the kernel's: that of a pipe that can be read from.
        let (read, write) = rustix::pipe::pipe().unwrap();
        // SAFETY: sets the pipe's owner, its signal and flags.
        unsafe {
            let fd = read.as_raw_fd();
            assert_eq!(
                libc::fcntl(fd, libc::F_SETOWN, run.perch.id() as libc::c_int),
                0
            );
            assert_eq!(libc::fcntl(fd, 10, signal), 0);
            assert_eq!(libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC), 0);
        }
        rustix::io::write(&write, b"x").unwrap();
        run.await_restored();
        // What comes later shows that the first was not only late.
        send(run.perch.id(), libc::SIGHUP);
        eventually("the hang-up is not passed on", || {
            run.got().contains(&libc::SIGHUP)
        });
        assert_eq!(run.got(), [libc::SIGHUP]);
        assert_eq!(run.end(), Some(7));
    }
}

#[test]
fn what_the_program_sends_does_not_come_back() {
    let Some(_one) = one_that_binds() else {
        return;
    };
    let mut run = Run::new("if [ -e ask ]; then rm ask; kill -USR1 $PPID; kill -TERM $PPID; fi");
    fs::write(run.path("ask"), "").unwrap();
    run.await_restored();
    send(run.perch.id(), libc::SIGUSR2);
    eventually("USR2 is not passed on", || !run.got().is_empty());
    assert_eq!(run.got(), [libc::SIGUSR2]);
    assert_eq!(run.end(), Some(7));
}

#[test]
fn attached_perch_stops_or_goes_on() {
    let Some(_one) = one_that_binds() else {
        return;
    };
    for signal in [libc::SIGTERM, libc::SIGQUIT, libc::SIGSEGV, libc::SIGXCPU] {
        let mut run = Run::prepare();
        let words = run.program("");
        let mut program = Command::new(&words[0]).args(&words[1..]).spawn().unwrap();
        run.find_program();
        run.perch = run
            .perch(&["attach", &run.program.to_string()])
            .spawn()
            .unwrap();
        run.await_bound();
        for passed in PASSED {
            send(run.perch.id(), passed);
        }
        sleep(Duration::from_millis(200));
        assert!(run.lives());
        assert_eq!(run.mask(), "0");
        send(run.perch.id(), signal);
        run.await_restored();
        assert!(run.perch.wait().unwrap().code().is_some());
        assert_eq!(run.got(), []);
        assert!(run.said().contains("SIGUSR1 is ignored"), "{}", run.said());
        assert_eq!(run.end(), run.perch.wait().unwrap().code());
        assert_eq!(program.wait().unwrap().code(), Some(7));
    }
}

/// Waits until perch catches a signal; early enough that it has not launched the program yet.
fn await_caught(pid: u32, signal: i32) {
    let caught = || {
        let mask = u64::from_str_radix(&status(pid, "SigCgt"), 16).unwrap_or_default();
        mask >> (signal - 1) & 1 == 1
    };
    let due = Instant::now() + Duration::from_secs(30);
    while !caught() {
        assert!(Instant::now() < due, "signal {signal} is never caught");
    }
}

#[test]
fn signals_that_come_before_the_program_are_not_lost() {
    let _one = one();
    let start = || {
        let run = Run::prepare();
        let mut perch = run.perch(&["run"]);
        let perch = perch.args(["--", "sleep", "20"]).spawn().unwrap();
        (run, perch)
    };
    // (what is sent, the exit code): the program has no handler, so it ends of what it gets.
    for (signal, code) in [(libc::SIGUSR1, 138), (libc::SIGRTMIN() + 2, 164)] {
        let (_run, mut perch) = start();
        await_caught(perch.id(), signal);
        send(perch.id(), signal);
        assert_eq!(perch.wait().unwrap().code(), Some(code));
    }
    // Whenever a request to stop comes, no program goes on after it.
    for delay in (0..300).step_by(20) {
        let (_run, mut perch) = start();
        sleep(Duration::from_millis(delay));
        send(perch.id(), libc::SIGTERM);
        let start = Instant::now();
        let ended = perch.wait().unwrap();
        let by_signal = std::os::unix::process::ExitStatusExt::signal(&ended);
        assert!(
            ended.code() == Some(143) || by_signal == Some(15),
            "{ended:?} after {delay} ms"
        );
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn perch_irq_ignores_what_means_nothing_to_it() {
    let run = Run::prepare();
    let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"))
        .args(["irq", "--interval", "1s"])
        .stdout(Stdio::null())
        .stderr(fs::File::create(run.path("stderr")).unwrap())
        .spawn()
        .unwrap();
    await_caught(perch.id(), libc::SIGUSR1);
    send(perch.id(), libc::SIGUSR1);
    send(perch.id(), libc::SIGUSR2);
    assert_eq!(perch.wait().unwrap().code(), Some(0));
    assert_eq!(
        run.said().matches("is ignored").count(),
        1,
        "{}",
        run.said()
    );
}

#[test]
fn perch_irq_says_that_it_was_stopped_before_it_had_anything_to_show() {
    let run = Run::prepare();
    let perch = Command::new(env!("CARGO_BIN_EXE_perch"))
        .args(["irq", "--interval", "1h"])
        .stdout(fs::File::create(run.path("stdout")).unwrap())
        .stderr(fs::File::create(run.path("stderr")).unwrap())
        .spawn();
    let mut perch = perch.unwrap();
    await_caught(perch.id(), libc::SIGINT);
    send(perch.id(), libc::SIGINT);
    assert_eq!(perch.wait().unwrap().code(), Some(130));
    let said = run.said();
    assert!(said.contains("stopped by SIGINT"), "{said}");
    assert_eq!(fs::read(run.path("stdout")).unwrap(), b"");
}

/// A pager that is paused, or a terminal that was stopped: nobody reads what perch prints.
#[test]
fn unread_output_keeps_no_mask_bound() {
    let Some(_one) = one_that_binds() else {
        return;
    };
    for printed in ["--live", "--explain"] {
        let (reader, writer) = std::io::pipe().unwrap();
        // SAFETY: sets the pipe's size to one page.
        unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
        rustix::io::write(&writer, &[b'x'; 4096]).unwrap();
        let mut run = Run::prepare();
        let mut perch = run.command(&["run", printed], "");
        run.perch = perch.stderr(writer).spawn().unwrap();
        drop(perch);
        run.find_program();
        run.await_bound();
        // Many periods in which there is something to print.
        sleep(Duration::from_millis(300));
        send(run.perch.id(), libc::SIGTERM);
        run.await_restored();
        eventually("the signal is not passed on", || {
            run.got() == [libc::SIGTERM]
        });
        fs::write(run.path("end"), "").unwrap();
        assert_eq!(run.perch.wait().unwrap().code(), Some(7), "{printed}");
        drop(reader);
    }
}

/// The kernel sends SIGXFSZ in the name of the process that is over its limit.
#[test]
fn a_limit_of_perch_s_own_does_not_end_the_program() {
    let _one = one();
    let run = Run::prepare();
    let mut perch = run.perch(&["run"]);
    // It has the same limit, and writes nothing.
    perch.args(["--", "bash", "-c", "sleep 0.5; exit 7"]);
    let limit = || {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: setrlimit(2) may be called between fork and exec.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const none) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { perch.pre_exec(limit) };
    perch.stderr(Stdio::null());
    assert_eq!(perch.status().unwrap().code(), Some(7));
}
