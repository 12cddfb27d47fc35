//! Beginning to follow a process or a thread: what it has done until then does not count.

use super::{Process, Thread, Tracker, sample};
use crate::{
    limits::{self, Kept, Purpose},
    proc::{Gone, RunClock, Schedstat},
    visible::{self, Visible},
};
use perch_core::{Remark, ThreadId};
use rustix::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Up to this many threads have their migrations read when perch begins to follow them.
const MIGRATIONS_AT_ONCE: usize = 1000;

/// With more threads of a process at once than this, it is worth looking whether the cheap way to their masks will do.
pub(super) const MASKS_AT_ONCE: usize = 200;

impl Tracker {
    /// Begins to follow a process with all of its threads.
    pub(super) fn add_process(&mut self, pid: i32, born: bool, target: u32) -> bool {
        let Ok(stat) = self.reader.stat(pid, pid) else {
            return false;
        };
        let process = Process {
            start: stat.start,
            target,
            name: self.names.get(&stat.name()),
            threads: 0,
            first_ended: false,
        };
        self.processes.insert(pid, process);
        if !self.is_system(pid) {
            self.accounts.follow(&mut self.reader, pid, born, self.tick);
        }
        self.add_threads(pid, born);
        if self.processes.get(&pid).is_some_and(|p| p.threads == 0) {
            self.processes.remove(&pid);
            return false;
        }
        true
    }

    /// Begins to follow those threads of a followed process that are not followed yet.
    pub(super) fn add_threads(&mut self, pid: i32, born: bool) {
        // A thread born of one that was just found shows in the next listing.
        loop {
            let mut found = false;
            let mut tids = crate::proc::task_numbers(pid);
            tids.retain(|tid| !self.threads.contains_key(tid));
            let many = tids.len() > MASKS_AT_ONCE && self.clock == RunClock::Schedstat;
            let shown = many && visible::is_whole();
            for tid in &tids {
                found |= self.add_one(pid, *tid, born, shown);
            }
            if shown && !visible::is_whole() {
                // A PU went offline meanwhile: some masks may lack it.
                for tid in &tids {
                    if let Some(thread) = self.threads.get_mut(tid)
                        && let Ok(status) = self.reader.status(pid, *tid)
                    {
                        thread.new_mask = status.mask;
                    }
                }
            }
            if !found {
                return;
            }
        }
    }

    /// Begins to follow a thread; false if it has ended.
    pub(super) fn add_thread(&mut self, pid: i32, tid: i32, born: bool) -> bool {
        self.add_one(pid, tid, born, false)
    }

    /// The same. With `shown`, what sched_getaffinity(2) shows is its whole mask.
    fn add_one(&mut self, pid: i32, tid: i32, born: bool, shown: bool) -> bool {
        let file = self.open(pid, tid);
        let Ok(stat) = self.reader.stat(pid, tid) else {
            return false;
        };
        // What is known of one that has passed is in its records: here it would count twice.
        if stat.is_dead() || stat.is_exiting() && self.lineage.has_passed(tid) {
            return false;
        }
        let parent = if tid == pid { stat.parent } else { pid };
        // Before the mask itself is read, so that a change in between is noticed later.
        let visible = Visible::of(tid).ok();
        let mut thread = Thread {
            id: ThreadId {
                tid,
                start: stat.start,
            },
            pid,
            name: self.names.get(&stat.name()),
            file: None,
            stat: None,
            spent: Schedstat::default(),
            switches: Some(0),
            migrations: Some(0),
            unread: Duration::ZERO,
            last_pu: stat.last_pu,
            image: stat.image,
            fixed: stat.refuses_affinity(),
            new_mask: None,
            visible: visible.as_ref().map(Visible::digest),
            born,
            awaited: born && self.has_all_records,
            new: true,
            ended: false,
            end_reported: false,
            renumbered: false,
            looked: None,
        };
        let mut switches = None;
        match visible.as_ref().filter(|_| shown) {
            Some(visible) => thread.new_mask = Some(visible.pus()),
            None => {
                let Ok(status) = self.reader.status(pid, tid) else {
                    return false;
                };
                (thread.new_mask, switches) = (status.mask, status.switches);
            }
        }
        if !born {
            // What it did before it was followed does not count. Reading the file with migrations costs more than
            // reading all others together: with very many threads it is read later, in rotation, and counting begins
            // then.
            thread.switches = switches;
            thread.migrations = None;
            if self.threads.len() < MIGRATIONS_AT_ONCE {
                thread.migrations = self.reader.migrations(pid, tid);
            }
            let every = sample::MIGRATIONS_EVERY.as_secs();
            thread.unread = Duration::from_secs(tid as u64 % every);
            let spent = match &file {
                Some(file) => self.clock.read(&**file, self.tick),
                None => self.reader.run_time(self.clock, pid, tid, self.tick),
            };
            let Ok(spent) = spent else {
                return false;
            };
            thread.spent = spent;
        }
        let Some(process) = self.processes.get_mut(&pid) else {
            return false;
        };
        process.threads += 1;
        let id = thread.id;
        if born {
            self.origins.found(id, parent);
        }
        thread.file = file;
        self.threads.insert(tid, thread);
        if let Some(newcomers) = &mut self.newcomers {
            newcomers.push((id, pid));
        }
        if self.watches_young {
            self.young.push((tid, Instant::now()));
        }
        true
    }

    fn open(&mut self, pid: i32, tid: i32) -> Option<Kept<OwnedFd>> {
        let file = match self.budget.reserve(Purpose::Threads, 1) {
            Some(place) => match self.clock.open(pid, tid) {
                Ok(file) => return Some(place.keep(file)),
                Err(Gone::Ended) => return None,
                Err(Gone::Refused(errno)) => std::io::Error::from(errno).to_string(),
            },
            None => format!("{} are in use", self.budget.used(Purpose::Threads)),
        };
        if !self.said_budget {
            self.said_budget = true;
            let text = format!(
                "too few file descriptors to keep one open for every thread ({file}): reading costs more; {}",
                limits::REMEDY
            );
            self.remarks.push(Remark::warning("few-descriptors", text));
        }
        None
    }
}
