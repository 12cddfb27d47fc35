//! How kernels are measured alone and co-running so that what a machine does meanwhile meets both alike.
//!
//! A **visit** measures the threads of a run alone (A) and all of them at once (B) in the order A B B A: a speed that
//! drifts evenly takes as much from A as from B, and what comes and goes meets either with the same probability. Its
//! logarithm of A / B is one repetition of the slowdown's. The same four speeds tell how much noise there is: A / A and
//! B / B would be 1 without any. All runs are visited once in a pass, so that repetitions lie far apart in time. After
//! some passes only those are visited again whose slowdown is not known tightly, until the time is over.

use super::{
    judge::{LEVEL, judge},
    kernels::Kind,
    measured::Measured,
    plan::{Run, Seat, Sites},
};
use crate::statistics::Spread;
use perch_policy::calibration::TIGHT;
use std::collections::BTreeMap;

/// A window is repeated once if a thread was on its PU for less than this part of it.
const UNDISTURBED: f64 = 0.75;

/// What a thread did in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Work a second that it was on its PU.
    pub speed: f64,
    /// Part of the window that it was there.
    pub share: f64,
}

/// A machine on which kernels run for short windows of time.
pub trait Rig {
    /// Why it cannot go on.
    type Error;

    /// Runs these threads at once for a window; what each did, in the order of the seats.
    ///
    /// # Errors
    /// A kernel that cannot run.
    fn window(&mut self, seats: &[Seat]) -> Result<Vec<Sample>, Self::Error>;

    /// Seconds that have passed.
    fn seconds(&self) -> f64;
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Visits of every run at least, if there is time for them; the first is made in any case.
    pub least: usize,
    /// Visits of a run at most.
    pub most: usize,
    /// Seconds for all of it; a visit that was begun is ended. [`LATE`] times as many as long as not every run had its
    /// least number of visits.
    pub seconds: f64,
}

/// How often each run is visited at least, if the time is enough, and at most. With fewer visits an interval for hundreds
/// of slowdowns at once is too wide for anything.
const LEAST: usize = 6;
const MOST: usize = 60;

/// Seconds for each run with neighbours: about one and a half times what the least number of visits takes on an idle
/// machine, where a window takes 10 to 22 ms and a visit six windows at most.
const EACH: f64 = 0.8;

/// On a machine that is never idle windows take longer; so many times the planned seconds are waited for the least number
/// of visits.
pub const LATE: f64 = 3.0;

impl Effort {
    /// What real machines need for these runs.
    pub fn of(runs: &[Run]) -> Self {
        let coupled = runs.iter().filter(|run| run.level.is_some()).count();
        Self {
            least: LEAST,
            most: MOST,
            seconds: EACH * coupled as f64,
        }
    }
}

impl Sites {
    /// The runs, with groups if all of them can be measured within some seconds.
    pub fn runs_within(&self, kernels: &[Kind<'_>], seconds: f64) -> Vec<Run> {
        let all = self.runs(kernels, true);
        match Effort::of(&all).seconds <= seconds {
            true => all,
            false => self.runs(kernels, false),
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What was measured of each seat of each run.
    pub measured: Vec<Vec<Measured>>,
    /// Visits that every run had.
    pub visits: usize,
    /// The part of the threads' time that they were on their PUs.
    pub share: f64,
}

/// How many of a run's seats are measured alone too and have a slowdown: the others of a group do the same, so that the
/// first stands for all; in a pair of one kernel the first does.
pub fn counted(run: &Run) -> usize {
    match run.seats[..] {
        [] | [_] => 0,
        [a, b] if a.kernel != b.kernel => 2,
        _ => 1,
    }
}

/// Measures these runs. Reports the seconds that have passed to `told` after each visit.
///
/// # Errors
/// The rig's, those of `told`.
pub fn measure<R: Rig>(
    rig: &mut R,
    runs: &[Run],
    effort: &Effort,
    mut told: impl FnMut(f64) -> Result<(), R::Error>,
) -> Result<Outcome, R::Error> {
    let mut book = Book::new(runs);
    let mut open: Vec<usize> = (0..runs.len()).filter(|run| book.is_wanted(*run)).collect();
    let mut visits = 0;
    'passes: for pass in 0..effort.most {
        for run in &open {
            let late = if pass < effort.least { LATE } else { 1.0 };
            if pass > 0 && rig.seconds() >= late * effort.seconds {
                break 'passes;
            }
            book.visit(rig, *run)?;
            told(rig.seconds())?;
        }
        if pass < effort.least {
            visits = pass + 1;
        }
        if pass + 1 >= effort.least {
            let judged = judge(runs, &book.measured, LEVEL);
            open.retain(|run| {
                let mut seats = judged[*run].iter().flatten();
                seats.any(|judged| judged.all.half > TIGHT)
            });
        }
        // What met the one and not the other in this pass shall not in the next one.
        open.reverse();
    }
    let (on_pu, windows) = book.share;
    Ok(Outcome {
        measured: book.finished(),
        visits,
        share: if windows > 0 {
            on_pu / windows as f64
        } else {
            1.0
        },
    })
}

/// All speeds so far.
struct Book<'a> {
    runs: &'a [Run],
    /// Runs of one thread, by seat.
    alone_at: BTreeMap<Seat, usize>,
    /// Seats of which a visit of another run measures how they are alone.
    covered: Vec<Seat>,
    alone: BTreeMap<Seat, Vec<f64>>,
    coupled: Vec<Vec<Vec<f64>>>,
    measured: Vec<Vec<Measured>>,
    /// The sum of the threads' shares of their PUs, and of how many.
    share: (f64, usize),
}

impl<'a> Book<'a> {
    fn new(runs: &'a [Run]) -> Self {
        let alone_at = runs.iter().enumerate();
        let alone_at = alone_at.filter(|(_, run)| run.level.is_none());
        let coupled = runs.iter().filter(|run| run.level.is_some());
        let covered = coupled.flat_map(|run| run.seats.iter().take(counted(run)));
        Self {
            runs,
            alone_at: alone_at.map(|(at, run)| (run.seats[0], at)).collect(),
            covered: covered.copied().collect(),
            alone: BTreeMap::new(),
            coupled: runs
                .iter()
                .map(|run| vec![Vec::new(); run.seats.len()])
                .collect(),
            measured: runs
                .iter()
                .map(|run| vec![Measured::default(); run.seats.len()])
                .collect(),
            share: (0.0, 0),
        }
    }

