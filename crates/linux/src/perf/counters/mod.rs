//! Hardware counters of threads: a group of events for each thread, opened as threads appear and read each period.
//!
//! If a plan has several event sets, they are multiplexed, thread by thread: each reading of a thread that ran moves it
//! to its next set. A set whose events do not fit on the PMU together is split into groups that the kernel multiplexes.
//! On hybrid processors there is a group for each kind of core; their counts are added up.

mod ahead;
mod group;
mod own;
mod pus;
mod resolve;
mod tally;
mod whole;

pub use group::Reading;
pub use own::{OwnCounters, OwnPlan, Snapshot, Sums};
pub use pus::PuCounters;

use super::{
    Privilege, encode::Encoder, limits, privilege::refusal, probe, task_events::monotonic,
};
use crate::{
    limits::{Budget, Kept, Purpose},
    plausibility,
    span::Allowance,
};
use ahead::Ahead;
use group::{Group, Target};
use perch_core::{
    Count, CountQuality, CountedSet, EventPlan, Limits, MachineError, Remark, TargetSample,
    ThreadId, ThreadSample, Window,
};
use perf_event_open_sys::bindings::PERF_TYPE_SOFTWARE;
use resolve::{GroupPlan, SetPlan};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};
use tally::Accumulator;
use whole::WholePrograms;

/// Threads that change places between counted and uncounted in a second: each costs some 50 µs.
const MOST_SWAPS: usize = 64;

/// A waiting thread must have run this much longer than a counted one to take its place.
const WORTH_A_SWAP: u64 = 2;

/// Counters of many threads.
pub struct Counters {
    sets: Vec<SetPlan>,
    /// What counts cannot be, from the profile.
    limits: Option<Limits>,
    user_only: bool,
    hybrid: bool,
    threads: BTreeMap<ThreadId, Counted>,
    /// Threads for which there were no descriptors.
    waiting: BTreeSet<ThreadId>,
    /// How many periods are over.
    period: u64,
    swaps: Allowance,
    budget: Budget,
    programs: WholePrograms,
    /// Windows that ended since they were last taken; their times are of CLOCK_MONOTONIC.
    windows: Vec<Window>,
    remarks: Vec<Remark>,
    said: BTreeSet<String>,
}

/// How a group of a thread is opened.
type Open = fn(&GroupPlan, Target, bool) -> io::Result<Group>;

/// A thread with counters.
struct Counted {
    /// The set that counts now.
    active: usize,
    /// Groups of each set, opened when its turn comes.
    sets: Vec<Option<Kept<Vec<Group>>>>,
    /// When its last record was made, or its counters were opened: CLOCK_MONOTONIC, in nanoseconds.
    recorded: u64,
    /// The period in which its counters were opened; `None` if that was before it executed its program.
    opened: Option<u64>,
    /// Whether it was read since.
    read: bool,
    ahead: Ahead,
}

/// What a thread's events counted since its last reading.
#[derive(Debug, Default)]
pub struct ThreadCounts {
    /// By event.
    pub counts: Vec<Count>,
    /// The set that they are of, and for how long it was switched on.
    pub set: Option<CountedSet>,
    /// Whether it was on whenever the thread ran, from one reading to the next, or from the execution of its program to
    /// its end. It may yet have been on for less than the thread's CPU time: a part of each context switch, and of the
    /// kernel's work to end it, is the thread's own, but comes before events are switched on or after they are switched
    /// off.
    pub throughout: bool,
    /// Whether it is the first reading.
    pub first: bool,
}

impl Counters {
    /// Finds out what can be counted here: resolves every event and tries it on this very thread. Events that cannot
    /// be counted are left out with a remark.
    ///
    /// # Errors
    /// No event of the plan can be counted: with each spelling and the reason; or not permitted, with the remedy.
    pub fn open(plan: &EventPlan) -> Result<Self, MachineError> {
        Self::open_with(plan, &Encoder::new())
    }

    /// As [`Counters::open`], with another machine's tables of events.
    ///
    /// # Errors
    /// As [`Counters::open`].
    pub fn open_with(plan: &EventPlan, encoder: &Encoder) -> Result<Self, MachineError> {
        let user_only = !Privilege::detect()?.kernel;
        let (sets, remarks) = resolve::resolve(plan, encoder, user_only)?;
        Ok(Self {
            hybrid: encoder.pmus().of_cores().len() > 1,
            sets,
            limits: plan.limits,
            user_only,
            threads: BTreeMap::new(),
            waiting: BTreeSet::new(),
            period: 0,
            swaps: Allowance::new(MOST_SWAPS),
            budget: Budget::of_process(),
            programs: WholePrograms::new(),
            windows: Vec::new(),
            remarks,
            said: BTreeSet::new(),
        })
    }

