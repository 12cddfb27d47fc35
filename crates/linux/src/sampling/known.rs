//! Whose a sample is, and what all samples of a thread say.

use super::{
    history::{History, Names, in_kernel},
    process::Process,
    reported::Reported,
    steer::Whereabouts,
    system_wide::SystemWide,
};
use crate::perf::{
    Record,
    record::{CpuMode, Sample},
};
use perch_core::{Metrics, ModuleContext, PuSet, Sharing, ThreadId, ThreadSample};
use perch_sampling::{Accesses, ThreadMix, Toucher, common};
use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    time::Duration,
};

/// A thread of a process that was given to perch.
struct Thread {
    /// `None` until a period tells of it: its samples are kept for it until then.
    id: Option<ThreadId>,
    pid: i32,
    /// Only threads that were ever sampled have this.
    sampled: Option<Box<Sampled>>,
}

#[derive(Default)]
struct Sampled {
    mix: ThreadMix,
    /// Samples in the kernel in this period.
    kernel: u64,
    /// Samples of periods in which no code could be decoded.
    undecoded: u64,
    history: History,
    /// What it touched lately.
    accesses: Accesses,
}

/// All that a sample is looked up in.
#[derive(Default)]
pub(super) struct Known {
    threads: HashMap<i32, Thread>,
    processes: HashMap<i32, Process>,
    /// Counts how often rings were drained.
    drains: u64,
    whereabouts: Whereabouts,
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
        let thread = self.threads.entry(id.tid).or_insert_with(new);
        // The number may have been another thread's, or the first of a process that was forked from another.
        if thread.id.is_some_and(|other| other != id) || thread.pid != pid {
            *thread = new();
        }
        thread.id = Some(id);
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
        if self.threads.get(&tid).is_some_and(|old| old.id.is_none()) {
            self.threads.remove(&tid);
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
        for thread in self.threads.values_mut().filter(|t| t.pid == pid) {
            thread.sampled = None;
        }
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
        let thread = match self.threads.entry(sample.tid) {
            Entry::Occupied(thread) => thread.into_mut(),
            Entry::Vacant(place) if self.processes.contains_key(&sample.pid) => {
                place.insert(Thread {
                    id: None,
                    pid: sample.pid,
                    sampled: None,
                })
            }
            Entry::Vacant(_) => return, // not ours
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

    /// What a thread's samples say; `walk` tells whether they may be seen together, which takes longer.
    pub(super) fn metrics(
        &mut self,
        thread: &ThreadSample,
        l2_bytes: u64,
        names: &Names,
        walk: &mut dyn FnMut(&ThreadMix) -> bool,
    ) -> Option<Metrics> {
        let known = self.threads.get_mut(&thread.info.id.tid)?;
        let sampled = known.sampled.as_mut()?;
        let kernel = std::mem::take(&mut sampled.kernel);
        if kernel == 0 && sampled.mix.samples() == 0 {
            return None;
        }
        let process = self.processes.get_mut(&known.pid)?;
        let together = walk(&sampled.mix);
        let period = Duration::from_nanos(thread.interval);
        if let Some(new) = process.take(&mut sampled.mix, together, period) {
            return Some(sampled.history.join(&new, kernel, l2_bytes, names));
        }
        sampled.undecoded += sampled.mix.samples();
        sampled.mix.reset();
        in_kernel(kernel, names)
    }

    /// Which of these threads share memory with others of their process. Ends the period of what they touched.
    pub(super) fn sharing(&mut self, threads: &[ThreadSample]) -> Vec<Sharing> {
        let mut processes: BTreeMap<i32, Vec<&ThreadSample>> = BTreeMap::new();
        for thread in threads {
            let known = self.threads.get(&thread.info.id.tid);
            let sampled = known.and_then(|known| known.sampled.as_ref());
            if sampled.is_some_and(|sampled| !sampled.accesses.is_empty()) {
                processes.entry(thread.info.pid).or_default().push(thread);
            }
        }
        let mut sharing = Vec::new();
        for threads in processes.values().filter(|threads| threads.len() > 1) {
            let toucher = |thread: &&ThreadSample| {
                let sampled = self.threads.get(&thread.info.id.tid)?.sampled.as_ref()?;
                let busy = thread.cpu_time as f64 / thread.interval.max(1) as f64;
                Some(Toucher {
                    accesses: &sampled.accesses,
                    busy: busy.min(1.0),
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
        for sampled in self.threads.values_mut().filter_map(|t| t.sampled.as_mut()) {
            sampled.accesses.end_period();
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
        self.whereabouts
            .next(expected, self.ours, &system.sampled(), &system.cpus())
    }

    /// Processes that have only undecodable samples because their memory may not be read.
    pub(super) fn unreadable<'a>(&self, context: &ModuleContext<'a>) -> Option<(i32, &'a str)> {
        context.threads.iter().find_map(|thread| {
            let process = self.processes.get(&thread.info.pid)?;
            let known = self.threads.get(&thread.info.id.tid)?;
            let undecoded = known.sampled.as_ref()?.undecoded;
            (undecoded >= 10 && process.memory_refused())
                .then_some((thread.info.pid, &*thread.info.process))
        })
    }

    /// Forgets what has ended, and threads of which no period tells.
    pub(super) fn end_period(&mut self, context: &ModuleContext<'_>) {
        self.ours = 0;
        self.lost = 0;
        self.throttled = false;
        for id in context.ended {
            if self.threads.get(&id.tid).is_some_and(|t| t.id == Some(*id)) {
                self.threads.remove(&id.tid);
            }
        }
        self.threads.retain(|_, thread| thread.id.is_some());
        let live: HashSet<i32> = self.threads.values().map(|t| t.pid).collect();
        self.processes.retain(|pid, _| live.contains(pid));
    }
}
