//! Looks at young threads between periods, where the events are those of single threads: such an event costs its
//! thread time at every switch, and a little of that even when it was closed. So it is opened only when the threads
//! have shown that they do not switch very often, and closed soon if they begin to.

use super::LiveMachine;
use crate::{perf::TaskEvents, threads::Sampled};
use perch_core::{MachineError, Remark, ThreadId, ThreadSample};
use rustc_hash::FxHashSet;
use std::time::{Duration, Instant};

/// Switches a second from which a thread has to be spared the events by which the kernel reports new threads.
///
/// Such an event costs 0.12 to 0.15 µs a switch if all threads have inherited it, 0.56 µs otherwise (measured, Linux
/// 6.18 in a virtual machine): at this rate 0.3 to 1.1 % of a PU.
const MOST_SWITCHES: f64 = 20_000.0;

/// New threads a second from which a program has to be spared these events: each thread inherits them, which costs about
/// 75 µs a process (measured by starting `/bin/true`, where it is 12 % of all time). At this rate 1.5 % of a PU.
const MOST_FORKS: f64 = 200.0;

/// Fewer new threads than these say little of a rate: many programs begin with as many.
const FORKS: u32 = 100;

/// The first look comes this long after something new was seen, and each further one twice as long after the last,
const SOONEST: Duration = Duration::from_millis(5);

/// but at least this often: new threads are seen only when perch looks.
const LATEST: Duration = Duration::from_millis(100);

/// Looks take at most one part in this many of the time.
const SHARE: u32 = 100;

/// The records of single threads are opened after this many looks: the second one tells a rate.
const LOOKS: u32 = 2;

/// What has become of the records of single threads.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Records {
    /// They are not needed.
    #[default]
    None,
    /// It is not yet known how often threads switch.
    Pending,
    /// They are open.
    Open,
    /// Threads switch too often for them, as long as these live.
    Spared,
    /// They were refused by the kernel.
    Refused,
}

/// When to look next, and what for.
#[derive(Debug, Default)]
pub(super) struct EarlyLooks {
    records: Records,
    /// `None` where nothing costs threads time at switches.
    next: Option<Instant>,
    /// Not before this moment, since the last look took long.
    rest: Option<Instant>,
    gap: Duration,
    looks: u32,
    /// Most switches a second that a look has shown, and the target whose they are, if it is known.
    most: (f64, Option<u32>),
    /// Targets for which there are no records.
    spared: Vec<u32>,
    /// New threads that were reported in this time.
    forks: u32,
    counting: Option<Instant>,
}

impl EarlyLooks {
    /// From now on there are looks, unless they have shown already that they are of no use.
    pub(super) fn begin(&mut self) {
        if self.records == Records::None {
            self.records = Records::Pending;
            self.next = Some(Instant::now() + SOONEST);
        }
        self.news();
    }

    /// The kernel has told of a new thread.
    pub(super) fn forked(&mut self) {
        self.forks += 1;
        self.news();
    }

    /// New threads a second, once that can be told from how many begin with the program.
    fn fork_rate(&mut self, now: Instant) -> Option<f64> {
        let since = *self.counting.get_or_insert(now);
        let time = (now - since).as_secs_f64();
        let rate = (self.forks >= FORKS).then(|| f64::from(self.forks) / time.max(0.1));
        if time >= 1.0 {
            (self.forks, self.counting) = (0, Some(now));
        }
        rate
    }

    /// There is something new to look at.
    pub(super) fn news(&mut self) {
        if let Some(next) = &mut self.next {
            self.gap = SOONEST;
            let soon = Instant::now() + SOONEST;
            *next = (*next).min(self.rest.map_or(soon, |rest| rest.max(soon)));
        }
    }

    /// When the next look is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next
    }

    /// A look that began at this moment was made.
    fn looked(&mut self, began: Instant) {
        self.looks += 1;
        if let Some(next) = &mut self.next {
            let now = Instant::now();
            self.gap = (self.gap * 2).clamp(SOONEST, LATEST);
            let rest = now + (now - began) * SHARE;
            self.rest = Some(rest);
            *next = (now + self.gap).max(rest);
        }
    }

    /// No more looks and no more records: refused, or as long as one of some targets lives.
    fn end(&mut self, why: Records, spared: Vec<u32>) {
        self.records = why;
        self.spared = spared;
        self.next = None;
    }

    /// At a period's end, with the targets that live and the thread that switches most: whether those for which there were
    /// no records are gone and there may be some again.
    fn begins_again(&mut self, live: &[u32], most: (f64, Option<u32>)) -> bool {
        if self.records != Records::Spared || self.spared.iter().any(|of| live.contains(of)) {
            return false;
        }
        if most.0 > MOST_SWITCHES && !live.is_empty() {
            self.spared = guilty(most.1, live);
            return false;
        }
        *self = Self::default();
        if !live.is_empty() {
            self.begin();
        }
        true
    }
}

