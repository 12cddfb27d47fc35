//! What PUs do, for all threads that run on them: how long they are busy, how long with interrupts, and their event
//! counts.

use crate::{
    perf::{Counters, PuCounters},
    proc::{PuTicks, Reader, parse_pu_ticks},
    span::is_due,
};
use perch_core::{PuSample, Remark};
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

/// Ticks are so coarse that shares are those of at least so long a time.
const WINDOW: Duration = Duration::from_secs(1);

/// Watches the PUs, if the policy asks for it.
pub(super) struct Pus {
    wanted: bool,
    reader: Reader,
    /// Nanoseconds in a clock tick.
    tick: u64,
    last: BTreeMap<u32, Readings>,
    read: Instant,
    counters: Option<PuCounters>,
    remarks: Vec<Remark>,
}

impl Default for Pus {
    fn default() -> Self {
        Self {
            wanted: false,
            reader: Reader::new(),
            tick: 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
            last: BTreeMap::new(),
            read: Instant::now(),
            counters: None,
            remarks: Vec::new(),
        }
    }
}

impl Pus {
    /// Whether PUs are watched from now on.
    pub(super) fn watch(&mut self, wanted: bool) {
        self.wanted = wanted;
        self.counters = None;
        if wanted {
            self.observe();
        }
    }

    /// Counts on PUs what is counted of threads, where that is permitted.
    pub(super) fn configure(&mut self, counters: Option<&mut Counters>) {
        self.counters = None;
        let Some(counters) = counters.filter(|_| self.wanted) else {
            return;
        };
        let pus: Vec<u32> = self.last.keys().copied().collect();
        match counters.of_pus(&pus) {
            Ok(counters) => self.counters = Some(counters).filter(PuCounters::is_counting),
            Err(error) => {
                let text = format!(
                    "of PUs only the time is known that they are busy, and their loads are added up from those of \
                     threads: {error}"
                );
                self.remarks.push(Remark::warning("pus-not-counted", text));
            }
        }
    }

    /// What PUs did since the last call; nothing if the policy does not ask for it. PUs that were not online then are
    /// left out.
    pub(super) fn observe(&mut self) -> Vec<PuSample> {
        if !self.wanted {
            return Vec::new();
        }
        let ticks = match self.reader.file("/proc/stat") {
            Ok(bytes) => parse_pu_ticks(bytes),
            Err(_) => {
                let text = "/proc/stat cannot be read, so nothing is known of what PUs do";
                self.remarks.push(Remark::warning("pus-unreadable", text));
                Vec::new()
            }
        };
        let now = Instant::now();
        let interval = now.duration_since(std::mem::replace(&mut self.read, now));
        let interval = interval.as_nanos() as u64;
        self.follow(&ticks);
        let mut last = std::mem::take(&mut self.last);
        let mut samples = Vec::new();
        for ticks in ticks {
            let Some(mut readings) = last.remove(&ticks.pu) else {
                self.last.insert(ticks.pu, Readings::new(ticks));
                continue;
            };
            let counters = self.counters.as_mut();
            let (counts, event_set) = counters
                .map(|counters| counters.read(ticks.pu))
                .unwrap_or_default();
            samples.push(PuSample {
                counts,
                event_set,
                ..readings.sample(ticks, interval, self.tick)
            });
            self.last.insert(ticks.pu, readings);
        }
        samples
    }

    /// Brings the counters up to date after PUs came or went.
    fn follow(&mut self, ticks: &[PuTicks]) {
        let Some(counters) = &mut self.counters else {
            return;
        };
        let online = |pu: &u32| ticks.binary_search_by_key(pu, |ticks| ticks.pu).is_ok();
        let gone: Vec<u32> = counters.pus().filter(|pu| !online(pu)).collect();
        gone.into_iter().for_each(|pu| counters.remove(pu));
        for new in ticks
            .iter()
            .filter(|ticks| !self.last.contains_key(&ticks.pu))
        {
            // What was allowed at the beginning is allowed still; without descriptors its counts are missing.
            let _ = counters.add(new.pu);
        }
    }

    pub(super) fn take_remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }

    /// How PUs are known, for the report.
    pub(super) fn description(&self) -> Option<&'static str> {
        self.wanted.then_some(match self.counters {
            Some(_) => "PUs counted too",
            None => "PUs by busy time",
        })
    }
}

/// What a PU's ticks were.
#[derive(Debug)]
struct Readings {
    /// How long before the last reading, and what, the oldest first.
    before: VecDeque<(u64, PuTicks)>,
}

impl Readings {
    fn new(ticks: PuTicks) -> Self {
        Self {
            before: [(0, ticks)].into(),
        }
    }

