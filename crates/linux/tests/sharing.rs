//! Real threads that share memory, and others that do not, as sampling sees them.

mod support;

use perch_core::{EventPlan, Machine, Module, Sharing, Targets, ThreadId};
use perch_linux::{
    LinuxMachine,
    machine::CountersMode,
    sampling::{Options, SamplerModule},
};
use perch_skip::skip;
use std::{
    hint::black_box,
    ops::{Deref, Range},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use support::{Periods, own_pid, thread_id};

/// On a PU, not on the clock: some hundred samples.
const WORK: Duration = Duration::from_millis(500);

type Words = Arc<Lines>;

/// Words of a cache line.
const LINE: usize = 8;

/// Words whose cache lines hold nothing else: the allocator would let two buffers have one in common.
struct Lines {
    all: Vec<AtomicU64>,
    used: Range<usize>,
}

impl Deref for Lines {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.all[self.used.clone()]
    }
}

fn words(bytes: usize) -> Words {
    let count = bytes / 8;
    let numbers = 0..(count + 2 * LINE) as u64;
    let all: Vec<AtomicU64> = numbers.map(AtomicU64::new).collect();
    let first = (all.as_ptr() as usize / 8).wrapping_neg() % LINE;
    let used = first..first + count;
    Arc::new(Lines { all, used })
}

/// Goes over its words, and over some that are its own.
fn reads(words: &[AtomicU64]) {
    let sum = words
        .iter()
        .fold(0u64, |sum, word| sum.wrapping_add(word.load(Relaxed)));
    black_box(sum);
}

fn writes(words: &[AtomicU64]) {
    for (at, word) in words.iter().enumerate() {
        word.store(black_box(at as u64), Relaxed);
    }
}

/// Adds to one word now and then, and computes.
fn locks(words: &[AtomicU64]) {
    words[0].fetch_add(1, Relaxed);
    let mut x = black_box(88_172_645_463_325_252u64);
    for _ in 0..20 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
}

/// What only one thread writes: on no line of another's.
#[derive(Default)]
#[repr(align(128))]
struct Own {
    /// How often it has gone over its words.
    rounds: AtomicU64,
    stop: AtomicBool,
}

/// A thread that does something with words, again and again.
struct Touching {
    id: ThreadId,
    own: Arc<Own>,
    handle: Option<JoinHandle<()>>,
}

impl Touching {
    fn start(words: &Words, what: fn(&[AtomicU64])) -> Self {
        let (sender, receiver) = mpsc::channel();
        let own = Arc::new(Own::default());
        let (words, its_own) = (Arc::clone(words), Arc::clone(&own));
        let handle = thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            sender.send(tid).expect("receiver");
            while !its_own.stop.load(Relaxed) {
                what(&words);
                its_own.rounds.fetch_add(1, Relaxed);
            }
        });
        Self {
            id: thread_id(receiver.recv().expect("sender")),
            own,
            handle: Some(handle),
        }
    }
}

impl Drop for Touching {
    fn drop(&mut self) {
        self.own.stop.store(true, Relaxed);
        self.handle.take().map(JoinHandle::join);
    }
}

/// Sampling of some threads.
struct Watch {
    periods: Periods,
    ids: Vec<ThreadId>,
}

impl Watch {
    fn new(threads: &[Touching], options: Options) -> Result<Self, String> {
        let module = SamplerModule::open(options).map_err(|error| error.to_string())?;
        let mut periods = Periods::new(module);
        let ids: Vec<ThreadId> = threads.iter().map(|thread| thread.id).collect();
        ids.iter().for_each(|id| periods.follow(*id, own_pid()));
        Ok(Self { periods, ids })
    }

    /// Who shares, by what a period shows.
    fn period(&mut self) -> Vec<Sharing> {
        self.periods.period_of_work(&self.ids, WORK);
        self.periods.module.sharing()
    }

    /// The same, of the first period that shows as much: on a busy machine, one period may hold too few samples.
    fn until(&mut self, enough: fn(&[Sharing]) -> bool) -> Vec<Sharing> {
        let mut periods = (0..32).map(|_| self.period());
        let first = periods.find(|sharing| enough(sharing));
        first.expect("the threads were not seen to share")
    }
}

fn options() -> [Options; 2] {
    let per_thread = Options {
        per_thread: true,
        ..Options::default()
    };
    [Options::default(), per_thread]
}

fn pair(a: &Touching, b: &Touching) -> (ThreadId, ThreadId) {
    (a.id.min(b.id), a.id.max(b.id))
}

#[test]
fn a_producer_and_its_consumer_are_found_among_others() {
    for options in options() {
        let buffer = words(64 << 10);
        let table = words(64 << 10);
        let threads = [
            Touching::start(&buffer, writes),
            Touching::start(&buffer, reads),
            // Two with data of their own, and two that read the same.
            Touching::start(&words(64 << 10), writes),
            Touching::start(&words(64 << 10), reads),
            Touching::start(&table, reads),
            Touching::start(&table, reads),
        ];
        let mut watch = match Watch::new(&threads, options) {
            Ok(watch) => watch,
            Err(error) => return skip!(Perf, "{error}"),
        };
        // Samples add up: later, the confidence is higher.
        let first = watch.until(|seen| !seen.is_empty());
        let seen = watch.until(|seen| seen.iter().any(|of| of.confidence > 0.5));
        for found in [&first, &seen] {
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].threads, pair(&threads[0], &threads[1]));
        }
        assert!(seen[0].transfers > 1e5, "{seen:?}");
    }
}

