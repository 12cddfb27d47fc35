//! Counts by single steps in bursts at random times, for code that valgrind changes or cannot see.
//!
//! A burst begins at a random moment, so programs that alternate between long phases are weighted by the
//! phases' time, which is how a sampler sees them too.

use super::{Truth, native_arch, standard_error};
use crate::catalogue::Program;
use crate::estimate::{CPU_TIME, Rights};
use crate::process::Running;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use perch_sampling::{Decoded, InstructionDecoder, MixSum};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Give up on a program that does not get its time on CPU.
const MOST_WAITING: Duration = Duration::from_secs(60);
const BURSTS: usize = 200;
/// A truth needs at least this many bursts.
const FEWEST_BURSTS: usize = 50;
/// Looks at what runs, at most.
const MOST_LOOKS: usize = 1000;
const STEPS: u32 = 500;
/// Bounds of the pause between bursts, in microseconds.
const PAUSE: (u64, u64) = (4_000, 16_000);

/// A thread whose step takes longer waits in the kernel.
const LONGEST_STEP: Duration = Duration::from_millis(20);

/// How a step ended.
#[derive(PartialEq, Eq)]
enum Step {
    Done,
    Waits,
    Ended,
}

/// One burst's counts.
#[derive(Default)]
struct Burst {
    sum: MixSum,
    unknown: f64,
}

/// Runs the program and steps whichever of its threads run.
///
/// A burst goes to a thread that is on CPU at a random moment, so threads count by the time that they use. One that waits
/// is left alone: stepping would wake it and count what its runtime does about that.
///
/// # Errors
/// A program that ends too early or hardly runs, or a kernel that forbids tracing.
pub fn count(program: &Program, workspace: &Workspace) -> Result<Truth> {
    let scratch = workspace.scratch(Rights::Own)?;
    let words = workspace.expand(&program.run, scratch.path());
    let mut command = workspace.command(program, &words, scratch.path());
    let mut running = Running::start(&mut command, Stdio::null())?;
    running.wait_for_cpu_time(program.start_up(), MOST_WAITING)?;
    let mut decoder = InstructionDecoder::new(native_arch()?);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut bursts = Vec::new();
    let begin = running.cpu_time();
    for _ in 0..MOST_LOOKS {
        if bursts.len() == BURSTS {
            break;
        }
        if let Some(status) = running.ended()? {
            ensure!(
                bursts.len() >= FEWEST_BURSTS,
                "it ended early, with {status}"
            );
            break;
        }
        // Spread over the time that perch is asked about.
        let due = CPU_TIME.mul_f64(bursts.len() as f64 / BURSTS as f64);
        running.wait_for_cpu_time(begin + due, MOST_WAITING)?;
        // Xorshift: random moments only have to be unrelated to the program's own rhythm.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        sleep(Duration::from_micros(
            PAUSE.0 + random % (PAUSE.1 - PAUSE.0),
        ));
        let on_cpu = running.running_threads();
        if on_cpu.is_empty() {
            continue;
        }
        let (pid, tid) = on_cpu[(random >> 32) as usize % on_cpu.len()];
        bursts.extend(burst(pid, tid, &mut decoder)?);
    }
    ensure!(
        bursts.len() >= FEWEST_BURSTS,
        "it was found running only {} times in {MOST_LOOKS} looks",
        bursts.len()
    );
    summarise(&bursts)
}

/// A traced thread, let go when dropped: a traced thread that has died keeps its process from being reaped.
struct Tracee {
    tid: Pid,
    /// Signals that came during the burst; it gets them when it is let go.
    withheld: Vec<Signal>,
}

impl Tracee {
    fn seize(tid: i32) -> nix::Result<Self> {
        let tid = Pid::from_raw(tid);
        ptrace::seize(tid, ptrace::Options::empty())?;
        Ok(Self {
            tid,
            withheld: Vec::new(),
        })
    }

