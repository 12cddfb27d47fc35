//! Every way in which a thread can bring another into the world.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::threads::{Shared, Worker, tid};
use super::{Role, SpawnKind};

/// Starts a newcomer from the calling thread, whose CPU mask it inherits.
pub(super) fn spawn(shared: &Arc<Shared>, kind: SpawnKind, role: Role) -> Result<()> {
    let parent = tid();
    match kind {
        SpawnKind::Thread => {
            let worker = Worker::late(shared, role, kind, parent);
            std::thread::Builder::new()
                .name(worker.name())
                .spawn(move || worker.run())?;
            Ok(())
        }
        SpawnKind::Fork => {
            let worker = Worker::late(shared, role, kind, parent);
            // SAFETY: the child uses no lock of Rust's that another thread may have held: it computes,
            // writes with write(2) and leaves with _exit. The allocator's locks are the C library's care.
            match unsafe { libc::fork() } {
                -1 => Err(std::io::Error::last_os_error()).context("cannot fork"),
                0 => {
                    worker.run();
                    // SAFETY: ends the process at once, as a forked child should.
                    unsafe { libc::_exit(0) }
                }
                _ => Ok(()),
            }
        }
        SpawnKind::Program | SpawnKind::Daemon => {
            let role = format!("{role:?}").to_lowercase();
            let left = shared
                .end
                .saturating_duration_since(Instant::now())
                .as_secs_f64();
            let mut command = Command::new("/proc/self/exe");
            command
                .arg("--threads")
                .arg(format!("{role}:1"))
                .arg("--seconds")
                .arg(left.to_string());
            command
                .arg("--seed")
                .arg(shared.seed.wrapping_add(parent as u64).to_string());
            command.arg("--parent").arg(parent.to_string());
            for rates in &shared.rates {
                command
                    .arg("--rates")
                    .arg(format!("{:?}={}", rates.role, rates.rates).to_lowercase());
            }
            if kind == SpawnKind::Daemon {
                command.arg("--daemon");
            }
            let mut child = command
                .stdin(Stdio::null())
                .spawn()
                .context("cannot start this program again")?;
            if kind == SpawnKind::Daemon && !child.wait()?.success() {
                bail!("the daemon did not come up");
            }
            Ok(())
        }
    }
}

/// Leaves the parent, the session and the session's leadership. Only for a process of one thread.
pub(super) fn become_daemon() -> Result<()> {
    for new_session in [true, false] {
        // SAFETY: the process has one thread, so the child may go on as if nothing had happened.
        match unsafe { libc::fork() } {
            -1 => return Err(std::io::Error::last_os_error()).context("cannot fork"),
            0 => {}
            // SAFETY: ends the parent at once, without running what belongs to the child.
            _ => unsafe { libc::_exit(0) },
        }
        // SAFETY: no memory is involved.
        if new_session && unsafe { libc::setsid() } == -1 {
            return Err(std::io::Error::last_os_error()).context("cannot make a session");
        }
    }
    Ok(())
}
