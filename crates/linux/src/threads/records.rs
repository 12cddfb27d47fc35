//! What the kernel reports of threads: its task records of creations, executions, ends and names, and ends of orphans.

use super::{Created, Tracker};
use perch_core::{Origin, ThreadId};
use std::sync::Arc;

impl Tracker {
    /// From now on the kernel tells of creations, ends and executions, `all` of them on this machine or those by threads
    /// that it was asked to watch.
    pub fn expect_records(&mut self, all: bool) {
        self.has_records = true;
        self.has_all_records = all;
    }

    /// The kernel tells of these no more: `/proc` alone does.
    pub fn expect_no_records(&mut self) {
        self.has_records = false;
        self.has_all_records = false;
        self.look_everywhere_next();
    }

    /// The kernel reported that a thread was created, by a thread of some process.
    pub fn forked(&mut self, created: Created) {
        let followed = |pid| self.processes.contains_key(&pid);
        self.lineage.created(created, followed);
    }

    /// The kernel reported that a process executes another program. All other threads of it have ended, and this was
    /// reported before; the one that has not is the caller, whatever its number. `at` is in nanoseconds since the
    /// machine was opened.
    pub fn executed(&mut self, pid: i32, at: u64) {
        let Some(process) = self.processes.get(&pid) else {
            self.executed_unseen(pid);
            return;
        };
        let first = ThreadId {
            tid: pid,
            start: process.start,
        };
        // `/proc` shows the caller under the first one's number as soon as that has ended.
        let first_is_there = self
            .threads
            .get(&pid)
            .is_some_and(|thread| !thread.ended && !thread.end_reported)
            && !process.first_ended;
        let alone = process.threads == 1
            && self.lineage.vanished_of(pid).next().is_none()
            && self
                .lineage
                .told_of(pid)
                .all(|told| self.threads.contains_key(&told.tid));
        let caller = match first_is_there && alone {
            // As nearly always: not all followed threads need to be looked at.
            true => Some(pid),
            false => self.caller(pid, first_is_there),
        };
        self.lineage.forget_vanished(pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.first_ended = false;
        }
        if let Some(first) = self.threads.get_mut(&pid) {
            first.end_reported = false;
        }
        self.origins.executed(first, caller, Some(at));
        if !self.threads.contains_key(&pid) {
            // It had ended before, and with the caller's number the process would be forgotten.
            self.add_thread(pid, pid, false);
        }
        if let Some(caller) = caller.filter(|caller| *caller != pid) {
            self.renumbered.push((caller, pid));
        }
    }

    /// The only thread of a process whose end was not reported; `None` if there are several.
    fn caller(&self, pid: i32, first_is_there: bool) -> Option<i32> {
        let known = self.threads.values();
        let known = known
            .filter(|thread| thread.pid == pid && thread.id.tid != pid)
            .filter(|thread| !thread.ended && !thread.end_reported)
            .map(|thread| thread.id.tid);
        let unseen = self.lineage.told_of(pid).map(|told| told.tid);
        let unseen = unseen.filter(|tid| !self.threads.contains_key(tid));
        let vanished = self.lineage.vanished_of(pid).filter(|tid| *tid != pid);
        let mut callers = known
            .chain(unseen)
            .chain(vanished)
            .chain(first_is_there.then_some(pid));
        match (callers.next(), callers.next()) {
            (Some(one), None) => Some(one),
            _ => None,
        }
    }

    /// The same of a process that nobody has looked at. If it was not its first thread, that was reported to have ended.
    fn executed_unseen(&mut self, pid: i32) {
        if let Some(caller) = self.lineage.unseen_caller(pid)
            && let Some(process) = self.origins.executed_unseen(&caller)
        {
            self.lineage.renumbered(&caller, process);
            self.origins.unseen(&caller);
        }
    }

    /// Where masks of threads come from that were created or that executed another program since the last call.
    pub fn take_origins(&mut self) -> Vec<Origin> {
        let threads = &self.threads;
        self.origins
            .take(|tid| threads.get(&tid).map(|thread| thread.id))
    }

    /// The kernel reported that a thread ended.
    pub fn exited(&mut self, tid: i32) {
        let told = self.lineage.ended(tid);
        match (self.threads.get_mut(&tid), told) {
            // /proc may have shown it before its records came, of its creation too.
            (Some(thread), told) if !thread.ended => {
                (thread.ended, thread.end_reported) = (true, true);
                told.iter().for_each(|told| self.origins.told(told));
            }
            (_, Some(told)) => self.came_and_went(&told),
            _ => {}
        }
    }

    /// A thread was reported, and had ended before it was looked at.
    pub(super) fn came_and_went(&mut self, told: &Created) {
        // What the operating system did for a moment concerns nobody.
        if !self.is_system(told.by_pid) && !self.exits.passed(told) {
            self.unseen += 1;
        }
        self.origins.unseen(told);
        self.lineage.passed(told.tid);
        if told.tid == told.pid {
            // Others of its threads may live, and what it has created.
            let target = self.target_of(told.by_pid);
            self.origins.departed(told.pid, target);
        }
    }

    /// The kernel reported that a thread has a new name.
    pub fn renamed(&mut self, tid: i32, name: &str) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.name = self.names.get(name);
            if thread.pid == tid
                && let Some(process) = self.processes.get_mut(&tid)
            {
                process.name = Arc::clone(&thread.name);
            }
        }
    }

    /// A process that came to perch as an orphan has ended, after this much time on a PU in nanoseconds, that of its
    /// children included.
    pub fn orphan_ended(&mut self, pid: i32, spent: u64) {
        self.accounts.orphan(pid, spent);
        if let Some(thread) = self.threads.get_mut(&pid) {
            thread.ended = true;
        }
    }
}
