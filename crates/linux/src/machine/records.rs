//! What the kernel reports about threads: that they start, exit and get other names, and what they did up to their end.

use super::LiveMachine;
use crate::{
    perf::{TaskEvent, TaskEvents},
    threads::Created,
};

impl LiveMachine {
    /// Opens the kernel's task records: of the whole machine where that is allowed, since it costs the threads
    /// nothing. Those of single threads are opened a little later, if the threads do not switch too often for them.
    /// Likewise its exit records.
    pub(super) fn open_task_events(&mut self, pid: i32, target: u32) {
        if !self.per_thread {
            self.exit_records |= self.tracker.open_exit_records(self.opened);
        }
        if let Some(events) = &mut self.task_events {
            // A failure leaves finding the threads to /proc.
            let _ = events.add_process(pid, target);
            return;
        }
        let system_wide = match self.per_thread {
            true => None,
            false => TaskEvents::system_wide(self.newcomers.buffering()).ok(),
        };
        match system_wide {
            Some(events) => {
                self.task_events = Some(events);
                self.tracker.expect_records(true);
            }
            None => {
                self.early.begin();
                self.tracker.watch_young();
            }
        }
    }

    /// Takes in what the kernel reported about threads.
    pub(super) fn drain_task_events(&mut self) {
        self.take_in_task_events();
        // After them: of every thread whose end they tell the exit record was made before.
        self.tracker.drain_exit_records();
    }

    fn take_in_task_events(&mut self) {
        let Some(events) = &mut self.task_events else {
            return;
        };
        for event in events.drain() {
            self.counting.note(&event);
            match event {
                TaskEvent::Fork {
                    pid,
                    tid,
                    ppid,
                    ptid,
                    time,
                } => {
                    self.early.forked();
                    self.newcomers.told();
                    self.tracker.forked(Created {
                        pid,
                        tid,
                        by_pid: ppid,
                        by_tid: ptid,
                        at: time.saturating_sub(self.opened),
                    });
                }
                TaskEvent::Exit { tid, .. } => self.tracker.exited(tid),
                TaskEvent::Comm {
                    pid,
                    tid,
                    name,
                    exec,
                    time,
                } => {
                    if exec {
                        let at = time.saturating_sub(self.opened);
                        self.tracker.executed(pid, at);
                    }
                    self.tracker.renamed(tid, &name);
                }
                TaskEvent::Mapped { .. } => {}
                TaskEvent::Lost(_) => {
                    self.newcomers.told();
                    self.tracker.look_everywhere_next();
                }
            }
        }
        self.remarks.extend(events.remarks());
    }
}
