//! Events of threads that switch often, each open for a short part of a second (or of a longer period) only: so long that
//! the switches in it cost the thread no more than a fixed share of a PU.

use super::source::{allowed_rate, cpu_clock, layout};
use crate::{
    limits::{Budget, Kept, Purpose},
    perf::{Record, Ring},
    span::{Allowance, counted, is_due},
};
use perch_core::ThreadId;
use rustc_hash::FxHashMap;
use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

/// What a switch costs a thread that has an event, in seconds: the most that `examples/sampling_cost.rs` measured, in a
/// virtual machine where setting a timer is slow.
const SWITCH_COST: f64 = 7e-6;

/// What the switches in a burst may cost, as a share of one PU until the next one at the soonest.
const SHARE: f64 = 0.005;

/// Samples for which a burst aims: enough for a verdict. Each costs as much as an interrupt.
const SAMPLES: f64 = 20.0;

/// Samples a second in a burst, at most.
const FASTEST: u32 = 997;

/// A shorter burst would hold too few samples.
const SHORTEST: Duration = Duration::from_millis(4);

/// Bursts that begin in a second, at most: opening and closing takes about 50 µs.
const MOST: usize = 24;

/// A thread has this many bursts at first, one after the other,
const FIRST: u32 = 4;

/// with this time from one to the next, for which each is planned: where periods are shorter, no thread would else switch
/// so seldom that a part of one is long enough;
const SOON: Duration = Duration::from_secs(1);

/// and then with this time.
const LATER: Duration = Duration::from_secs(4);

/// A thread that did not switch often for this long begins anew.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// Bytes of a ring: of some 90 samples.
const RING: usize = 16 << 10;

/// A thread that switches more often than this in a second is not sampled in periods of this length: even the shortest
/// burst would cost it more than [`SHARE`].
pub(super) fn most_switches(period: Duration) -> f64 {
    SHARE / SWITCH_COST / SHORTEST.div_duration_f64(period.max(SOON))
}

/// A thread that switches often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Switcher {
    /// The thread, by TID and start time.
    pub id: ThreadId,
    /// Switches a second.
    pub rate: f64,
    /// Share of the period that it had on a PU.
    pub busy: f64,
}

/// How long to sample a thread in a time of this length, and how often: `None` if it switches too often for that.
fn plan(thread: &Switcher, period: Duration) -> Option<(Duration, u32)> {
    let part = (SHARE / (thread.rate * SWITCH_COST)).min(0.5);
    let length = period.mul_f64(part);
    if length < SHORTEST {
        return None;
    }
    let on_pu = length.as_secs_f64() * thread.busy.max(0.01);
    Some((length, ((SAMPLES / on_pu) as u32).clamp(99, FASTEST)))
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    bursts: u32,
    /// How long ago its last burst began.
    waits: Duration,
    /// How long ago it was last seen to switch often.
    seen: Duration,
}

impl Turn {
    /// Whether it is the thread's turn at the end of such an interval.
    fn has_come(&self, interval: Duration) -> bool {
        match self.bursts {
            0 => true,
            1..FIRST => is_due(self.waits, interval, SOON),
            FIRST.. => is_due(self.waits, interval, LATER),
        }
    }
}

/// The events of threads that switch often.
pub(super) struct Bursts {
    open: BTreeMap<ThreadId, (Kept<Ring>, Instant)>,
    turns: FxHashMap<ThreadId, Turn>,
    /// Bursts that may begin.
    beginnings: Allowance,
    kernel: bool,
    budget: Budget,
}

impl Bursts {
    /// None open.
    pub(super) fn new(kernel: bool) -> Self {
        Self {
            open: BTreeMap::new(),
            turns: FxHashMap::default(),
            beginnings: Allowance::new(MOST),
            kernel,
            budget: Budget::of_process(),
        }
    }

    /// After a period of this length: the threads whose turn it is have a burst now. Returns how many switch too often for
    /// one.
    pub(super) fn begin(&mut self, threads: &[Switcher], period: Duration) -> usize {
        self.beginnings.refill(period);
        self.turns.retain(|_, turn| {
            turn.waits += counted(period);
            turn.seen += counted(period);
            !is_due(turn.seen, period, FORGOTTEN)
        });
        let mut without = 0;
        let mut due = Vec::new();
        for thread in threads {
            let Some((length, hz)) = plan(thread, period.max(SOON)) else {
                self.open.remove(&thread.id);
                without += 1;
                continue;
            };
            let turn = self.turns.entry(thread.id).or_insert(Turn {
                bursts: 0,
                waits: Duration::MAX / 2,
                seen: Duration::ZERO,
            });
            turn.seen = Duration::ZERO;
            if turn.has_come(period) {
                due.push((turn.waits, thread.id, length, hz));
            }
        }
        // Who waited longest first.
        due.sort_unstable_by_key(|(waits, id, ..)| (std::cmp::Reverse(*waits), *id));
        for (_, id, length, hz) in due {
            if !self.beginnings.take() {
                break;
            }
            if let Ok(ring) = self.ring(id, hz) {
                self.open.insert(id, (ring, Instant::now() + length));
            }
            // Without an event, because it has ended or for want of locked memory, its turn is over too.
            if let Some(turn) = self.turns.get_mut(&id) {
                (turn.bursts, turn.waits) = (turn.bursts + 1, Duration::ZERO);
            }
        }
        without
    }

