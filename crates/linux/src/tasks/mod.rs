//! Run times of many threads by one system call instead of one each.
//!
//! Reading a thread's `schedstat` costs about 2 µs, in a pass over all threads it costs 0.3 µs. But a pass meets all
//! threads of the machine, and getting ready for it takes as long as reading thousands of files. So it is used once
//! reading files has cost as much, and only while the followed threads are many of those that exist.

mod btf;
mod iterator;

pub use iterator::{Task, TaskIterator};

use crate::{
    limits::{Budget, Kept, Purpose, Reserved},
    proc::{Reader, Schedstat, parse_stat},
};
use std::iter::Peekable;

/// Loading the program takes about 10 ms of CPU time on a virtual machine: half of what reading this many files takes.
const WORTH_LOADING: u64 = 10_000;

/// A pass is made if at least one of this many threads of the machine is followed: a pass costs a sixth as much per thread
/// as reading a file.
const MET: usize = 6;

/// With fewer threads there is too little to gain, and the machine's threads need not be counted.
const LEAST: usize = 32;

/// What [`own_namespace`] must be. The kernel's number for the first PID namespace (`PROC_PID_INIT_INO`).
const INITIAL: &str = "pid:[4026531836]";

/// A way to the run times of all threads.
#[derive(Debug)]
pub struct Tasks {
    state: State,
    /// Set aside before the followed threads need all descriptors.
    place: Option<Reserved>,
}

#[derive(Debug)]
enum State {
    /// Not yet worth it: files read so far that a pass would have replaced.
    Waiting(u64),
    Ready(Kept<TaskIterator>),
    /// It does not work here.
    Unavailable,
}

impl Tasks {
    /// Nothing is loaded yet.
    pub fn new(budget: &Budget) -> Self {
        Self {
            state: State::Waiting(0),
            place: budget.reserve(Purpose::Threads, 1),
        }
    }

    /// Begins a pass if that is worth it for `followed` threads. Where there is none, every thread's file must be read.
    pub fn pass(&mut self, followed: usize, reader: &mut Reader) -> Option<Pass> {
        if matches!(self.state, State::Unavailable)
            || followed < LEAST
            || count(reader).is_none_or(|all| followed.saturating_mul(MET) < all)
        {
            return None;
        }
        if let State::Waiting(read) = &mut self.state {
            *read += followed as u64;
            if *read < WORTH_LOADING {
                return None;
            }
            let loaded = self.place.take().and_then(|place| ready(reader, place));
            self.state = loaded.map_or(State::Unavailable, State::Ready);
        }
        let State::Ready(iterator) = &mut self.state else {
            return None;
        };
        // Without a descriptor or memory just now, the files are read this time.
        let tasks = iterator.read().ok()?;
        Some(Pass::of(tasks.collect()))
    }
}

/// The loaded iterator, if what it says of this thread is true.
fn ready(reader: &mut Reader, place: Reserved) -> Option<Kept<TaskIterator>> {
    if !is_in_first_namespace() {
        // The kernel would give the numbers of the first namespace.
        return None;
    }
    let mut iterator = TaskIterator::load().ok()?;
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let tick = crate::threads::SECOND / rustix::param::clock_ticks_per_second().max(1);
    let before = own_run_time(reader)?;
    let own = iterator.read().ok()?.find(|task| task.tid == tid)?;
    let after = own_run_time(reader)?;
    let stat = parse_stat(reader.file("/proc/thread-self/stat").ok()?)?;
    let same = own.pid == std::process::id() as i32
        && own.start / tick == stat.start
        && (before.run..=after.run).contains(&own.spent.run)
        && (before.wait..=after.wait).contains(&own.spent.wait)
        && (before.slices..=after.slices).contains(&own.spent.slices);
    same.then(|| place.keep(iterator))
}

fn own_run_time(reader: &mut Reader) -> Option<Schedstat> {
    crate::proc::parse_schedstat(reader.file("/proc/thread-self/schedstat").ok()?)
}

/// Whether the numbers by which the kernel itself knows threads are those that this process sees.
pub(crate) fn is_in_first_namespace() -> bool {
    own_namespace().as_deref() == Some(INITIAL)
}

/// The PID namespace of this process.
fn own_namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    link.into_os_string().into_string().ok()
}

/// The number of threads of the machine, the kernel's own included (`/proc/loadavg`, behind the slash).
fn count(reader: &mut Reader) -> Option<usize> {
    let text = std::str::from_utf8(reader.file("/proc/loadavg").ok()?).ok()?;
    text.split_once('/')?.1.split(' ').next()?.parse().ok()
}

/// What a pass has found, to be asked for by rising TID.
#[derive(Debug)]
pub struct Pass {
    tasks: Peekable<std::vec::IntoIter<Task>>,
}

