//! Nice values as the kernel shows and takes them.

use anyhow::{Context, Result};
use rustix::process::{Pid, getpriority_process, setpriority_process};

/// A thread's nice value; `None` if it has ended.
pub fn nice(tid: i32) -> Option<i32> {
    getpriority_process(Pid::from_raw(tid)).ok()
}

/// Sets a thread's nice value: the kernel takes the number of a thread as well as that of a process.
pub fn set_nice(tid: i32, value: i32) -> Result<()> {
    setpriority_process(Pid::from_raw(tid), value)
        .with_context(|| format!("renicing {tid} to {value}"))
}
