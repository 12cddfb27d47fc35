//! The process: its threads, from the beginning of counting to its end, in every child that is forked.

use super::{gather, moment, names, output, plan::Plan, sampler, thread::Thread};
use crate::Error;
use perch_regions::{Report, folder};
use std::{
    cell::RefCell,
    path::PathBuf,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Threads that ended and are kept apart; further ones are added up.
const MOST_ENDED: usize = 1000;

/// How often reports go to perch stat while the program runs: what a killed program did since is lost.
const PUT_EVERY: Duration = Duration::from_secs(1);

/// Counting of one process.
pub(crate) struct Process {
    pub plan: Arc<Plan>,
    pub pid: i32,
    /// How often this process has begun to count, this time included.
    pub times: u32,
    /// When counting began, on the monotonic clock.
    pub began: u64,
    generation: u32,
    threads: Mutex<Threads>,
    /// The report for perch stat.
    file: Option<PathBuf>,
    put_at: AtomicU64,
    samples: AtomicBool,
}

type Shared = Arc<Mutex<Thread>>;

#[derive(Default)]
struct Threads {
    all: Vec<Shared>,
    ended: usize,
    /// Those that ended beyond [`MOST_ENDED`].
    sum: Option<Shared>,
}

/// Null where nothing is counted. A process is never freed: threads may use it.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// Which process that is; 0 where nothing is counted.
static GENERATION: AtomicU32 = AtomicU32::new(0);

static GENERATIONS: AtomicU32 = AtomicU32::new(0);

/// How often this process has begun to count.
static TIMES: AtomicU32 = AtomicU32::new(0);

static BEGINNING: Mutex<()> = Mutex::new(());

/// The calling thread's own.
struct Own {
    generation: u32,
    process: &'static Process,
    thread: Shared,
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to count.
pub(crate) fn begin(plan: impl FnOnce() -> Result<Arc<Plan>, Error>) -> Result<(), Error> {
    let _one = lock(&BEGINNING);
    if is_on() {
        return Err(Error::On);
    }
    let plan = plan()?;
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: the handlers are functions without arguments that do not unwind; the library stays loaded.
        unsafe {
            libc::atexit(at_exit);
            libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
        }
    });
    Process::install(plan);
    Ok(())
}

/// Whether something is counted.
#[inline]
pub(crate) fn is_on() -> bool {
    GENERATION.load(Ordering::Acquire) != 0
}

/// The process, if something is counted.
pub(crate) fn current() -> Option<&'static Process> {
    // SAFETY: null, or a leaked box.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// Does something with the calling thread, which is made known before.
