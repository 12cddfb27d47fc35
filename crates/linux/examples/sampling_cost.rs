//! What instruction sampling costs: perch itself for each sample, and the sampled threads, by kind of event.
//!
//! ```text
//! cargo run --release -p perch-linux --example sampling_cost
//! ```
//!
//! The numbers are behind the defaults of `perch_linux::sampling::Options`. Each is the median over alternating runs with
//! and without sampling, of the CPU time that the victim needs for one turn of its work, so that other programs on the
//! machine disturb little.

use perch_core::{
    Metrics, Module, ModuleContext, ThreadId, ThreadInfo, ThreadSample, Topology, metric::names,
};
use perch_linux::sampling::{Options, SamplerModule};
use rustix::time::{ClockId, clock_gettime};
use std::{
    hint::black_box,
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

const RUNS: usize = 7;
const RUN: Duration = Duration::from_millis(700);

fn main() {
    let system_wide = Options::default();
    let per_thread = Options {
        per_thread: true,
        ..Options::default()
    };
    for options in [system_wide, per_thread] {
        match SamplerModule::open(options) {
            Ok(module) => println!("{}", module.description()),
            Err(error) => {
                println!("{error}");
                continue;
            }
        }
        perch_itself(options);
        for (what, victim) in [
            ("compute loop", Victim::compute as fn() -> Victim),
            ("pair that switches all the time", Victim::ping_pong),
        ] {
            slowdown(what, victim, options);
        }
    }
}

/// Prints the CPU time of a period by sample.
fn perch_itself(options: Options) {
    let victims: Vec<Victim> = (0..2).map(|_| Victim::compute()).collect();
    let ids: Vec<ThreadId> = victims.iter().flat_map(|v| v.ids.clone()).collect();
    let mut module = SamplerModule::open(options).expect("opened before");
    ids.iter().for_each(|id| module.attach(*id, own_pid()));
    let (mut samples, mut time) = (0.0, 0);
    for period in 0..5 {
        thread::sleep(Duration::from_secs(1));
        let before = own_time();
        let metrics = period_of(&mut module, &ids);
        // the first period decodes all that the loops consist of
        if period > 0 {
            time += own_time() - before;
            samples += metrics
                .iter()
                .filter_map(|(_, m)| m.value(names::SAMPLES))
                .sum::<f64>();
        }
    }
    let each = time as f64 / samples / 1000.0;
    println!("  perch: {samples} samples, {each:.2} µs each");
}

/// Prints how much less a victim gets done while it is sampled.
fn slowdown(what: &str, start: fn() -> Victim, options: Options) {
    let mut ratios = Vec::new();
    let mut turn = 0.0;
    for _ in 0..RUNS {
        let victim = start();
        let alone = victim.cost(RUN);
        let mut module = SamplerModule::open(options).expect("opened before");
        victim
            .ids
            .iter()
            .for_each(|id| module.attach(*id, own_pid()));
        let sampled = victim.cost(RUN);
        drop(module);
        let alone = (alone + victim.cost(RUN)) / 2.0;
        ratios.push(sampled / alone);
        turn = alone;
    }
    ratios.sort_by(f64::total_cmp);
    let (low, median, high) = (ratios[1], ratios[RUNS / 2], ratios[RUNS - 2]);
    println!(
        "  {what}: {turn:.0} ns a turn, {:.2} % more ({:.2} to {:.2}), {:.0} ns",
        (median - 1.0) * 100.0,
        (low - 1.0) * 100.0,
        (high - 1.0) * 100.0,
        (median - 1.0) * turn
    );
}

/// Threads that count what they get done.
struct Victim {
    ids: Vec<ThreadId>,
    turns: Arc<AtomicU64>,
    /// CPU time of all threads, in nanoseconds.
    time: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Victim {
    fn new(bodies: Vec<Box<dyn FnMut() -> u64 + Send>>) -> Self {
        let (turns, time) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = std::sync::mpsc::channel();
        let count = bodies.len();
        let start = |mut body: Box<dyn FnMut() -> u64 + Send>| {
            let (turns, time) = (turns.clone(), time.clone());
            let (stop, sender) = (stop.clone(), sender.clone());
            thread::spawn(move || {
                let tid = rustix::thread::gettid().as_raw_nonzero().get();
                sender.send(tid).expect("receiver");
                let mut last = own_time();
                while !stop.load(Ordering::Relaxed) {
                    // the clock is a system call: not at every turn
                    let done = (0..32).map(|_| body()).sum();
                    let now = own_time();
                    time.fetch_add(now - last, Ordering::Relaxed);
                    turns.fetch_add(done, Ordering::Relaxed);
                    last = now;
                }
            })
        };
        let threads = bodies.into_iter().map(start).collect();
        let ids = receiver.iter().take(count);
        let ids = ids.map(|tid| ThreadId { tid, start: 0 }).collect();
        Self {
            ids,
            turns,
            time,
            stop,
            threads,
        }
    }

    /// One thread that computes.
    fn compute() -> Self {
        Self::new(vec![Box::new(|| {
            let mut x = black_box(1u64);
            for _ in 0..100_000 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            }
            black_box(x);
            1
        })])
    }

    /// Two threads on one PU that wake each other: a turn is two switches.
    fn ping_pong() -> Self {
        let (left, right) = UnixStream::pair().expect("sockets");
        let side = |mut stream: UnixStream, starts: bool| -> Box<dyn FnMut() -> u64 + Send> {
            stream
                .set_read_timeout(Some(Duration::from_millis(100)))
                .expect("a timeout");
            let mut started = !starts;
            let mut bound = false;
            Box::new(move || {
                if !bound {
                    bound = true;
                    let mut cpus = rustix::thread::CpuSet::new();
                    cpus.set(0);
                    let _ = rustix::thread::sched_setaffinity(None, &cpus);
                }
                if !started {
                    started = true;
                    let _ = stream.write(&[0]);
                }
                let mut byte = [0];
                if stream.read(&mut byte).is_err() {
                    return 0;
                }
                let _ = stream.write(&byte);
                u64::from(starts)
            })
        };
        Self::new(vec![side(left, true), side(right, false)])
    }

    /// Nanoseconds of CPU time for one turn.
    fn cost(&self, time: Duration) -> f64 {
        let now = || {
            (
                self.time.load(Ordering::Relaxed),
                self.turns.load(Ordering::Relaxed),
            )
        };
        let before = now();
        thread::sleep(time);
        let after = now();
        (after.0 - before.0) as f64 / (after.1 - before.1) as f64
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a victim");
        }
    }
}

fn period_of(module: &mut SamplerModule, ids: &[ThreadId]) -> Vec<(ThreadId, Metrics)> {
    let sample = |id: &ThreadId| ThreadSample {
        info: ThreadInfo {
            id: *id,
            pid: own_pid(),
            name: "".into(),
            process: "".into(),
            work: perch_core::Work::default(),
        },
        interval: 1_000_000_000,
        cpu_time: 1_000_000_000,
        wait_time: 0,
        switches: None,
        migrations: None,
        last_pu: None,
        mask: None,
        counts: Vec::new(),
        event_set: None,
        metrics: Metrics::default(),
    };
    let threads: Vec<ThreadSample> = ids.iter().map(sample).collect();
    let topology = Arc::new(Topology {
        source: "".into(),
        packages: Vec::new(),
        numa_nodes: Vec::new(),
        caches: Vec::new(),
        cores: Vec::new(),
        kinds: Vec::new(),
        pus: Vec::new(),
    });
    let context = ModuleContext {
        topology: &topology,
        interval: 1_000_000_000,
        threads: &threads,
        pus: &[],
        ended: &[],
    };
    module.period(&context).expect("a period").threads
}

fn own_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn own_pid() -> i32 {
    std::process::id() as i32
}