#[test]
fn a_word_that_all_add_to_is_found() {
    let word = words(8);
    let threads = [
        Touching::start(&word, locks),
        Touching::start(&word, locks),
        Touching::start(&words(8), locks),
    ];
    let mut watch = match Watch::new(&threads, Options::default()) {
        Ok(watch) => watch,
        Err(error) => return skip!(Perf, "{error}"),
    };
    let seen = watch.until(|seen| !seen.is_empty());
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].threads, pair(&threads[0], &threads[1]));
}

/// Another process, which ends with the test.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "the other process of another test; runs until it is killed"]
fn shares_for_ever() {
    let (buffer, own) = (words(32 << 10), words(32 << 10));
    let start = |name: &str, words: &Words, what: fn(&[AtomicU64])| {
        let words = Arc::clone(words);
        let work = move || loop {
            what(&words);
        };
        thread::Builder::new()
            .name(name.into())
            .spawn(work)
            .expect("a thread")
    };
    let threads = [
        start("producer", &buffer, writes),
        start("consumer", &buffer, reads),
        start("loner", &own, writes),
    ];
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("never ends"));
}

#[test]
fn the_machine_observes_who_shares() {
    let program = std::env::current_exe().expect("this test");
    let arguments = ["--exact", "shares_for_ever", "--ignored", "--nocapture"];
    let mut command = Command::new(program);
    let child = command.args(arguments).stdout(Stdio::null()).spawn();
    let other = Other(child.expect("another process"));
    let mut machine = LinuxMachine::builder()
        .counters(CountersMode::Sampling)
        .build()
        .expect("a machine");
    if let Err(error) = machine.configure(&EventPlan::default()) {
        return skip!(Perf, "{error}");
    }
    machine.attach(other.0.id() as i32).expect("alive");
    let mut found = None;
    for _ in 0..240 {
        machine.wait(Duration::from_millis(500)).expect("a period");
        let observation = machine.observe().expect("an observation");
        let name = |id: ThreadId| {
            let mut threads = observation.threads.iter();
            threads
                .find(|of| of.info.id == id)
                .map(|of| of.info.name.to_string())
        };
        for sharing in &observation.sharing {
            let names = [sharing.threads.0, sharing.threads.1].map(name);
            found = Some(names.map(Option::unwrap_or_default));
        }
        if found.is_some() {
            break;
        }
    }
    let mut names = found.expect("no thread was found");
    names.sort();
    assert_eq!(names, ["consumer", "producer"]);
}

/// How often pairs are found by the buffer's size; `--ignored --nocapture` prints the table of docs/sharing.md.
#[test]
#[ignore = "prints a table, takes minutes"]
fn how_often_pairs_are_found() {
    println!(
        "| buffer | CPU time | found | confidence | transfers a second | at most | others told |"
    );
    for bytes in [4 << 10, 64 << 10, 1 << 20, 16 << 20] {
        let buffer = words(bytes);
        let threads = [
            Touching::start(&buffer, writes),
            Touching::start(&buffer, reads),
            Touching::start(&words(bytes), writes),
            Touching::start(&words(bytes), reads),
        ];
        let wanted = pair(&threads[0], &threads[1]);
        let begun = Instant::now();
        let mut watch = match Watch::new(&threads, Options::default()) {
            Ok(watch) => watch,
            Err(error) => return skip!(Perf, "{error}"),
        };
        let seen: Vec<Vec<Sharing>> = (0..12).map(|_| watch.period()).collect();
        // Neither needs a line more often than it goes over all of them.
        let rounds = [0, 1].map(|at: usize| threads[at].own.rounds.load(Relaxed));
        let lines = rounds[0].min(rounds[1]) * (bytes as u64 / 64);
        let most = lines as f64 / begun.elapsed().as_secs_f64();
        for (first, last) in [(0, 1), (1, 2), (7, 12)] {
            let periods = &seen[first..last];
            let right = periods
                .iter()
                .flatten()
                .filter(|sharing| sharing.threads == wanted);
            let right: Vec<&Sharing> = right.collect();
            let wrong = periods.iter().flatten().count() - right.len();
            let mean = |of: fn(&Sharing) -> f64| {
                let sum: f64 = right.iter().map(|sharing| of(sharing)).sum();
                sum.max(0.0) / right.len().max(1) as f64
            };
            println!(
                "| {} KiB | {:.1} s | {} of {} | {:.2} | {:.1e} | {most:.1e} | {wrong} |",
                bytes >> 10,
                0.5 * last as f64,
                right.len(),
                periods.len(),
                mean(|sharing| sharing.confidence),
                mean(|sharing| sharing.transfers),
            );
        }
    }
}
