//! Threads that come, go and are renamed, as the kernel reports them: records of a software event that counts
//! nothing (`PERF_COUNT_SW_DUMMY`, perf_event_open(2)).

use super::{
    limits,
    poll::Poll,
    privilege::refusal,
    record::{FileId, Layout, Record, TRAILER_TYPE},
    rings::Ring,
};
use crate::limits::{Budget, Kept, Purpose, Reserved};
use perch_core::{MachineError, Remark, Scope};
use perf_event::{Builder, Clock, Counter, SampleFlag, events::Software};
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
};

/// What happened to a thread. Times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEvent {
    /// A thread was created.
    Fork {
        /// PID of its process.
        pid: i32,
        /// TID.
        tid: i32,
        /// PID of the creator: the same as `pid` for a new thread, another one for a new process.
        ppid: i32,
        /// TID of the creator.
        ptid: i32,
        /// CLOCK_MONOTONIC time of the event, in nanoseconds.
        time: u64,
    },
    /// A thread ended.
    Exit {
        /// PID of its process.
        pid: i32,
        /// TID.
        tid: i32,
        /// CLOCK_MONOTONIC time of the event, in nanoseconds.
        time: u64,
    },
    /// A thread has a new name.
    Comm {
        /// PID of its process.
        pid: i32,
        /// TID.
        tid: i32,
        /// The name, lossily decoded.
        name: String,
        /// Whether by execve(2): the process is another program now.
        exec: bool,
        /// CLOCK_MONOTONIC time of the event, in nanoseconds.
        time: u64,
    },
    /// A process mapped or protected memory as executable.
    Mapped {
        /// PID of the process.
        pid: i32,
        /// First address of the mapping.
        address: u64,
        /// Length in bytes.
        length: u64,
        /// Where in the file it starts, in bytes.
        offset: u64,
        /// The file, as the process names it; `None` for anonymous memory (code made at run time).
        file: Option<PathBuf>,
        /// Which file that was, whatever has the name now; `None` where the kernel does not say.
        id: Option<FileId>,
        /// CLOCK_MONOTONIC time of the event, in nanoseconds.
        time: u64,
    },
    /// This many records were lost: scan /proc for what was missed.
    Lost(u64),
}

impl TaskEvent {
    fn time(&self) -> u64 {
        match self {
            Self::Fork { time, .. }
            | Self::Exit { time, .. }
            | Self::Comm { time, .. }
            | Self::Mapped { time, .. } => *time,
            Self::Lost(_) => 0,
        }
    }

    fn from_record(record: Record<'_>) -> Option<Self> {
        Some(match record {
            Record::Fork {
                pid,
                tid,
                ppid,
                ptid,
                time,
            } => Self::Fork {
                pid,
                tid,
                ppid,
                ptid,
                time,
            },
            Record::Exit { pid, tid, time } => Self::Exit { pid, tid, time },
            Record::Comm {
                pid,
                tid,
                name,
                exec,
                time,
            } => Self::Comm {
                pid,
                tid,
                name: perch_core::text::name(name),
                exec,
                time,
            },
            Record::Mmap {
                pid,
                address,
                length,
                offset,
                file,
                id,
                time,
            } => Self::Mapped {
                pid,
                address,
                length,
                offset,
                // `//anon`, `[vdso]` and the like are no files
                file: (file.starts_with(b"/") && !file.starts_with(b"//"))
                    .then(|| PathBuf::from(OsStr::from_bytes(file))),
                id,
                time,
            },
            Record::Lost(count) => Self::Lost(count),
            Record::Sample(_)
            | Record::Window { .. }
            | Record::Raw { .. }
            | Record::Throttle
            | Record::Other => {
                return None;
            }
        })
    }
}

/// How records are buffered and when a reader is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffering {
    /// Bytes of each CPU's ring. A fork or exit record takes 48, a name 48, a mapping about 150.
    pub ring: usize,
    /// A ring's descriptor becomes readable when it holds this many bytes; 1 for every record.
    pub wake_at: usize,
}

impl Default for Buffering {
    /// Rings for about 1,300 thread lives a period on each CPU, woken when a quarter is full.
    fn default() -> Self {
        Self {
            ring: 128 << 10,
            wake_at: 32 << 10,
        }
    }
}

/// A source of task events.
///
/// One ring for each online CPU: an inherited event without a CPU cannot be mapped.
pub struct TaskEvents {
    rings: Vec<(u32, Kept<Ring>)>,
    /// Events of single threads that write into the rings, each with its process' target.
    feeders: Vec<(u32, Kept<Counter>)>,
    budget: Budget,
    system_wide: bool,
    /// Closed for good, because its threads switched too often.
    closed: bool,
    buffering: Buffering,
    poll: Poll,
    /// Read, but younger than what other rings may still hold.
    held: Vec<TaskEvent>,
    remarks: Vec<Remark>,
}

