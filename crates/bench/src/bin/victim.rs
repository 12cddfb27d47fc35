//! A process to be watched: many threads, few of them running. Answers each line on its input with one JSON line:
//! work done so far. With `--for` or `--spawn` it works from its start and prints once what it has done.

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
    /// Two threads on one PU that wake each other by a pipe and do nothing else.
    Pipe,
    /// The same by a futex.
    Futex,
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
    /// Works for this many milliseconds from its start, prints what was done, and exits.
    #[arg(long = "for", value_name = "MS")]
    time: Option<u64>,
    /// Runs /bin/true this often, one after another, prints how long that took, and exits.
    #[arg(long, value_name = "TIMES")]
    spawn: Option<u64>,
}

/// One thread's count on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Work(AtomicU64);

fn main() -> anyhow::Result<()> {
    let began = Instant::now();
    let args = Args::parse();
    if let Some(times) = args.spawn {
        for _ in 0..times {
            std::process::Command::new("/bin/true").status()?;
        }
        print_done(times, began);
    }
    let work: Arc<Vec<Work>> =
        Arc::new((0..args.threads.max(2)).map(|_| Work::default()).collect());
    match args.mode {
        Mode::Compute => spawn_compute(&args, &work)?,
        Mode::Switch => spawn_pair(&work)?,
        Mode::Pipe => {
            let work = Arc::clone(&work);
            thread::Builder::new()
                .name("ping".into())
                .spawn(move || pair(0, &work).expect("pipes work"))?;
        }
        Mode::Futex => spawn_futex_pair(&work)?,
    }
    if let Some(time) = args.time {
        thread::sleep(Duration::from_millis(time).saturating_sub(began.elapsed()));
        print_done(done(&work), began);
    }
    println!("{{\"pid\":{}}}", std::process::id());
    for line in std::io::stdin().lock().lines() {
        line?;
        println!("{{\"work\":{}}}", done(&work));
        std::io::stdout().flush()?;
    }
    std::process::exit(0)
}

fn done(work: &[Work]) -> u64 {
    work.iter().map(|work| work.0.load(Ordering::Relaxed)).sum()
}

/// One line with the work that was done since then, and the time on PUs that it took; then the process exits.
fn print_done(work: u64, began: Instant) -> ! {
    let seconds = began.elapsed().as_secs_f64();
    // SAFETY: zeroed rusages are valid, and getrusage(2) fills them in.
    let on_pu: f64 = [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN]
        .map(|who| unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
            seconds(usage.ru_utime) + seconds(usage.ru_stime)
        })
        .iter()
        .sum();
    println!("{{\"work\":{work},\"seconds\":{seconds},\"on_pu\":{on_pu}}}");
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

/// Binds this thread, and what it starts, to the PU that it is on.
fn stay() -> anyhow::Result<()> {
    let mut one_pu = rustix::thread::CpuSet::new();
    one_pu.set(rustix::thread::sched_getcpu());
    Ok(rustix::thread::sched_setaffinity(None, &one_pu)?)
}

/// Two threads on one PU that wake each other by a futex: std's park and unpark.
fn spawn_futex_pair(work: &Arc<Vec<Work>>) -> anyhow::Result<()> {
    let work = Arc::clone(work);
    thread::Builder::new().name("ping".into()).spawn(move || {
        stay().expect("a thread may bind itself");
        let turn = Arc::new(AtomicU64::new(0));
        let ping = thread::current();
        let (theirs, counted) = (Arc::clone(&turn), Arc::clone(&work));
        let pong = thread::spawn(move || swap(1, &theirs, &ping, &counted[1]));
        swap(0, &turn, pong.thread(), &work[0]);
    })?;
    Ok(())
}

/// Waits for its turn, counts, and wakes the other.
fn swap(own: u64, turn: &AtomicU64, other: &thread::Thread, work: &Work) {
    loop {
        while turn.load(Ordering::Acquire) != own {
            thread::park();
        }
        work.0.fetch_add(1, Ordering::Relaxed);
        turn.store(1 - own, Ordering::Release);
        other.unpark();
    }
}

fn pair(rounds: u32, work: &Arc<Vec<Work>>) -> anyhow::Result<()> {
    stay()?;
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
