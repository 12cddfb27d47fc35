//! Kernels at once, each on a PU of its own.

use crate::{Bench, Kernel, Room, Sizes};
use rustix::{
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// What a thread of a run does where.
#[derive(Debug, Clone, Copy)]
pub struct Seat {
    /// The PU, by the operating system's number.
    pub pu: u32,
    /// The kernel that the thread executes.
    pub kernel: &'static Kernel,
}

/// For how long kernels run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Before anything is measured, all together.
    pub warm: Duration,
    /// While it is.
    pub measured: Duration,
}

/// What a thread did in its window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Rounds in a second on its PU, in the median of the pieces into which the window is cut: what happens now and then,
    /// such as an interrupt or time that a hypervisor took without telling, is in a few pieces only.
    pub speed: f64,
    /// The same in a second of wall time.
    pub wall: f64,
    /// Part of the window that it was on its PU: less than 1 where others ran there too.
    pub share: f64,
}

/// A crew that cannot work.
#[derive(Debug)]
pub enum CrewError {
    /// A thread cannot be bound.
    Bind(u32, std::io::Error),
    /// There is no memory, or no thread.
    Make(std::io::Error),
    /// A thread has died.
    Dead(u32),
}

impl std::fmt::Display for CrewError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bind(pu, error) => write!(to, "PU {pu}: a thread cannot be bound to it: {error}"),
            Self::Make(error) => write!(to, "a kernel cannot be started: {error}"),
            Self::Dead(pu) => write!(to, "the thread on PU {pu} has died"),
        }
    }
}

impl std::error::Error for CrewError {}

/// How long a piece of a window is to be.
const PIECE: Duration = Duration::from_micros(100);

const WARM: u8 = 0;
const MEASURE: u8 = 1;
const OVER: u8 = 2;

struct Order {
    kernel: &'static Kernel,
    phase: Arc<AtomicU8>,
    ready: Arc<AtomicUsize>,
}

struct Worker {
    /// `None` when it shall end.
    orders: Option<Sender<Order>>,
    answers: Receiver<Result<Rate, CrewError>>,
    thread: Option<JoinHandle<()>>,
}

/// Threads that wait for work, one a PU, made when they are first needed.
pub struct Crew {
    sizes: Sizes,
    workers: BTreeMap<u32, Worker>,
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pus: Vec<&u32> = self.workers.keys().collect();
        to.debug_struct("Crew").field("pus", &pus).finish()
    }
}

impl Crew {
    /// No threads yet, on a machine with these caches.
    pub fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            workers: BTreeMap::new(),
        }
    }

    /// Runs kernels at once, each on another PU; how each one did, in the order of the seats. All of them run before
    /// the first window begins and until the last one ends.
    ///
    /// # Errors
    /// A PU to which no thread can be bound, memory that is not there.
    pub fn run(&mut self, seats: &[Seat], window: Window) -> Result<Vec<Rate>, CrewError> {
        let phase = Arc::new(AtomicU8::new(WARM));
        let ready = Arc::new(AtomicUsize::new(0));
        for seat in seats {
            let worker = match self.workers.entry(seat.pu) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(Worker::new(seat.pu, self.sizes).map_err(CrewError::Make)?)
                }
            };
            let order = Order {
                kernel: seat.kernel,
                phase: Arc::clone(&phase),
                ready: Arc::clone(&ready),
            };
            let orders = worker.orders.as_ref();
            // A worker that has died does not answer either, which is reported below.
            let _ = orders.map(|orders| orders.send(order));
        }
        let begun = |worker: &Worker| worker.thread.as_ref().is_none_or(JoinHandle::is_finished);
        while ready.load(Ordering::Acquire) < seats.len() {
            thread::sleep(Duration::from_micros(200));
            if let Some((pu, _)) = self.workers.iter().find(|(_, worker)| begun(worker)) {
                phase.store(OVER, Ordering::Release);
                return Err(self.last_words(*pu));
            }
        }
        thread::sleep(window.warm);
        phase.store(MEASURE, Ordering::Release);
        thread::sleep(window.measured);
        phase.store(OVER, Ordering::Release);
        let answer = |seat: &Seat| {
            let answers = &self.workers[&seat.pu].answers;
            answers.recv().map_err(|_| CrewError::Dead(seat.pu))?
        };
        seats.iter().map(answer).collect()
    }

    /// Seconds that it takes to hand a line which one PU has written to another: two threads of their own wait for each
    /// other in turn. The median of short pieces of this, so that it does not matter if one of them is off its PU now and
    /// then; `None` if there were too few.
    ///
    /// # Errors
    /// A PU to which no thread can be bound.
    pub fn hand_over(&mut self, a: u32, b: u32, time: Duration) -> Result<Option<f64>, CrewError> {
        let mut pieces = to_and_fro(a, b, time)?;
        pieces.sort_unstable();
        let median = pieces
            .get(pieces.len() / 2)
            .filter(|_| pieces.len() >= LEAST);
        Ok(median.map(|piece| piece.as_secs_f64() / (2 * TURNS) as f64))
    }

    /// Why a thread ended.
    fn last_words(&self, pu: u32) -> CrewError {
        match self.workers[&pu].answers.try_recv() {
            Ok(Err(error)) => error,
            _ => CrewError::Dead(pu),
        }
    }
}

/// Turns of each thread in a piece: some microseconds, in which both are on their PUs if they are at its beginning.
const TURNS: usize = 32;

/// Of fewer pieces nothing is concluded.
const LEAST: usize = 50;

/// A number on a line of its own.
#[repr(align(128))]
struct Ball(AtomicUsize);