impl TaskEvents {
    /// Of all threads of the machine: one event a CPU, no cost at context switches. Needs
    /// `kernel.perf_event_paranoid` ≤ 0, root or CAP_PERFMON.
    ///
    /// # Errors
    /// Not permitted, with the remedy.
    pub fn system_wide(buffering: Buffering) -> Result<Self, MachineError> {
        let mut events = Self::empty(true, buffering)?;
        events.follow_cpus()?;
        Ok(events)
    }

    /// Of a child that waits to be executed, and of all that will descend from it.
    ///
    /// # Errors
    /// Not permitted, with the remedy; or too little locked memory for the rings.
    pub fn for_launch(child: i32, buffering: Buffering) -> Result<Self, MachineError> {
        let mut events = Self::empty(false, buffering)?;
        for cpu in limits::online_cpus().iter() {
            let mut counter = inherited(child, cpu, buffering)
                .map_err(|error| refusal("task events of the program", error))?;
            enable(&mut counter)?;
            events.add_ring(cpu, counter)?;
        }
        Ok(events)
    }

    /// Of a process of this target that runs, of its threads, and of all that will descend from them. Threads for which
    /// there are no descriptors left are passed over with a remark.
    ///
    /// # Errors
    /// No such process; not permitted, with the remedy; or too little locked memory for the rings.
    pub fn for_process(pid: i32, target: u32, buffering: Buffering) -> Result<Self, MachineError> {
        let mut events = Self::empty(false, buffering)?;
        events.add_process(pid, target)?;
        Ok(events)
    }

    /// Follows one more running process, of this target.
    ///
    /// # Errors
    /// As [`TaskEvents::for_process`].
    pub fn add_process(&mut self, pid: i32, target: u32) -> Result<(), MachineError> {
        if self.system_wide || self.closed {
            return Ok(());
        }
        let cpus = limits::online_cpus();
        let mut known = BTreeSet::new();
        let mut passed_over = 0;
        // A thread born of one that is not yet followed shows in the next listing.
        loop {
            let new: Vec<i32> = tasks(pid).filter(|tid| known.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                if self.budget.available(Purpose::TaskEvents) < cpus.len() {
                    passed_over += 1;
                    continue;
                }
                for cpu in cpus.iter() {
                    self.add_thread(tid, cpu, target)?;
                }
            }
        }
        if known.is_empty() {
            return Err(MachineError::NoSuchProcess(pid));
        }
        if passed_over > 0 {
            let text = format!(
                "{passed_over} threads of process {pid} are not followed by task events, so that their new threads \
                 are found up to a period late: {}",
                limits::NOFILE_REMEDY
            );
            let remark = Remark::warning("task-records", text);
            self.remarks.push(remark.about(Scope::Process(pid)).once());
        }
        Ok(())
    }

    fn add_thread(&mut self, tid: i32, cpu: u32, target: u32) -> Result<(), MachineError> {
        let mut counter = match inherited(tid, cpu, self.buffering) {
            Ok(counter) => counter,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            Err(error) => return Err(refusal("task events of a running thread", error)),
        };
        enable(&mut counter)?;
        let existing = self.rings.iter().find(|(of, _)| *of == cpu);
        let Some((_, ring)) = existing else {
            return self.add_ring(cpu, counter);
        };
        ring.collect_from(&counter)
            .map_err(|error| refusal("redirecting task events", error))?;
        let place = self.place()?;
        self.feeders.push((target, place.keep(counter)));
        Ok(())
    }

    /// Opens rings on CPUs that came online since, and drops those of CPUs that went. Only a system-wide source follows
    /// CPUs; others leave it to the reader of /proc to find what a new CPU's ring would have reported.
    ///
    /// # Errors
    /// Not permitted, with the remedy.
    pub fn follow_cpus(&mut self) -> Result<(), MachineError> {
        if !self.system_wide {
            return Ok(());
        }
        let have = self.rings.iter().map(|(cpu, _)| *cpu).collect();
        let online = limits::online_cpus_or(have);
        self.rings.retain(|(cpu, _)| online.contains(*cpu));
        for cpu in online.iter() {
            if self.rings.iter().any(|(of, _)| *of == cpu) {
                continue;
            }
            let mut builder = dummy(self.buffering);
            builder.any_pid().one_cpu(cpu as usize);
            let mut counter = match builder.build() {
                Ok(counter) => counter,
                // went offline meanwhile
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                Err(error) => return Err(refusal("task events of all CPUs", error)),
            };
            enable(&mut counter)?;
            self.add_ring(cpu, counter)?;
        }
        Ok(())
    }

    /// Whether events of single threads are open: these cost their threads time at every switch, 0.1 to 0.6 µs.
    pub fn slows_switches(&self) -> bool {
        !self.system_wide && !self.rings.is_empty()
    }

    /// Closes events of single threads, those that threads inherited too, for good. What they have recorded comes with
    /// the next [`TaskEvents::drain`]. Does nothing to a system-wide source.
    pub fn close(&mut self) {
        if self.system_wide {
            return;
        }
        // Disabled before the last reading, so that no record comes after it.
        for (_, ring) in &mut self.rings {
            let _ = ring.disable();
        }
        self.held = self.read();
        self.feeders.clear();
        self.rings.clear();
        self.closed = true;
    }

