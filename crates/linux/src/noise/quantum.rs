//! Quanta of fixed work (FWQ) and of fixed time (FTQ) on the PU to which the calling thread is bound.
//!
//! FWQ does the same work again and again, and reads the clock after each: what a quantum takes longer than the shortest
//! one was lost. FTQ counts the units of work that fit into each of many equally long quanta: what is missing from the
//! fullest one was lost (Sottile and Minnich, "Analysis of microbenchmarks for performance tuning of clusters", 2004).

use crate::perf::task_events::monotonic as now;
use perch_kernels::work;
use std::ops::ControlFlow;

/// What takes its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Fixed work.
    Fwq,
    /// Fixed time.
    Ftq,
}

/// A part of the time in which something else had the PU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interruption {
    /// CLOCK_MONOTONIC time at which the first quantum began that lost time, in nanoseconds.
    pub start: u64,
    /// Length of the quanta that lost it, in nanoseconds.
    pub within: u64,
    /// Time lost, in nanoseconds.
    pub lost: u64,
}

/// How quanta are measured.
#[derive(Debug, Clone, Copy)]
pub struct Quanta {
    /// The method.
    pub method: Method,
    /// Length of a quantum in nanoseconds; `None` for the method's own.
    pub length: Option<u64>,
    /// Time that a quantum must lose to be counted as interrupted, in nanoseconds; `None` for one that follows from the
    /// undisturbed quanta.
    pub threshold: Option<u64>,
}

/// What quanta have shown.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// When was measured: from, to, in nanoseconds of CLOCK_MONOTONIC, in order.
    pub windows: Vec<(u64, u64)>,
    /// What lost at least the threshold, in order.
    pub interruptions: Vec<Interruption>,
    /// Number of quanta.
    pub quanta: u64,
    /// FWQ: the time of the shortest quantum. FTQ: the length of a quantum. Nanoseconds.
    pub quantum: u64,
    /// The threshold in force, in nanoseconds.
    pub threshold: u64,
    /// What reading the clock takes, in nanoseconds.
    pub clock: f64,
}

/// The usual lengths in nanoseconds.
const FWQ: u64 = 2_000;
const FTQ: u64 = 1_000_000;
/// A quantum is at least this many times as long as reading the clock takes.
const CLOCKS: f64 = 20.0;
/// The least threshold in nanoseconds.
const LEAST: u64 = 1_000;
/// Unless the user says otherwise, an FWQ quantum that takes longer by this part of it was interrupted.
const PART: f64 = 0.5;
/// An FTQ quantum was interrupted if it lost this many times what undisturbed ones lose: those that lost less than 9 in 10.
const TIMES: u64 = 3;
/// From one look at the ring and the clock's limit to the next, in nanoseconds of measuring.
pub const LOOK: u64 = 10_000_000;
/// So many results are made room for at a time: a page fault within a quantum would be noise of perch's own.
const ROOM: usize = 1 << 16;

/// Time of one reading of the clock, in nanoseconds: the least of several rounds.
pub fn clock_cost() -> f64 {
    const READS: u32 = 1000;
    let round = || {
        let start = now();
        for _ in 1..READS {
            std::hint::black_box(now());
        }
        (now() - start) as f64 / f64::from(READS)
    };
    (0..10).map(|_| round()).fold(f64::MAX, f64::min)
}

/// Nanoseconds of one step of work: the least of many tries.
fn step_cost() -> f64 {
    const STEPS: u64 = 20_000;
    let round = || {
        let start = now();
        work(STEPS);
        (now() - start) as f64 / STEPS as f64
    };
    (0..200).map(|_| round()).fold(f64::MAX, f64::min).max(1e-3)
}

/// Room for more results, touched before it is needed. The kernel gives memory when it is first written.
fn make_room<T: Clone + Default>(of: &mut Vec<T>) {
    let length = of.len();
    if of.capacity() - length < ROOM {
        of.resize(length + 2 * ROOM, T::default());
        of.truncate(length);
    }
}

/// Measures until `look` says that it is enough. It is asked every [`LOOK`] between two quanta with the time and the
/// number of results kept so far; the time that it takes is not measured.
pub fn measure(quanta: &Quanta, look: impl FnMut(u64, usize) -> ControlFlow<()>) -> Measured {
    let clock = clock_cost();
    let usual = match quanta.method {
        Method::Fwq => FWQ,
        Method::Ftq => FTQ,
    };
    let length = quanta.length.unwrap_or(usual.max((CLOCKS * clock) as u64));
    let mut measured = match quanta.method {
        Method::Fwq => fixed_work(length, quanta.threshold, look),
        Method::Ftq => fixed_time(length, clock, quanta.threshold, look),
    };
    measured.clock = clock;
    measured
}

fn fixed_work(
    length: u64,
    threshold: Option<u64>,
    mut look: impl FnMut(u64, usize) -> ControlFlow<()>,
) -> Measured {
    let steps = ((length as f64 / step_cost()) as u64).max(1);
    let threshold = threshold.unwrap_or(((length as f64 * PART) as u64).max(LEAST));
    let mut measured = Measured {
        threshold,
        ..Measured::default()
    };
    let mut least = u64::MAX;
    make_room(&mut measured.interruptions);
    loop {
        let start = now();
        let due = start + LOOK;
        let mut last = start;
        while last < due && measured.interruptions.len() < measured.interruptions.capacity() {
            work(steps);
            let time = now();
            let within = time - last;
            least = least.min(within);
            if within > least + threshold {
                measured.interruptions.push(Interruption {
                    start: last,
                    within,
                    lost: 0,
                });
            }
            measured.quanta += 1;
            last = time;
        }
        measured.windows.push((start, last));
        if look(last, measured.interruptions.len()).is_break() {
            break;
        }
        make_room(&mut measured.interruptions);
    }
    measured.quantum = least;
    let over = |found: &Interruption| found.within - least;
    measured
        .interruptions
        .retain(|found| over(found) > threshold);
    for found in &mut measured.interruptions {
        found.lost = over(found);
    }
    join(&mut measured.windows);
    measured
}

