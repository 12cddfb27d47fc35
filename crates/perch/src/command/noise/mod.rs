//! `perch noise`: what the operating system takes from each PU, and who takes it.

mod report;

pub use report::{Long, Pu, Report, Taker};

use crate::{
    args::{NoiseArgs, NoiseMethod},
    command::place::Output,
    exit,
    render::{self, progress::Bar, svg::Canvas},
};
use anyhow::{Context, Result, bail};
use perch_core::PuSet;
use perch_linux::{
    noise::{
        Plan, noise as measure,
        quantum::{Method, Quanta},
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
    let plot = args.plot.as_deref().map(Output::open).transpose()?;
    // This thread and those that it creates leave the measured PUs alone where they can.
    let others = allowed.minus(&pus);
    if !others.is_empty() {
        let _ = sched_setaffinity(None, &cpu_set(&others));
    }
    let mut signals = Signals::catch()?;
    let nanoseconds = |time: Duration| time.as_nanos() as u64;
    let plan = Plan {
        pus: pus.iter().collect(),
        quanta: Quanta {
            method: match args.method {
                NoiseMethod::Fwq => Method::Fwq,
                NoiseMethod::Ftq => Method::Ftq,
            },
            length: args.quantum.map(nanoseconds),
            threshold: args.threshold.map(nanoseconds),
        },
        duration: args.duration,
        trace: !args.no_trace,
    };
    let bar = (args.duration > SHORT).then(|| Bar::new(true, args.duration.as_millis() as u64));
    let begun = Instant::now();
    let mut stopped = None;
    let found = measure(&plan, &mut |left| {
        if let Some(bar) = &bar {
            bar.says("measuring noise");
            bar.is_at(begun.elapsed().as_millis() as u64);
        }
        let step = match &bar {
            Some(bar) if bar.is_drawn() => left.min(STEP),
            _ => left,
        };
        stopped = stopped.or(signals.wait(step, exit::say_ignored)?);
        Ok(match stopped {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        })
    })?;
    drop(bar);
    let report = Report::of(&found, plan.quanta.method, stopped.map(signals::name));
    if let Some(plot) = plot {
        let mut canvas = Canvas::default();
        render::svg::noise::draw(&mut canvas, &found, &report);
        plot.write(&canvas.svg()?).context("--plot")?;
    }
    match args.json {
        true => super::print_json(&report)?,
        false => super::print(&render::noise::text(&report, args.all))?,
    }
    Ok(match stopped {
        Some(signal) => ExitCode::from(exit::SIGNALLED.wrapping_add(signal as u8)),
        None => ExitCode::SUCCESS,
    })
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
