//! Finding new threads and processes in `/proc`.

use super::{Created, Tracker};
use crate::proc::{has_mark, last_task_number, parse_stat, process_numbers, session_of, start_of};
use perch_core::machine::SESSION_VARIABLE;
use std::time::{Duration, Instant};

/// How often everything is scanned, whatever the cheap tests say.
const FULL_EVERY: Duration = Duration::from_secs(30);
/// How often records of exited threads are aged: with shorter periods, a kernel record may be many periods late.
const AGE: Duration = Duration::from_secs(1);
/// Up to this many new task numbers are checked one by one; beyond that, a full scan is cheaper.
const FEW: i32 = 512;
/// A number is given out a moment before its task shows in `/proc`, so the last ones are looked at again.
const AGAIN: i32 = 16;

impl Tracker {
    /// Looks for threads and processes that are new since the last call.
    ///
    /// Task numbers rise, so the newest one (`/proc/loadavg`) tells whether there is anything new, and where. When
    /// the kernel's task records arrive they find the same threads; this look then costs one read of one file.
    pub fn discover(&mut self) {
        if self.aged.elapsed() >= AGE {
            self.aged = Instant::now();
            self.lineage.age();
            self.origins.age();
        }
        self.consider_told();
        let before = self.last_number;
        self.last_number = last_task_number();
        match (before, self.last_number) {
            (Some(before), Some(now)) if self.scanned.elapsed() < FULL_EVERY => {
                if now == before {
                    return;
                }
                // Around the end of the numbers, or too many: everything.
                if now < before || now - before > FEW {
                    self.look_everywhere(None);
                } else {
                    self.look_at(before.saturating_sub(AGAIN).max(1)..=now);
                }
            }
            _ => self.look_everywhere(None),
        }
    }

    /// Follows the threads whose creation was reported since the last look.
    pub fn consider_told(&mut self) {
        for told in self.lineage.take().into_values() {
            self.consider(&told);
        }
    }

    /// Whether there are threads whose creation was reported and that were not yet looked at.
    pub fn has_told(&self) -> bool {
        self.lineage.has_told()
    }

    /// Looks at all processes of the machine and all threads of the followed ones.
    pub(super) fn look_everywhere(&mut self, old: Option<u32>) {
        self.scanned = Instant::now();
        let followed = self.processes.iter();
        let followed: Vec<(i32, u32)> = followed.map(|(pid, of)| (*pid, of.target)).collect();
        for (pid, target) in followed {
            self.add_threads(pid, old != Some(target));
            self.end_if_dead(pid);
        }
        self.look_at_processes(process_numbers(), old);
    }

    fn look_at(&mut self, numbers: impl Iterator<Item = i32>) {
        let mut processes = Vec::new();
        for number in numbers {
            if self.threads.contains_key(&number) {
                continue;
            }
            let Ok(status) = self.reader.file(&format!("/proc/{number}/status")) else {
                continue;
            };
            let process = crate::proc::parse_status(status).process;
            if self.processes.contains_key(&process) {
                self.add_thread(process, number, true);
            } else if process == number {
                processes.push(number);
            }
        }
        self.look_at_processes(processes, None);
    }

    /// Follows those of the processes that descend from followed ones, in whatever order they come.
    fn look_at_processes(&mut self, mut candidates: Vec<i32>, old: Option<u32>) {
        loop {
            let before = self.processes.len();
            candidates.retain(|pid| {
                !self.processes.contains_key(pid) && !self.consider_process(*pid, old)
            });
            if self.processes.len() == before {
                return;
            }
        }
    }

    /// Follows a thread whose creation was reported.
    fn consider(&mut self, told: &Created) {
        let (tid, pid) = (told.tid, told.pid);
        let followed = self.threads.contains_key(&tid);
        let added = followed
            || if self.processes.contains_key(&pid) {
                self.add_thread(pid, tid, true)
            } else {
                // The record said that its parent is followed; it may have lost it since.
                self.add_process(pid, true, self.target_of(told.by_pid))
            };
        if added {
            self.origins.told(told);
        } else {
            self.origins.unseen(told);
            self.unseen += 1;
            if tid == pid {
                self.lineage.departed(pid);
            }
        }
    }

    /// Follows the process if it belongs to us.
    fn consider_process(&mut self, pid: i32, old: Option<u32>) -> bool {
        if pid == self.own_pid {
            return false;
        }
        let Some(stat) = self
            .reader
            .file(&format!("/proc/{pid}/stat"))
            .ok()
            .and_then(parse_stat)
        else {
            return false;
        };
        let (parent, group, session, start, dead) = (
            stat.parent,
            stat.group,
            stat.session,
            stat.start,
            stat.is_dead(),
        );
        let child = self.processes.get(&parent).is_some_and(|of| {
            // The parent's PID may have been reused since the parent was last seen.
            of.start <= start && start_of(parent) == Some(of.start)
        });
        let ours = child || self.is_orphan_of_ours(pid, parent, group, session, start);
        let target = || {
            let of = [parent, group, session]
                .into_iter()
                .find(|of| self.processes.contains_key(of));
            self.target_of(of.unwrap_or(group))
        };
        if !ours || dead {
            return false;
        }
        let target = target();
        self.add_process(pid, old != Some(target), target)
    }

    /// Whether a process that lost its parent descends from a followed one.
    fn is_orphan_of_ours(
        &self,
        pid: i32,
        parent: i32,
        group: i32,
        session: i32,
        start: u64,
    ) -> bool {
        // While a group lives its number is not reused, so a leader that ended lately is still the one.
        let leads = |leader| match self.processes.get(&leader) {
            Some(of) => of.start <= start,
            None => self.lineage.has_departed(leader),
        };
        let to_init = parent <= 1;
        if let Some(launched) = &self.launched
            && start >= launched.since
            && (to_init || parent == self.own_pid)
        {
            let mark = session_of(pid, SESSION_VARIABLE);
            let mark = mark.as_ref().map(|mark| mark.to_string_lossy());
            match (&launched.session, mark) {
                (Some(session), Some(mark)) => return has_mark(&mark, session),
                // perch starts nothing else, so what came to it is an orphan of the program.
                (_, None) if launched.subreaper && parent == self.own_pid => return true,
                _ => {}
            }
        }
        to_init && (leads(group) || leads(session))
    }

    /// Ends the first thread of a process that is only waiting for its parent to notice.
    fn end_if_dead(&mut self, pid: i32) {
        if self.reader.stat(pid, pid).is_ok_and(|stat| stat.is_dead())
            && let Some(thread) = self.threads.get_mut(&pid)
        {
            thread.ended = true;
        }
    }
}
