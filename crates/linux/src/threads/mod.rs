//! Which threads there are: those of the processes that were given to perch and of all that descend from them.
//!
//! Sources are the kernel's task records, fed in by [`Tracker::forked`] and its like, and `/proc`, which alone is
//! enough. The start time distinguishes a thread from a later one with the same TID.

mod accounts;
mod adding;
mod discover;
mod exits;
#[cfg(test)]
mod group_tests;
mod lineage;
mod names;
mod origins;
mod records;
mod sample;
mod switching;
#[cfg(test)]
mod tests;

pub use lineage::Created;
pub use sample::Sampled;
pub use switching::Switching;

use crate::{
    limits::{Budget, Kept},
    proc::{Reader, RunClock, Schedstat},
    tasks::Tasks,
};
use accounts::Accounts;
use exits::Exits;
use lineage::Lineage;
use names::Names;
use origins::Origins;
use perch_core::{ProcessId, PuSet, Remark, ThreadId, ThreadInfo, Work};
use rustix::fd::OwnedFd;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// A followed process.
#[derive(Debug, Clone)]
struct Process {
    start: u64,
    /// The target that it belongs to.
    target: u32,
    /// Its first thread's name.
    name: Arc<str>,
    /// How many of its threads are followed.
    threads: usize,
    /// Whether its first thread has ended. If one with its number is there nevertheless, that has called execve(2), or is
    /// about to.
    first_ended: bool,
}

/// A followed thread and what was last read of it.
#[derive(Debug)]
struct Thread {
    id: ThreadId,
    pid: i32,
    name: Arc<str>,
    /// Its run-time file, kept open while descriptors suffice.
    file: Option<Kept<OwnedFd>>,
    /// Its `stat`, kept open once it has run in two periods.
    stat: Option<Kept<OwnedFd>>,
    /// Since its start.
    spent: Schedstat,
    /// Context switches since its start, where they are read on their own.
    switches: Option<u64>,
    migrations: Option<u64>,
    /// Time of periods in which it ran since its migrations were read.
    unread: Duration,
    last_pu: Option<u32>,
    /// Where its program's code and stack begin: another program's begin elsewhere.
    image: (u64, u64),
    /// Whether the kernel lets nobody change its mask.
    fixed: bool,
    /// Not yet reported in a sample; then it goes with the next one.
    new_mask: Option<PuSet>,
    /// A digest of what sched_getaffinity(2) showed of its mask when it was last read; `None` if it must be read again.
    visible: Option<u64>,
    /// Whether its first interval begins with its own start rather than with the last observation.
    born: bool,
    /// Whether the kernel's record of its creation is still to come. Until then only its creator can have set its mask,
    /// and which thread that is nobody knows: it is sampled once more is known, or with the next observation.
    awaited: bool,
    /// Whether it has not been sampled yet.
    new: bool,
    ended: bool,
    /// Whether the kernel has reported its end. If it lives nevertheless, another thread is calling execve(2) and has its
    /// number.
    end_reported: bool,
    /// Whether it has the number of its process's first thread now, which has ended.
    renumbered: bool,
    /// How often it had switched when it was last looked at between samples, while it is young.
    looked: Option<switching::Looked>,
}

/// What perch launched, as far as it decides who belongs to it.
#[derive(Debug, Clone)]
pub struct Launched {
    /// When the program started, in clock ticks after boot: nothing older belongs to it.
    pub since: u64,
    /// The mark in its environment ([`perch_core::machine::SESSION_VARIABLE`]).
    pub session: Option<String>,
    /// Whether perch adopts its orphans (PR_SET_CHILD_SUBREAPER) and had no child before it: then every other child of
    /// perch is an orphan of the program.
    pub adopts_alone: bool,
}