fn fixed_time(
    length: u64,
    clock: f64,
    threshold: Option<u64>,
    mut look: impl FnMut(u64, usize) -> ControlFlow<()>,
) -> Measured {
    let length = length.max(1);
    // A unit costs as much as 20 readings of the clock, or a thousandth of the quantum.
    let unit = (CLOCKS * clock).max(length as f64 / 1000.0);
    let steps = ((unit / step_cost()) as u64).max(1);
    let mut counts: Vec<(u64, u32)> = Vec::new();
    let mut windows = Vec::new();
    make_room(&mut counts);
    loop {
        let start = now();
        let due = start + LOOK.max(length);
        let (mut begun, mut units, mut last) = (start, 0, start);
        while last < due && counts.len() < counts.capacity() {
            work(steps);
            units += 1;
            last = now();
            // Quanta that passed as a whole while something else ran have no unit.
            while last >= begun + length && counts.len() < counts.capacity() {
                counts.push((begun, std::mem::take(&mut units)));
                begun += length;
            }
        }
        // The last quantum is not over: it does not count.
        windows.push((start, begun));
        if look(last, counts.len()).is_break() {
            break;
        }
        make_room(&mut counts);
    }
    let most = counts.iter().map(|(_, units)| *units).max().unwrap_or(0);
    let lost = |units: u32| u64::from(most - units) * length / u64::from(most.max(1));
    let threshold = threshold.unwrap_or_else(|| {
        let mut losses: Vec<u64> = counts.iter().map(|(_, units)| lost(*units)).collect();
        losses.sort_unstable();
        let undisturbed = losses.get(losses.len() / 10).copied().unwrap_or(0);
        (TIMES * undisturbed)
            .max(LEAST)
            .max(2 * lost(most.saturating_sub(1)))
    });
    let mut interruptions: Vec<Interruption> = Vec::new();
    for (begun, lost) in counts.iter().map(|(begun, units)| (*begun, lost(*units))) {
        if lost <= threshold {
            continue;
        }
        match interruptions.last_mut() {
            // One that goes on through several quanta.
            Some(before) if before.start + before.within == begun => {
                before.within += length;
                before.lost += lost;
            }
            _ => interruptions.push(Interruption {
                start: begun,
                within: length,
                lost,
            }),
        }
    }
    join(&mut windows);
    Measured {
        quanta: counts.len() as u64,
        quantum: length,
        windows,
        interruptions,
        threshold,
        clock,
    }
}

/// Joins windows between which next to nothing was left out.
fn join(windows: &mut Vec<(u64, u64)>) {
    /// What a look takes that finds nothing to do, at most, in nanoseconds.
    const NOTHING: u64 = 5_000;
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in windows.drain(..) {
        match joined.last_mut() {
            Some(last) if from.saturating_sub(last.1) < NOTHING => last.1 = to,
            _ => joined.push((from, to)),
        }
    }
    *windows = joined;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks at this look.
    fn looks(mut left: u32) -> impl FnMut(u64, usize) -> ControlFlow<()> {
        move |_, _| {
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    fn check(measured: &Measured) {
        assert!(measured.quanta > 0 && measured.clock > 0.0);
        for pair in measured.windows.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{pair:?}");
        }
        for found in &measured.interruptions {
            assert!(found.lost > measured.threshold, "{found:?}");
            assert!(found.lost <= found.within, "{found:?}");
            let end = found.start + found.within;
            let in_one = |window: &&(u64, u64)| window.0 <= found.start && end <= window.1;
            assert!(measured.windows.iter().any(|w| in_one(&w)), "{found:?}");
        }
        for pair in measured.interruptions.windows(2) {
            assert!(pair[0].start + pair[0].within <= pair[1].start, "{pair:?}");
        }
    }

    #[test]
    fn interruptions_lie_in_windows_and_lost_no_more_than_there_was() {
        for method in [Method::Fwq, Method::Ftq] {
            for threshold in [None, Some(1), Some(50_000)] {
                let quanta = Quanta {
                    method,
                    length: None,
                    threshold,
                };
                check(&measure(&quanta, looks(5)));
            }
        }
    }

    #[test]
    fn what_a_look_takes_is_not_measured() {
        let quanta = Quanta {
            method: Method::Fwq,
            length: None,
            threshold: None,
        };
        let mut look = looks(4);
        let mut pauses: Vec<u64> = Vec::new();
        let measured = measure(&quanta, |time, kept| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            pauses.push(time);
            look(time, kept)
        });
        check(&measured);
        assert_eq!(measured.windows.len(), 4);
        for (pause, window) in pauses.iter().zip(&measured.windows) {
            assert_eq!(*pause, window.1);
        }
        for pair in measured.windows.windows(2) {
            assert!(pair[1].0 - pair[0].1 >= 20_000_000, "{pair:?}");
        }
    }
}
