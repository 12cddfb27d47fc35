//! What a session sees, as a trace that Perfetto and Chrome open (JSON of the Trace Event Format; docs/timeline.md).
//!
//! A core is a process of the trace and a PU one of its threads: which thread used it most, period by period. Below are
//! the real processes: where each thread was, its CPU time and FP share as counters, and its moves with their reasons as
//! instants. A recording that is replayed under its own policy gives the same file as the run.

mod counters;
mod events;

pub use counters::{CounterTrace, Track};

use crate::observer::{Move, Period, SessionEnd, SessionSink, Start};
use events::{Event, Events, us};
use perch_core::{
    Outcome, PuSet, Snapshot, ThreadId, ThreadInfo, ThreadSample, Topology, metric::names,
};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::Arc,
};

/// Cores are processes of the trace from this number on: above all numbers that Linux gives to processes (2^22).
const HARDWARE: u32 = 10_000_000;
/// The numbers of each session in a file begin this much later.
const GROUP: u32 = 2 * HARDWARE;

/// Who was on a PU from when to when, exactly; of a simulated machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice<'a> {
    /// The PU.
    pub pu: u32,
    /// The thread's number.
    pub tid: i32,
    /// Its name.
    pub name: &'a str,
    /// Its process's name.
    pub process: &'a str,
    /// When it came, in nanoseconds.
    pub from: u64,
    /// When it left.
    pub to: u64,
}

/// Writes the trace. The first error ends it, and [`Timeline::finish`] returns it.
#[derive(Debug)]
pub struct Timeline<W: Write> {
    events: Events<W>,
    /// Before the names of cores and processes, where a file has several sessions.
    prefix: String,
    /// Added to all numbers of processes and threads.
    base: u32,
    /// Whether the file is this session's alone.
    whole: bool,
    /// Whether who was on a PU is told in [`Slice`]s, not concluded from samples.
    exact: bool,
    topology: Option<Arc<Topology>>,
    /// Whether threads run on another machine than they are placed on.
    elsewhere: bool,
    pus: BTreeMap<u32, Stay<ThreadId>>,
    threads: FxHashMap<ThreadId, Known>,
    processes: BTreeSet<i32>,
    finished: bool,
}

/// Something that was on something else for one or several periods in a row.
#[derive(Debug, Clone)]
struct Stay<T> {
    what: T,
    name: Arc<str>,
    process: Arc<str>,
    bound: bool,
    from: u64,
    to: u64,
    /// CPU time meanwhile.
    time: u64,
}

#[derive(Debug)]
struct Known {
    info: ThreadInfo,
    /// The PU where it is.
    on: Option<Stay<u32>>,
    /// Where perch had it bound last.
    bound: Option<PuSet>,
    /// The end of what was written of it.
    until: u64,
    /// As written last, in tenths of a percent.
    cpu: Option<u64>,
    fp: Option<u64>,
}

impl Timeline<BufWriter<File>> {
    /// Writes to a new file; one of that name is written over.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self::new(BufWriter::new(perch_files::output(path)?)))
    }
}

impl<W: Write> Timeline<W> {
    /// Writes a whole file to `out`.
    pub fn new(out: W) -> Self {
        Self {
            events: Events::new(out),
            prefix: String::new(),
            base: 0,
            whole: true,
            exact: false,
            topology: None,
            elsewhere: false,
            pus: BTreeMap::new(),
            threads: FxHashMap::default(),
            processes: BTreeSet::new(),
            finished: false,
        }
    }

    /// The same with only the threads' side of what PUs did: who was on them comes in [`Timeline::slices`].
    #[must_use]
    pub fn with_exact_slices(mut self) -> Self {
        self.exact = true;
        self
    }

