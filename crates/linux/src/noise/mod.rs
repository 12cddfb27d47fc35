//! Operating-system noise: how much of its time a thread loses that wants its PU always, and to whom.
//!
//! A thread of perch is bound to each PU and measures quanta ([`quantum`]). Where perch may read tracepoints, what ran
//! meanwhile is followed ([`walk`]) and given to the interruptions that were seen ([`attribution`]). `docs/noise.md` says
//! how to read the results.

pub mod attribution;
pub mod event;
mod names;
mod points;
pub mod quantum;
pub mod statistics;
mod stolen;
mod trace;
pub mod tracefs;
pub mod tracer;
pub mod walk;

use crate::tasks::is_in_first_namespace;
use attribution::{Cause, Taken, causes, taken};
use event::Source;
use names::Names;
use perch_core::MachineError;
use perch_kernels::bind;
use points::{Points, Raw};
use quantum::{Measured, Quanta, measure};
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use stolen::Stolen;
use trace::{Trace, Traced};
use tracefs::Tracefs;
use walk::Walked;

/// At most this many events of all PUs are kept, 32 bytes each.
const EVENTS: usize = 12 << 20;
/// At most this many interruptions, or quanta of fixed time, of a PU are kept.
const RESULTS: usize = 8 << 20;

/// How often threads are looked at that have not ended in time.
const LATE: Duration = Duration::from_millis(20);

/// How often it is looked whether threads have ended early.
const LOOK: Duration = Duration::from_secs(1);

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The PUs.
    pub pus: Vec<u32>,
    /// The quanta.
    pub quanta: Quanta,
    /// For how long.
    pub duration: Duration,
    /// Whether to follow what runs meanwhile.
    pub trace: bool,
}

/// A source and what it took.
#[derive(Debug, Clone)]
pub struct Share {
    /// Who.
    pub source: Source,
    /// How much of the measured time, and when.
    pub taken: Taken,
}

/// The noise of one PU.
#[derive(Debug, Clone)]
pub struct PuNoise {
    /// The PU.
    pub pu: u32,
    /// What the quanta have shown.
    pub measured: Measured,
    /// Time lost, in nanoseconds.
    pub lost: u64,
    /// What is known of each interruption, with places in `sources`; none without tracepoints.
    pub causes: Vec<Cause>,
    /// Sources by the time that they took, the most first.
    pub sources: Vec<Share>,
    /// Steal time of the PU meanwhile, in nanoseconds.
    pub steal: u64,
    /// Events that were lost: sources may have taken more than is reported.
    pub lost_events: u64,
    /// Whether there was no more room for results before the time was over.
    pub full: bool,
}

/// The noise of a machine's PUs.
#[derive(Debug, Clone)]
pub struct Noise {
    /// By rising number.
    pub pus: Vec<PuNoise>,
    /// Why sources are not known, if they are not.
    pub untraced: Option<String>,
    /// The kernel's own tracers of noise, as far as it has some; `None` if that is not known.
    pub tracers: Option<Vec<String>>,
    /// For how long perch's own control group was stopped by its CPU limit, in nanoseconds.
    pub throttled: u64,
}