    /// Waits until the thread stops, for [`LONGEST_STEP`] at most.
    fn wait_stop(&mut self) -> Result<Step> {
        let begin = Instant::now();
        loop {
            match waitpid(self.tid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG))? {
                WaitStatus::StillAlive if begin.elapsed() > LONGEST_STEP => return Ok(Step::Waits),
                WaitStatus::StillAlive => std::thread::yield_now(),
                WaitStatus::Stopped(_, Signal::SIGTRAP | Signal::SIGSTOP)
                | WaitStatus::PtraceEvent(..)
                | WaitStatus::PtraceSyscall(_) => return Ok(Step::Done),
                WaitStatus::Stopped(_, signal) => {
                    self.withheld.push(signal);
                    return Ok(Step::Done);
                }
                _ => return Ok(Step::Ended),
            }
        }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        let first = self.withheld.first().copied();
        // Stopped after a burst; running, or exited, when one failed.
        if ptrace::detach(self.tid, first).is_err()
            && ptrace::interrupt(self.tid).is_ok()
            && waitpid(self.tid, Some(WaitPidFlag::__WALL)).is_ok()
        {
            let _ = ptrace::detach(self.tid, first);
        }
    }
}

/// Stops the thread, steps it, lets it go; `None` if it ended.
fn burst(pid: i32, tid: i32, decoder: &mut InstructionDecoder) -> Result<Option<Burst>> {
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else {
        return Ok(None);
    };
    let mut tracee = match Tracee::seize(tid) {
        Ok(tracee) => tracee,
        Err(Errno::ESRCH) => return Ok(None),
        Err(error) => {
            return Err(error).context(
                "cannot trace it (is kernel.yama.ptrace_scope 3, or a debugger attached?)",
            );
        }
    };
    match ptrace::interrupt(tracee.tid) {
        Ok(()) => {}
        Err(Errno::ESRCH) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    if tracee.wait_stop()? != Step::Done {
        return Ok(None);
    }
    let mut burst = Burst::default();
    // Within a burst nobody rewrites the code that this thread runs; between bursts a compiler may.
    let mut known: HashMap<u64, Option<Decoded>> = HashMap::new();
    let mut before = 0;
    for _ in 0..STEPS {
        let ip = instruction_pointer(tracee.tid)?;
        let decoded = *known.entry(ip).or_insert_with(|| {
            let mut bytes = [0; 15];
            let have = memory.read_at(&mut bytes, ip).unwrap_or(0);
            decoder.decode(&bytes[..have], ip)
        });
        match decoded {
            // Every repetition of a string instruction is a step of its own, but one instruction.
            Some(instruction) if instruction.rep && before == ip => {}
            Some(instruction) => burst.sum.add_instruction(&instruction, 1.0),
            None => burst.unknown += 1.0,
        }
        before = ip;
        // Without its signals: a runtime's handlers run because of the steps' slowness.
        ptrace::step(tracee.tid, None)?;
        match tracee.wait_stop()? {
            Step::Done => {}
            // It went to sleep in a system call, and is not on CPU any longer.
            Step::Waits => break,
            Step::Ended => return Ok(None),
        }
    }
    Ok(Some(burst))
}

#[cfg(target_arch = "x86_64")]
fn instruction_pointer(tracee: Pid) -> Result<u64> {
    Ok(ptrace::getregs(tracee)?.rip)
}

#[cfg(target_arch = "aarch64")]
fn instruction_pointer(tracee: Pid) -> Result<u64> {
    Ok(ptrace::getregset::<ptrace::regset::NT_PRSTATUS>(tracee)?.pc)
}

/// All bursts together, with the error that their scatter implies.
fn summarise(bursts: &[Burst]) -> Result<Truth> {
    let mut sum = MixSum::default();
    let mut unknown = 0.0;
    for burst in bursts {
        sum.merge(&burst.sum, 1.0);
        unknown += burst.unknown;
    }
    let shares: Vec<f64> = bursts
        .iter()
        .filter_map(|burst| burst.sum.mix())
        .map(|mix| mix.fp_share())
        .collect();
    let error = standard_error(&shares);
    Truth::new(&sum, unknown, error, Vec::new(), false)
}
