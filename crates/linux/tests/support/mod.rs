//! Threads of known work, and periods of a sampling module over them.
#![allow(dead_code)] // each test binary uses its part

use perch_core::{Metrics, Module, ModuleContext, ThreadId, ThreadInfo, ThreadSample, Topology};
use perch_linux::sampling::SamplerModule;
use std::{
    fs,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// What a worker does until it is told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    Integer,
    Float,
    Sleep,
}

/// About a millisecond of integer arithmetic: no floating-point instruction.
#[inline(never)]
pub fn integer() {
    let mut x = black_box(88_172_645_463_325_252u64);
    for _ in 0..200_000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
}

/// About a millisecond of floating-point arithmetic.
#[inline(never)]
pub fn float() {
    let (mut a, mut b) = (black_box(1.000_001f64), black_box(0.999_999f64));
    for _ in 0..200_000 {
        a = a * 1.000_000_1 + b;
        b = b * 0.999_999_9 - a * 1e-9;
        if a > 1e9 {
            a -= 1e9;
        }
    }
    black_box((a, b));
}

/// A thread at work.
pub struct Worker {
    pub id: ThreadId,
    work: Arc<AtomicU8>,
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Worker {
    pub fn start(work: Work) -> Self {
        let (sender, receiver) = mpsc::channel();
        let what = Arc::new(AtomicU8::new(work as u8));
        let stop = Arc::new(AtomicBool::new(false));
        let (its_work, its_stop) = (what.clone(), stop.clone());
        let handle = thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            sender.send(tid).expect("receiver");
            while !its_stop.load(Ordering::Relaxed) {
                match its_work.load(Ordering::Relaxed) {
                    0 => integer(),
                    1 => float(),
                    _ => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        let tid = receiver.recv().expect("sender");
        Self {
            id: thread_id(tid),
            work: what,
            stop,
            handle: Some(handle),
        }
    }

    pub fn turn_to(&self, work: Work) {
        self.work.store(work as u8, Ordering::Relaxed);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.handle.take().map(JoinHandle::join);
    }
}

/// This process.
pub fn own_pid() -> i32 {
    std::process::id() as i32
}

/// A thread's identity from /proc.
pub fn thread_id(tid: i32) -> ThreadId {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).expect("a live thread");
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let start = fields.split_whitespace().nth(19).expect("start time");
    ThreadId {
        tid,
        start: start.parse().expect("a number"),
    }
}

/// Nanoseconds on a PU so far.
fn cpu_time(pid: i32, tid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        let fields: Vec<u64> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().skip(11).take(2))
            .into_iter()
            .flatten()
            .filter_map(|field| field.parse().ok())
            .collect();
        fields.iter().sum::<u64>() * 10_000_000
    };
    stat.split_whitespace()
        .next()
        .and_then(|time| time.parse().ok())
        .unwrap_or_else(ticks)
}

/// Runs periods of a module over threads.
pub struct Periods {
    pub module: SamplerModule,
    threads: Vec<(ThreadId, i32, u64)>,
    ended: Vec<ThreadId>,
    topology: Arc<Topology>,
    last: Instant,
}

impl Periods {
    pub fn new(module: SamplerModule) -> Self {
        Self {
            module,
            threads: Vec::new(),
            ended: Vec::new(),
            topology: Arc::new(without_caches()),
            last: Instant::now(),
        }
    }

    pub fn follow(&mut self, id: ThreadId, pid: i32) {
        self.module.attach(id, pid);
        self.threads.push((id, pid, cpu_time(pid, id.tid)));
    }

    /// All threads will have ended by the next period's end.
    pub fn end_all(&mut self) {
        self.ended
            .extend(self.threads.drain(..).map(|(id, _, _)| id));
    }

    /// Waits for this long and ends a period; `switches` is said of every thread.
    pub fn period_with(&mut self, length: Duration, switches: u64) -> Vec<(ThreadId, Metrics)> {
        thread::sleep(length);
        let interval = self.last.elapsed().as_nanos() as u64;
        self.last = Instant::now();
        let samples: Vec<ThreadSample> = self
            .threads
            .iter_mut()
            .map(|(id, pid, before)| {
                let now = cpu_time(*pid, id.tid);
                let used = now.saturating_sub(*before);
                *before = now;
                ThreadSample {
                    info: ThreadInfo {
                        id: *id,
                        pid: *pid,
                        name: "worker".into(),
                        process: "test".into(),
                        work: perch_core::Work::default(),
                    },
                    interval,
                    cpu_time: used,
                    wait_time: 0,
                    switches: Some(switches),
                    migrations: None,
                    last_pu: None,
                    mask: None,
                    counts: Vec::new(),
                    event_set: None,
                    metrics: Metrics::default(),
                }
            })
            .collect();
        let context = ModuleContext {
            topology: &self.topology,
            interval,
            threads: &samples,
            pus: &[],
            ended: &self.ended,
        };
        let metrics = self.module.period(&context).expect("a period").threads;
        self.ended.clear();
        metrics
    }

    /// Waits until each of these threads has run for this long since the last period, however busy the machine is, and
    /// ends a period.
    pub fn period_of_work(&mut self, ids: &[ThreadId], cpu: Duration) -> Vec<(ThreadId, Metrics)> {
        let behind = |(id, pid, before): &(ThreadId, i32, u64)| {
            let ran = cpu_time(*pid, id.tid).saturating_sub(*before);
            ids.contains(id) && u128::from(ran) < cpu.as_nanos()
        };
        let patience = Instant::now() + Duration::from_secs(120);
        while self.threads.iter().any(behind) {
            assert!(Instant::now() < patience, "a thread does not get to run");
            thread::sleep(Duration::from_millis(20));
            self.module.drain();
        }
        self.period(Duration::ZERO)
    }

    pub fn period(&mut self, length: Duration) -> Vec<(ThreadId, Metrics)> {
        self.period_with(length, 10)
    }
}

/// A machine of which nothing is known.
fn without_caches() -> Topology {
    Topology {
        source: "test".into(),
        packages: Vec::new(),
        numa_nodes: Vec::new(),
        caches: Vec::new(),
        cores: Vec::new(),
        kinds: Vec::new(),
        pus: Vec::new(),
    }
}

/// A metric of one thread, if it is known.
pub fn value(metrics: &[(ThreadId, Metrics)], id: ThreadId, name: &str) -> Option<f64> {
    let (_, metrics) = metrics.iter().find(|(of, _)| *of == id)?;
    metrics.value(name)
}