/// Measures noise. `wait` is called with the time left until the work is done, and waits as long or less; it asks to stop
/// by `Break`.
///
/// # Errors
/// A PU to which perch cannot bind a thread, signals that cannot be waited for.
pub fn noise(
    plan: &Plan,
    wait: &mut dyn FnMut(Duration) -> Result<ControlFlow<()>, MachineError>,
) -> Result<Noise, MachineError> {
    let mut untraced = (!plan.trace).then(|| "it was not asked for".to_owned());
    let tracefs = match plan.trace {
        true => Tracefs::open()
            .map_err(|error| untraced = Some(error.to_string()))
            .ok(),
        false => None,
    };
    // Threads of a tracer that a killed perch has left would be noise.
    if let Some(tracefs) = &tracefs {
        tracer::instance::remove_leftovers(tracefs);
    }
    let mut points = tracefs.as_ref().and_then(Points::of).map(Arc::new);
    if plan.trace && points.is_none() {
        untraced
            .get_or_insert_with(|| "the kernel has no tracepoint sched:sched_switch".to_owned());
    }
    if points.is_some() && !is_in_first_namespace() {
        let text = "tracepoints have the numbers that threads have in the first PID namespace, and perch runs in another: \
                    run it there (docker, podman: --pid=host)";
        untraced = Some(text.to_owned());
        points = None;
    }
    let stop = Arc::new(AtomicBool::new(false));
    // Without permission no PU is traced; then the threads need not try.
    if let Some(some) = &points
        && let Some(first) = plan.pus.first()
        && let Err(error) = Trace::open(*first, some)
    {
        untraced = Some(error.to_string());
        points = None;
    }
    let before = Stolen::now();
    let workers = plan
        .pus
        .iter()
        .map(|pu| Worker::start(*pu, plan, points.clone(), &stop));
    let mut workers = workers.collect::<Result<Vec<_>, _>>()?;
    let results = workers
        .iter_mut()
        .try_for_each(Worker::ready)
        .and_then(|()| {
            workers.iter_mut().for_each(Worker::go);
            let due = Instant::now() + plan.duration;
            while workers.iter().any(|worker| !worker.thread.is_finished()) {
                let left = match stop.load(Ordering::Relaxed) {
                    true => LATE,
                    false => due
                        .saturating_duration_since(Instant::now())
                        .clamp(LATE, LOOK),
                };
                if wait(left)?.is_break() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            Ok(())
        });
    // Also after an error: threads that wait for the word hear that there will be none.
    stop.store(true, Ordering::Relaxed);
    let results: Result<Vec<Found>, MachineError> =
        results.and_then(|()| workers.into_iter().map(Worker::join).collect());
    let found = results?;
    let after = Stolen::now();
    let seen = found.iter().flat_map(|found| &found.traced.sources);
    let names = Names::of(seen, found.iter().map(|found| found.tid));
    let told = |found: Found| {
        let steal = after.steal_since(&before, found.pu);
        pu_noise(found, &names, steal)
    };
    Ok(Noise {
        pus: found.into_iter().map(told).collect(),
        untraced,
        tracers: tracefs.map(|tracefs| {
            let mut tracers = tracefs.tracers();
            tracers.retain(|name| ["osnoise", "timerlat"].contains(&&**name));
            tracers
        }),
        throttled: after.throttled_since(&before),
    })
}

/// What one thread has found.
struct Found {
    pu: u32,
    tid: i32,
    measured: Measured,
    traced: Traced,
    full: bool,
}

/// A thread bound to a PU.
struct Worker {
    pu: u32,
    thread: JoinHandle<Found>,
    ready: Receiver<Result<(), MachineError>>,
    go: Option<Sender<()>>,
}

impl Worker {
    fn start(
        pu: u32,
        plan: &Plan,
        points: Option<Arc<Points>>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, MachineError> {
        let (tell, ready) = channel();
        let (go, begin) = channel::<()>();
        let (stop, quanta) = (Arc::clone(stop), plan.quanta);
        let duration = plan.duration.as_nanos() as u64;
        let events = EVENTS / plan.pus.len().max(1);
        let work = move || {
            let mut found = Found {
                pu,
                tid: rustix::thread::gettid().as_raw_nonzero().get(),
                measured: Measured::default(),
                traced: Traced::default(),
                full: false,
            };
            let mut trace = match prepare(pu, points.as_ref()) {
                Ok(trace) => trace,
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return found;
                }
            };
            if tell.send(Ok(())).is_err() || begin.recv().is_err() {
                return found;
            }
            let deadline = crate::perf::task_events::monotonic().saturating_add(duration);
            let full = &mut found.full;
            found.measured = measure(&quanta, |time, results| {
                let kept = match trace.as_mut() {
                    Some(trace) if trace.should_drain() => trace.drain(),
                    _ => 0,
                };
                *full = results >= RESULTS || kept >= events;
                match time >= deadline || *full || stop.load(Ordering::Relaxed) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            found.traced = trace.map(Trace::finish).unwrap_or_default();
            found
        };
        let thread = thread::Builder::new()
            .name(format!("noise-{pu}"))
            .spawn(work)
            .map_err(|error| MachineError::Io {
                what: "starting a thread".to_owned(),
                error,
            })?;
        Ok(Self {
            pu,
            thread,
            ready,
            go: Some(go),
        })
    }

    fn ready(&mut self) -> Result<(), MachineError> {
        let pu = self.pu;
        let died = || MachineError::Other(format!("the thread for PU {pu} has died"));
        self.ready.recv().unwrap_or_else(|_| Err(died()))
    }

    fn go(&mut self) {
        // A thread that has ended is noticed when it is joined.
        let _ = self.go.take().map(|go| go.send(()));
    }

    fn join(self) -> Result<Found, MachineError> {
        let pu = self.pu;
        let died = |_| MachineError::Other(format!("the thread for PU {pu} has died"));
        self.thread.join().map_err(died)
    }
}

/// Binds the calling thread and begins to record what else runs on that PU.
fn prepare(pu: u32, points: Option<&Arc<Points>>) -> Result<Option<Trace>, MachineError> {
    bind(pu).map_err(|error| MachineError::Io {
        what: format!("binding a thread to PU {pu}, which may be offline or not in perch's cpuset"),
        error,
    })?;
    points.map(|points| Trace::open(pu, points)).transpose()
}

fn pu_noise(found: Found, names: &Names, steal: u64) -> PuNoise {
    let Found {
        pu,
        tid,
        measured,
        traced,
        full,
    } = found;
    let windows = &measured.windows;
    let (start, end) = match (windows.first(), windows.last()) {
        (Some(first), Some(last)) => (first.0, last.1),
        _ => (0, 0),
    };
    let walked = walk::walk(&traced.events, tid, start, end);
    let lost = measured.interruptions.iter().map(|found| found.lost).sum();
    let (causes, sources) = attributed(&measured, &walked, &traced.sources, names);
    PuNoise {
        pu,
        measured,
        lost,
        causes,
        sources,
        steal,
        lost_events: traced.lost,
        full,
    }
}

/// The causes of interruptions, and what each source took: `raw` are the sources by the numbers in `walked`.
fn attributed(
    measured: &Measured,
    walked: &Walked,
    raw: &[Raw],
    names: &Names,
) -> (Vec<Cause>, Vec<Share>) {
    let mut causes = match raw.is_empty() {
        true => Vec::new(),
        false => causes(&measured.interruptions, &walked.slices),
    };
    // Several threads may be one source, such as the worker threads of the kernel.
    let named: Vec<Source> = raw.iter().map(|raw| names.source(raw)).collect();
    let mut shares = BTreeMap::<Source, Taken>::new();
    for (id, taken) in taken(walked, &measured.windows) {
        let Some(source) = named.get(id as usize) else {
            continue;
        };
        let all = shares.entry(source.clone()).or_default();
        all.total += taken.total;
        all.runs.extend(taken.runs);
    }
    let mut sources: Vec<Share> = shares
        .into_iter()
        .map(|(source, taken)| Share { source, taken })
        .collect();
    sources.sort_by_key(|share| std::cmp::Reverse(share.taken.total));
    for share in &mut sources {
        share.taken.runs.sort_unstable();
    }
    let places: BTreeMap<&Source, u32> = sources
        .iter()
        .zip(0u32..)
        .map(|(share, place)| (&share.source, place))
        .collect();
    for cause in &mut causes {
        let source = cause.source.and_then(|id| named.get(id as usize));
        cause.source = source.and_then(|source| places.get(source).copied());
    }
    (causes, sources)
}
