//! Whose a sample is, and what all samples of a thread say.

use super::{
    process::Process,
    reported::Reported,
    steer::Whereabouts,
    system_wide::SystemWide,
    thread::{How, Thread, Threads, Told},
};
use crate::{
    perf::{
        Record,
        record::{CpuMode, Sample},
    },
    span::is_due,
};
use perch_core::{ModuleContext, PuSet, Sharing, ThreadId, ThreadSample};
use perch_sampling::{Toucher, common};
use rustc_hash::FxHashMap;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// So often it is examined who shares memory: for many threads that takes milliseconds.
const EXAMINED: Duration = Duration::from_secs(1);

/// All that a sample is looked up in.
#[derive(Default)]
pub(super) struct Known {
    threads: Threads,
    processes: FxHashMap<i32, Process>,
    /// Counts how often rings were drained.
    drains: u64,
    whereabouts: Whereabouts,
    /// Who shares memory, when it was last examined, and how long ago that was.
    sharing: Vec<Sharing>,
    unexamined: Duration,
    /// Samples of ours in this period.
    pub(super) ours: u64,
    /// Samples that found no room in a ring in this period.
    pub(super) lost: u64,
    /// Whether the kernel slowed the sampling in this period.
    pub(super) throttled: bool,
}

impl Known {
    /// A process is ours, whatever threads it has.
    pub(super) fn add_process(&mut self, pid: i32) -> &mut Process {
        self.processes
            .entry(pid)
            .or_insert_with(|| Process::new(pid))
    }

    /// A thread is ours.
    pub(super) fn add(&mut self, id: ThreadId, pid: i32) {
        self.add_process(pid);
        let new = || Thread {
            id: Some(id),
            pid,
            sampled: None,
        };
        match self.threads.get_mut(id.tid) {
            Some(thread) if thread.id.is_none_or(|other| other == id) && thread.pid == pid => {
                thread.id = Some(id);
            }
            // The number may have been another thread's, or the first of a process that was forked from another.
            _ => {
                self.threads.insert(id.tid, new());
            }
        }
    }

    /// A process, ours or not, has a new thread or has created a new process.
    pub(super) fn forked(&mut self, pid: i32, tid: i32, parent: i32) {
        if !self.processes.contains_key(&parent) {
            return;
        }
        if pid != parent {
            // The process that had this PID before has exited.
            self.processes.remove(&pid);
            self.add_process(pid);
        }
        if self.threads.get(tid).is_some_and(|old| old.id.is_none()) {
            self.threads.remove(tid);
        }
    }

    /// Makes ready for samples out of the rings.
    pub(super) fn next_drain(&mut self) {
        self.drains += 1;
    }

