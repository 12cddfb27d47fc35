//! Who was on which PU when, with names, in the operating system's time.

use crate::system::System;

/// A thread's time on a PU. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stay {
    /// The PU.
    pub pu: u32,
    /// The thread's number.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Its program.
    pub program: String,
    /// When it came.
    pub from: u64,
    /// When it left.
    pub to: u64,
}

/// The stays that a system remembers, by PU and time.
pub fn stays(system: &System) -> Vec<Stay> {
    let machine = system.machine();
    let stays = system.stays().into_iter().map(|stay| {
        let thread = &system.threads()[stay.thread].identity;
        Stay {
            pu: stay.pu,
            tid: thread.tid,
            name: thread.name.clone(),
            program: system.processes()[thread.process].name.clone(),
            from: machine.os_time(stay.from),
            to: machine.os_time(stay.to),
        }
    });
    let mut stays: Vec<Stay> = stays.collect();
    stays.sort_by_key(|stay| (stay.pu, stay.from, stay.to));
    stays
}