    /// What the PU did in an interval that ends with this reading: as in all of the last second, as far as the ticks
    /// of the interval allow that.
    ///
    /// Kernels that do not tick on idle PUs know the idle time exactly and sample the rest, so what is not idle is busy.
    fn sample(&mut self, now: PuTicks, interval: u64, tick: u64) -> PuSample {
        self.before
            .iter_mut()
            .for_each(|(ago, _)| *ago = ago.saturating_add(interval));
        let length = Duration::from_nanos(interval);
        let long = |ago: u64| is_due(Duration::from_nanos(ago), length, WINDOW);
        while self.before.get(1).is_some_and(|(ago, _)| long(*ago)) {
            self.before.pop_front();
        }
        let of = |(ago, before): &(u64, PuTicks)| {
            let since = |before: u64, now: u64| now.saturating_sub(before).saturating_mul(tick);
            let busy = ago.saturating_sub(since(before.idle, now.idle));
            (busy, since(before.interrupts, now.interrupts))
        };
        // There is at least one, and the last one began this interval.
        let edge = (interval, now);
        let first = self.before.front().unwrap_or(&edge);
        let (long, short) = (of(first), of(self.before.back().unwrap_or(&edge)));
        let part = |long: u64, short: u64| {
            let share = long as f64 / first.0.max(1) as f64;
            let as_before = (share * interval as f64) as u64;
            // Each reading is as much as a tick off.
            let least = short.saturating_sub(tick);
            as_before.clamp(least, short.saturating_add(tick).max(least))
        };
        let alone = self.before.len() == 1;
        let (busy, interrupts) = match alone {
            true => short,
            false => (part(long.0, short.0), part(long.1, short.1)),
        };
        let busy = busy.min(interval);
        self.before.push_back((0, now));
        PuSample {
            pu: now.pu,
            interval,
            busy,
            interrupts: interrupts.min(busy),
            counts: Vec::new(),
            event_set: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn interrupts_are_busy_time_and_that_is_part_of_the_interval(before: [u64; 3], after: [u64; 3], interval: u64) {
            let ticks = |[running, interrupts, idle]: [u64; 3]| PuTicks { pu: 3, running, interrupts, idle };
            let mut readings = Readings::new(ticks(before));
            for at in [after, before, after] {
                let sample = readings.sample(ticks(at), interval, 10_000_000);
                prop_assert!(sample.interrupts <= sample.busy && sample.busy <= sample.interval);
            }
        }

        /// The kernel reports whole ticks only.
        #[test]
        fn shares_are_right_at_short_intervals(busy in 0.0..=1.0f64, interrupts in 0.0..0.2f64, start in 0u64..10_000_000) {
            let shares = told(100_000_000, start, |_| busy, interrupts);
            for (told, interrupted) in &shares[10..] {
                prop_assert!((told - busy).abs() < 0.011, "{told} for {busy}");
                prop_assert!((interrupted - interrupts.min(busy)).abs() < 0.022, "{interrupted} for {interrupts}");
            }
        }

        /// At intervals of a second and more each speaks for itself.
        #[test]
        fn long_intervals_are_taken_alone(interval in 700u64..10_000, start in 0u64..10_000_000) {
            let interval = interval * 1_000_000;
            let busy = |at: u64| if (at / interval).is_multiple_of(2) { 1.0 } else { 0.0 };
            for (at, (told, _)) in told(interval, start, busy, 0.0).into_iter().enumerate() {
                let truth = if at.is_multiple_of(2) { 1.0 } else { 0.0 };
                prop_assert!((told - truth).abs() <= TICK as f64 / interval as f64 + 1e-9);
            }
        }
    }

    const TICK: u64 = 10_000_000;

    /// Which shares of busy time and of interrupts are reported for each of thirty intervals of a PU that was busy for
    /// this share of each.
    fn told(
        interval: u64,
        start: u64,
        busy: impl Fn(u64) -> f64,
        interrupts: f64,
    ) -> Vec<(f64, f64)> {
        let (mut idle, mut interrupted) = (start as f64, start as f64);
        let ticks = |idle: f64, interrupted: f64| PuTicks {
            pu: 3,
            running: 0,
            interrupts: (interrupted / TICK as f64) as u64,
            idle: (idle / TICK as f64) as u64,
        };
        let mut readings = Readings::new(ticks(idle, interrupted));
        let share = |time: u64| time as f64 / interval as f64;
        (0..30)
            .map(|n| {
                let busy = busy(n * interval);
                idle += (1.0 - busy) * interval as f64;
                interrupted += interrupts.min(busy) * interval as f64;
                let sample = readings.sample(ticks(idle, interrupted), interval, TICK);
                (share(sample.busy), share(sample.interrupts))
            })
            .collect()
    }

    #[test]
    fn a_change_shows_at_once() {
        let busy = |at: u64| if at < 1_500_000_000 { 0.0 } else { 1.0 };
        let shares = told(100_000_000, 0, busy, 0.0);
        assert!(shares[14].0 < 0.01 && shares[15].0 > 0.89, "{shares:?}");
    }

    #[test]
    fn a_busy_pu_is_seen() {
        let mut pus = Pus::default();
        assert_eq!(pus.observe(), []);
        pus.watch(true);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let (mut busiest, mut samples) = (0.0f64, Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            // A machine under load may not give the thread its turn at once.
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(200));
                samples = pus.observe();
                let share = |pu: &PuSample| pu.busy as f64 / pu.interval as f64;
                busiest = samples.iter().map(share).fold(busiest, f64::max);
                if busiest > 0.8 {
                    break;
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(busiest > 0.8, "{samples:?}");
        assert_eq!(samples.len(), crate::perf::limits::online_cpus().len());
        assert!(samples.is_sorted_by_key(|sample| sample.pu));
        assert_eq!(pus.description(), Some("PUs by busy time"));
    }
}
