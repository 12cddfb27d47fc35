//! The threads of one try, and the masks and nice values that they would have without perch.

use crate::{
    masks::{mask, set_mask},
    nices::{nice, set_nice},
    orders::Order,
    puppet::Puppet,
    sandbox::Sandbox,
    tally::Tally,
};
use anyhow::Result;
use nix::{
    sys::{signal::Signal, wait::waitpid},
    unistd::Pid,
};
use perch_core::PuSet;
use perch_testbed::load::start_time;
use std::collections::HashMap;

/// A thread, and what its mask and its nice value should be in the end.
#[derive(Debug)]
struct Tracked {
    tid: i32,
    /// When it was started, in clock ticks: the kernel reuses TIDs.
    start: Option<u64>,
    what: String,
    mask: PuSet,
    /// It was set explicitly: another mask in the end means that perch overwrote it.
    pinned: bool,
    nice: i32,
    /// The same of its nice value.
    reniced: bool,
}

impl Tracked {
    /// Its mask; `None` if it has ended.
    fn mask(&self) -> Option<PuSet> {
        self.lives().then(|| mask(self.tid)).flatten()
    }

    /// Its nice value; `None` if it has ended.
    fn nice(&self) -> Option<i32> {
        self.lives().then(|| nice(self.tid)).flatten()
    }

    fn lives(&self) -> bool {
        self.start.is_some() && start_time(self.tid).ok() == self.start
    }
}

/// Every thread of a try; its processes are killed when it goes.
#[derive(Debug)]
pub struct World {
    default: PuSet,
    /// The nice value that processes start with.
    nice: i32,
    /// A value that threads from this place on may keep.
    ambiguous: Option<(i32, usize)>,
    processes: Vec<i32>,
    tracked: Vec<Tracked>,
    /// Where a thread stands in it.
    index: HashMap<i32, usize>,
}

impl World {
    /// No thread yet.
    pub fn new(sandbox: &Sandbox) -> Self {
        Self::with_default(&sandbox.all)
    }

    /// The same, where threads that have not been placed have another mask.
    pub fn with_default(default: &PuSet) -> Self {
        Self {
            default: default.clone(),
            nice: nice(std::process::id() as i32).unwrap_or(0),
            ambiguous: None,
            processes: Vec::new(),
            tracked: Vec::new(),
            index: HashMap::new(),
        }
    }

    /// Threads that have not been placed have another mask from now on.
    pub fn set_default(&mut self, default: &PuSet) {
        for thread in self.tracked.iter_mut().filter(|thread| !thread.pinned) {
            thread.mask = default.clone();
        }
        self.default = default.clone();
    }

    /// Starts a victim.
    pub fn puppet(&mut self, sandbox: &Sandbox) -> Result<Puppet> {
        let puppet = Puppet::start(sandbox.victim())?;
        self.process(puppet.pid, "main thread");
        Ok(puppet)
    }

    /// A process whose main thread has not been placed.
    pub fn process(&mut self, pid: i32, what: &str) {
        self.processes.push(pid);
        self.expect(pid, what, None);
    }

    /// What a thread's mask should be; the default if none is given.
    pub fn expect(&mut self, tid: i32, what: &str, mask: Option<&PuSet>) {
        let thread = Tracked {
            tid,
            start: start_time(tid).ok(),
            what: what.to_owned(),
            mask: mask.unwrap_or(&self.default).clone(),
            pinned: mask.is_some(),
            nice: self.nice,
            reniced: false,
        };
        match self.index.get(&tid) {
            Some(index) => {
                let Tracked { nice, reniced, .. } = self.tracked[*index];
                self.tracked[*index] = Tracked {
                    nice,
                    reniced,
                    ..thread
                };
            }
            None => {
                self.index.insert(tid, self.tracked.len());
                self.tracked.push(thread);
            }
        }
    }

    /// Whether something is expected of a thread.
    pub fn knows(&self, tid: i32) -> bool {
        self.index.contains_key(&tid)
    }

    /// Has thread `to` start another one.
    pub fn thread(&mut self, puppet: &mut Puppet, to: &str, name: &str) -> Result<i32> {
        let tid = puppet.tell(to, Order::Thread(name.to_owned()))?;
        self.expect(tid, &format!("thread {name} of {to:?}"), None);
        Ok(tid)
    }