    /// The error, if there was one; before that, all that is still open is written.
    ///
    /// # Errors
    /// What could not be written.
    pub fn finish(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.finished, true) {
            for (pu, stay) in std::mem::take(&mut self.pus) {
                self.close_pu(pu, &stay);
            }
            let mut open: Vec<(ThreadId, Known)> = self.threads.drain().collect();
            open.sort_by_key(|(id, _)| *id);
            for (_, mut known) in open {
                self.leave(&mut known);
            }
            if self.whole {
                self.events.tail();
            }
            self.events.flush();
        }
        self.events.error.take().map_or(Ok(()), Err)
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.events.out
    }

    /// Who was on which PU, exactly.
    pub fn slices<'a>(&mut self, slices: impl IntoIterator<Item = Slice<'a>>) {
        for slice in slices {
            let args = json!({ "thread": slice.tid, "process": slice.process });
            self.pu_slice(slice.pu, slice.name, (slice.from, slice.to), args);
        }
    }

    fn number(&self, of: i32) -> u32 {
        self.base + of.unsigned_abs()
    }

    /// The process that stands for a PU's core, and the thread that stands for the PU.
    fn hardware(&self, pu: u32) -> (u32, u32) {
        let core = self.topology.as_ref().and_then(|topology| topology.pu(pu));
        let base = self.base + HARDWARE;
        (base + core.map_or(0, |pu| pu.core as u32), base + pu)
    }

    fn pu_slice(&mut self, pu: u32, name: &str, (from, to): (u64, u64), args: Value) {
        let (pid, tid) = self.hardware(pu);
        self.events.add(&Event {
            name,
            ph: "X",
            pid,
            tid,
            ts: Some(us(from)),
            dur: Some(us(to.saturating_sub(from))),
            s: None,
            args,
        });
    }

    fn named(&mut self, what: &'static str, (pid, tid): (u32, u32), args: Value) {
        self.events.add(&Event {
            name: what,
            ph: "M",
            pid,
            tid,
            ts: None,
            dur: None,
            s: None,
            args,
        });
    }

    /// The names of cores and PUs, in the machine's order.
    fn machine(&mut self, topology: &Arc<Topology>) {
        self.topology = Some(Arc::clone(topology));
        for (core, of) in topology.cores.iter().enumerate() {
            let label = format!("{}{}", self.prefix, topology.core_label(core));
            for (at, pu) in of.pus.iter().enumerate() {
                let ids = self.hardware(pu);
                if at == 0 {
                    self.named("process_name", ids, json!({ "name": label }));
                    self.named("process_sort_index", ids, json!({ "sort_index": core }));
                }
                self.named("thread_name", ids, json!({ "name": format!("PU {pu}") }));
                self.named("thread_sort_index", ids, json!({ "sort_index": pu }));
            }
        }
    }

    fn close_pu(&mut self, pu: u32, stay: &Stay<ThreadId>) {
        let busy = stay.time as f64 / (stay.to - stay.from).max(1) as f64;
        let args = json!({
            "thread": stay.what.tid,
            "process": &*stay.process,
            "share of the PU": rounded(busy),
            "bound": stay.bound,
        });
        self.pu_slice(pu, &stay.name, (stay.from, stay.to), args);
    }

    /// The thread is no longer where it was.
    fn leave(&mut self, known: &mut Known) {
        let Some(stay) = known.on.take() else {
            return;
        };
        known.until = stay.to;
        let busy = stay.time as f64 / (stay.to - stay.from).max(1) as f64;
        self.events.add(&Event {
            name: &format!("PU {}", stay.what),
            ph: "X",
            pid: self.number(known.info.pid),
            tid: self.number(known.info.id.tid),
            ts: Some(us(stay.from)),
            dur: Some(us(stay.to - stay.from)),
            s: None,
            args: json!({ "busy": rounded(busy), "bound": stay.bound }),
        });
    }

    /// What is known of the thread, its names written if they are new.
    fn known(&mut self, info: &ThreadInfo) -> Known {
        let known = self.threads.remove(&info.id);
        let ids = (self.number(info.pid), self.number(info.id.tid));
        if self.processes.insert(info.pid) {
            let name = format!("{}{}", self.prefix, info.process);
            self.named("process_name", ids, json!({ "name": name }));
        }
        if known
            .as_ref()
            .is_none_or(|known| known.info.name != info.name)
        {
            self.named("thread_name", ids, json!({ "name": &*info.name }));
        }
        let known = known.unwrap_or_else(|| Known {
            info: info.clone(),
            on: None,
            bound: None,
            until: 0,
            cpu: None,
            fp: None,
        });
        Known {
            info: info.clone(),
            ..known
        }
    }

    fn counter(&mut self, info: &ThreadInfo, what: &str, at: u64, tenths: u64) {
        self.events.add(&Event {
            name: &format!("{} {} {what}", info.name, info.id.tid),
            ph: "C",
            pid: self.number(info.pid),
            tid: self.number(info.id.tid),
            ts: Some(us(at)),
            dur: None,
            s: None,
            args: json!({ "%": tenths as f64 / 10.0 }),
        });
    }

    /// One thread in one period; returns the PU on which it spent its time.
    fn thread(&mut self, sample: &ThreadSample, snapshot: &Snapshot, at: u64) -> Option<Stay<u32>> {
        let from = at.saturating_sub(sample.interval);
        let mut known = self.known(&sample.info);
        let state = snapshot.thread(sample.info.id);
        let tenths = |share: f64| (share.clamp(0.0, 1000.0) * 1000.0).round() as u64;
        let cpu = tenths(sample.cpu_time as f64 / sample.interval.max(1) as f64);
        if known.cpu != Some(cpu) && (cpu > 0 || known.cpu.is_some()) {
            known.cpu = Some(cpu);
            self.counter(&sample.info, "CPU", from, cpu);
        }
        let metrics = state.map_or(&sample.metrics, |state| &state.metrics);
        let share = metrics.get(names::FP_SHARE);
        if let Some(share) = share.filter(|share| share.confidence > 0.0) {
            let share = tenths(share.value);
            if known.fp != Some(share) {
                known.fp = Some(share);
                self.counter(&sample.info, "FP share", from, share);
            }
        }
        // One that has ended did so where it was.
        if let Some(state) = state {
            known.bound.clone_from(&state.bound);
        }
        let pu = self.place(sample.last_pu, known.bound.as_ref());
        let mut stay = pu.filter(|_| sample.cpu_time > 0).map(|pu| Stay {
            what: pu,
            name: Arc::clone(&sample.info.name),
            process: Arc::clone(&sample.info.process),
            bound: known.bound.is_some(),
            from,
            to: at,
            time: sample.cpu_time,
        });
        match (&mut known.on, &mut stay) {
            (Some(on), Some(stay)) if on.goes_on(stay) => on.add(stay),
            _ => {
                self.leave(&mut known);
                if let Some(stay) = &mut stay {
                    stay.from = stay.from.max(known.until).min(at);
                }
                known.on.clone_from(&stay);
            }
        }
        self.threads.insert(sample.info.id, known);
        stay
    }

    /// Where a thread is: where it was seen, unless a dry run or a replay binds it elsewhere.
    fn place(&self, seen: Option<u32>, bound: Option<&PuSet>) -> Option<u32> {
        let seen = seen.filter(|_| !self.elsewhere);
        match (seen, bound) {
            (Some(seen), Some(bound)) if !bound.contains(seen) => bound.first(),
            (None, Some(bound)) => bound.first(),
            (seen, _) => seen,
        }
    }

    fn moved(&mut self, made: &Move, at: u64) {
        let Some(info) = self
            .threads
            .get(&made.thread)
            .map(|known| known.info.clone())
        else {
            return;
        };
        let shown = |pus: &Option<PuSet>| pus.as_ref().map(PuSet::to_string);
        let name = match &made.to {
            Some(pus) => format!("→ PU {pus}: {}", made.reason.text),
            None => format!("released: {}", made.reason.text),
        };
        let mut args = json!({
            "from": shown(&made.from),
            "to": shown(&made.to),
            "reason": made.reason.text,
        });
        for (name, value) in &made.reason.numbers {
            args[&**name] = json!(value);
        }
        // A replay changes nothing, and is to give the same file as the run.
        if !matches!(made.outcome, Outcome::Applied | Outcome::NotApplied) {
            args["outcome"] = json!(made.outcome);
        }
        self.events.add(&Event {
            name: &name,
            ph: "i",
            pid: self.number(info.pid),
            tid: self.number(info.id.tid),
            ts: Some(us(at)),
            dur: None,
            s: Some("t"),
            args,
        });
    }
}

