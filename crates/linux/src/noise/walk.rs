//! From the events of a PU to who had it when, and how long each took: pure.
//!
//! At any time the innermost has the PU: an interrupt that interrupts a soft interrupt that interrupts a thread. Time is
//! given to that one only, as the kernel's tracer `osnoise` does it.

use super::event::{Event, SourceId, What};
use std::collections::HashMap;

/// A time in which a source had the PU without a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// From, in nanoseconds.
    pub start: u64,
    /// To.
    pub end: u64,
    /// Who.
    pub source: SourceId,
}

/// One interrupt, one run of a function, or what a thread did from when it got the PU until it waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// When it began, in nanoseconds.
    pub start: u64,
    /// The time that it had the PU, in nanoseconds, without what interrupted it in turn.
    pub took: u64,
    /// Who.
    pub source: SourceId,
}

/// Who had a PU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// In order, without overlaps; what is in none belongs to the measuring thread.
    pub slices: Vec<Slice>,
    /// By the time at which they ended.
    pub runs: Vec<Run>,
}

struct Walk {
    own: i32,
    /// The thread that has the PU, and its source; `None` after lost events.
    thread: Option<(i32, SourceId)>,
    /// Interrupts that have begun, the innermost last.
    stack: Vec<Run>,
    /// What threads have done since they got the PU after waiting, also while they are preempted.
    bursts: HashMap<i32, Run>,
    /// Functions that threads are in.
    works: HashMap<i32, Run>,
    since: u64,
    /// Slices that the thread got since the last event that says who it is.
    given: Vec<usize>,
    walked: Walked,
}

/// Follows the events of a PU, in order of time, from `start` to `end` (nanoseconds). The measuring thread, `own`, has the
/// PU at the start and at the end.
///
/// A switch may be missing without notice: the kernel drops an event of a thread that is just writing another one. It shows
/// when a thread gives up the PU that should not have had it. What the threads are supposed to have had since the switch
/// before is given to nobody then.
pub fn walk(events: &[Event], own: i32, start: u64, end: u64) -> Walked {
    let mut walk = Walk {
        own,
        thread: Some((own, 0)),
        stack: Vec::new(),
        bursts: HashMap::new(),
        works: HashMap::new(),
        since: start,
        given: Vec::new(),
        walked: Walked::default(),
    };
    for event in events {
        walk.pass(event);
    }
    walk.until(end);
    walk.is_there(own);
    walk.finish();
    walk.walked
}

impl Walk {
    fn pass(&mut self, event: &Event) {
        match event.what {
            What::Nmi(source, took) => {
                // The kernel reports it at its end.
                let took = took.min(event.time.saturating_sub(self.since));
                self.until(event.time - took);
                self.stack.push(Run {
                    start: event.time - took,
                    took: 0,
                    source,
                });
                self.until(event.time);
                self.pop();
                return;
            }
            _ => self.until(event.time),
        }
        match event.what {
            What::Enter(source) => self.stack.push(Run {
                start: event.time,
                took: 0,
                source,
            }),
            What::Exit(source) => {
                // One that began before the first event is not there.
                if let Some(at) = self.stack.iter().rposition(|run| run.source == source) {
                    while self.stack.len() > at {
                        self.pop();
                    }
                }
            }
            What::Work(source) => {
                self.given.clear();
                if let Some((tid, _)) = self.thread {
                    let run = Run {
                        start: event.time,
                        took: 0,
                        source,
                    };
                    let before = self.works.insert(tid, run);
                    self.walked.runs.extend(before);
                }
            }
            What::WorkDone => {
                self.given.clear();
                let done = self.thread.and_then(|(tid, _)| self.works.remove(&tid));
                self.walked.runs.extend(done);
            }
            What::Switch {
                from,
                done,
                to,
                source,
            } => {
                // No interrupt goes on in another thread.
                while !self.stack.is_empty() {
                    self.pop();
                }
                self.is_there(from);
                self.given.clear();
                if done {
                    let burst = self.bursts.remove(&from);
                    self.walked.runs.extend(burst);
                }
                self.thread = Some((to, source));
                if to != self.own {
                    self.bursts.entry(to).or_insert(Run {
                        start: event.time,
                        took: 0,
                        source,
                    });
                }
            }
            What::Lost => {
                self.stack.clear();
                self.bursts.clear();
                self.works.clear();
                self.given.clear();
                self.thread = None;
            }
            What::Nmi(..) => {}
        }
    }