    /// Has thread `to` start a process.
    pub fn child(&mut self, puppet: &mut Puppet, to: &str, order: Order) -> Result<i32> {
        let what = format!("{order:?} of {to:?}");
        let pid = puppet.tell(to, order)?;
        self.process(pid, &what);
        Ok(pid)
    }

    /// Has thread `to` set its own mask.
    pub fn pin(&mut self, puppet: &mut Puppet, to: &str, pus: &PuSet) -> Result<i32> {
        let tid = puppet.tell(to, Order::Pin(pus.to_string()))?;
        self.expect(tid, &format!("pinned thread {to:?}"), Some(pus));
        Ok(tid)
    }

    /// From here on a thread that is born with this value may keep it: another thread of its process has it, and not
    /// from perch, so that nobody can tell where one has it from that perch has not seen.
    pub fn share_nice(&mut self, value: i32) {
        self.ambiguous = Some((value, self.tracked.len()));
    }

    /// Sets a thread's nice value, which it must keep.
    pub fn renice(&mut self, tid: i32, value: i32) -> Result<()> {
        set_nice(tid, value)?;
        if let Some(index) = self.index.get(&tid) {
            let thread = &mut self.tracked[*index];
            (thread.nice, thread.reniced) = (value, true);
        }
        Ok(())
    }

    /// Counts the threads, and each that has not the mask or the nice value that it should have.
    pub fn check(&self, tally: &mut Tally) {
        self.check_others(&[], tally);
    }

    /// The same, without some of them.
    pub fn check_others(&self, without: &[i32], tally: &mut Tally) {
        let others = self.tracked.iter().enumerate();
        for (index, thread) in others.filter(|(_, thread)| !without.contains(&thread.tid)) {
            let Some(found) = thread.mask() else {
                continue;
            };
            tally.checked += 1;
            let ambiguous = |found: i32| {
                let (value, first) = self.ambiguous.unwrap_or((0, usize::MAX));
                found == value && !thread.reniced && index >= first
            };
            let value = thread.nice().filter(|value| *value != thread.nice);
            if let Some(found) = value.filter(|value| !ambiguous(*value)) {
                let kind = if thread.reniced {
                    "own nice value overwritten"
                } else {
                    "nice value not restored"
                };
                tally.fault(
                    kind,
                    format!(
                        "{} (thread {}): {found} for {}",
                        thread.what, thread.tid, thread.nice
                    ),
                );
            }
            if found == thread.mask {
                continue;
            }
            let kind = if thread.pinned {
                "own mask overwritten"
            } else {
                "mask not restored"
            };
            tally.fault(
                kind,
                format!(
                    "{} (thread {}): {found} for {}",
                    thread.what, thread.tid, thread.mask
                ),
            );
        }
    }

    /// How many threads have another mask than they should in the end.
    pub fn changed(&self) -> usize {
        let changed = |thread: &&Tracked| thread.mask().is_some_and(|mask| mask != thread.mask);
        self.tracked.iter().filter(changed).count()
    }

    /// How many threads have another nice value than they should in the end.
    pub fn reniced(&self) -> usize {
        let changed = |thread: &&Tracked| thread.nice().is_some_and(|nice| nice != thread.nice);
        self.tracked.iter().filter(changed).count()
    }

    /// Sets every mask and nice value right by hand, for the next try with the same threads; some are left out.
    pub fn repair(&self, without: &[i32]) {
        let others = self.tracked.iter();
        for thread in others.filter(|thread| !without.contains(&thread.tid)) {
            if thread.mask().is_some_and(|mask| mask != thread.mask) {
                // One that has ended meanwhile needs no mask.
                let _ = set_mask(thread.tid, &thread.mask);
            }
            if thread.nice().is_some_and(|nice| nice != thread.nice) {
                let _ = set_nice(thread.tid, thread.nice);
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for pid in &self.processes {
            let _ = nix::sys::signal::kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        // Orphans come to this process; those that still have another parent are reaped by it.
        for pid in &self.processes {
            let _ = waitpid(Pid::from_raw(*pid), None);
        }
    }
}
