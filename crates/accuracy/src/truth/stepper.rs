//! Counts by single steps in bursts at random times, for code that valgrind changes or cannot see.
//!
//! A burst begins at a random moment, so programs that alternate between long phases are weighted by the
//! phases' time, which is how a sampler sees them too.

use super::{Truth, native_arch};
use crate::catalogue::Program;
use crate::process::Running;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
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
use std::time::Duration;

/// Beside the program's own start-up.
const WARM_UP: Duration = Duration::from_millis(500);
/// Give up on a program that does not get its time on CPU.
const MOST_WAITING: Duration = Duration::from_secs(60);
const BURSTS: u32 = 200;
const STEPS: u32 = 500;
/// Bounds of the pause between bursts, in microseconds.
const PAUSE: (u64, u64) = (4_000, 16_000);

/// One burst's counts.
#[derive(Default)]
struct Burst {
    sum: MixSum,
    unknown: f64,
}

/// Runs the program and steps its busiest thread.
///
/// # Errors
/// A program that ends too early, or a kernel that forbids tracing.
pub fn count(program: &Program, workspace: &Workspace) -> Result<Truth> {
    let mut command = workspace.command(program, &workspace.expand(&program.run));
    let mut running = Running::start(&mut command, Stdio::null())?;
    running.wait_for_cpu_time(program.start_up() + WARM_UP, MOST_WAITING)?;
    if let Some(status) = running.ended()? {
        bail!("it ended early, with {status}");
    }
    let (pid, tid) = running
        .busiest_thread()
        .context("no thread of it is left")?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let tracee = Tracee::seize(tid)?;
    let mut decoder = InstructionDecoder::new(native_arch()?);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut bursts = Vec::new();
    for _ in 0..BURSTS {
        // Xorshift: random moments only have to be unrelated to the program's own rhythm.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        sleep(Duration::from_micros(
            PAUSE.0 + random % (PAUSE.1 - PAUSE.0),
        ));
        match burst(tracee.0, &memory, &mut decoder)? {
            Some(burst) => bursts.push(burst),
            None => break,
        }
    }
    ensure!(bursts.len() > 1, "it ended while it was stepped");
    summarise(&bursts)
}

/// A traced thread. It must be let go before its process is ended: a traced thread that has died keeps the
/// process from being reaped.
struct Tracee(Pid);

impl Tracee {
    fn seize(tid: i32) -> Result<Self> {
        let tracee = Pid::from_raw(tid);
        ptrace::seize(tracee, ptrace::Options::empty())
            .context("cannot trace it (is kernel.yama.ptrace_scope 3, or a debugger attached?)")?;
        Ok(Self(tracee))
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // Already stopped when a burst failed, running otherwise; gone when the program ended.
        if ptrace::detach(self.0, None).is_err()
            && ptrace::interrupt(self.0).is_ok()
            && waitpid(self.0, Some(WaitPidFlag::__WALL)).is_ok()
        {
            let _ = ptrace::detach(self.0, None);
        }
    }
}

/// Stops the thread, steps it, lets it go; `None` if it is gone.
fn burst(tracee: Pid, memory: &File, decoder: &mut InstructionDecoder) -> Result<Option<Burst>> {
    match ptrace::interrupt(tracee) {
        Ok(()) => {}
        Err(Errno::ESRCH) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let Some(mut signal) = wait_stop(tracee)? else {
        return Ok(None);
    };
    let mut burst = Burst::default();
    // Within a burst nobody rewrites the code that this thread runs; between bursts a compiler may.
    let mut known: HashMap<u64, Option<Decoded>> = HashMap::new();
    let mut before = 0;
    for _ in 0..STEPS {
        let ip = instruction_pointer(tracee)?;
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
        ptrace::step(tracee, signal)?;
        match wait_stop(tracee)? {
            Some(next) => signal = next,
            None => return Ok(None),
        }
    }
    ptrace::cont(tracee, signal)?;
    Ok(Some(burst))
}

/// Waits until the thread stops; the signal that it has to be given when it goes on. `None` if it ended.
fn wait_stop(tracee: Pid) -> Result<Option<Option<Signal>>> {
    Ok(match waitpid(tracee, Some(WaitPidFlag::__WALL))? {
        WaitStatus::Stopped(_, Signal::SIGTRAP | Signal::SIGSTOP)
        | WaitStatus::PtraceEvent(..)
        | WaitStatus::PtraceSyscall(_) => Some(None),
        WaitStatus::Stopped(_, signal) => Some(Some(signal)),
        _ => None,
    })
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
    Truth::new(&sum, unknown, standard_error(&shares))
}

/// Standard error of the mean of independent values.
fn standard_error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if n < 2.0 {
        return f64::INFINITY;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (n - 1.0) / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_mean() {
        assert_eq!(standard_error(&[0.25; 9]), 0.0);
        let error = standard_error(&[1.0, 3.0]);
        assert!((error - 1.0).abs() < 1e-12, "{error}");
        assert!(standard_error(&[1.0]).is_infinite());
    }
}