#[inline]
pub(crate) fn with_thread<R>(
    act: impl FnOnce(&mut Thread, &'static Process) -> Result<R, Error>,
) -> Result<R, Error> {
    let generation = GENERATION.load(Ordering::Acquire);
    if generation == 0 {
        return Err(Error::Off);
    }
    let found = OWN.try_with(|own| {
        // Taken already: a signal handler.
        let mut own = own.try_borrow_mut().map_err(|_| Error::Busy)?;
        if own.as_ref().is_none_or(|own| own.generation != generation) {
            let process = current().ok_or(Error::Off)?;
            *own = Some(process.join());
        }
        let Some(own) = own.as_ref() else {
            return Err(Error::Off);
        };
        act(&mut lock(&own.thread), own.process)
    });
    // The thread's own data are gone: it exits.
    found.unwrap_or(Err(Error::Busy))
}

/// Writes the report for perch stat.
pub(crate) fn put() {
    if let Some(process) = current() {
        process.put(false);
    }
}

/// Ends counting, and writes reports.
pub(crate) fn finish() -> Result<(), Error> {
    let process = current().ok_or(Error::Off)?;
    process.put(true);
    let written = match &process.plan.asked.options.report {
        Some(destination) => output::write_last(process, destination),
        None => Ok(()),
    };
    GENERATION.store(0, Ordering::Release);
    PROCESS.store(ptr::null_mut(), Ordering::Release);
    process.each(Thread::close);
    written
}

extern "C" fn at_exit() {
    if let Err(error) = finish()
        && error != Error::Off
    {
        eprintln!("perch: {error}");
    }
}

extern "C" fn before_fork() {
    names::hold();
}

extern "C" fn in_parent() {
    names::release();
}

/// The child counts itself only, from nothing on. Locks of the parent's process may be held by threads that are not there.
extern "C" fn in_child() {
    names::release();
    TIMES.store(0, Ordering::Relaxed);
    let Some(parents) = current() else {
        return;
    };
    let _ = OWN.try_with(|own| {
        if let Ok(own) = own.try_borrow()
            && let Some(own) = own.as_ref()
            && let Ok(mut thread) = own.thread.try_lock()
        {
            thread.close();
        }
    });
    if let Ok(threads) = parents.threads.try_lock() {
        for thread in &threads.all {
            if let Ok(mut thread) = thread.try_lock() {
                thread.close();
            }
        }
    }
    Process::install(Arc::clone(&parents.plan));
}

impl Process {
    fn install(plan: Arc<Plan>) {
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        let (pid, began) = (std::process::id() as i32, moment::now());
        let folder = plan.asked.folder.as_deref();
        let process = Self {
            pid,
            times: TIMES.fetch_add(1, Ordering::Relaxed) + 1,
            began,
            generation,
            threads: Mutex::default(),
            file: folder.map(|folder| folder::file(folder, pid, began)),
            put_at: AtomicU64::new(began + PUT_EVERY.as_nanos() as u64),
            samples: AtomicBool::new(false),
            plan,
        };
        PROCESS.store(Box::leak(Box::new(process)), Ordering::Release);
        GENERATION.store(generation, Ordering::Release);
    }

    /// Makes the calling thread known.
    fn join(&'static self) -> Own {
        let thread = Arc::new(Mutex::new(Thread::new(&self.plan)));
        lock(&self.threads).all.push(Arc::clone(&thread));
        if let Some(interval) = self.plan.asked.options.interval
            && !self.samples.swap(true, Ordering::Relaxed)
        {
            sampler::start(self, interval);
        }
        Own {
            generation: self.generation,
            process: self,
            thread,
        }
    }

    /// Whether it is still the one that counts.
    pub(crate) fn is_current(&self) -> bool {
        GENERATION.load(Ordering::Acquire) == self.generation
    }

    /// Does something with each thread that was in a region. None is added up with others meanwhile.
    pub(crate) fn each(&self, mut act: impl FnMut(&mut Thread)) {
        let threads = lock(&self.threads);
        for thread in threads.all.iter().chain(&threads.sum) {
            act(&mut lock(thread));
        }
    }

    /// A thread exits.
    fn leave(&self, thread: &Shared) {
        lock(thread).end();
        let mut threads = lock(&self.threads);
        if threads.ended < MOST_ENDED {
            threads.ended += 1;
            return;
        }
        let at = threads
            .all
            .iter()
            .position(|known| Arc::ptr_eq(known, thread));
        if let Some(at) = at {
            threads.all.swap_remove(at);
            let sum = threads
                .sum
                .get_or_insert_with(|| Arc::new(Mutex::new(Thread::of_ended(&self.plan))));
            lock(sum).absorb(&lock(thread));
        }
    }

    /// Whether it is time to write the report for perch stat. A thread that is in a region leaves that to others for a while:
    /// what it takes would be counted.
    #[inline]
    pub(crate) fn time_to_put(&self, now: u64, outside: bool) -> bool {
        let every = PUT_EVERY.as_nanos() as u64;
        let due = self.put_at.load(Ordering::Relaxed);
        let (next, wait) = (now + every, if outside { 0 } else { every });
        self.file.is_some()
            && now >= due + wait
            && self
                .put_at
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Writes the report for perch stat; `complete` says that nothing follows.
    fn put(&self, complete: bool) {
        let Some(file) = &self.file else {
            return;
        };
        let start = moment::now();
        let report = Report {
            complete,
            ..gather::report(self, false)
        };
        if report.regions.is_empty() {
            return;
        }
        // Who made the folder has gone, or has more rights: there is nobody to tell.
        let _ = folder::put(file, &output::plain(&report));
        // It may take 1 % of the time.
        let end = moment::now();
        let pause = (100 * end.saturating_sub(start)).max(PUT_EVERY.as_nanos() as u64);
        self.put_at.store(end + pause, Ordering::Relaxed);
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // In a forked child this is the parent's.
        if self.process.is_current() {
            self.process.leave(&self.thread);
        }
    }
}
