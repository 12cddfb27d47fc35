//! What runs on each PU right now, for pictures of the machine.

use perch_core::PuSet;
use procfs::{CurrentSI, KernelStats};
use std::{collections::HashMap, thread::sleep, time::Duration};

/// What one PU did in a short window.
#[derive(Debug, Clone, PartialEq)]
pub struct PuLoad {
    /// The PU.
    pub pu: u32,
    /// Share of the window that it was busy, 0 to 1.
    pub busy: f64,
    /// The thread that ran most in the window and was last seen on it.
    pub thread: Option<String>,
}

/// Busy and total ticks of each PU.
fn ticks() -> Option<Vec<(u64, u64)>> {
    let stats = KernelStats::current().ok()?;
    let of = |time: &procfs::CpuTime| {
        let idle = time.idle + time.iowait.unwrap_or(0);
        let busy =
            time.user + time.nice + time.system + time.irq.unwrap_or(0) + time.softirq.unwrap_or(0);
        (busy, busy + idle)
    };
    Some(stats.cpu_time.iter().map(of).collect())
}

/// Ticks, last PU and name of every thread that can be read.
fn threads() -> HashMap<i32, (u64, u32, String)> {
    let tasks = procfs::process::all_processes()
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|process| process.tasks().ok())
        .flatten()
        .flatten()
        .filter_map(|task| {
            let stat = task.stat().ok()?;
            Some((
                stat.pid,
                (
                    stat.utime + stat.stime,
                    stat.processor? as u32,
                    perch_core::text::name(stat.comm.as_bytes()),
                ),
            ))
        })
        .collect()
}

/// Watches the PUs for this long. PUs that are offline are left out; an unreadable /proc gives nothing.
///
/// /proc/stat lists online PUs by number only through its line labels, which `procfs` drops; `online` gives the
/// numbers back in the same order (proc(5)).
pub fn watch(online: &PuSet, window: Duration) -> Vec<PuLoad> {
    let (Some(before), names) = (ticks(), threads()) else {
        return Vec::new();
    };
    sleep(window);
    let (Some(after), later) = (ticks(), threads()) else {
        return Vec::new();
    };
    let mut busiest: HashMap<u32, (u64, &str)> = HashMap::new();
    for (tid, (ticks, pu, name)) in &later {
        let ran = ticks.saturating_sub(names.get(tid).map_or(0, |(ticks, ..)| *ticks));
        let most = busiest.entry(*pu).or_default();
        if ran > most.0 {
            *most = (ran, name);
        }
    }
    online
        .iter()
        .zip(before.iter().zip(&after))
        .map(|(pu, (before, after))| {
            let (busy, total) = (
                after.0.saturating_sub(before.0),
                after.1.saturating_sub(before.1),
            );
            PuLoad {
                pu,
                busy: if total == 0 {
                    0.0
                } else {
                    busy as f64 / total as f64
                },
                thread: busiest.get(&pu).map(|(_, name)| (*name).to_owned()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_busy_thread_is_seen_on_its_pu() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let spin = || {
            while !STOP.load(Ordering::Relaxed) {
                std::hint::spin_loop()
            }
        };
        let spinner = std::thread::Builder::new()
            .name("spins".into())
            .spawn(spin)
            .unwrap();
        let online: PuSet = (0..online_pus()).collect();
        // A machine under load may not give the thread its turn in one window.
        let seen = (0..20).any(|_| {
            let loads = watch(&online, Duration::from_millis(100));
            loads.len() == online.len()
                && loads
                    .iter()
                    .any(|load| load.busy > 0.0 && load.thread.as_deref() == Some("spins"))
        });
        STOP.store(true, Ordering::Relaxed);
        spinner.join().unwrap();
        assert!(seen);
    }

    fn online_pus() -> u32 {
        ticks().unwrap().len() as u32
    }
}
