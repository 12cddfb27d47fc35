//! Finding new threads and processes in `/proc`.

use super::{Created, Tracker};
use crate::proc::{has_mark, last_task_number, parse_stat, process_numbers, session_of, start_of};
use perch_core::{Remark, ThreadId, machine::SESSION_VARIABLE};
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

/// How often everything is scanned, whatever the cheap tests say.
const FULL_EVERY: Duration = Duration::from_secs(30);
/// How often records of exited threads are aged: with shorter periods, a kernel record may be many periods late.
const AGE: Duration = Duration::from_secs(1);
/// Up to this many new task numbers are checked one by one; beyond that, a full scan is cheaper.
const FEW: i32 = 512;
/// A number is given out a moment before its task shows in `/proc`, so the last ones are looked at again.
const AGAIN: i32 = 16;

/// A process that may be ours, as `/proc` shows it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    start: u64,
    is_dead: bool,
}

impl Seen {
    /// Whether it still has a parent other than init.
    fn has_parent(&self) -> bool {
        self.parent > 1
    }
}

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
            self.exits.age();
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

    /// From now on it is kept which threads are found.
    pub fn report_newcomers(&mut self) {
        self.newcomers.get_or_insert_default();
    }

    /// The threads that were found since the last call, each with its process. Some may have ended.
    pub fn take_newcomers(&mut self) -> Vec<(ThreadId, i32)> {
        self.newcomers
            .as_mut()
            .map_or_else(Vec::new, std::mem::take)
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
        let numbers = process_numbers();
        self.forget_groups(&numbers);
        self.look_at_processes(numbers, old);
    }

    /// Forgets what is known of groups and processes that are no more: their numbers will be others'. `all` are the
    /// processes that there are.
    fn forget_groups(&mut self, all: &[i32]) {
        let there: HashSet<i32> = all.iter().copied().collect();
        // None are there if they could not be listed.
        if there.is_empty() {
            return;
        }
        self.doubtful.retain(|pid| there.contains(pid));
        let (processes, lineage) = (&self.processes, &self.lineage);
        self.shared_groups
            .retain(|group| processes.contains_key(group) || lineage.has_departed(*group));
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
    fn look_at_processes(&mut self, candidates: Vec<i32>, old: Option<u32>) {
        let candidates = candidates.into_iter().map(|pid| (pid, None));
        let mut candidates: Vec<(i32, Option<Seen>)> = candidates.collect();
        loop {
            let before = self.processes.len();
            candidates.retain_mut(|(pid, seen)| {
                if self.processes.contains_key(pid) {
                    return false;
                }
                *seen = self.see(*pid);
                !seen.is_some_and(|seen| self.descends(&seen) && self.take_in(&seen, old))
            });
            if self.processes.len() > before {
                continue;
            }
            // Some descendants show by their group only, unless others are in it as well; and when perch is attached
            // it cannot tell one from the other.
            let left = || candidates.iter().filter_map(|(_, seen)| *seen);
            let strangers = left().filter(|seen| self.is_in_led_group(seen));
            let strangers = strangers.filter(|seen| !self.descends(seen));
            let strangers = strangers.filter(|seen| {
                seen.has_parent() || old.is_some_and(|old| self.target_of(seen.group) == old)
            });
            let strangers: Vec<Seen> = strangers.collect();
            for stranger in &strangers {
                self.stranger_in_group(stranger);
            }
            let orphans: Vec<Seen> = left().filter(|seen| self.is_orphan(seen)).collect();
            let mut added = false;
            for orphan in &orphans {
                added |= self.take_in(orphan, old);
            }
            if !added {
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
            self.came_and_went(told);
            if tid == pid {
                self.lineage.departed(pid);
            }
        }
    }

    /// What `/proc` shows of a process, unless it is perch itself.
    fn see(&mut self, pid: i32) -> Option<Seen> {
        if pid == self.own_pid {
            return None;
        }
        let file = self.reader.file(&format!("/proc/{pid}/stat"));
        let stat = file.ok().and_then(parse_stat)?;
        Some(Seen {
            pid,
            parent: stat.parent,
            group: stat.group,
            session: stat.session,
            start: stat.start,
            is_dead: stat.is_dead(),
        })
    }

    /// Follows a process that is found to be ours. False if it has ended.
    fn take_in(&mut self, seen: &Seen, old: Option<u32>) -> bool {
        let target = self.target_for(seen);
        !seen.is_dead && self.add_process(seen.pid, old != Some(target), target)
    }

    /// The target to which a process that is found belongs.
    fn target_for(&self, seen: &Seen) -> u32 {
        let mut of = [seen.parent, seen.group, seen.session].into_iter();
        if !self.beside {
            let of = of.find(|of| self.processes.contains_key(of));
            return match (of, self.all) {
                (None, Some(all)) => all,
                _ => self.target_of(of.unwrap_or(seen.group)),
            };
        }
        // Every process has a parent that is followed, and a shell's group or session may hold it beside a program. So a
        // living parent decides, then the mark, and a group or session only if a program's process leads it.
        if seen.has_parent() && self.processes.contains_key(&seen.parent) {
            return self.target_of(seen.parent);
        }
        if self.is_marked(seen) == Some(true) {
            return 0;
        }
        let of = of.find(|of| *of != seen.parent && self.leads(*of, seen) && !self.is_system(*of));
        of.map_or(self.all.unwrap_or(0), |of| self.target_of(of))
    }

    /// Whether a process descends from a followed one, as its parent, its session or its mark tells.
    fn descends(&self, seen: &Seen) -> bool {
        if self.all.is_some() {
            return true;
        }
        let child = self.processes.get(&seen.parent).is_some_and(|of| {
            // The parent's PID may have been reused since the parent was last seen.
            of.start <= seen.start && start_of(seen.parent) == Some(of.start)
        });
        // A session is inherited and never joined.
        child
            || self
                .is_marked(seen)
                .unwrap_or(self.leads(seen.session, seen))
    }

    /// What the mark says of a process that may come from a launched program: nothing where there is none.
    fn is_marked(&self, seen: &Seen) -> Option<bool> {
        let launched = self.launched.as_ref()?;
        let adopted = seen.parent == self.own_pid;
        if seen.start < launched.since || seen.has_parent() && !adopted {
            return None;
        }
        match (&launched.session, session_of(seen.pid, SESSION_VARIABLE)) {
            (Some(session), Some(mark)) => Some(has_mark(&mark.to_string_lossy(), session)),
            (_, None) if launched.adopts_alone && adopted => Some(true),
            _ => None,
        }
    }

    /// Whether a process of ours leads this group or session. While that lives its number is not reused, so a leader that
    /// ended lately is still the one.
    fn leads(&self, leader: i32, seen: &Seen) -> bool {
        match self.processes.get(&leader) {
            Some(of) => of.start <= seen.start,
            None => self.lineage.has_departed(leader),
        }
    }

    fn is_in_led_group(&self, seen: &Seen) -> bool {
        self.processes.contains_key(&seen.group) || self.lineage.has_departed(seen.group)
    }

    /// Whether a process that lost its parent descends from a followed one, as its group tells. A group can be joined (a
    /// shell puts all processes of a pipeline into that of the first), so this says nothing where there are strangers.
    fn is_orphan(&self, seen: &Seen) -> bool {
        !seen.has_parent()
            && self.leads(seen.group, seen)
            && !self.shared_groups.contains(&seen.group)
            && self.is_marked(seen).is_none()
    }

    /// A process is in a group that one of ours leads, and is not known to descend from ours.
    fn stranger_in_group(&mut self, stranger: &Seen) {
        self.shared_groups.insert(stranger.group);
        if !stranger.has_parent() && !stranger.is_dead && self.doubtful.insert(stranger.pid) {
            let text = format!(
                "process {} is in the process group of {}, and its parent has ended: perch cannot tell whether it \
                 descends from that, and leaves it alone (`perch attach {}` places it)",
                stranger.pid, stranger.group, stranger.pid
            );
            self.remarks.push(Remark::note("unknown-descent", text));
        }
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
