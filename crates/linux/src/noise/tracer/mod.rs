//! The kernel's own tracers of noise: `osnoise`, whose threads do on each PU in the kernel what quanta do in a program, and
//! `timerlat`, which measures how late a timer and the thread that it wakes up are.
//!
//! They run in an instance of the kernel's tracing that perch makes and removes ([`instance`]). Their options are the same
//! for all instances, so perch changes none of them, and measures only where nobody else uses the tracers.

pub(super) mod instance;
mod line;

pub use line::Context;

use super::{
    Noise, PuNoise, attributed,
    names::Names,
    points::Raw,
    quantum::{Interruption, Measured},
    stolen::Stolen,
    tracefs::Tracefs,
    walk::{Run, Slice, Walked},
};
use instance::{Instance, Pipe};
use line::{Says, read};
use perch_core::{MachineError, PuSet};
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    ops::ControlFlow,
    time::{Duration, Instant},
};

/// From one reading of the trace to the next.
const READ: Duration = Duration::from_millis(250);
/// Bytes of a PU's buffer in KiB: some 20,000 lines.
const BUFFER: &str = "2048";
/// At most this many lines of all PUs are kept.
const LINES: usize = 8 << 20;

/// One of the kernel's tracers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracer {
    /// Noise.
    Osnoise,
    /// Latencies of timers.
    Timerlat,
}

impl Tracer {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Osnoise => "osnoise",
            Self::Timerlat => "timerlat",
        }
    }
}

/// Latencies of a PU, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    /// By context, in the order of time.
    pub of: BTreeMap<Context, Vec<u64>>,
    /// How many times events of it were lost.
    pub lost_events: u64,
}

/// What a tracer has found.
#[derive(Debug, Clone)]
pub enum Found {
    /// Of osnoise.
    Noise(Noise),
    /// Of timerlat, by PU.
    Latencies(BTreeMap<u32, Latencies>),
}

/// Removes what killed perches have left of their tracing; how many instances. 0 for users who may not, and on kernels
/// without tracers.
pub fn remove_leftovers() -> usize {
    Tracefs::open().map_or(0, |tracefs| instance::remove_leftovers(&tracefs))
}

/// Runs a tracer on some PUs. `wait` is called with a time and waits as long or less; it asks to stop by `Break`.
///
/// # Errors
/// Not root, a kernel without the tracer, another process that uses it, PUs on which it is not to run.
pub fn run(
    tracer: Tracer,
    pus: &PuSet,
    duration: Duration,
    wait: &mut dyn FnMut(Duration) -> Result<ControlFlow<()>, MachineError>,
) -> Result<Found, MachineError> {
    let tracefs = Tracefs::open()?;
    let tracers = tracefs.tracers();
    if !tracers.iter().any(|name| name == tracer.name()) {
        return Err(MachineError::Other(format!(
            "the kernel has no tracer {0} (CONFIG_{1}_TRACER); it has {2}. Leave --tracer out: then perch's own threads \
             measure",
            tracer.name(),
            tracer.name().to_uppercase(),
            tracers.join(", "),
        )));
    }
    instance::remove_leftovers(&tracefs);
    check(&tracefs, pus)?;
    let before = Stolen::now();
    let lines = trace(&tracefs, tracer, pus, duration, wait)?;
    let after = Stolen::now();
    Ok(match tracer {
        Tracer::Timerlat => Found::Latencies(latencies(lines)),
        Tracer::Osnoise => {
            let threshold = thresholds(&tracefs);
            let raw = lines.iter().filter_map(|(_, says)| match says {
                Says::Ran { who, .. } => Some(who),
                _ => None,
            });
            let names = Names::of(raw, std::iter::empty());
            let pus = by_pu(lines).into_iter().map(|(pu, says)| {
                let steal = after.steal_since(&before, pu);
                pu_noise(pu, says, threshold, steal, &names)
            });
            Found::Noise(Noise {
                pus: pus.collect(),
                untraced: None,
                tracers: None,
                throttled: 0,
            })
        }
    })
}

/// Whether nobody else uses one of the tracers, and they run on the PUs.
fn check(tracefs: &Tracefs, pus: &PuSet) -> Result<(), MachineError> {
    let instances = fs::read_dir(tracefs.root().join("instances"));
    let names = instances.into_iter().flatten().flatten();
    let folders = names.filter_map(|entry| entry.file_name().into_string().ok());
    let folders = folders.map(|name| format!("instances/{name}/"));
    for folder in std::iter::once(String::new()).chain(folders) {
        let current = tracefs.read(&format!("{folder}current_tracer"));
        let current = current.as_deref().map_or("", str::trim);
        if ["osnoise", "timerlat"].contains(&current) {
            let folder = perch_core::text::printable(&folder).into_owned();
            return Err(MachineError::Other(format!(
                "the tracer {current} is in use already ({folder}current_tracer in tracefs): its options are the same for \
                 all who use it, so perch waits until that one is done; try again later"
            )));
        }
    }
    let allowed = tracefs.read("osnoise/cpus").unwrap_or_default();
    let allowed: PuSet = allowed.trim().parse().unwrap_or_else(|_| pus.clone());
    let not = pus.minus(&allowed);
    match not.is_empty() {
        true => Ok(()),
        false => Err(MachineError::Other(format!(
            "the kernel's tracers do not run on the PUs {not}: osnoise/cpus in tracefs says {allowed}, and perch leaves it \
             so; give --pus {}",
            pus.and(&allowed)
        ))),
    }
}

