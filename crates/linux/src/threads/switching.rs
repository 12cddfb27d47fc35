//! How often young threads switch: events of single threads cost something at each switch, so a thread that switches
//! very often must be noticed long before its first period ends.

use super::Tracker;
use crate::proc::RunClock;
use perch_core::ThreadId;
use std::time::{Duration, Instant};

/// A thread is young for this long after it was found; afterwards its samples tell how often it switches.
const YOUNG: Duration = Duration::from_millis(1_200);

/// Between two looks at a thread at least this much time passes: a rate over less says little.
const LEAST: Duration = Duration::from_millis(4);

/// What a young thread had done when it was last looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looked {
    at: Instant,
    switches: u64,
    run: u64,
}

/// What a young thread did between two looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Switching {
    /// Who.
    pub id: ThreadId,
    /// Its process.
    pub pid: i32,
    /// Its switches a second.
    pub rate: f64,
    /// Whether it had any time on a PU.
    pub ran: bool,
}

impl Tracker {
    /// Threads that are found from now on are looked at between samples while they are young.
    pub fn watch_young(&mut self) {
        self.watches_young = true;
    }

    /// Looks at the threads that were found a short while ago, and tells what they did since the last look. A thread's
    /// first look tells nothing.
    pub fn young(&mut self) -> Vec<Switching> {
        let now = Instant::now();
        self.young.retain(|(_, found)| now - *found < YOUNG);
        let mut did = Vec::new();
        for (tid, _) in &self.young {
            let Some(thread) = self.threads.get_mut(tid).filter(|thread| !thread.ended) else {
                continue;
            };
            if thread.looked.is_some_and(|looked| now - looked.at < LEAST) {
                continue;
            }
            let spent = match &thread.file {
                Some(file) => self.clock.read(&**file, self.tick),
                None => self
                    .reader
                    .run_time(self.clock, thread.pid, *tid, self.tick),
            };
            let Ok(spent) = spent else {
                continue;
            };
            let switches = match self.clock {
                RunClock::Schedstat => Some(spent.slices),
                RunClock::Stat => {
                    let status = self.reader.status(thread.pid, *tid).ok();
                    status.and_then(|status| status.switches)
                }
            };
            let Some(switches) = switches else {
                continue;
            };
            let look = Looked {
                at: Instant::now(),
                switches,
                run: spent.run,
            };
            if let Some(before) = thread.looked.replace(look) {
                let time = (look.at - before.at).as_secs_f64();
                did.push(Switching {
                    id: thread.id,
                    pid: thread.pid,
                    rate: switches.saturating_sub(before.switches) as f64 / time,
                    ran: spent.run != before.run,
                });
            }
        }
        did
    }
}