impl Timeline<Vec<u8>> {
    /// Writes a part of a file, the `number`th of several sessions, whose processes' names begin with `prefix`.
    pub fn part(number: u32, prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            base: number.wrapping_mul(GROUP),
            whole: false,
            ..Self::new(Vec::new())
        }
    }

    /// The part, for [`join`].
    pub fn into_part(mut self) -> Vec<u8> {
        // Memory takes everything.
        let _ = self.finish();
        self.events.out
    }
}

/// One file of several parts.
pub fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut events = Events::new(Vec::new());
    events.head();
    parts.iter().for_each(|part| events.lines(part));
    events.tail();
    events.out
}

impl<T: PartialEq> Stay<T> {
    /// Whether the next period's is the same, without a gap but for what reading took.
    fn goes_on(&self, next: &Self) -> bool {
        let same = self.what == next.what && self.name == next.name && self.bound == next.bound;
        same && next.from <= self.to + (next.to - next.from) / 10
    }

    fn add(&mut self, next: &Self) {
        self.to = next.to;
        self.time += next.time;
    }
}

/// To three decimals: what is behind them is noise.
fn rounded(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}

impl<W: Write + Send> SessionSink for Timeline<W> {
    fn start(&mut self, start: &Start) {
        if self.whole {
            self.events.head();
        }
        self.elsewhere = start.topology != start.machine;
        self.machine(&start.topology);
    }