/// Follows threads.
#[derive(Debug)]
pub struct Tracker {
    processes: BTreeMap<i32, Process>,
    threads: BTreeMap<i32, Thread>,
    launched: Option<Launched>,
    /// The target of every process that is in no other, if all are followed.
    all: Option<u32>,
    /// Whether that target is the operating system beside programs that were given to perch.
    beside: bool,
    own_pid: i32,
    /// Whether migrations are read in every interval in which a thread ran.
    watches_migrations: bool,
    /// Threads that have executed a program since the last sample and were not the first of their processes, each with the
    /// number of the first, which it has now.
    renumbered: Vec<(i32, i32)>,
    clock: RunClock,
    /// Nanoseconds in a clock tick.
    tick: u64,
    reader: Reader,
    tasks: Tasks,
    names: Names,
    /// The newest task number at the last look.
    last_number: Option<i32>,
    /// When everything was last scanned.
    scanned: Instant,
    /// How many descriptors may be kept open.
    budget: Budget,
    lineage: Lineage,
    origins: Origins,
    accounts: Accounts,
    exits: Exits,
    /// Process groups that processes of ours lead or led, and that others are in too.
    shared_groups: BTreeSet<i32>,
    /// Processes of which it was said that they may descend from one of these or not.
    doubtful: BTreeSet<i32>,
    /// When what these remember of the past last grew older.
    aged: Instant,
    /// Whether the kernel tells of creations, ends and executions.
    has_records: bool,
    /// The kernel's task records tell of every thread of the machine.
    has_all_records: bool,
    /// Whether no sample follows the next one.
    is_last: bool,
    /// Threads whose fork and exit were both reported before they were looked at, and of which no record tells.
    unseen: u64,
    /// Whether new threads are looked at between samples.
    watches_young: bool,
    /// These, with when they were found.
    young: Vec<(i32, Instant)>,
    /// Those that were found since this was last taken, each with its process; `None` if nobody asks.
    newcomers: Option<Vec<(ThreadId, i32)>>,
    remarks: Vec<Remark>,
    said_budget: bool,
}

impl Tracker {
    /// Follows nothing yet.
    pub fn new() -> Self {
        let clock = RunClock::detect();
        let budget = Budget::of_process();
        let mut remarks = Vec::new();
        if clock == RunClock::Stat {
            let text = "this kernel keeps no scheduler statistics (CONFIG_SCHED_INFO): run times are exact to 10 ms \
                        only, and waiting times are not known";
            remarks.push(Remark::warning("no-schedstat", text));
        }
        Self {
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            launched: None,
            all: None,
            beside: false,
            own_pid: std::process::id() as i32,
            watches_migrations: false,
            renumbered: Vec::new(),
            clock,
            tick: SECOND / rustix::param::clock_ticks_per_second().max(1),
            reader: Reader::new(),
            tasks: Tasks::new(&budget),
            names: Names::default(),
            last_number: None,
            scanned: Instant::now(),
            budget,
            lineage: Lineage::default(),
            origins: Origins::default(),
            accounts: Accounts::default(),
            exits: Exits::default(),
            shared_groups: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            aged: Instant::now(),
            has_records: false,
            has_all_records: false,
            is_last: false,
            unseen: 0,
            watches_young: false,
            young: Vec::new(),
            newcomers: None,
            remarks,
            said_budget: false,
        }
    }

    /// Follows a program that was just launched, and everything that it will start.
    pub fn follow_launched(&mut self, pid: i32, launched: Launched, target: u32) -> bool {
        self.launched = Some(launched);
        let added = self.add_process(pid, true, target);
        if let Some(first) = self.threads.get_mut(&pid) {
            // Perch created it, and began to listen only then.
            first.awaited = false;
        }
        added
    }

    /// Follows a process that runs already, and all that descends from it. False if there is none.
    pub fn follow_running(&mut self, pid: i32, target: u32) -> bool {
        let added = self.processes.contains_key(&pid) || self.add_process(pid, false, target);
        if added {
            // Its descendants are found by a look at all processes.
            self.look_everywhere(Some(target));
        }
        added
    }

    /// Follows every process of the machine but this one, of all users.
    pub fn follow_all(&mut self, target: u32) {
        self.all = Some(target);
        self.look_everywhere(Some(target));
    }

    /// Follows every process besides the programs that are followed already and what descends from them, as those of the
    /// operating system.
    pub fn follow_system(&mut self, target: u32) {
        self.beside = true;
        self.follow_all(target);
    }

    /// No longer follows the operating system's processes; their threads.
    pub fn unfollow_system(&mut self, target: u32) -> Vec<ThreadId> {
        (self.all, self.beside) = (None, false);
        self.unfollow(target)
    }

    /// Whether a process belongs to the operating system rather than to a program that was given to perch.
    pub fn is_system(&self, pid: i32) -> bool {
        self.beside && self.target_if_followed(pid) == self.all
    }

    /// Whether no program that was given to perch is followed.
    pub fn has_no_program(&self) -> bool {
        !self.processes.keys().any(|pid| !self.is_system(*pid))
    }

    /// Whether a process is followed, and as part of which target.
    pub fn target_if_followed(&self, pid: i32) -> Option<u32> {
        self.processes.get(&pid).map(|process| process.target)
    }