    /// A thread is known to have the PU. If another one should have it, a switch is missing.
    fn is_there(&mut self, tid: i32) {
        let Some((supposed, _)) = self.thread.filter(|(supposed, _)| *supposed != tid) else {
            return;
        };
        self.thread = None;
        for at in std::mem::take(&mut self.given).into_iter().rev() {
            let slice = self.walked.slices.remove(at);
            let took = slice.end - slice.start;
            let run = match self.works.get_mut(&supposed) {
                Some(work) => Some(work),
                None => self.bursts.get_mut(&supposed),
            };
            if let Some(run) = run {
                run.took = run.took.saturating_sub(took);
            }
        }
        let nothing = |runs: &mut HashMap<i32, Run>| {
            runs.retain(|tid, run| *tid != supposed || run.took > 0);
        };
        nothing(&mut self.works);
        nothing(&mut self.bursts);
    }

    /// Gives the time up to a moment to who had it.
    fn until(&mut self, time: u64) {
        let took = time.saturating_sub(self.since);
        let start = self.since;
        self.since = self.since.max(time);
        if took == 0 {
            return;
        }
        let run = match (self.stack.last_mut(), self.thread) {
            (Some(run), _) => Some(run),
            (None, Some((tid, _))) if tid == self.own => None,
            (None, Some((tid, _))) => match self.works.get_mut(&tid) {
                Some(work) => Some(work),
                None => self.bursts.get_mut(&tid),
            },
            (None, None) => None,
        };
        let Some(run) = run else {
            return;
        };
        run.took += took;
        let source = run.source;
        let to_thread = self.stack.is_empty();
        let number = self.walked.slices.len();
        let last_given = self.given.last().is_some_and(|at| at + 1 == number);
        match self.walked.slices.last_mut() {
            Some(last) if last.end == start && last.source == source && last_given == to_thread => {
                last.end = time;
            }
            _ => {
                self.walked.slices.push(Slice {
                    start,
                    end: time,
                    source,
                });
                if to_thread {
                    self.given.push(number);
                }
            }
        }
    }

    fn pop(&mut self) {
        let run = self.stack.pop();
        self.walked.runs.extend(run);
    }