/// Two threads write a number in turn, the one even and the other odd ones, until the time is over; how long each piece
/// took.
fn to_and_fro(a: u32, b: u32, time: Duration) -> Result<Vec<Duration>, CrewError> {
    let (ball, over) = (Ball(AtomicUsize::new(0)), AtomicU8::new(0));
    let play = |pu: u32, mine: usize| -> Result<Vec<Duration>, CrewError> {
        let mut pieces = Vec::new();
        let bound = bind(pu).map_err(|error| CrewError::Bind(pu, error));
        if bound.is_err() {
            over.store(1, Ordering::Release);
        }
        let (mut turns, mut last) = (0, Instant::now());
        while bound.is_ok() && over.load(Ordering::Relaxed) == 0 {
            let at = ball.0.load(Ordering::Acquire);
            if at & 1 != mine {
                std::hint::spin_loop();
                continue;
            }
            ball.0.store(at + 1, Ordering::Release);
            turns += 1;
            if turns == TURNS {
                let now = Instant::now();
                if pieces.len() < PIECES {
                    pieces.push(now - last);
                }
                (turns, last) = (0, now);
            }
        }
        bound.map(|()| pieces)
    };
    thread::scope(|scope| {
        let players = [(a, 0), (b, 1)].map(|(pu, mine)| {
            let play = &play;
            scope.spawn(move || play(pu, mine))
        });
        let begun = Instant::now();
        while begun.elapsed() < time && over.load(Ordering::Acquire) == 0 {
            thread::sleep(time / 20);
        }
        over.store(1, Ordering::Release);
        let mut of_first = None;
        for (player, pu) in players.into_iter().zip([a, b]) {
            let pieces = player.join().map_err(|_| CrewError::Dead(pu))??;
            of_first.get_or_insert(pieces);
        }
        Ok(of_first.unwrap_or_default())
    })
}

impl Worker {
    fn new(pu: u32, sizes: Sizes) -> std::io::Result<Self> {
        let (orders, to_do) = channel::<Order>();
        let (tell, answers) = channel();
        let work = move || {
            if let Err(error) = bind(pu) {
                let _ = tell.send(Err(CrewError::Bind(pu, error)));
                return;
            }
            // Memory of either sort of pages, kept from kernel to kernel.
            let mut rooms: [Option<Room>; 2] = [None, None];
            for order in to_do {
                let rate = serve(&order, &sizes, &mut rooms);
                let failed = rate.is_err();
                if tell.send(rate.map_err(CrewError::Make)).is_err() || failed {
                    return;
                }
            }
        };
        let thread = thread::Builder::new()
            .name(format!("kernel-{pu}"))
            .spawn(work)?;
        Ok(Self {
            orders: Some(orders),
            answers,
            thread: Some(thread),
        })
    }
}

/// Binds the calling thread to one PU.
///
/// # Errors
/// The kernel's.
pub fn bind(pu: u32) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    if pu as usize >= CpuSet::MAX_CPU {
        return Err(std::io::Error::from(rustix::io::Errno::INVAL));
    }
    set.set(pu as usize);
    Ok(sched_setaffinity(None, &set)?)
}

/// Runs one kernel through the phases of an order.
fn serve(order: &Order, sizes: &Sizes, rooms: &mut [Option<Room>; 2]) -> std::io::Result<Rate> {
    let wanted = (order.kernel.room)(sizes);
    let kept = &mut rooms[usize::from(wanted.small_pages)];
    let mut bench = Bench::new(order.kernel, sizes, kept.take())?;
    order.ready.fetch_add(1, Ordering::AcqRel);
    let during = |phase: u8| order.phase.load(Ordering::Acquire) == phase;
    let (begun, mut rounds) = (Instant::now(), 0u32);
    while rounds == 0 || during(WARM) {
        bench.round(order.kernel);
        rounds = rounds.saturating_add(1);
    }
    let each = begun.elapsed().as_secs_f64() / f64::from(rounds);
    let rounds = (PIECE.as_secs_f64() / each).clamp(1.0, 1e6) as u32;
    let mut pieces: Vec<(Duration, Duration)> = Vec::with_capacity(PIECES);
    let (began, before) = (Instant::now(), on_pu());
    let mut last = (Duration::ZERO, before);
    loop {
        // At least one, even if others had the PU all the time.
        for _ in 0..rounds {
            bench.round(order.kernel);
        }
        let now = (began.elapsed(), on_pu());
        if pieces.len() < PIECES {
            // The two clocks are not read in the same instant: an interrupt in between would give a thread more time on
            // its PU than there was.
            let wall = now.0 - last.0;
            pieces.push((wall, now.1.saturating_sub(last.1).min(wall)));
        }
        last = now;
        if !during(MEASURE) {
            break;
        }
    }
    *kept = Some(bench.into_room());
    let median = |of: fn(&(Duration, Duration)) -> Duration| {
        let mut times: Vec<Duration> = pieces.iter().map(of).collect();
        times.sort_unstable();
        f64::from(rounds) / times[times.len() / 2].as_secs_f64().max(1e-9)
    };
    let (wall, on_pu) = (last.0, last.1.saturating_sub(before));
    Ok(Rate {
        speed: median(|piece| piece.1),
        wall: median(|piece| piece.0),
        share: (on_pu.as_secs_f64() / wall.as_secs_f64().max(1e-9)).min(1.0),
    })
}

/// So many pieces of a window are kept at most.
const PIECES: usize = 4096;

/// Time that the calling thread has spent on PUs.
fn on_pu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in self.workers.values_mut() {
            worker.orders = None;
            if let Some(thread) = worker.thread.take() {
                // It ends by itself; if it panicked, it has printed that itself.
                let _ = thread.join();
            }
        }
    }
}