    /// Code was mapped into a process.
    pub(super) fn mapped(&mut self, pid: i32, address: u64, length: u64, file: Option<Reported>) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.mapped(address, length, file);
        }
    }

    /// The threads of a period are ours.
    pub(super) fn follow(&mut self, context: &ModuleContext<'_>) {
        for thread in context.threads {
            self.add(thread.info.id, thread.info.pid);
        }
    }

    /// A process became another program.
    pub(super) fn executed(&mut self, pid: i32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.forget();
        }
        self.threads.of_process(pid, |thread| thread.sampled = None);
    }

    /// A record of a ring, that of a CPU or of single threads.
    pub(super) fn record(&mut self, cpu: Option<u32>, record: &Record<'_>) {
        match record {
            Record::Sample(sample) => self.sample(cpu, sample),
            Record::Lost(count) => self.lost += count,
            Record::Throttle => self.throttled = true,
            _ => {}
        }
    }

    fn sample(&mut self, cpu: Option<u32>, sample: &Sample<'_>) {
        if self.threads.get(sample.tid).is_none() {
            if !self.processes.contains_key(&sample.pid) {
                return; // not ours
            }
            let new = Thread {
                id: None,
                pid: sample.pid,
                sampled: None,
            };
            self.threads.insert(sample.tid, new);
        }
        let Some(thread) = self.threads.get_mut(sample.tid) else {
            return;
        };
        self.ours += 1;
        if let Some(cpu) = cpu {
            self.whereabouts.note(cpu);
        }
        let sampled = thread.sampled.get_or_insert_default();
        if sample.mode != CpuMode::User {
            sampled.kernel += 1;
            return;
        }
        let Some(process) = self.processes.get_mut(&thread.pid) else {
            return;
        };
        if let Some(sample) = process.sample(sample, self.drains) {
            sampled.mix.add(&sample);
            let accesses = sample.accesses.into_iter().flatten();
            accesses.for_each(|access| sampled.accesses.add(access));
        }
    }

    /// What a thread's samples say at the end of an interval, if there are enough of them, or they were gathered for long
    /// enough, or the thread has ended; `walk` tells whether they may be seen together, which takes longer.
    pub(super) fn metrics(
        &mut self,
        thread: &ThreadSample,
        ended: bool,
        how: &mut How<'_>,
    ) -> Told {
        let Some(known) = self.threads.get_mut(thread.info.id.tid) else {
            return Told::Nothing;
        };
        let Some(sampled) = known.sampled.as_mut() else {
            return Told::Nothing;
        };
        sampled.time.0 += thread.cpu_time;
        sampled.time.1 += thread.interval;
        let process = self.processes.get_mut(&known.pid);
        process.map_or(Told::Nothing, |process| {
            sampled.tell(process, thread.interval, ended, how)
        })
    }

    /// Which of these threads share memory with others of their process, as far as is known at the end of an interval of
    /// this length.
    pub(super) fn sharing(&mut self, threads: &[ThreadSample], interval: Duration) -> Vec<Sharing> {
        self.unexamined = self.unexamined.saturating_add(interval);
        if is_due(self.unexamined, interval, EXAMINED) {
            let length = std::mem::take(&mut self.unexamined);
            self.sharing = self.examine(threads, length);
        } else {
            let here = |id: ThreadId| threads.binary_search_by_key(&id, |t| t.info.id).is_ok();
            self.sharing
                .retain(|sharing| here(sharing.threads.0) && here(sharing.threads.1));
        }
        self.sharing.clone()
    }

    /// Looks at what these threads touched, the last time so long ago.
    fn examine(&mut self, threads: &[ThreadSample], length: Duration) -> Vec<Sharing> {
        let mut processes: BTreeMap<i32, Vec<&ThreadSample>> = BTreeMap::new();
        for thread in threads {
            let known = self.threads.get(thread.info.id.tid);
            let sampled = known.and_then(|known| known.sampled.as_ref());
            if sampled.is_some_and(|sampled| !sampled.accesses.is_empty()) {
                processes.entry(thread.info.pid).or_default().push(thread);
            }
        }
        let mut sharing = Vec::new();
        for threads in processes.values().filter(|threads| threads.len() > 1) {
            let toucher = |thread: &&ThreadSample| {
                let sampled = self.threads.get(thread.info.id.tid)?.sampled.as_ref()?;
                Some(Toucher {
                    accesses: &sampled.accesses,
                    busy: sampled.busy(),
                })
            };
            let touchers: Vec<Toucher<'_>> = threads.iter().filter_map(toucher).collect();
            sharing.extend(common(&touchers).into_iter().map(|common| {
                let id = |at: usize| threads[at].info.id;
                let (a, b) = (id(common.threads.0), id(common.threads.1));
                Sharing {
                    threads: (a.min(b), a.max(b)),
                    transfers: common.transfers,
                    confidence: common.confidence,
                }
            }));
        }
        for sampled in self.threads.iter_mut().filter_map(|t| t.sampled.as_mut()) {
            sampled.accesses.end_interval(length);
            sampled.time = (0, 0);
        }
        sharing
    }

    /// On which CPUs to sample in the next period.
    pub(super) fn wanted_cpus(
        &mut self,
        context: &ModuleContext<'_>,
        system: &SystemWide,
    ) -> PuSet {
        let mut time = 0;
        for thread in context.threads.iter().filter(|t| t.cpu_time > 0) {
            time += thread.cpu_time;
            if let Some(pu) = thread.last_pu {
                self.whereabouts.note(pu);
            }
        }
        let expected = time as f64 * 1e-9 * f64::from(system.rate());
        let interval = Duration::from_nanos(context.interval);
        self.whereabouts.next(
            interval,
            (expected, self.ours),
            &system.sampled(),
            &system.cpus(),
        )
    }

    /// Processes that have only undecodable samples because their memory may not be read.
    pub(super) fn unreadable<'a>(&self, context: &ModuleContext<'a>) -> Option<(i32, &'a str)> {
        context.threads.iter().find_map(|thread| {
            let process = self.processes.get(&thread.info.pid)?;
            let known = self.threads.get(thread.info.id.tid)?;
            let undecoded = known.sampled.as_ref()?.undecoded;
            (undecoded >= 10 && process.memory_refused())
                .then_some((thread.info.pid, &*thread.info.process))
        })
    }

    /// Forgets what has ended, and threads that no period reports.
    pub(super) fn end_period(&mut self, context: &ModuleContext<'_>) {
        self.ours = 0;
        self.lost = 0;
        self.throttled = false;
        for id in context.ended {
            if self.threads.get(id.tid).is_some_and(|t| t.id == Some(*id)) {
                self.threads.remove(id.tid);
            }
        }
        self.threads.remove_if(|thread| thread.id.is_none());
        self.processes.retain(|pid, _| self.threads.has(*pid));
        let now = Instant::now();
        for process in self.processes.values_mut() {
            process.forget_unused(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::history::Names;
    use perch_core::{Metrics, ThreadInfo, metric::names};
    use perch_sampling::Access;

    const TID: i32 = 7;

    fn id() -> ThreadId {
        ThreadId { tid: TID, start: 1 }
    }

    /// A thread of this process.
    fn known() -> Known {
        let mut known = Known::default();
        known.add(id(), std::process::id() as i32);
        known
    }

    #[inline(never)]
    fn float(x: f64) -> f64 {
        std::hint::black_box(x * 1.5 + 2.5)
    }

    /// Samples of code without floating point.
    fn add(known: &mut Known, samples: usize) {
        add_at(known, integer as fn(u64) -> u64 as usize as u64, samples);
    }

    #[inline(never)]
    fn integer(x: u64) -> u64 {
        std::hint::black_box(x.wrapping_mul(3) ^ 5)
    }

    /// Samples of this code.
    fn add_at(known: &mut Known, code: u64, samples: usize) {
        known.next_drain();
        for _ in 0..samples {
            let pid = std::process::id() as i32;
            let sample = Sample::without_registers(code, pid, TID, CpuMode::User);
            known.record(None, &Record::Sample(sample));
        }
    }

    /// A thread in an interval of this many milliseconds.
    fn thread(id: ThreadId, milliseconds: u64) -> ThreadSample {
        ThreadSample {
            info: ThreadInfo {
                id,
                pid: std::process::id() as i32,
                name: "worker".into(),
                process: "test".into(),
                work: perch_core::Work::default(),
            },
            interval: milliseconds * 1_000_000,
            cpu_time: milliseconds * 1_000_000,
            wait_time: 0,
            switches: None,
            migrations: None,
            last_pu: None,
            mask: None,
            counts: Vec::new(),
            event_set: None,
            metrics: Metrics::default(),
        }
    }

    /// Ends an interval of this many milliseconds, with time to see all samples together.
    fn end(known: &mut Known, milliseconds: u64, ended: bool) -> Told {
        end_with(known, milliseconds, ended, true)
    }

    fn end_with(known: &mut Known, milliseconds: u64, ended: bool, walk: bool) -> Told {
        let interval = Duration::from_millis(milliseconds);
        let thread = thread(id(), milliseconds);
        let mut how = How {
            interval,
            l2_bytes: 1 << 20,
            names: &Names::new(),
            walk: &mut |mix| walk && mix.has_fp(),
        };
        known.metrics(&thread, ended, &mut how)
    }

    /// How many samples stand behind the report at the end of each interval; none where nothing new was.
    fn told(milliseconds: u64, each: &[usize]) -> Vec<u64> {
        let mut known = known();
        let of = |samples: &usize| {
            add(&mut known, *samples);
            match end(&mut known, milliseconds, false) {
                Told::News(metrics) => metrics.value(names::SAMPLES).unwrap_or(0.0) as u64,
                Told::Gathering | Told::Nothing => 0,
            }
        };
        each.iter().map(of).collect()
    }

    #[test]
    fn short_intervals_are_taken_together_until_there_are_enough_samples() {
        assert_eq!(told(100, &[3; 8]), [0, 0, 0, 0, 0, 0, 21, 0]);
        assert_eq!(told(100, &[25; 3]), [25, 25, 25]);
        assert_eq!(told(250, &[3; 8]), [0, 0, 0, 12, 0, 0, 0, 12]);
        let mut expected = [0; 20];
        (expected[9], expected[19]) = (10, 10);
        assert_eq!(told(100, &[1; 20]), expected);
    }

    #[test]
    fn intervals_of_a_second_and_longer_ones_speak_for_themselves() {
        for milliseconds in [700, 990, 1_000, 1_300, 10_000] {
            assert_eq!(told(milliseconds, &[3, 1, 0, 40, 2]), [3, 1, 0, 40, 2]);
            let mut known = known();
            add(&mut known, 3);
            assert!(matches!(
                end(&mut known, milliseconds, false),
                Told::News(_)
            ));
            assert_eq!(end(&mut known, milliseconds, false), Told::Nothing);
        }
    }

    #[test]
    fn floating_point_waits_for_its_turn_for_a_second_at_most() {
        let float = float as fn(f64) -> f64 as usize as u64;
        let mut known = known();
        let news = |told: &Told| matches!(told, Told::News(_));
        let told: Vec<bool> = (0..10)
            .map(|_| {
                add_at(&mut known, float, 25);
                news(&end_with(&mut known, 100, false, false))
            })
            .collect();
        assert_eq!(told.iter().position(|told| *told), Some(9));
        add_at(&mut known, float, 25);
        assert!(news(&end_with(&mut known, 100, false, true)));
        // Without floating point no thread waits for more samples.
        add(&mut known, 25);
        assert!(news(&end_with(&mut known, 100, false, false)));
        add_at(&mut known, float, 25);
        assert!(news(&end_with(&mut known, 1_000, false, false)));
    }

    #[test]
    fn sharing_is_examined_once_a_second_and_holds_until_then() {
        let shared = |milliseconds: u64, intervals: u64| {
            let mut known = known();
            let ids = [TID, TID + 1].map(|tid| ThreadId { tid, start: 1 });
            for id in ids {
                known.add(id, std::process::id() as i32);
                let thread = known.threads.get_mut(id.tid).expect("added");
                let sampled = thread.sampled.get_or_insert_default();
                for line in 0..100 {
                    let (address, write) = (line * 64, true);
                    sampled.accesses.add(Access { address, write });
                }
            }
            let both = ids.map(|id| thread(id, milliseconds));
            let mut how = How {
                interval: Duration::from_millis(milliseconds),
                l2_bytes: 1 << 20,
                names: &Names::new(),
                walk: &mut |_| true,
            };
            let interval = how.interval;
            let rates = (0..intervals).map(|_| {
                for thread in &both {
                    known.metrics(thread, false, &mut how);
                }
                let sharing = known.sharing(&both, interval);
                sharing.first().map(|sharing| sharing.transfers)
            });
            let rates: Vec<Option<f64>> = rates.collect();
            // One of them has ended.
            let alone = known.sharing(&both[..1], interval);
            assert!(alone.is_empty(), "{alone:?}");
            rates
        };
        let seconds = shared(1_000, 2);
        assert!(seconds[0].is_some_and(|rate| rate > 0.0) && seconds[1] == seconds[0]);
        let tenths = shared(100, 12);
        assert!(tenths[..9].iter().all(Option::is_none), "{tenths:?}");
        assert!(tenths[9..].iter().all(|rate| *rate == seconds[0]));
    }

    #[test]
    fn what_was_told_holds_for_a_second_and_ends_with_the_thread() {
        let mut known = known();
        add(&mut known, 30);
        assert!(matches!(end(&mut known, 100, false), Told::News(_)));
        for _ in 0..9 {
            assert_eq!(end(&mut known, 100, false), Told::Gathering);
        }
        assert_eq!(end(&mut known, 100, false), Told::Nothing);
        add(&mut known, 2);
        assert_eq!(end(&mut known, 100, false), Told::Gathering);
        assert!(matches!(end(&mut known, 100, true), Told::News(_)));
    }
}
