//! Interval after interval until counting is over.

use super::output::Printer;
use crate::{args::StatArgs, exit};
use anyhow::Result;
use perch_core::{Machine, Observation, Remark, Wake};
use perch_engine::limiter::Limiter;
use perch_stat::Collector;
use std::time::Duration;

/// How often threads are looked at where no rows are wanted.
const LOOK: Duration = Duration::from_secs(1);

/// The same where events make records, as a thread's ring holds a hundred or more, and where event sets are in rotation:
/// even a short program is to be counted by each of them.
const LOOK_OFTEN: Duration = Duration::from_millis(100);

/// A last interval that is shorter than this part of the others is joined to the one before.
const REST: f64 = 0.1;

/// How counting ended.
pub(super) struct End {
    /// The program's wait status, if it has ended.
    pub status: Option<i32>,
    /// `--samples` or `--for` ended it.
    pub cut_short: bool,
    /// How long it took, by the clock of the rows.
    pub took: Duration,
}

/// By which clock counting ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Clock {
    /// The user's: intervals follow each other as they were asked for, however late each of them is seen.
    Wall,
    /// That of what is observed: time of a simulation or a recording passes faster or more slowly.
    Observed,
    /// That of a recording, several periods of which make an interval.
    Merged,
}

/// Says remarks.
pub(super) fn say<'a>(remarks: impl Iterator<Item = &'a Remark>) {
    remarks.for_each(|remark| exit::note(&remark.text));
}

/// Observes interval after interval, and prints rows as they come. `each` is called before each interval, `seen` with what
/// was observed, before it is counted.
pub(super) fn drive<M: Machine>(
    args: &StatArgs,
    clock: Clock,
    machine: &mut M,
    collector: &mut Collector,
    printer: &mut Printer,
    mut each: impl FnMut(&mut M),
    mut seen: impl FnMut(&mut Observation),
) -> Result<End> {
    let often = printer.windows() || printer.sets() > 1;
    let interval = args.interval.unwrap_or(match often {
        true => LOOK_OFTEN,
        false => LOOK,
    });
    let mut limiter = Limiter::default();
    let mut samples = 0u64;
    let mut took = Duration::ZERO;
    // The sum of the intervals that were asked for.
    let mut asked = Duration::ZERO;
    let mut merging = Merging::default();
    let mut say_new = |observation: &mut Observation| {
        limiter.limit(observation.at, &mut observation.remarks);
        say(observation.remarks.iter());
    };
    if matches!(clock, Clock::Wall) && args.program.is_empty() {
        // Events of what runs already are opened at the first look: what happened before it is not counted.
        say_new(&mut machine.observe()?);
    }
    loop {
        each(machine);
        let so_far = match clock {
            Clock::Wall => asked,
            Clock::Observed | Clock::Merged => took,
        };
        let time = next(
            interval,
            args.duration.map(|most| most.saturating_sub(so_far)),
        );
        asked += time;
        let (wake, mut observation) = match clock {
            Clock::Merged => merging.observe(machine, took, time)?,
            _ => (machine.wait(time)?, machine.observe()?),
        };
        seen(&mut observation);
        say_new(&mut observation);
        let rows = collector.take(&observation, &machine.topology());
        let left = args.samples.map_or(u64::MAX, |most| most - samples);
        // A look may bring more records than are wanted.
        let shown = match printer.windows() {
            true => &rows[..rows.len().min(usize::try_from(left).unwrap_or(usize::MAX))],
            false => &rows[..],
        };
        if args.interval.is_some() || printer.windows() {
            printer.rows(shown);
        }
        samples += match printer.windows() {
            true => shown.len() as u64,
            false => 1,
        };
        took = Duration::from_nanos(collector.totals().interval);
        let end = |status, cut_short| End {
            status,
            cut_short,
            took,
        };
        match wake {
            Wake::Ended(status) => return Ok(end(status, false)),
            Wake::Stop(_) => return Ok(end(None, false)),
            Wake::Period => {}
        }
        let is_over = |most| match clock {
            // After a time in which nothing was seen, as while the machine was suspended, less was asked for.
            Clock::Wall => asked >= most || took >= most,
            Clock::Observed | Clock::Merged => took >= most,
        };
        let enough =
            args.samples.is_some_and(|most| samples >= most) || args.duration.is_some_and(is_over);
        if enough {
            return Ok(end(None, true));
        }
    }
}