    /// Whether a run is visited: those of one thread only if no other visit does the same.
    fn is_wanted(&self, run: usize) -> bool {
        let run = &self.runs[run];
        run.level.is_some() || !self.covered.contains(&run.seats[0])
    }

    fn visit<R: Rig>(&mut self, rig: &mut R, at: usize) -> Result<(), R::Error> {
        let run = &self.runs[at];
        if run.level.is_none() {
            self.alone(rig, run.seats[0])?;
            return Ok(());
        }
        let seats = &run.seats[..counted(run)];
        let mut before = Vec::new();
        for seat in seats {
            before.push(self.alone(rig, *seat)?);
        }
        let mut together = Vec::new();
        for _ in 0..2 {
            let samples = self.window(rig, &run.seats)?;
            for (speeds, sample) in self.coupled[at].iter_mut().zip(&samples) {
                speeds.push(sample.speed);
            }
            together.push(samples);
        }
        let mut after = Vec::new();
        for seat in seats.iter().rev() {
            after.push(self.alone(rig, *seat)?);
        }
        after.reverse();
        for (seat, measured) in self.measured[at].iter_mut().enumerate().take(seats.len()) {
            let [a, b, c, d] = [
                before[seat],
                together[0][seat].speed,
                together[1][seat].speed,
                after[seat],
            ]
            .map(f64::ln);
            let (slowdown, noise) = ((a + d - b - c) / 2.0, (a - d + b - c) / 2.0);
            if slowdown.is_finite() && noise.is_finite() {
                measured.slowdowns.push(slowdown);
                measured.noise.push(noise);
            }
        }
        Ok(())
    }

    fn alone<R: Rig>(&mut self, rig: &mut R, seat: Seat) -> Result<f64, R::Error> {
        let speed = self.window(rig, &[seat])?[0].speed;
        self.alone.entry(seat).or_default().push(speed);
        Ok(speed)
    }

    /// One window; again if others had a part of it, and of the two the less disturbed. Not where that is always so.
    fn window<R: Rig>(&mut self, rig: &mut R, seats: &[Seat]) -> Result<Vec<Sample>, R::Error> {
        let least = |samples: &[Sample]| {
            samples
                .iter()
                .map(|sample| sample.share)
                .fold(1.0, f64::min)
        };
        let mut samples = rig.window(seats)?;
        let (on_pu, threads) = self.share;
        if least(&samples) < UNDISTURBED && on_pu >= UNDISTURBED * threads as f64 {
            let again = rig.window(seats)?;
            if least(&again) > least(&samples) {
                samples = again;
            }
        }
        for sample in &samples {
            self.share.0 += sample.share;
            self.share.1 += 1;
        }
        Ok(samples)
    }

    /// Medians and spreads of the speeds.
    fn finished(mut self) -> Vec<Vec<Measured>> {
        let put = |measured: &mut Measured, speeds: &[f64]| {
            if !speeds.is_empty() {
                let spread = Spread::new(speeds);
                measured.speed = spread.median;
                measured.spread = spread.relative();
            }
        };
        for (seat, speeds) in &self.alone {
            if let Some(run) = self.alone_at.get(seat) {
                put(&mut self.measured[*run][0], speeds);
            }
        }
        for (run, seats) in self.coupled.iter().enumerate() {
            for (seat, speeds) in seats.iter().enumerate() {
                put(&mut self.measured[run][seat], speeds);
            }
        }
        self.measured
    }
}