    /// Closes events of single threads whose target has ended or was released. A target with live processes needs even
    /// those of its ended threads: what they started has inherited them, and loses its own with them.
    pub fn close_targets_but(&mut self, lives: impl Fn(u32) -> bool) {
        self.feeders.retain(|(target, _)| lives(*target));
    }

    /// Descriptors that become readable when records wait.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.poll.as_fd()]
    }

    /// The records since the last call, by time.
    pub fn drain(&mut self) -> Vec<TaskEvent> {
        self.poll.settle();
        // What happens from here on may reach a ring that was read already: it waits for the next call.
        let horizon = monotonic();
        let mut events = self.read();
        events.sort_by_key(TaskEvent::time);
        let settled = events.partition_point(|event| event.time() <= horizon);
        self.held = events.split_off(settled);
        events
    }

    /// All records that were not yet handed over, by ring.
    fn read(&mut self) -> Vec<TaskEvent> {
        let mut events = std::mem::take(&mut self.held);
        let mut unreadable = 0;
        for (_, ring) in &mut self.rings {
            unreadable += ring.drain(|record| events.extend(TaskEvent::from_record(record)));
        }
        if unreadable > 0 {
            events.push(TaskEvent::Lost(unreadable as u64));
        }
        events
    }

    /// What the user should know since the last call.
    pub fn remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }

    fn empty(system_wide: bool, buffering: Buffering) -> Result<Self, MachineError> {
        Ok(Self {
            rings: Vec::new(),
            feeders: Vec::new(),
            budget: Budget::of_process(),
            system_wide,
            closed: false,
            buffering,
            poll: Poll::new()?,
            held: Vec::new(),
            remarks: Vec::new(),
        })
    }

    fn add_ring(&mut self, cpu: u32, counter: Counter) -> Result<(), MachineError> {
        let layout = Layout {
            trailer: true,
            ..Layout::default()
        };
        let ring = Ring::map(counter, self.buffering.ring, layout).map_err(ring_refused)?;
        let place = self.place()?;
        self.poll.add(&ring)?;
        self.rings.push((cpu, place.keep(ring)));
        Ok(())
    }

    /// Room for one more descriptor.
    fn place(&self) -> Result<Reserved, MachineError> {
        let place = self.budget.reserve(Purpose::TaskEvents, 1);
        place.ok_or_else(|| MachineError::NotPermitted {
            what: "task events".to_owned(),
            remedy: limits::NOFILE_REMEDY.to_owned(),
        })
    }
}

/// Puts a refused ring into words.
pub(crate) fn ring_refused(error: io::Error) -> MachineError {
    if error.raw_os_error() != Some(libc::EPERM) {
        return MachineError::Io {
            what: "mapping a ring of perf events".to_owned(),
            error,
        };
    }
    MachineError::NotPermitted {
        what: "mapping a ring of perf events".to_owned(),
        remedy: "too much locked memory for an ordinary user: `sysctl kernel.perf_event_mlock_kb=2048`, or `ulimit \
                 -l unlimited` (memlock in /etc/security/limits.conf)"
            .to_owned(),
    }
}

fn dummy(buffering: Buffering) -> Builder<'static> {
    let mut builder = Builder::new(Software::DUMMY);
    builder
        .task(true)
        .comm(true)
        .comm_exec(true)
        .mmap(true)
        .mmap2(true)
        .sample(SampleFlag::from_bits_retain(TRAILER_TYPE))
        .sample_id_all(true)
        .clockid(Clock::MONOTONIC)
        .wakeup_watermark(buffering.wake_at);
    builder
}

fn inherited(tid: i32, cpu: u32, buffering: Buffering) -> io::Result<Counter> {
    dummy(buffering)
        .observe_pid(tid)
        .one_cpu(cpu as usize)
        .inherit(true)
        .build()
}

fn enable(counter: &mut Counter) -> Result<(), MachineError> {
    counter
        .enable()
        .map_err(|error| refusal("task events", error))
}

fn tasks(pid: i32) -> impl Iterator<Item = i32> {
    fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Nanoseconds of CLOCK_MONOTONIC, by which records tell their times.
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_records_of_a_target_that_ended_are_closed() {
        let sleeper = || Command::new("sleep").arg("60").spawn().unwrap();
        let mut children = [sleeper(), sleeper(), sleeper()];
        let [first, second, third] = children.each_ref().map(|child| child.id() as i32);
        match TaskEvents::for_process(first, 0, Buffering::default()) {
            Ok(mut source) => {
                source.add_process(second, 1).unwrap();
                source.add_process(third, 2).unwrap();
                let each = limits::online_cpus().len();
                assert_eq!(source.feeders.len(), 2 * each);
                source.close_targets_but(|target| target != 1);
                assert!(source.feeders.len() == each && source.feeders[0].0 == 2);
            }
            Err(error) => perch_skip::skip!(Perf, "{error}"),
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
