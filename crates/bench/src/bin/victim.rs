//! A process to be watched: many threads, few of them running. Answers each line on its input with one JSON line:
//! work done so far and context switches so far.

use clap::{Parser, ValueEnum};
use std::{
    hint::black_box,
    io::{BufRead, PipeReader, PipeWriter, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// What the running threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Floating-point and integer arithmetic in registers, without a system call.
    Compute,
    /// Two threads on one PU that wake each other about 100,000 times a second.
    Switch,
}

/// A process to be watched.
#[derive(Debug, Parser)]
struct Args {
    /// Threads in all.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Threads that run; the others sleep.
    #[arg(long, default_value_t = 1)]
    running: usize,
    /// What they do.
    #[arg(long, value_enum, default_value_t = Mode::Compute)]
    mode: Mode,
}

/// One thread's count on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Work(AtomicU64);

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let work: Arc<Vec<Work>> =
        Arc::new((0..args.threads.max(2)).map(|_| Work::default()).collect());
    match args.mode {
        Mode::Compute => spawn_compute(&args, &work)?,
        Mode::Switch => spawn_pair(&work)?,
    }
    println!("{{\"pid\":{}}}", std::process::id());
    for line in std::io::stdin().lock().lines() {
        line?;
        let done: u64 = work.iter().map(|work| work.0.load(Ordering::Relaxed)).sum();
        println!("{{\"work\":{done}}}");
        std::io::stdout().flush()?;
    }
    std::process::exit(0)
}

fn spawn_compute(args: &Args, work: &Arc<Vec<Work>>) -> anyhow::Result<()> {
    for index in 0..args.threads {
        let (work, running, floating) = (Arc::clone(work), index < args.running, index % 2 == 0);
        let builder = thread::Builder::new()
            .name(format!("v{index}"))
            .stack_size(64 << 10);
        builder.spawn(move || match (running, floating) {
            (false, _) => loop {
                thread::park();
            },
            (true, true) => loop {
                float(2_000);
                work[index].0.fetch_add(1, Ordering::Relaxed);
            },
            (true, false) => loop {
                integer(2_000);
                work[index].0.fetch_add(1, Ordering::Relaxed);
            },
        })?;
    }
    Ok(())
}

#[inline(never)]
fn float(rounds: u32) {
    let (mut x, mut y) = (black_box(1.000_1_f64), black_box(0.999_9_f64));
    for _ in 0..rounds {
        x = x * 1.000_000_1 + 1e-9;
        y = y * 0.999_999_9 + 1e-9;
    }
    black_box((x, y));
}

#[inline(never)]
fn integer(rounds: u32) {
    let mut x = black_box(88_172_645_463_325_252_u64);
    for _ in 0..rounds {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
}

/// Two threads that pass a byte to and fro on one PU, with so much work between that they switch about 100,000 times
/// a second.
fn spawn_pair(work: &Arc<Vec<Work>>) -> anyhow::Result<()> {
    let bare = passes_in(Duration::from_millis(300), 0)?;
    let unit = {
        let start = Instant::now();
        integer(1_000_000);
        start.elapsed().as_secs_f64() / 1e6
    };
    let spare = (1.0 / 100_000.0 - 0.3 / bare as f64).max(0.0);
    let (rounds, work) = ((spare / unit) as u32, Arc::clone(work));
    thread::Builder::new().name("pair".into()).spawn(move || {
        // The pair's threads inherit this one's PU.
        pair(rounds, &work).expect("pipes work");
    })?;
    Ok(())
}

fn passes_in(time: Duration, rounds: u32) -> anyhow::Result<u64> {
    let work: Arc<Vec<Work>> = Arc::new(vec![Work::default(), Work::default()]);
    let counted = Arc::clone(&work);
    thread::spawn(move || pair(rounds, &counted));
    thread::sleep(time);
    let passes = work[0].0.load(Ordering::Relaxed).max(1);
    // The measuring pair must not go on beside the measured one.
    work[1].0.store(u64::MAX, Ordering::Relaxed);
    thread::sleep(Duration::from_millis(50));
    Ok(passes)
}

fn pair(rounds: u32, work: &Arc<Vec<Work>>) -> anyhow::Result<()> {
    let one_pu = {
        let mut set = rustix::thread::CpuSet::new();
        set.set(rustix::thread::sched_getcpu());
        set
    };
    rustix::thread::sched_setaffinity(None, &one_pu)?;
    let ((there_out, there_in), (back_out, back_in)) = (std::io::pipe()?, std::io::pipe()?);
    let counted = Arc::clone(work);
    let other = thread::Builder::new()
        .name("pong".into())
        .spawn(move || pass(there_out, back_in, rounds, &counted))?;
    let mut start = there_in;
    start.write_all(&[1])?;
    pass(back_out, start, rounds, work);
    let _ = other.join();
    Ok(())
}

/// Waits for a byte, works, counts, passes it on; ends when the other side is gone or the count was ended.
fn pass(mut from: PipeReader, mut to: PipeWriter, rounds: u32, work: &Arc<Vec<Work>>) {
    let mut byte = [0];
    while from.read_exact(&mut byte).is_ok() && work[1].0.load(Ordering::Relaxed) != u64::MAX {
        integer(rounds);
        work[0].0.fetch_add(1, Ordering::Relaxed);
        if to.write_all(&byte).is_err() {
            break;
        }
    }
}