    /// Starts to count a thread. One that has ended meanwhile is passed over; one for which there are no descriptors
    /// waits until it is busier than another ([`Counters::end_period`]).
    ///
    /// # Errors
    /// Not permitted, with the remedy.
    pub fn attach(&mut self, id: ThreadId, _pid: i32) -> Result<(), MachineError> {
        self.start(id, Some(self.period), Group::open)
    }

    /// The same for a thread that is about to execute a program: from its execution on.
    ///
    /// # Errors
    /// As [`Counters::attach`].
    pub fn attach_at_exec(&mut self, id: ThreadId) -> Result<(), MachineError> {
        self.start(id, None, Group::at_exec)
    }

    fn start(&mut self, id: ThreadId, opened: Option<u64>, open: Open) -> Result<(), MachineError> {
        if self.threads.contains_key(&id) {
            return Ok(());
        }
        let counted = Counted {
            active: 0,
            sets: self.sets.iter().map(|_| None).collect(),
            recorded: monotonic(),
            opened,
            read: false,
            ahead: Ahead::default(),
        };
        self.threads.insert(id, counted);
        match self.open_set(id, 0, open) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.threads.remove(&id);
                match error.raw_os_error() {
                    Some(libc::ESRCH) => Ok(()),
                    Some(libc::EMFILE | libc::ENFILE) => {
                        self.waiting.insert(id);
                        Ok(())
                    }
                    _ => Err(refusal("counting a thread's events", error)),
                }
            }
        }
    }

    /// Stops counting a thread, and waiting for it.
    pub fn detach(&mut self, id: ThreadId) {
        self.waiting.remove(&id);
        self.threads.remove(&id);
    }

    /// What a thread's events counted since its last reading; nothing for a thread that did not run or is not counted.
    /// Then the thread's next set has its turn.
    pub fn read(&mut self, id: ThreadId) -> ThreadCounts {
        let nothing = ThreadCounts::default();
        let Some(thread) = self.threads.get_mut(&id) else {
            return nothing;
        };
        // In the period after that in which they were opened, the thread may have run a little before they were.
        let throughout = thread.opened.is_none_or(|opened| opened + 1 < self.period);
        let first = !std::mem::replace(&mut thread.read, true);
        let (active, plans) = (thread.active, &self.sets);
        let lost = drain(id, thread, &plans[active], &mut self.windows);
        let Some(groups) = &mut thread.sets[active] else {
            return nothing;
        };
        let mut tally = Accumulator::default();
        for (group, plan) in groups.iter_mut().zip(&plans[active].groups) {
            tally.add(group, plan);
        }
        let on_cpu = tally.on_cpu();
        if on_cpu.longest == 0 {
            return nothing;
        }
        let set = CountedSet {
            number: plans[active].number,
            enabled: on_cpu.longest,
        };
        let (mut counts, least) = tally.counts();
        plausibility::judge(&mut counts, on_cpu, self.user_only, self.limits.as_ref());
        if self.sets.len() > 1 {
            self.turn(id);
        }
        self.remark_lost(lost);
        self.remark_share(least);
        self.remark_lies(&counts);
        let set = (!counts.is_empty()).then_some(set);
        ThreadCounts {
            counts,
            set,
            throughout,
            first,
        }
    }

    /// For how much of its CPU time a thread's counts of this reading stand ([`Ahead::cover`]).
    pub fn cover(&mut self, id: ThreadId, enabled: u64, cpu_time: u64, beside: u64) -> u64 {
        match self.threads.get_mut(&id) {
            Some(thread) => thread.ahead.cover(enabled, cpu_time, beside),
            None => enabled,
        }
    }

    /// A thread is another one's successor now: it has executed a program, and has the first thread's number. Its events
    /// go on counting it.
    pub fn renumber(&mut self, before: ThreadId, now: ThreadId) {
        self.detach(now);
        if let Some(counted) = self.threads.remove(&before) {
            self.threads.insert(now, counted);
        }
        if self.waiting.remove(&before) {
            self.waiting.insert(now);
        }
    }

    /// The windows that ended, in the order of each thread's. Their times are of CLOCK_MONOTONIC.
    pub fn take_windows(&mut self) -> Vec<Window> {
        let mut windows = std::mem::take(&mut self.windows);
        for window in &mut windows {
            let (time, limits) = (window.cpu_time, self.limits.as_ref());
            plausibility::judge(&mut window.counts, time.into(), self.user_only, limits);
        }
        windows
    }

    /// Whether hardware events make records. Counting whole programs besides would take counters from them.
    fn records_hardware(&self) -> bool {
        let groups = || self.sets.iter().flat_map(|set| &set.groups);
        let mut events = groups().flat_map(|group| &group.events);
        groups().any(|group| group.every.is_some())
            && events.any(|(_, event)| event.code.kind != PERF_TYPE_SOFTWARE)
    }

    /// Counts a program as a whole besides, from its execution on: it was forked and has not been executed yet.
    ///
    /// # Errors
    /// Not permitted, with the remedy; no descriptors left.
    pub fn launched(&mut self, target: u32, pid: i32) -> Result<(), MachineError> {
        if self.records_hardware() {
            return Ok(());
        }
        let opened = self
            .programs
            .open(target, pid, &self.sets, self.user_only, &self.budget);
        opened.map_err(|error| refusal("counting a whole program's events", error))
    }

    /// Stops counting a program as a whole.
    pub fn close_program(&mut self, target: u32) {
        self.programs.close(target);
    }

    /// What the programs that are counted as a whole did since the last call.
    pub fn read_programs(&mut self) -> Vec<TargetSample> {
        let mut samples = Vec::new();
        for (mut sample, times) in self.programs.read() {
            let limits = self.limits.as_ref();
            plausibility::judge(&mut sample.counts, times, self.user_only, limits);
            self.remark_lies(&sample.counts);
            samples.push(sample);
        }
        samples
    }

    /// Gives the counters of idle threads to busier ones that wait for some, after a period of this length.
    pub fn end_period(&mut self, threads: &[ThreadSample], period: Duration) {
        self.period += 1;
        self.swaps.refill(period);
        if self.waiting.is_empty() {
            return;
        }
        let time = |sample: &&ThreadSample| sample.cpu_time;
        let (mut waiting, mut counted): (Vec<_>, Vec<_>) = threads
            .iter()
            .filter(|sample| {
                let id = &sample.info.id;
                self.waiting.contains(id) || self.threads.contains_key(id)
            })
            .partition(|sample| self.waiting.contains(&sample.info.id));
        waiting.retain(|sample| sample.cpu_time > 0);
        waiting.sort_by_key(|sample| std::cmp::Reverse(time(sample)));
        counted.sort_by_key(time);
        let mut idle = counted.into_iter();
        for busy in &waiting {
            if !self.swaps.take() {
                break;
            }
            let fits = self.cost(0) <= self.budget.available(Purpose::ThreadCounters);
            if !fits {
                let Some(idle) = idle.next() else { break };
                if busy.cpu_time < WORTH_A_SWAP * idle.cpu_time.max(1) {
                    break;
                }
                self.detach(idle.info.id);
                self.waiting.insert(idle.info.id);
            }
            self.waiting.remove(&busy.info.id);
            // A refusal was already reported when the thread appeared.
            let _ = self.attach(busy.info.id, busy.info.pid);
        }
        let running = waiting.len();
        if running > 0 && self.said.insert("waiting".to_owned()) {
            let text = format!(
                "{} threads have counters, the busiest; {running} that run have none: {}",
                self.threads.len(),
                limits::NOFILE_REMEDY
            );
            self.remarks
                .push(Remark::warning("counters-few-descriptors", text));
        }
    }

    /// Counters of the same events and sets on whole PUs.
    ///
    /// # Errors
    /// Not permitted, with the remedy; fewer descriptors than one a PU and event.
    pub fn of_pus(&mut self, pus: &[u32]) -> Result<PuCounters, MachineError> {
        PuCounters::open(self.sets.clone(), self.limits, pus, self.budget.clone())
    }

    /// Whether only user space is counted.
    pub fn user_only(&self) -> bool {
        self.user_only
    }

    /// Threads that are counted now.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether no thread is counted now.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// What the user should know since the last call.
    pub fn remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }

    /// One line for the report.
    pub fn description(&self) -> String {
        let events: BTreeSet<&str> = self.aliases().collect();
        let groups = self.sets.iter().flat_map(|set| &set.groups);
        let mut kinds =
            groups.flat_map(|group| group.events.iter().map(|(_, event)| event.code.kind));
        let what = match kinds.all(|kind| kind == PERF_TYPE_SOFTWARE) {
            true => "the kernel's software events",
            false => "hardware counters",
        };
        let plural = if events.len() == 1 { "" } else { "s" };
        let mut text = format!("{what} ({} event{plural}", events.len());
        if self.sets.len() > 1 {
            text += &format!(" in {} multiplexed sets", self.sets.len());
        }
        text += ")";
        if self.user_only {
            text += ", user space only";
        }
        text
    }

    /// The events that are counted, under the profile's names.
    pub fn aliases(&self) -> impl Iterator<Item = &str> {
        let groups = self.sets.iter().flat_map(|set| &set.groups);
        groups.flat_map(|group| group.events.iter().map(|(alias, _)| &**alias))
    }

    /// Descriptors that a thread needs for a set.
    fn cost(&self, set: usize) -> usize {
        let groups = self.sets[set].groups.iter();
        groups.map(|group| group.events.len()).sum()
    }

    /// Opens, or switches on, a set of a thread.
    fn open_set(&mut self, id: ThreadId, set: usize, open: Open) -> io::Result<()> {
        let cost = self.cost(set);
        let Some(thread) = self.threads.get_mut(&id) else {
            return Ok(());
        };
        thread.active = set;
        if let Some(groups) = &mut thread.sets[set] {
            return groups.iter_mut().try_for_each(Group::enable);
        }
        let place = self.budget.reserve(Purpose::ThreadCounters, cost);
        let place = place.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
        let plans = self.sets[set].groups.iter();
        let groups: io::Result<Vec<Group>> = plans
            .map(|plan| open(plan, Target::Thread(id.tid), self.user_only))
            .collect();
        thread.sets[set] = Some(place.keep(groups?));
        Ok(())
    }

    /// Switches a thread to its next set.
    fn turn(&mut self, id: ThreadId) {
        let Some(thread) = self.threads.get_mut(&id) else {
            return;
        };
        let (before, next) = (thread.active, (thread.active + 1) % self.sets.len());
        if let Some(groups) = &mut thread.sets[before] {
            // A thread that has ended refuses; its counters go with it.
            let _ = groups.iter_mut().try_for_each(Group::disable);
        }
        if self.open_set(id, next, Group::open).is_ok() {
            return;
        }
        // No descriptors for both: the one that had its turn makes room.
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.sets[before] = None;
        }
        // A thread that has ended, or one for which there is still no room, counts nothing until it is detached.
        let _ = self.open_set(id, next, Group::open);
    }

    fn remark_lost(&mut self, lost: u64) {
        if lost > 0 && self.said.insert("lost".to_owned()) {
            let text = "some records were lost, since a thread made them faster than they were read: windows around a gap \
                        are as long as several; record less often (:every=)";
            self.remarks.push(Remark::warning("records-lost", text));
        }
    }

    fn remark_share(&mut self, least: f64) {
        if least < 0.95 && !self.hybrid && self.said.insert("share".to_owned()) {
            let text = format!(
                "counters are shared with others and counted {:.0} % of the time{}",
                least * 100.0,
                probe::watchdog()
            );
            self.remarks.push(Remark::warning("counters-shared", text));
        }
    }

    fn remark_lies(&mut self, counts: &[Count]) {
        for count in counts {
            if let CountQuality::Implausible(why) = &count.quality
                && self.said.insert(count.alias.to_string())
            {
                let text = format!(
                    "counter `{}` is ignored ({why}); `perch run --counters sampling` does without",
                    count.alias
                );
                self.remarks.push(Remark::warning("counter-doubtful", text));
            }
        }
    }
}

/// Adds the records of a thread's active set to the windows; returns how many were lost.
fn drain(id: ThreadId, thread: &mut Counted, plan: &SetPlan, windows: &mut Vec<Window>) -> u64 {
    let Some(groups) = &mut thread.sets[thread.active] else {
        return 0;
    };
    let mut all_lost = 0;
    for (group, plan) in groups.iter_mut().zip(&plan.groups) {
        if plan.every.is_none() {
            continue;
        }
        let (records, lost) = group.records();
        all_lost += lost;
        for record in records {
            let mut tally = Accumulator::default();
            tally.add_delta(&record.delta, plan);
            let interval = record.time.saturating_sub(thread.recorded);
            thread.recorded = record.time;
            windows.push(Window {
                thread: id,
                at: record.time,
                interval,
                cpu_time: record.delta.enabled,
                pu: record.cpu,
                counts: tally.counts().0,
            });
        }
    }
    all_lost
}