impl LiveMachine {
    /// Looks at young threads if it is time.
    pub(super) fn look_early(&mut self) {
        let now = Instant::now();
        if self.early.due().is_none_or(|due| now < due) {
            return;
        }
        match self.early.records {
            // No record reports the threads with which the program began.
            Records::Pending => self.tracker.discover(),
            _ => self.tracker.consider_told(),
        }
        let young = self.tracker.young();
        self.early.looked(now);
        let rates = young.iter().map(|thread| (thread.pid, thread.rate));
        self.decide_records(self.fastest(rates), LOOKS);
        self.counting.looked_at(&young);
    }

    /// The same at a period's end, when all threads were looked at.
    pub(super) fn end_early(&mut self, sampled: &Sampled) {
        // Threads that have ended can be spared nothing, and of a short life a rate says little.
        let ended: FxHashSet<ThreadId> = sampled.ended.iter().copied().collect();
        let live = sampled.threads.iter();
        let live = live.filter(|sample| !ended.contains(&sample.info.id));
        let most = self.fastest(live.filter_map(switches));
        match self.early.records {
            Records::Pending | Records::Open => {
                if self.early.records == Records::Open {
                    // An execve(2) of before they were opened has shown in this period.
                    self.tracker.expect_records(false);
                }
                self.decide_records(most, 0);
            }
            Records::Spared => {
                let live = self.present_targets();
                self.early.begins_again(&live, most);
            }
            Records::None | Records::Refused => {}
        }
    }

    fn present_targets(&self) -> Vec<u32> {
        self.tracker.processes().map(|(_, target)| target).collect()
    }

    /// The highest of these rates, and the target of its process.
    fn fastest(&self, rates: impl Iterator<Item = (i32, f64)>) -> (f64, Option<u32>) {
        let most = rates.max_by(|a, b| a.1.total_cmp(&b.1));
        let (pid, rate) = most.unwrap_or_default();
        (rate, self.tracker.target_if_followed(pid))
    }

    /// Opens the records of single threads after this many looks, or closes them: by how often threads switch.
    fn decide_records(&mut self, most: (f64, Option<u32>), looks: u32) {
        if most.0 > self.early.most.0 {
            self.early.most = most;
        }
        let forks = self.early.fork_rate(Instant::now());
        let (rate, target) = self.early.most;
        let why = if rate > MOST_SWITCHES {
            let text = format!("a thread that switches {rate:.0} times a second");
            Some((text, target))
        } else {
            let many = forks.filter(|rate| *rate > MOST_FORKS);
            many.map(|rate| {
                let text = format!("a program that starts {rate:.0} threads a second");
                (text, None)
            })
        };
        match (self.early.records, why) {
            (Records::Pending | Records::Open, Some((why, target))) => self.spare(&why, target),
            (Records::Pending, None) if self.early.looks >= looks => {
                self.open_records_of_threads();
            }
            _ => {}
        }
    }

    /// Closes the events that cost threads time at every switch and at their start: for the threads of this target, or of
    /// any.
    fn spare(&mut self, whom: &str, target: Option<u32>) {
        let spared = guilty(target, &self.present_targets());
        self.early.end(Records::Spared, spared);
        if let Some(events) = &mut self.task_events {
            events.close();
            self.drain_task_events();
        }
        self.task_events = None;
        self.tracker.expect_no_records();
        let text = format!(
            "the kernel's records of new threads would slow {whom}, so they are not used: {PROC_ALONE}. Watching whole PUs \
             costs threads nothing: `sysctl kernel.perf_event_paranoid=0`, or {}",
            crate::capability::advice("CAP_PERFMON")
        );
        // The rate in it says nothing new.
        self.remark(Remark::warning("task-records", text).once());
    }

