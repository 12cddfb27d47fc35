//! What PUs do, for all threads that run on them: how long they are busy, how long with interrupts, and their event
//! counts.

use crate::{
    perf::{Counters, PuCounters},
    proc::{PuTicks, Reader, parse_pu_ticks},
};
use perch_core::{PuSample, Remark};
use std::{collections::BTreeMap, time::Instant};

/// Watches the PUs, if the policy asks for it.
pub(super) struct Pus {
    wanted: bool,
    reader: Reader,
    /// Nanoseconds in a clock tick.
    tick: u64,
    last: BTreeMap<u32, PuTicks>,
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
        let samples = ticks.iter().filter_map(|ticks| {
            let before = self.last.get(&ticks.pu)?;
            let counters = self.counters.as_mut();
            let counts = counters.map_or_else(Vec::new, |counters| counters.read(ticks.pu));
            Some(PuSample {
                counts,
                ..sample(before, ticks, interval, self.tick)
            })
        });
        let samples = samples.collect();
        self.last = ticks.into_iter().map(|ticks| (ticks.pu, ticks)).collect();
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

/// Kernels that do not tick on idle PUs know the idle time exactly and sample the rest, so what is not idle is busy.
fn sample(before: &PuTicks, after: &PuTicks, interval: u64, tick: u64) -> PuSample {
    let since = |before: u64, after: u64| after.saturating_sub(before).saturating_mul(tick);
    let busy = interval.saturating_sub(since(before.idle, after.idle));
    PuSample {
        pu: after.pu,
        interval,
        busy,
        interrupts: since(before.interrupts, after.interrupts).min(busy),
        counts: Vec::new(),
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
            let sample = sample(&ticks(before), &ticks(after), interval, 10_000_000);
            prop_assert!(sample.interrupts <= sample.busy && sample.busy <= sample.interval);
        }
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
