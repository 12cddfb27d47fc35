//! `perch noise`: what the operating system takes from each PU, and who takes it.

mod latency;
mod report;

pub use latency::Latency;
pub use report::{Long, Method, Pu, Report, Taker};

use crate::{
    args::{NoiseArgs, NoiseMethod, NoiseTracer},
    command::place::Output,
    exit,
    render::{self, progress::Bar, svg::Canvas},
};
use anyhow::{Context, Result, bail};
use perch_core::{MachineError, PuSet};
use perch_linux::{
    noise::{
        Plan, noise as measure,
        quantum::{self, Quanta},
        tracer::{self, Found, Tracer},
    },
    signals::{self, Signals},
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{
    ops::ControlFlow,
    process::ExitCode,
    time::{Duration, Instant},
};

/// From one step of the progress line to the next.
const STEP: Duration = Duration::from_millis(200);
/// A measurement that takes no longer shows no progress: drawing it would be noise.
const SHORT: Duration = Duration::from_secs(3);

/// Measures and tells.
///
/// # Errors
/// PUs that perch may not use, a file that cannot be written.
pub fn noise(args: &NoiseArgs) -> Result<ExitCode> {
    let allowed = allowed()?;
    let pus = match &args.pus {
        None => allowed.clone(),
        Some(wanted) if wanted.is_empty() => bail!("--pus names no PU"),
        Some(wanted) => {
            let not = wanted.minus(&allowed);
            if !not.is_empty() {
                bail!("--pus {wanted}: perch may only use the PUs {allowed}, not {not}");
            }
            wanted.clone()
        }
    };
    if args.tracer == Some(NoiseTracer::Timerlat) && args.plot.is_some() {
        bail!("--plot draws interruptions, and timerlat measures none: leave one of them out");
    }
    if let Some(path) = &args.plot
        && path.extension().is_some_and(|of| of != "svg")
    {
        bail!(
            "--plot {}: end the name in .svg: that is what it draws",
            path.display()
        );
    }
    let plot = args.plot.as_deref().map(Output::open).transpose()?;
    // This thread and those that it creates leave the measured PUs alone where they can.
    let others = allowed.minus(&pus);
    if !others.is_empty() {
        let _ = sched_setaffinity(None, &cpu_set(&others));
    }
    let mut waiting = Waiting::new(args.duration)?;
    let found = match args.tracer {
        Some(tracer) => {
            let tracer = match tracer {
                NoiseTracer::Osnoise => Tracer::Osnoise,
                NoiseTracer::Timerlat => Tracer::Timerlat,
            };
            tracer::run(tracer, &pus, args.duration, &mut |left| waiting.wait(left))?
        }
        None => {
            let plan = plan(args, &pus);
            Found::Noise(measure(&plan, &mut |left| waiting.wait(left))?)
        }
    };
    let stopped = waiting.stopped;
    drop(waiting);
    let name = stopped.map(signals::name);
    match found {
        Found::Noise(noise) => {
            let method = match args.tracer {
                Some(_) => Method::Osnoise,
                None => match args.method {
                    NoiseMethod::Fwq => Method::Fwq,
                    NoiseMethod::Ftq => Method::Ftq,
                },
            };
            let report = Report::of(&noise, method, name);
            if let Some(plot) = plot {
                let mut canvas = Canvas::default();
                render::svg::noise::draw(&mut canvas, &noise, &report);
                plot.write(&canvas.svg()).context("--plot")?;
            }
            match args.json {
                true => super::print_json(&report)?,
                false => super::print(&render::noise::text(&report, args.all))?,
            }
        }
        Found::Latencies(latencies) => {
            let report = Latency::of(&latencies, name);
            match args.json {
                true => super::print_json(&report)?,
                false => super::print(&render::noise::latencies(&report))?,
            }
        }
    }
    Ok(match stopped {
        Some(signal) => ExitCode::from(exit::SIGNALLED.wrapping_add(signal as u8)),
        None => ExitCode::SUCCESS,
    })
}

fn plan(args: &NoiseArgs, pus: &PuSet) -> Plan {
    let nanoseconds = |time: Duration| time.as_nanos() as u64;
    Plan {
        pus: pus.iter().collect(),
        quanta: Quanta {
            method: match args.method {
                NoiseMethod::Fwq => quantum::Method::Fwq,
                NoiseMethod::Ftq => quantum::Method::Ftq,
            },
            length: args.quantum.map(nanoseconds),
            threshold: args.threshold.map(nanoseconds),
        },
        duration: args.duration,
        trace: !args.no_trace,
    }
}

/// Waits while threads measure: for a signal, and with a line of progress.
struct Waiting {
    signals: Signals,
    bar: Option<Bar>,
    begun: Instant,
    /// The signal that asked to stop.
    stopped: Option<i32>,
}

impl Waiting {
    fn new(duration: Duration) -> Result<Self> {
        let bar = (duration > SHORT).then(|| Bar::new(true, duration.as_millis() as u64));
        Ok(Self {
            signals: Signals::catch()?,
            bar: bar.filter(Bar::is_drawn),
            begun: Instant::now(),
            stopped: None,
        })
    }

    fn wait(&mut self, left: Duration) -> Result<ControlFlow<()>, MachineError> {
        let step = match &self.bar {
            Some(bar) => {
                bar.says("measuring noise");
                bar.is_at(self.begun.elapsed().as_millis() as u64);
                left.min(STEP)
            }
            None => left,
        };
        let stop = self.signals.wait(step, exit::say_ignored)?;
        self.stopped = self.stopped.or(stop);
        Ok(match self.stopped {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        })
    }
}

/// The PUs on which this process may run now.
fn allowed() -> Result<PuSet> {
    let set = sched_getaffinity(None).context("reading perch's own affinity mask")?;
    let pus = 0..CpuSet::MAX_CPU;
    Ok(pus
        .filter(|pu| set.is_set(*pu))
        .map(|pu| pu as u32)
        .collect())
}

fn cpu_set(pus: &PuSet) -> CpuSet {
    let mut set = CpuSet::new();
    pus.iter().for_each(|pu| set.set(pu as usize));
    set
}