    /// No longer follows a target; its threads.
    pub fn unfollow(&mut self, target: u32) -> Vec<ThreadId> {
        let processes = self.processes.iter();
        let pids: BTreeSet<i32> = processes
            .filter(|(_, process)| process.target == target)
            .map(|(pid, _)| *pid)
            .collect();
        let threads: Vec<ThreadId> = self
            .threads
            .values()
            .filter(|thread| pids.contains(&thread.pid))
            .map(|thread| thread.id)
            .collect();
        // They live on: what they start from now on is not followed, as it would be had they ended.
        for pid in pids {
            self.processes.remove(&pid);
        }
        for thread in &threads {
            self.forget(thread.tid);
        }
        threads
    }

    /// How many threads are followed.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether nothing is followed.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// The followed threads, each with its process.
    pub fn threads(&self) -> impl Iterator<Item = (ThreadId, i32)> + '_ {
        self.threads.values().map(|thread| (thread.id, thread.pid))
    }

    /// The followed processes, each with its target.
    pub fn processes(&self) -> impl Iterator<Item = (ProcessId, u32)> + '_ {
        self.processes.iter().map(|(pid, process)| {
            let start = process.start;
            (ProcessId { pid: *pid, start }, process.target)
        })
    }

    /// PUs or CPU sets changed, and with them perhaps all masks: they are read again.
    pub fn read_masks_again(&mut self) {
        for thread in self.threads.values_mut() {
            if let Ok(status) = self.reader.status(thread.pid, thread.id.tid) {
                thread.new_mask = status.mask;
            }
        }
    }

    /// Reads the mask of a thread again once it has run, whether or not it looks as it did: perch has set it since it was
    /// last read, so that what it showed then would be news.
    pub fn read_mask_again(&mut self, tid: i32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.visible = None;
        }
    }

    /// From now on migrations are read of every interval: without that they are told when some were noticed, which may be
    /// those of several intervals.
    pub fn watch_migrations(&mut self) {
        self.watches_migrations = true;
    }

    /// Threads that came and went unseen since the last call.
    pub fn take_unseen(&mut self) -> u64 {
        std::mem::take(&mut self.unseen)
    }

    /// What the user should know since the last call.
    pub fn take_remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }

    /// CPU time that became known since the last call and of which no thread's sample tells, in nanoseconds.
    pub fn take_unmeasured(&mut self) -> u64 {
        self.accounts.unmeasured()
    }

    /// Samples were made longer by this much CPU time, in nanoseconds, because counters told of it.
    pub fn counted_late(&mut self, time: u64) {
        self.accounts.sampled(time);
    }

    /// Asks the kernel how much CPU time there was in all, if something has ended or after some periods; certainly if
    /// it is the `last` time. To be called before threads are sampled: what they do in between is measured in the next
    /// period.
    pub fn read_accounts(&mut self, last: bool) {
        self.is_last = last;
        let passed = self.unseen > 0 || self.exits.has_passed();
        let ended = passed || self.threads.values().any(|thread| thread.ended);
        self.accounts.read(&mut self.reader, self.tick, ended, last);
    }

    /// Records were lost: the next look goes everywhere.
    pub fn look_everywhere_next(&mut self) {
        self.last_number = None;
    }

    /// The target of a process that is followed or was until just now; else the first.
    fn target_of(&self, pid: i32) -> u32 {
        let followed = self.processes.get(&pid).map(|process| process.target);
        followed.or_else(|| self.origins.target(pid)).unwrap_or(0)
    }

    /// Forgets a thread, and its process with its last thread.
    fn forget(&mut self, tid: i32) -> Option<Thread> {
        let thread = self.threads.remove(&tid)?;
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.threads -= 1;
            process.first_ended |= thread.pid == tid;
            if process.threads == 0 {
                let target = process.target;
                self.processes.remove(&thread.pid);
                self.lineage.departed(thread.pid);
                self.origins.departed(thread.pid, target);
            }
        }
        self.origins.ended(thread.id);
        if self.has_records && !thread.end_reported {
            self.lineage.vanished(thread.pid, tid);
        }
        Some(thread)
    }

    fn info(&self, thread: &Thread) -> ThreadInfo {
        ThreadInfo {
            id: thread.id,
            pid: thread.pid,
            name: Arc::clone(&thread.name),
            process: self
                .processes
                .get(&thread.pid)
                .map_or(&thread.name, |process| &process.name)
                .clone(),
            work: match self.is_system(thread.pid) {
                false => Work::Program,
                true if thread.fixed => Work::SystemFixed,
                true => Work::System,
            },
        }
    }
}

impl Default for Tracker {
    fn default() -> Self {
        Self::new()
    }
}