impl Pass {
    fn of(mut tasks: Vec<Task>) -> Self {
        // The kernel goes by rising numbers, so this changes nothing.
        tasks.sort_by_key(|task| task.tid);
        Self {
            tasks: tasks.into_iter().peekable(),
        }
    }

    /// The run time of a thread that started that many clock ticks of `tick` nanoseconds after boot; `None` if it has
    /// exited, or the number is another thread's by now. TIDs must rise from call to call.
    pub fn run_time(&mut self, tid: i32, start: u64, tick: u64) -> Option<Schedstat> {
        while self.tasks.next_if(|task| task.tid < tid).is_some() {}
        let task = self.tasks.next_if(|task| task.tid == tid)?;
        (task.start / tick.max(1) == start).then_some(task.spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_skip::skip;
    use proptest::prelude::*;
    use std::{
        sync::mpsc::{Sender, channel},
        thread::JoinHandle,
    };

    const TICK: u64 = 10_000_000;

    /// Threads that wait until this is dropped.
    struct Waiting {
        go_on: Vec<Sender<()>>,
        threads: Vec<JoinHandle<()>>,
        tids: Vec<i32>,
    }

    impl Waiting {
        fn start(count: usize) -> Self {
            let (tell, told) = channel();
            let (go_on, threads) = (0..count)
                .map(|_| {
                    let (go_on, wait) = channel::<()>();
                    let tell = tell.clone();
                    let thread = std::thread::spawn(move || {
                        let tid = rustix::thread::gettid().as_raw_nonzero().get();
                        tell.send(tid).expect("awaited");
                        let _ = wait.recv();
                    });
                    (go_on, thread)
                })
                .unzip();
            let mut tids: Vec<i32> = told.iter().take(count).collect();
            tids.sort_unstable();
            Self {
                go_on,
                threads,
                tids,
            }
        }
    }

    impl Drop for Waiting {
        fn drop(&mut self) {
            self.go_on.clear();
            for thread in self.threads.drain(..) {
                thread.join().expect("waits only");
            }
        }
    }

    /// Threads that wait have run for as long in a pass as in their files, and a pass is made once it is worth it.
    #[test]
    fn a_pass_says_what_the_files_say() {
        if let Err(error) = TaskIterator::load() {
            skip!(Root, "no BPF iterator: {error}");
            return;
        }
        let mut reader = Reader::new();
        if own_namespace().as_deref() != Some(INITIAL) {
            let mut tasks = Tasks::new(&Budget::of(100));
            assert!(tasks.pass(1 << 30, &mut reader).is_none());
            skip!(Root, "not in the first PID namespace");
            return;
        }
        let waiting = Waiting::start(200);
        let budget = Budget::of(100);
        let mut tasks = Tasks::new(&budget);
        // All others are used up by the time that it is loaded.
        let others: Vec<_> = std::iter::from_fn(|| budget.reserve(Purpose::Threads, 1)).collect();
        for few in [1, LEAST - 1] {
            assert!((0..WORTH_LOADING).all(|_| tasks.pass(few, &mut reader).is_none()));
        }
        let many = 1_000_000;
        let mut passes = (0..2).map(|_| tasks.pass(many, &mut reader));
        let mut pass = passes.find_map(|pass| pass).expect("worth it");
        let pid = std::process::id() as i32;
        let mut equal = 0;
        for tid in &waiting.tids {
            let stat = reader.stat(pid, *tid).expect("lives");
            let start = stat.start;
            let shown = pass.run_time(*tid, start, TICK).expect("met");
            let path = format!("/proc/{pid}/task/{tid}/schedstat");
            let file = crate::proc::parse_schedstat(reader.file(&path).expect("lives"));
            let file = file.expect("sound");
            // It may have been on its way into recv() when the pass met it.
            assert!(shown.run <= file.run && shown.slices <= file.slices);
            equal += usize::from(shown == file);
        }
        assert!(equal > 100, "{equal} of 200");
        drop((waiting, others));
        assert_eq!(budget.used(Purpose::Threads), 1);
    }

    proptest! {
        #[test]
        fn a_record_is_used_for_its_own_thread_only(
            tasks in proptest::collection::btree_map(1i32..40, 0u64..4, 0..30),
            asked in proptest::collection::btree_map(1i32..40, 0u64..4, 0..30),
        ) {
            let spent = |tid: i32| Schedstat { run: tid as u64, wait: 1, slices: 2 };
            let known = tasks.iter().map(|(tid, start)| Task {
                tid: *tid,
                pid: 1,
                start: start * TICK + 5,
                spent: spent(*tid),
            });
            let mut pass = Pass::of(known.rev().collect());
            for (tid, start) in asked {
                let wanted = (tasks.get(&tid) == Some(&start)).then(|| spent(tid));
                prop_assert_eq!(pass.run_time(tid, start, TICK), wanted);
            }
        }
    }
}
