//! `perch irq`: which devices interrupt which PUs, and a better balance, shown or made.

use crate::{args::IrqArgs, exit, render};
use anyhow::{Context, Result};
use perch_core::{Affinity, IrqState, Outcome, PuSet, Topology, text};
use perch_engine::{IrqKeeper, StateDir, recover_all};
use perch_linux::{
    affinity::LinuxAffinity,
    irq::{Interrupts, between, irqbalance, read},
    signals::Signals,
    topology::{Source as Machine, load},
};
use perch_policy::irq::{IrqConfig, IrqMove, Source, balance, package_loads};
use serde::Serialize;
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

/// One interrupt over one interval.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// Its number, or the short name of one that every PU has of its own.
    pub label: String,
    /// Its devices, or what the kernel says of it.
    pub device: String,
    /// How often it came, a second.
    pub rate: f64,
    /// The same by PU, where it came at all.
    pub by_pu: Vec<(u32, f64)>,
    /// The PUs to which it may go; `None` for one that cannot be moved.
    pub allowed: Option<PuSet>,
    /// Whether every PU has it of its own.
    pub per_pu: bool,
}

/// What was seen in one interval, and what follows from it.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// How long it was, in seconds.
    pub seconds: f64,
    /// All interrupts.
    pub interrupts: Vec<Line>,
    /// Interrupts of devices a second on each package.
    pub packages: Vec<(u32, f64)>,
    /// What would be better.
    pub moves: Vec<IrqMove>,
    /// What became of the moves; empty where nothing was to be applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<(u32, Outcome)>,
    /// The process of irqbalance(1), which moves interrupts too.
    pub irqbalance: Option<i32>,
}

/// What one look gives.
struct Look {
    seen: Seen,
    /// Interrupts of devices as they are now.
    states: Vec<(u32, IrqState)>,
    topology: Topology,
}

/// Shows, proposes, or applies.
///
/// # Errors
/// A /proc that cannot be read, a journal that cannot be written, another perch that is running.
pub fn irq(args: &IrqArgs) -> Result<ExitCode> {
    let mut signals = Signals::catch()?;
    if args.apply {
        return apply(args, &mut signals);
    }
    let before = reading()?;
    if signals.wait(args.interval, exit::say_ignored)?.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    let Look { seen, topology, .. } = look(args, &before, &reading()?, |_, state| {
        state.movable.then(|| state.mask.clone())
    })?;
    tell(args, &seen, &topology)?;
    Ok(ExitCode::SUCCESS)
}

/// What came up to now.
fn reading() -> Result<(Instant, Interrupts)> {
    Ok((Instant::now(), read()?))
}

/// What came between two readings, interrupts as they are now, and this machine.
fn look(
    args: &IrqArgs,
    before: &(Instant, Interrupts),
    after: &(Instant, Interrupts),
    mut allowed: impl FnMut(u32, &IrqState) -> Option<PuSet>,
) -> Result<Look> {
    let topology = load(&Machine::Native)?.topology;
    let online = topology.online();
    let seconds = (after.0 - before.0).as_secs_f64().max(1e-3);
    let affinity = LinuxAffinity::new();
    let (mut interrupts, mut sources, mut states) = (Vec::new(), Vec::new(), Vec::new());
    for (line, counts) in between(&before.1, &after.1) {
        let rates = counts.iter().filter(|(_, count)| *count > 0);
        let by_pu: Vec<(u32, f64)> = rates
            .map(|(pu, count)| (*pu, *count as f64 / seconds))
            .collect();
        let rate = by_pu.iter().fold(0.0, |sum, (_, rate)| sum + rate);
        let state = line.irq().and_then(|irq| affinity.irq(irq).ok());
        let may = match (line.irq(), &state) {
            (Some(irq), Some(state)) => allowed(irq, state).map(|mask| match args.take_over {
                true => online.clone(),
                false => mask.and(&online),
            }),
            _ => None,
        };
        let device = match &state {
            Some(state) if !state.device.is_empty() => text::printable(&state.device).into_owned(),
            _ => line.what.clone(),
        };
        if let Some(irq) = line.irq() {
            sources.push(Source {
                irq,
                rates: by_pu.clone(),
                allowed: may.clone().unwrap_or_default(),
            });
            states.extend(state.map(|state| (irq, state)));
        }
        interrupts.push(Line {
            per_pu: line.irq().is_none(),
            label: line.label,
            device,
            rate,
            by_pu,
            allowed: may,
        });
    }
    let seen = Seen {
        seconds,
        interrupts,
        packages: package_loads(&sources, &topology, &online),
        moves: balance(&sources, &topology, &online, &IrqConfig::default()),
        outcomes: Vec::new(),
        irqbalance: irqbalance(),
    };
    Ok(Look {
        seen,
        states,
        topology,
    })
}

fn tell(args: &IrqArgs, seen: &Seen, topology: &Topology) -> Result<()> {
    match args.json {
        true => super::print(&render::json(&serde_json::to_string(seen)?)),
        false => super::print(&render::irq::table(seen, topology, args.all)),
    }
}

/// Balances in every interval until the time is over or a signal stops it; then restores everything.
fn apply(args: &IrqArgs, signals: &mut Signals) -> Result<ExitCode> {
    let mut remarks = Vec::new();
    let _lock = super::lock::irqs(&mut remarks)?;
    remarks
        .iter()
        .for_each(|remark| anstream::eprintln!("perch: {remark}"));
    let dir = StateDir::standard()?;
    recover_all(&dir, &mut LinuxAffinity::new())
        .context("masks that a killed perch left behind cannot be restored")?;
    let mut keeper = IrqKeeper::new(LinuxAffinity::new(), dir);
    let end = args.duration.map(|duration| Instant::now() + duration);
    let mut before = reading()?;
    let mut first = true;
    loop {
        let left = end.map_or(Duration::MAX, |end| {
            end.saturating_duration_since(Instant::now())
        });
        let stop = signals.wait(args.interval.min(left), exit::say_ignored)?;
        if stop.is_some() || left < args.interval {
            break;
        }
        let after = reading()?;
        let Look {
            mut seen,
            states,
            topology,
        } = look(args, &before, &after, |irq, state| {
            keeper.allowed(irq, state)
        })?;
        before = after;
        let moves = seen.moves.iter().filter_map(|made| {
            let at = states.iter().position(|(irq, _)| *irq == made.irq)?;
            Some((made.irq, states[at].1.clone(), made.to))
        });
        let moves: Vec<(u32, IrqState, u32)> = moves.collect();
        seen.outcomes = keeper.apply(&moves)?;
        if args.json {
            tell(args, &seen, &topology)?;
        } else if first {
            super::print(&render::irq::table(&seen, &topology, args.all))?;
            super::print("Held so; Ctrl-C puts everything back.")?;
        } else if !seen.moves.is_empty() {
            super::print(&render::irq::moves(&seen))?;
        }
        first = false;
    }
    let report = keeper.give_back();
    if !args.json {
        super::print(&render::irq::restored(&report))?;
    }
    Ok(ExitCode::from(u8::from(!report.failed.is_empty())))
}