/// The next interval: what is left, if that is not much more.
fn next(interval: Duration, left: Option<Duration>) -> Duration {
    match left {
        Some(left) if left < interval.mul_f64(1.0 + REST) => left.max(Duration::from_millis(1)),
        _ => interval,
    }
}

/// Adds up the periods of a recording. They are never quite as long as they were meant to be, so an interval ends with the
/// period that ends nearest to where it should.
#[derive(Debug, Default)]
struct Merging {
    /// Where the present interval should end, in nanoseconds from the beginning.
    due: u64,
}

impl Merging {
    /// The next periods, as many as make up this time, as one observation. `took` is what those before took.
    fn observe<M: Machine>(
        &mut self,
        machine: &mut M,
        took: Duration,
        time: Duration,
    ) -> Result<(Wake, Observation)> {
        let (took, time) = (took.as_nanos() as u64, time.as_nanos() as u64);
        let mut wake = machine.wait(Duration::ZERO)?;
        let mut observation = machine.observe()?;
        self.begin(took, time);
        let mut last = observation.interval;
        while matches!(wake, Wake::Period) && !self.is_complete(took + observation.interval, last) {
            wake = machine.wait(Duration::ZERO)?;
            let next = machine.observe()?;
            last = next.interval;
            observation.absorb(&next);
        }
        Ok((wake, observation))
    }

    /// The next interval begins at `took`.
    fn begin(&mut self, took: u64, time: u64) {
        self.due += time;
        // After a gap, and with periods that are longer than intervals, what was due is over.
        if self.due <= took {
            self.due = took + time;
        }
    }

    /// Whether no further period of this length would end nearer to where the interval should.
    fn is_complete(&self, took: u64, period: u64) -> bool {
        took + period / 2 >= self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the rows of these periods end, in milliseconds.
    fn ends(periods: &[u64], time: u64) -> Vec<u64> {
        let mut merging = Merging::default();
        let (mut took, mut ends) = (0, Vec::new());
        let mut periods = periods.iter();
        while let Some(first) = periods.next() {
            let mut last = *first;
            merging.begin(took, time);
            took += last;
            while !merging.is_complete(took, last) {
                let Some(next) = periods.next() else { break };
                last = *next;
                took += last;
            }
            ends.push(took);
        }
        ends
    }

    #[test]
    fn periods_that_are_a_little_too_short_make_a_row() {
        assert_eq!(
            ends(&[1026, 982, 997, 990, 1005], 1000),
            [1026, 2008, 3005, 3995, 5000]
        );
        assert_eq!(ends(&[1026, 982, 997, 990], 2000), [2008, 3995]);
        assert_eq!(ends(&[100; 6], 300), [300, 600]);
        // Not a multiple: right on the average.
        assert_eq!(ends(&[100; 9], 150), [100, 300, 400, 600, 700, 900]);
        // Longer than an interval.
        assert_eq!(ends(&[500; 4], 100), [500, 1000, 1500, 2000]);
        // A gap is not made up for.
        assert_eq!(
            ends(&[100, 100, 5000, 100, 100, 100, 100], 200),
            [200, 5200, 5400, 5600]
        );
    }

    #[test]
    fn a_short_rest_is_part_of_the_last_interval() {
        let ms = Duration::from_millis;
        assert_eq!(next(ms(500), None), ms(500));
        assert_eq!(next(ms(500), Some(ms(3000))), ms(500));
        assert_eq!(next(ms(500), Some(ms(503))), ms(503));
        assert_eq!(next(ms(500), Some(ms(550))), ms(500));
        assert_eq!(next(ms(500), Some(ms(50))), ms(50));
        assert_eq!(next(ms(500), Some(ms(0))), ms(1));
    }
}