    /// A thread does not switch often any more.
    pub(super) fn close(&mut self, id: ThreadId) {
        self.open.remove(&id);
    }

    fn ring(&self, id: ThreadId, hz: u32) -> io::Result<Kept<Ring>> {
        let place = self.budget.reserve(Purpose::Samples, 1);
        let place = place.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
        let mut builder = cpu_clock(allowed_rate(hz), RING / 2);
        builder
            .observe_pid(id.tid)
            .any_cpu()
            .exclude_kernel(!self.kernel)
            .enabled(true);
        Ok(place.keep(Ring::map(builder.build()?, RING, layout())?))
    }

    /// Hands over every record, and ends the bursts whose time is over.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Record<'_>)) {
        let now = Instant::now();
        self.open.retain(|_, (ring, until)| {
            if *until <= now {
                let _ = ring.disable();
            }
            ring.drain(&mut each);
            *until > now
        });
    }

    /// A thread has ended.
    pub(super) fn remove(&mut self, id: ThreadId) {
        self.open.remove(&id);
        self.turns.remove(&id);
    }

    /// When the next burst is to end.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.values().map(|(_, until)| *until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_skip::skip;
    use proptest::prelude::*;

    const PERIOD: Duration = Duration::from_secs(1);

    proptest! {
        #[test]
        fn switches_in_a_burst_cost_no_more_than_their_share(rate in 750.0..1e6f64, busy in 0.0..1.0f64) {
            let id = ThreadId { tid: 1, start: 1 };
            match plan(&Switcher { id, rate, busy }, PERIOD) {
                Some((length, hz)) => {
                    prop_assert!(length >= SHORTEST && length <= PERIOD / 2);
                    prop_assert!(rate * length.as_secs_f64() * SWITCH_COST <= SHARE * 1.001);
                    let samples = f64::from(hz) * length.as_secs_f64() * busy;
                    prop_assert!(samples <= SAMPLES.max(99.0 * length.as_secs_f64()) * 1.001);
                }
                None => prop_assert!(rate > 100_000.0),
            }
        }
    }

    fn own() -> ThreadId {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        ThreadId { tid, start: 0 }
    }

    fn switcher(rate: f64) -> Switcher {
        Switcher {
            id: own(),
            rate,
            busy: 0.3,
        }
    }

    /// At which ends of periods of this many milliseconds a thread has a burst; `None` where that is not permitted.
    fn turns(milliseconds: u64, periods: usize, rate: f64) -> Option<Vec<usize>> {
        let mut bursts = Bursts::new(false);
        bursts.ring(own(), 99).ok()?;
        let open = |_: &usize| {
            let period = Duration::from_millis(milliseconds);
            assert_eq!(bursts.begin(&[switcher(rate)], period), 0);
            // As if its time were over at once.
            let open = std::mem::take(&mut bursts.open);
            open.values()
                .for_each(|(_, until)| assert!(*until < Instant::now() + period.max(SOON)));
            !open.is_empty()
        };
        Some((0..periods).filter(open).collect())
    }

    #[test]
    fn turns_are_seconds_apart_at_every_period_and_as_long() {
        let Some(seconds) = turns(1_000, 12, 100_000.0) else {
            return skip!(Perf, "threads cannot be sampled");
        };
        assert_eq!(seconds, [0, 1, 2, 3, 7, 11]);
        assert_eq!(turns(10_000, 12, 100_000.0), Some(seconds));
        assert_eq!(
            turns(100, 120, 100_000.0),
            Some(vec![0, 10, 20, 30, 70, 110])
        );
    }

    #[test]
    fn an_event_is_open_only_for_a_while() {
        let mut bursts = Bursts::new(false);
        if bursts.ring(own(), 99).is_err() {
            return skip!(Perf, "threads cannot be sampled");
        }
        let short = Duration::from_millis(10);
        assert_eq!(bursts.begin(&[switcher(50_000.0)], short), 0);
        let end = bursts.due().expect("a burst");
        // It outlasts a short period.
        assert_eq!(bursts.begin(&[switcher(50_000.0)], short), 0);
        assert_eq!(bursts.due(), Some(end));
        while let Some(due) = bursts.due() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            bursts.drain(|_| ());
        }
        assert!(bursts.open.is_empty());
        // One that switches too often has none, nor one that does not switch often any more.
        for ends in [true, false] {
            bursts.turns.clear();
            assert_eq!(bursts.begin(&[switcher(50_000.0)], PERIOD), 0);
            assert!(bursts.due().is_some());
            match ends {
                true => bursts.close(own()),
                false => assert_eq!(bursts.begin(&[switcher(1e6)], PERIOD), 1),
            }
            assert!(bursts.due().is_none());
        }
        bursts.remove(own());
        assert!(bursts.turns.is_empty());
    }
}
