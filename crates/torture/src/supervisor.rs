//! Whatever becomes of the process that attacks, this one cleans up: processes, cpusets, PUs that were taken offline.

use crate::{cgroup, masks::threads};
use anyhow::{Context, Result};
use nix::{
    sys::{
        prctl,
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::{
    collections::HashSet,
    env, fs,
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::sleep,
    time::Duration,
};

/// Tells the worker who its supervisor is.
const VARIABLE: &str = "PERCH_TORTURE_SUPERVISOR";

/// The supervisor's process, which names what is to be cleaned up.
pub fn process() -> u32 {
    let named = env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    named.unwrap_or_else(std::process::id)
}

/// Starts a worker and waits for it: then this is the supervisor, and the result its exit code. In the worker: `None`.
///
/// # Errors
/// A worker that cannot be started.
pub fn split() -> Result<Option<ExitCode>> {
    // Orphans of killed perches come to us.
    prctl::set_child_subreaper(true)?;
    if env::var_os(VARIABLE).is_some() {
        prctl::set_pdeathsig(Signal::SIGTERM)?;
        return Ok(None);
    }
    let signals = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        let signals = Arc::clone(&signals);
        let count = move || {
            signals.fetch_add(1, Ordering::Relaxed);
        };
        // SAFETY: an atomic addition is all that the handler does.
        unsafe { signal_hook::low_level::register(signal, count) }?;
    }
    let online = online();
    let worker = Command::new("/proc/self/exe")
        .args(env::args_os().skip(1))
        .env(VARIABLE, std::process::id().to_string())
        .spawn()
        .context("starting the worker")?;
    let status = watch(Pid::from_raw(worker.id() as i32), &signals)?;
    end_children();
    cgroup::sweep(process());
    for cpu in online.difference(&self::online()) {
        let _ = fs::write(format!("/sys/devices/system/cpu/{cpu}/online"), "1");
    }
    Ok(Some(match status {
        WaitStatus::Exited(_, code) => ExitCode::from(code as u8),
        WaitStatus::Signaled(_, signal, _) => ExitCode::from(128 + signal as u8),
        _ => ExitCode::FAILURE,
    }))
}

/// The first signal asks the worker to come to an end, the third makes it.
fn watch(worker: Pid, signals: &AtomicUsize) -> Result<WaitStatus> {
    let mut passed = 0;
    loop {
        match waitpid(worker, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::StillAlive => {}
            status => return Ok(status),
        }
        let received = signals.load(Ordering::Relaxed);
        if received > passed {
            passed = received;
            let signal = if received < 3 {
                Signal::SIGTERM
            } else {
                Signal::SIGKILL
            };
            kill(worker, signal)?;
        }
        sleep(Duration::from_millis(20));
    }
}

/// Ends all descendants: those of a child that has ended become children.
fn end_children() {
    loop {
        let own = std::process::id() as i32;
        let mut found = false;
        for thread in threads(own) {
            let path = format!("/proc/self/task/{thread}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            for child in children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
            {
                found = true;
                let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
                let _ = waitpid(Pid::from_raw(child), None);
            }
        }
        if !found {
            return;
        }
    }
}

/// The PUs that are online and can be taken offline.
fn online() -> HashSet<String> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu") else {
        return HashSet::new();
    };
    entries
        .filter_map(|entry| entry.ok())
        .filter(|entry| {
            fs::read_to_string(entry.path().join("online")).is_ok_and(|text| text.trim() == "1")
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
