//! What runs on each PU right now, for pictures of the machine.

use crate::proc::{PuTicks, parse_pu_ticks};
use std::{collections::HashMap, thread::sleep, time::Duration};

/// Activity of one PU in a short window.
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

/// Ticks of PUs and of threads at one moment.
type Look<'a> = (&'a [PuTicks], &'a HashMap<i32, (u64, u32, String)>);

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
    loads((&before, &names), (&after, &later))
}

/// What each PU did between two looks, and the thread that ran most of those that were last seen on it.
fn loads(before: Look<'_>, after: Look<'_>) -> Vec<PuLoad> {
    let ((before, names), (after, later)) = (before, after);
    let mut busiest: HashMap<u32, (u64, &str)> = HashMap::new();
    for (tid, (ticks, pu, name)) in later {
        let ran = ticks.saturating_sub(names.get(tid).map_or(0, |(ticks, ..)| *ticks));
        if ran > busiest.get(pu).map_or(0, |(most, _)| *most) {
            busiest.insert(*pu, (ran, name));
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
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        time::Instant,
    };

    #[test]
    fn a_pu_is_as_busy_as_its_ticks_tell_and_shows_the_thread_that_ran_most() {
        let ticks = |pu, running, interrupts, idle| PuTicks {
            pu,
            running,
            interrupts,
            idle,
        };
        let thread = |ticks, pu, name: &str| (ticks, pu, name.to_owned());
        let before = [ticks(0, 100, 10, 50), ticks(1, 7, 0, 7)];
        // PU 2 has come since.
        let after = [ticks(0, 125, 15, 60), ticks(1, 7, 0, 17), ticks(2, 9, 9, 9)];
        let earlier = HashMap::from([(1, thread(900, 0, "old")), (2, thread(5, 1, "moves"))]);
        let later = HashMap::from([
            (1, thread(905, 0, "old")),
            (2, thread(15, 0, "moves")),
            (3, thread(8, 0, "new")),
            (4, thread(0, 1, "idle")),
        ]);
        let expected = [(0, 0.75, Some("moves".to_owned())), (1, 0.0, None)];
        let loads = loads((&before, &earlier), (&after, &later));
        let loads: Vec<_> = loads
            .into_iter()
            .map(|load| (load.pu, load.busy, load.thread))
            .collect();
        assert_eq!(loads, expected);
    }

    #[test]
    fn the_machine_s_pus_and_threads_are_read() {
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
        let (start, mut ran) = (Instant::now(), false);
        // However long it takes until the thread has had a tick.
        while !ran && start.elapsed() < Duration::from_secs(60) {
            let threads = threads();
            ran = threads
                .values()
                .any(|(ticks, _, name)| *ticks > 0 && name == "spins");
        }
        STOP.store(true, Ordering::Relaxed);
        spinner.join().unwrap();
        assert!(ran);
        let online = crate::perf::limits::online_cpus();
        let loads = watch(Duration::from_millis(10));
        assert!(loads.iter().map(|load| load.pu).eq(online.iter()));
    }
}