    /// What goes on at the end has run so far.
    fn finish(&mut self) {
        while !self.stack.is_empty() {
            self.pop();
        }
        let mut left: Vec<Run> = self
            .works
            .drain()
            .chain(self.bursts.drain())
            .map(|(_, run)| run)
            .collect();
        left.retain(|run| run.took > 0);
        left.sort_by_key(|run| (run.start, run.source));
        self.walked.runs.extend(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(list: &[(u64, What)]) -> Vec<Event> {
        list.iter()
            .map(|(time, what)| Event {
                time: *time,
                what: *what,
            })
            .collect()
    }

    fn switch(from: i32, done: bool, to: i32, source: SourceId) -> What {
        What::Switch {
            from,
            done,
            to,
            source,
        }
    }

    #[test]
    fn the_innermost_has_the_time() {
        // A timer, in it an NMI, then a soft interrupt that a device interrupts.
        let told = events(&[
            (100, What::Enter(1)),
            (130, What::Nmi(2, 10)),
            (150, What::Exit(1)),
            (160, What::Enter(3)),
            (170, What::Enter(4)),
            (175, What::Exit(4)),
            (200, What::Exit(3)),
        ]);
        let walked = walk(&told, 7, 0, 300);
        let slice = |start, end, source| Slice { start, end, source };
        assert_eq!(
            walked.slices,
            [
                slice(100, 120, 1),
                slice(120, 130, 2),
                slice(130, 150, 1),
                slice(160, 170, 3),
                slice(170, 175, 4),
                slice(175, 200, 3),
            ]
        );
        let mut runs: Vec<(SourceId, u64)> = walked
            .runs
            .iter()
            .map(|run| (run.source, run.took))
            .collect();
        runs.sort_unstable();
        assert_eq!(runs, [(1, 40), (2, 10), (3, 35), (4, 5)]);
    }

    #[test]
    fn a_preempted_thread_goes_on_with_its_run_and_an_interrupt_is_not_its_time() {
        let told = events(&[
            (1000, switch(7, false, 20, 1)),
            (1100, What::Enter(2)),
            (1110, What::Exit(2)),
            (1200, switch(20, false, 7, 0)),
            (1300, switch(7, false, 20, 1)),
            (1350, switch(20, true, 7, 0)),
            (2000, switch(7, false, 20, 1)),
            (2040, switch(20, true, 7, 0)),
        ]);
        let walked = walk(&told, 7, 900, 3000);
        let of = |source| -> Vec<(u64, u64)> {
            let runs = walked.runs.iter().filter(|run| run.source == source);
            runs.map(|run| (run.start, run.took)).collect()
        };
        assert_eq!(of(1), [(1000, 240), (2000, 40)]);
        assert_eq!(of(2), [(1100, 10)]);
    }

    #[test]
    fn functions_are_told_from_the_worker_that_runs_them() {
        let told = events(&[
            (10, switch(7, false, 30, 1)),
            (12, What::Work(5)),
            (20, switch(30, true, 7, 0)),
            (40, switch(7, false, 30, 1)),
            (45, What::WorkDone),
            (46, switch(30, true, 7, 0)),
        ]);
        let walked = walk(&told, 7, 0, 100);
        let took = |source| -> u64 {
            let runs = walked.runs.iter().filter(|run| run.source == source);
            runs.map(|run| run.took).sum()
        };
        assert_eq!((took(5), took(1)), (13, 3));
    }

    #[test]
    fn a_missing_switch_makes_no_long_run() {
        let told = events(&[
            (1000, switch(7, false, 20, 1)),
            (1040, switch(20, true, 7, 0)),
            // The switch back is missing, and so is one later.
            (2000, switch(7, false, 20, 1)),
            (2500, What::Enter(2)),
            (2510, What::Exit(2)),
            (9000, switch(7, false, 30, 3)),
            (9010, switch(30, true, 7, 0)),
            (9500, switch(7, false, 20, 1)),
        ]);
        let walked = walk(&told, 7, 900, 20_000);
        let slice = |start, end, source| Slice { start, end, source };
        assert_eq!(
            walked.slices,
            [
                slice(1000, 1040, 1),
                slice(2500, 2510, 2),
                slice(9000, 9010, 3)
            ]
        );
        let runs: Vec<(u64, u64, SourceId)> = walked
            .runs
            .iter()
            .map(|run| (run.start, run.took, run.source))
            .collect();
        assert_eq!(runs, [(1000, 40, 1), (2500, 10, 2), (9000, 10, 3)]);
    }

    fn any_what() -> impl Strategy<Value = What> {
        let tid = 1i32..5;
        prop_oneof![
            (tid.clone(), any::<bool>(), tid, 0u32..6)
                .prop_map(|(from, done, to, source)| switch(from, done, to, source)),
            (0u32..6).prop_map(What::Enter),
            (0u32..6).prop_map(What::Exit),
            (0u32..6).prop_map(What::Work),
            Just(What::WorkDone),
            (0u32..6, 0u64..50).prop_map(|(source, took)| What::Nmi(source, took)),
            Just(What::Lost),
        ]
    }

    proptest! {
        #[test]
        fn slices_do_not_overlap_and_runs_take_no_more(
            list in proptest::collection::vec((0u64..100, any_what()), 0..80),
        ) {
            let mut time = 1000;
            let list: Vec<(u64, What)> = list
                .into_iter()
                .map(|(wait, what)| {
                    time += wait;
                    (time, what)
                })
                .collect();
            let walked = walk(&events(&list), 1, 1000, time + 10);
            for pair in walked.slices.windows(2) {
                prop_assert!(pair[0].end <= pair[1].start);
            }
            let sliced: u64 = walked.slices.iter().map(|slice| slice.end - slice.start).sum();
            prop_assert!(sliced <= time + 10 - 1000);
            let ran: u64 = walked.runs.iter().map(|run| run.took).sum();
            // What was lost is missing from runs.
            let lost = list.iter().any(|(_, what)| *what == What::Lost);
            prop_assert!(ran <= sliced && (lost || ran == sliced), "{ran} of {sliced}");
        }
    }
}
