//! Events of threads that switch often, each open for a short part of a period only: so long that the switches in it
//! cost the thread no more than a fixed share of a PU.

use super::source::{allowed_rate, cpu_clock, layout};
use crate::{
    limits::{Budget, Kept, Purpose},
    perf::{Record, Ring},
};
use perch_core::ThreadId;
use std::{
    collections::{BTreeMap, HashMap},
    io,
    time::{Duration, Instant},
};

/// What a switch costs a thread that has an event, in seconds: the most that `examples/sampling_cost.rs` measured, in a
/// virtual machine where setting a timer is slow.
const SWITCH_COST: f64 = 7e-6;

/// What the switches in a burst may cost, as a share of one PU over a period.
const SHARE: f64 = 0.005;

/// Samples for which a burst aims: enough for a verdict. Each costs as much as an interrupt.
const SAMPLES: f64 = 20.0;

/// Samples a second in a burst, at most.
const FASTEST: u32 = 997;

/// A shorter burst would hold too few samples.
const SHORTEST: Duration = Duration::from_millis(4);

/// Bursts that begin in a period, at most: opening and closing takes about 50 µs.
const MOST: usize = 24;

/// A thread has a burst in each of its first periods,
const FIRST: u32 = 4;

/// and then in one of this many.
const EVERY: u64 = 4;

/// Bytes of a ring: of some 90 samples.
const RING: usize = 16 << 10;

/// A thread that switches often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Switcher {
    /// Who.
    pub id: ThreadId,
    /// Switches a second.
    pub rate: f64,
    /// Share of the period that it had on a PU.
    pub busy: f64,
}

/// How long to sample a thread, and how often: `None` if it switches too often for that.
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
    last: u64,
    /// When it was last seen to switch often.
    seen: u64,
}

/// The events of threads that switch often.
pub(super) struct Bursts {
    open: BTreeMap<ThreadId, (Kept<Ring>, Instant)>,
    turns: HashMap<ThreadId, Turn>,
    period: u64,
    kernel: bool,
    budget: Budget,
}

impl Bursts {
    /// None open.
    pub(super) fn new(kernel: bool) -> Self {
        Self {
            open: BTreeMap::new(),
            turns: HashMap::new(),
            period: 0,
            kernel,
            budget: Budget::of_process(),
        }
    }

    /// Begins a period of about this length: the threads whose turn it is have a burst now. Returns how many switch too
    /// often for one.
    pub(super) fn begin(&mut self, threads: &[Switcher], period: Duration) -> usize {
        self.period += 1;
        self.open.clear();
        let now = self.period;
        self.turns.retain(|_, turn| now - turn.seen < 10);
        let mut without = 0;
        let mut due = Vec::new();
        for thread in threads {
            let Some((length, hz)) = plan(thread, period) else {
                without += 1;
                continue;
            };
            let turn = self.turns.entry(thread.id).or_insert(Turn {
                bursts: 0,
                last: 0,
                seen: now,
            });
            turn.seen = now;
            if turn.bursts < FIRST || now - turn.last >= EVERY {
                due.push((turn.last, thread.id, length, hz));
            }
        }
        due.sort_unstable_by_key(|(last, id, ..)| (*last, *id));
        for (_, id, length, hz) in due.into_iter().take(MOST) {
            if let Ok(ring) = self.ring(id, hz) {
                self.open.insert(id, (ring, Instant::now() + length));
            }
            // Without an event, because it has ended or for want of locked memory, its turn is over too.
            if let Some(turn) = self.turns.get_mut(&id) {
                (turn.bursts, turn.last) = (turn.bursts + 1, now);
            }
        }
        without
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

    #[test]
    fn each_has_its_turn_and_an_event_only_for_a_while() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let id = ThreadId { tid, start: 0 };
        let mut bursts = Bursts::new(false);
        if bursts.ring(id, 99).is_err() {
            return skip!(Perf, "threads cannot be sampled");
        }
        let switcher = |id| Switcher {
            id,
            rate: 5_000.0,
            busy: 0.3,
        };
        let open: Vec<bool> = (0..12)
            .map(|_| {
                assert_eq!(bursts.begin(&[switcher(id)], Duration::from_millis(40)), 0);
                let open = bursts.due().is_some();
                while let Some(due) = bursts.due() {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    bursts.drain(|_| ());
                }
                assert!(bursts.open.is_empty());
                open
            })
            .collect();
        let turns: Vec<usize> = (0..12).filter(|period| open[*period]).collect();
        assert_eq!(turns, [0, 1, 2, 3, 7, 11]);
        // One that switches too often has none.
        let fast = Switcher {
            rate: 1e6,
            ..switcher(id)
        };
        assert_eq!(bursts.begin(&[fast], PERIOD), 1);
        assert!(bursts.due().is_none());
        bursts.remove(id);
        assert!(bursts.turns.is_empty());
    }
}