    fn open_records_of_threads(&mut self) {
        let processes: Vec<_> = self.tracker.processes().collect();
        let mut opened: Option<TaskEvents> = None;
        for (process, target) in processes {
            let pid = process.pid;
            let result = match &mut opened {
                Some(events) => events.add_process(pid, target),
                None => TaskEvents::for_process(pid, target, self.newcomers.buffering())
                    .map(|events| opened = Some(events)),
            };
            match result {
                // It has just ended.
                Ok(()) | Err(MachineError::NoSuchProcess(_)) => {}
                Err(error) if opened.is_none() => {
                    self.early.end(Records::Refused, Vec::new());
                    let text = format!("{PROC_ALONE} ({error})");
                    self.remark(Remark::warning("task-records", text));
                    return;
                }
                // What is started there is found by looking into /proc.
                Err(_) => {}
            }
        }
        if opened.is_some() {
            self.task_events = opened;
            self.early.records = Records::Open;
            // What came before is found there.
            self.newcomers.told();
            self.tracker.look_everywhere_next();
        }
    }
}

/// What there is to say where the kernel does not tell of new threads.
const PROC_ALONE: &str = "threads are found by looking into /proc alone, so those that live shorter than a period are \
                          not counted, and one whose mask may be inherited from perch or set by its program is left \
                          alone";

/// Those for which there are no records: one target, or all that live where it is not known whose threads would be slowed.
fn guilty(target: Option<u32>, live: &[u32]) -> Vec<u32> {
    target.map_or_else(|| live.to_vec(), |target| vec![target])
}

/// A thread's process and its switches a second in its interval, if they are known.
fn switches(sample: &ThreadSample) -> Option<(i32, f64)> {
    let seconds = sample.interval.max(1) as f64 / 1e9;
    let switches = sample.switches?;
    Some((sample.info.pid, switches as f64 / seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_frequent_after_news_and_then_fewer() {
        let mut looks = EarlyLooks::default();
        looks.news();
        assert_eq!(looks.due(), None);
        looks.begin();
        let gaps: Vec<Duration> = (0..6)
            .map(|_| {
                looks.looked(Instant::now());
                looks.gap
            })
            .collect();
        let milliseconds = gaps.iter().map(Duration::as_millis);
        assert_eq!(milliseconds.collect::<Vec<_>>(), [10, 20, 40, 80, 100, 100]);
        looks.rest = None;
        looks.news();
        assert_eq!(looks.gap, SOONEST);
        assert!(
            looks
                .due()
                .is_some_and(|due| due <= Instant::now() + SOONEST)
        );
        looks.end(Records::Refused, Vec::new());
        looks.news();
        assert_eq!(looks.due(), None);
    }

    #[test]
    fn records_are_looked_for_again_once_those_whom_they_would_slow_have_ended() {
        let calm = (100.0, Some(1));
        let mut looks = EarlyLooks::default();
        looks.begin();
        (looks.most, looks.forks) = ((1e6, Some(2)), 500);
        looks.end(Records::Spared, guilty(Some(2), &[1, 2]));
        assert!(!looks.begins_again(&[1, 2, 3], calm));
        looks.begin();
        assert_eq!(looks.due(), None);
        // Another one switches as often.
        assert!(!looks.begins_again(&[1, 3], (1e5, Some(3))));
        assert!(!looks.begins_again(&[1, 3], calm));
        assert!(looks.begins_again(&[1], calm));
        assert_eq!(
            (looks.records, looks.most.0, looks.forks),
            (Records::Pending, 0.0, 0)
        );
        assert!(looks.due().is_some());
        // Of two that started many threads, who knows.
        looks.end(Records::Spared, guilty(None, &[1, 4]));
        assert!(!looks.begins_again(&[4, 5], calm));
        assert!(looks.begins_again(&[], calm));
        assert_eq!((looks.records, looks.due()), (Records::None, None));
        // A refusal stays one.
        looks.end(Records::Refused, Vec::new());
        assert!(!looks.begins_again(&[], calm));
    }

    #[test]
    fn a_rate_of_new_threads_is_told_after_many() {
        let mut looks = EarlyLooks::default();
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        assert_eq!(looks.fork_rate(begin), None);
        (1..FORKS).for_each(|_| looks.forked());
        assert_eq!(looks.fork_rate(at(300)), None);
        looks.forked();
        assert_eq!(looks.fork_rate(at(500)), Some(f64::from(FORKS) / 0.5));
        // Each second counts anew.
        assert!(looks.fork_rate(at(1_000)).is_some());
        assert_eq!(looks.fork_rate(at(1_200)), None);
    }

    #[test]
    fn long_looks_are_rare() {
        let mut looks = EarlyLooks::default();
        looks.begin();
        let took = Duration::from_millis(50);
        let began = Instant::now() - took;
        looks.looked(began);
        let rested =
            |looks: &EarlyLooks| looks.due().is_some_and(|due| due >= began + took * SHARE);
        assert!(rested(&looks));
        looks.news();
        assert!(rested(&looks));
    }
}
