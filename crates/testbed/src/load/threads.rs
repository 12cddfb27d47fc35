//! The workload's threads and its clock.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::options::{Order, Rates};
use super::spawn::{become_daemon, spawn};
use super::work::work;
use super::{Line, Options, Role, SpawnKind};

/// Where the stand-in PMU takes its rules.
const PMU_RULES: &str = "/sys/module/fakepmu/parameters/rules";

/// What all threads of one process know.
pub(super) struct Shared {
    pub(super) end: Instant,
    pub(super) seed: u64,
    pub(super) rates: Vec<Rates>,
    /// The first threads' roles; the clock changes them.
    roles: Mutex<Vec<Role>>,
    /// Threads and processes that the first threads are to start, each by the next of them that is free.
    errands: Vec<Mutex<Vec<(SpawnKind, Role)>>>,
    ended: AtomicBool,
    late: AtomicUsize,
}

/// One thread to be.
pub(super) struct Worker {
    shared: Arc<Shared>,
    /// Its place among the first threads; `None` for late ones, whose role never changes.
    place: Option<usize>,
    role: Role,
    how: SpawnKind,
    parent: i32,
    name: String,
}

impl Worker {
    /// A worker that comes later and keeps its role.
    pub(super) fn late(shared: &Arc<Shared>, role: Role, how: SpawnKind, parent: i32) -> Self {
        let number = shared.late.fetch_add(1, Ordering::Relaxed) as u64;
        let name = random_name(&mut fastrand::Rng::with_seed(
            shared.seed ^ (number << 32) ^ 0x5eed,
        ));
        Self {
            shared: Arc::clone(shared),
            place: None,
            role,
            how,
            parent,
            name,
        }
    }

    /// The name that it runs under.
    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    /// Tells what it is and works until the end.
    pub(super) fn run(mut self) {
        let mut told = false;
        while Instant::now() < self.shared.end && !self.shared.ended.load(Ordering::Relaxed) {
            let role = self
                .place
                .map_or(self.role, |place| lock(&self.shared.roles)[place]);
            if !told || role != self.role {
                self.role = role;
                self.tell();
                told = true;
            }
            if let Some(place) = self.place {
                let errands = std::mem::take(&mut *lock(&self.shared.errands[place]));
                for (kind, role) in errands {
                    if let Err(error) = spawn(&self.shared, kind, role) {
                        eprintln!("guest-load: {error:#}");
                        std::process::exit(1);
                    }
                }
            }
            work(role);
        }
    }

    fn tell(&self) {
        let tid = tid();
        if let Some(rates) = self.shared.rates.iter().find(|r| r.role == self.role) {
            let rule = format!("tid:{tid} {}\n", rates.rates);
            if let Err(error) = std::fs::write(PMU_RULES, rule) {
                eprintln!("guest-load: cannot write {PMU_RULES}: {error}");
                std::process::exit(1);
            }
        }
        let line = Line {
            tid,
            pid: std::process::id().cast_signed(),
            start_time: start_time(tid).unwrap_or(0),
            name: self.name.clone(),
            role: self.role,
            at: uptime(),
            how: self.how,
            parent: self.parent,
        };
        if let Ok(mut text) = serde_json::to_string(&line) {
            text.push('\n');
            // One write, past all buffers and locks: lines stay whole, and a forked child may do it.
            // SAFETY: the pointer and the length are those of a live string.
            unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
        }
    }
}

