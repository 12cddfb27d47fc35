//! What runs on each PU right now, for pictures of the machine.

use crate::proc::{PuTicks, parse_pu_ticks};
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

/// What each online PU did since it was first online.
fn ticks() -> Option<Vec<PuTicks>> {
    let bytes = std::fs::read("/proc/stat").ok()?;
    Some(parse_pu_ticks(&bytes))
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

/// Watches the online PUs for this long, by rising number. A PU that came meanwhile is left out; an unreadable /proc gives
/// nothing.
pub fn watch(window: Duration) -> Vec<PuLoad> {
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
    let load = |after: &PuTicks| {
        let at = before.binary_search_by_key(&after.pu, |ticks| ticks.pu);
        let before = before[at.ok()?];
        let since = |of: fn(&PuTicks) -> u64| of(after).saturating_sub(of(&before));
        let busy = since(|ticks| ticks.running) + since(|ticks| ticks.interrupts);
        let total = busy + since(|ticks| ticks.idle);
        Some(PuLoad {
            pu: after.pu,
            busy: match total {
                0 => 0.0,
                total => busy as f64 / total as f64,
            },
            thread: busiest.get(&after.pu).map(|(_, name)| (*name).to_owned()),
        })
    };
    after.iter().filter_map(load).collect()
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
        let online = crate::perf::limits::online_cpus();
        // A machine under load may not give the thread its turn in one window.
        let seen = (0..20).any(|_| {
            let loads = watch(Duration::from_millis(100));
            loads.iter().map(|load| load.pu).eq(online.iter())
                && loads
                    .iter()
                    .any(|load| load.busy > 0.0 && load.thread.as_deref() == Some("spins"))
        });
        STOP.store(true, Ordering::Relaxed);
        spinner.join().unwrap();
        assert!(seen);
    }
}