/// The threshold of osnoise in nanoseconds; 0 for the kernel's own.
fn thresholds(tracefs: &Tracefs) -> u64 {
    let text = tracefs.read("tracing_thresh").unwrap_or_default();
    text.trim().parse::<u64>().unwrap_or(0).saturating_mul(1000)
}

/// The lines of the tracer about these PUs.
fn trace(
    tracefs: &Tracefs,
    tracer: Tracer,
    pus: &PuSet,
    duration: Duration,
    wait: &mut dyn FnMut(Duration) -> Result<ControlFlow<()>, MachineError>,
) -> Result<Vec<(u32, Says)>, MachineError> {
    let instance = Instance::create(tracefs)?;
    instance.write("buffer_size_kb", BUFFER)?;
    if tracer == Tracer::Osnoise {
        instance.write("events/osnoise/enable", "1")?;
    }
    // An instance with an open pipe cannot be removed: made later, the pipe is dropped before it.
    let mut pipe = instance.pipe()?;
    let mut lines = Vec::new();
    instance.write("current_tracer", tracer.name())?;
    let due = Instant::now() + duration;
    loop {
        let left = due.saturating_duration_since(Instant::now());
        let stopped = left.is_zero() || wait(left.min(READ))?.is_break();
        if stopped {
            // What has been traced so far stays to be read.
            instance.write("tracing_on", "0")?;
        }
        drain(&mut pipe, pus, &mut lines)?;
        if stopped || lines.len() >= LINES {
            return Ok(lines);
        }
    }
}

fn drain(pipe: &mut Pipe, pus: &PuSet, lines: &mut Vec<(u32, Says)>) -> Result<(), MachineError> {
    let keep = |line: &str| {
        let said = read(line).filter(|(pu, _)| pus.contains(*pu));
        lines.extend(said);
    };
    pipe.drain(keep).map_err(|error| MachineError::Io {
        what: "reading trace_pipe of the kernel's tracing".to_owned(),
        error,
    })
}

fn by_pu(lines: Vec<(u32, Says)>) -> BTreeMap<u32, Vec<Says>> {
    let mut by_pu = BTreeMap::<u32, Vec<Says>>::new();
    for (pu, says) in lines {
        by_pu.entry(pu).or_default().push(says);
    }
    by_pu
}

fn latencies(lines: Vec<(u32, Says)>) -> BTreeMap<u32, Latencies> {
    let mut found = BTreeMap::<u32, Latencies>::new();
    for (pu, says) in lines {
        let of = found.entry(pu).or_default();
        match says {
            Says::Latency { context, length } => of.of.entry(context).or_default().push(length),
            Says::Lost => of.lost_events += 1,
            _ => {}
        }
    }
    found
}

/// What the lines of osnoise say of a PU.
fn pu_noise(pu: u32, says: Vec<Says>, threshold: u64, steal: u64, names: &Names) -> PuNoise {
    let mut measured = Measured {
        threshold,
        ..Measured::default()
    };
    let mut walked = Walked::default();
    let mut raw: Vec<Raw> = Vec::new();
    let mut known = HashMap::<Raw, u32>::new();
    let (mut lost, mut lost_events) = (0, 0);
    for says in says {
        match says {
            Says::Sample {
                time,
                runtime,
                noise,
                ..
            } => {
                measured.windows.push((time.saturating_sub(runtime), time));
                measured.quanta += 1;
                measured.quantum = runtime;
                lost += noise;
            }
            Says::Interruption { start, length } => measured.interruptions.push(Interruption {
                start,
                within: length,
                lost: length,
            }),
            Says::Ran { who, start, length } => {
                let source = *known.entry(who).or_insert_with_key(|who| {
                    raw.push(who.clone());
                    raw.len() as u32 - 1
                });
                walked.slices.push(Slice {
                    start,
                    end: start + length,
                    source,
                });
                walked.runs.push(Run {
                    start,
                    took: length,
                    source,
                });
            }
            Says::Lost => lost_events += 1,
            Says::Latency { .. } => {}
        }
    }
    walked.slices.sort_by_key(|slice| (slice.start, slice.end));
    measured.interruptions.sort_by_key(|found| found.start);
    // The threads of the tracer itself are not noise; samples that were cut short have no line.
    let windows = &measured.windows;
    let in_window = |time: u64| {
        windows
            .iter()
            .any(|(from, to)| (*from..*to).contains(&time))
    };
    measured
        .interruptions
        .retain(|found| in_window(found.start));
    let (causes, sources) = attributed(&measured, &walked, &raw, names);
    PuNoise {
        pu,
        measured,
        lost,
        causes,
        sources,
        steal,
        lost_events,
        full: false,
    }
}