/// Runs the workload to its end.
///
/// # Errors
/// When a thread cannot be started.
pub fn run(options: &Options) -> Result<()> {
    if options.threads.0.is_empty() {
        bail!("no threads: give at least one ROLE:COUNT");
    }
    if options.daemon {
        become_daemon()?;
    }
    let how = match (options.parent, options.daemon) {
        (_, true) => SpawnKind::Daemon,
        (0, _) => SpawnKind::Thread,
        _ => SpawnKind::Program,
    };
    let begin = Instant::now();
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut roles = options.threads.0.clone();
    random.shuffle(&mut roles);
    let count = roles.len();
    let shared = Arc::new(Shared {
        end: begin + Duration::from_secs_f64(options.seconds),
        seed: options.seed,
        rates: options.rates.clone(),
        roles: Mutex::new(roles.clone()),
        errands: (0..count).map(|_| Mutex::default()).collect(),
        ended: AtomicBool::new(false),
        late: AtomicUsize::new(0),
    });
    let mut threads = Vec::new();
    for (place, role) in roles.into_iter().enumerate() {
        let name = random_name(&mut random);
        let worker = Worker {
            shared: Arc::clone(&shared),
            place: Some(place),
            role,
            how,
            parent: options.parent,
            name,
        };
        let thread = std::thread::Builder::new()
            .name(worker.name())
            .spawn(move || worker.run());
        threads.push(thread.context("cannot start a thread")?);
        std::thread::sleep(Duration::from_millis(random.u64(0..=options.gap)));
    }
    let mut foreman = Foreman {
        shared: &shared,
        random,
        place: 0,
    };
    foreman.keep_dates(options, begin);
    if let Some(path) = &options.orders {
        foreman.take_orders(path)?;
    }
    for thread in threads {
        if thread.join().is_err() {
            bail!("a thread panicked");
        }
    }
    Ok(())
}

/// Carries out what was asked for, in its time.
struct Foreman<'a> {
    shared: &'a Shared,
    random: fastrand::Rng,
    /// Which of the first threads starts the next newcomer, in rotation.
    place: usize,
}

impl Foreman<'_> {
    fn obey(&mut self, order: Order) {
        match order {
            Order::Shuffle => self.shuffle(),
            Order::End => self.shared.ended.store(true, Ordering::Relaxed),
            Order::Spawn(kind, role) => {
                lock(&self.shared.errands[self.place]).push((kind, role));
                self.place = (self.place + 1) % self.shared.errands.len();
            }
        }
    }

    /// Redistributes the roles so that at least one thread's changes, if they differ at all.
    fn shuffle(&mut self) {
        let mut roles = lock(&self.shared.roles);
        let before = roles.clone();
        if before.iter().any(|role| *role != before[0]) {
            while *roles == before {
                self.random.shuffle(&mut roles);
            }
        }
    }

    fn keep_dates(&mut self, options: &Options, begin: Instant) {
        let shuffles = options.shuffle.iter().map(|at| (*at, Order::Shuffle));
        let spawns = options
            .spawn
            .iter()
            .map(|spawn| (spawn.at, Order::Spawn(spawn.kind, spawn.role)));
        let mut dates: Vec<(f64, Order)> = shuffles.chain(spawns).collect();
        dates.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (at, order) in dates {
            let date = begin + Duration::from_secs_f64(at);
            std::thread::sleep(date.saturating_duration_since(Instant::now()));
            self.obey(order);
        }
    }

    /// Reads orders until the last writer has closed the file or the end is ordered.
    fn take_orders(&mut self, path: &Path) -> Result<()> {
        let file = File::open(path)
            .with_context(|| format!("cannot read orders from {}", path.display()))?;
        for line in BufReader::new(file).lines() {
            let order = line?.parse().map_err(anyhow::Error::msg)?;
            self.obey(order);
            if order == Order::End {
                break;
            }
        }
        Ok(())
    }
}

fn random_name(random: &mut fastrand::Rng) -> String {
    let length = random.usize(3..=14);
    std::iter::repeat_with(|| random.lowercase())
        .take(length)
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calling thread's number.
pub(super) fn tid() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// Seconds since boot.
fn uptime() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// When a thread was started, in clock ticks after boot (field 22 of its `stat`, proc(5)). The name in field 2 may hold
/// spaces and brackets. `/proc/TID/stat` itself would sum up the times of all threads of the process at each call.
///
/// # Errors
/// When the thread has ended.
pub fn start_time(tid: i32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/task/{tid}/stat"))?;
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = after_name.split_whitespace().nth(22 - 3);
    field
        .and_then(|f| f.parse().ok())
        .ok_or_else(|| io::Error::other(format!("odd line in stat: {text}")))
}
