//! Affinity masks as the kernel shows and takes them.

use anyhow::{Context, Result};
use perch_core::PuSet;
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};
use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

/// A thread's mask; `None` if it has ended.
pub fn mask(tid: i32) -> Option<PuSet> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim)
    };
    if field("State:")?.starts_with(['Z', 'X']) {
        return None;
    }
    field("Cpus_allowed_list:")?.parse().ok()
}

/// Sets a thread's mask.
pub fn set_mask(tid: i32, pus: &PuSet) -> Result<()> {
    let mut set = CpuSet::new();
    pus.iter().for_each(|pu| set.set(pu as usize));
    sched_setaffinity(Pid::from_raw(tid), &set).with_context(|| format!("binding {tid} to {pus}"))
}

/// Waits until a thread has a mask; false if that takes too long.
pub fn await_mask(tid: i32, wanted: &PuSet, limit: Duration) -> bool {
    await_that(limit, || mask(tid).as_ref() == Some(wanted))
}

/// Waits until something holds; false if that takes too long.
pub fn await_that(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        sleep(Duration::from_millis(1));
    }
}

/// The threads of a process.
pub fn threads(pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// PUs from text that is known to be right.
pub fn pus(text: &str) -> PuSet {
    text.parse().expect("a list of PUs")
}