    fn period(&mut self, period: &Period) {
        let (observation, snapshot) = (&*period.observation, &*period.snapshot);
        if let Some(topology) = observation.topology.as_ref().filter(|_| !self.elsewhere) {
            self.machine(topology);
        }
        let at = observation.at;
        let begin = at.saturating_sub(observation.interval);
        let mut busiest: BTreeMap<u32, Stay<ThreadId>> = BTreeMap::new();
        for sample in &observation.threads {
            let id = sample.info.id;
            let Some(stay) = self.thread(sample, snapshot, at) else {
                continue;
            };
            let (pu, time) = (stay.what, stay.time);
            let most = busiest.get(&pu).map(|most| (most.time, most.what));
            if !self.exact && most.is_none_or(|most| most < (time, id)) {
                let stay = Stay {
                    what: id,
                    name: stay.name,
                    process: stay.process,
                    bound: stay.bound,
                    // The whole period is the PU's, even if the thread came in it.
                    from: begin,
                    to: at,
                    time,
                };
                busiest.insert(pu, stay);
            }
        }
        for (pu, stay) in std::mem::take(&mut self.pus) {
            match busiest.remove(&pu) {
                Some(next) if stay.goes_on(&next) => {
                    let mut stay = stay;
                    stay.add(&next);
                    self.pus.insert(pu, stay);
                }
                next => {
                    self.close_pu(pu, &stay);
                    let from = stay.to.min(at);
                    self.pus.extend(next.map(|next| {
                        let from = next.from.max(from);
                        (pu, Stay { from, ..next })
                    }));
                }
            }
        }
        self.pus.extend(busiest);
        for made in &period.moves {
            self.moved(made, at);
        }
        for id in &observation.ended {
            if let Some(mut known) = self.threads.remove(id) {
                self.leave(&mut known);
                if known.cpu.is_some_and(|cpu| cpu > 0) {
                    self.counter(&known.info, "CPU", at, 0);
                }
            }
        }
        self.events.flush();
    }

    fn end(&mut self, _: &SessionEnd) {
        let error = self.finish();
        self.events.error = error.err();
    }
}
