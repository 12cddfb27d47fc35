//! `perch power`: energy and power while a program or processes run, or of the whole machine.

use super::{place::Output, stat};
use crate::{args::PowerArgs, command, exit, processor, render};
use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use perch_core::{Launch, Machine, Module, Wake, metric::names};
use perch_engine::limiter::Limiter;
use perch_linux::{
    LinuxMachine,
    energy::EnergyModule,
    machine::CountersMode,
    perf::probe,
    signals,
    topology::{Loaded, Source, load},
};
use perch_profile::Profile;
use perch_stat::{By, Collector, Options, Power, Request, Space, phases::Method};
use render::power::Told;
use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Measures until the program or the processes end, the time is over, or the user stops it.
///
/// # Errors
/// No counters of energy, or none that may be read; a program or a process that is not there.
pub fn power(args: &PowerArgs) -> Result<ExitCode> {
    let launches = !args.program.is_empty();
    if args.idle.is_some() && !launches {
        bail!("--idle measures before a program starts: give one, behind --");
    }
    if launches {
        // What asks perch to stop before there is a program may end it; what is for the program waits for it.
        signals::keep_passed()?;
    }
    let source = Source::Native;
    let here = load(&source)?;
    let profile = processor::choose(args.profile.as_deref(), &source, &here)?.profile;
    let pmu = probe();
    // Nothing is started on a machine that measures no energy.
    let module = EnergyModule::open(Path::new("/sys"))?;
    let measured_by = module.description();
    let mut output = args.output.as_deref().map(Output::open).transpose()?;
    if launches {
        signals::Signals::catch_for_good()?;
    }
    let plan = Plan {
        args,
        here: &here,
        profile: &profile,
        counts_instructions: pmu.pmu_usable,
    };
    let mut idle = None;
    if let Some(time) = args.idle {
        exit::say(&format!(
            "measuring idle power for {:.1} s",
            time.as_secs_f64()
        ));
        let mut machine = plan.machine(EnergyModule::open(Path::new("/sys"))?)?;
        machine.stay(Some(Instant::now() + time));
        let run = plan.drive(&mut machine, None)?;
        if let Some(signal) = run.stopped {
            return Err(exit::Stopped {
                signal,
                left: "the program was not started".into(),
            }
            .into());
        }
        idle = Some(run.power);
    }
    let mut machine = plan.machine(module)?;
    plan.begin(&mut machine)?;
    let run = plan.drive(&mut machine, args.duration)?;
    if run.cut_short {
        machine.forward(Signal::SIGTERM as i32);
    }
    let status = match (run.status, launches) {
        (None, true) => stat::wait_for_end(&mut machine)?,
        (status, _) => status,
    };
    let told = Told {
        title: stat::title(&args.program, &args.pids).unwrap_or_else(|| "this machine".to_owned()),
        measured_by,
        interval: args.interval,
        took: run.took,
        instructions: run.instructions,
        why_no_instructions: (!pmu.pmu_usable).then_some(pmu.why),
        power: &run.power,
        idle: idle.as_ref(),
    };
    let text = match args.json {
        true => render::power::json(&told)? + "\n",
        false => render::power::text(&told),
    };
    match (&mut output, launches) {
        (Some(output), _) => output.append(&render::shown(&text))?,
        (None, true) => {
            render::stderr::write_until_stopped(&render::shown(&text));
        }
        (None, false) => command::print(&text)?,
    }
    Ok(match (launches, status) {
        (true, Some(status)) => ExitCode::from(exit::from_wait_status(status)),
        (true, None) => ExitCode::from(exit::FAILED),
        (false, _) => ExitCode::SUCCESS,
    })
}

/// What is measured, and how.
struct Plan<'a> {
    args: &'a PowerArgs,
    here: &'a Loaded,
    profile: &'a Profile,
    counts_instructions: bool,
}

/// What was measured.
struct Run {
    power: Power,
    /// Of the program or the processes, if the processor counts them.
    instructions: Option<f64>,
    /// The program's wait status, if it has ended.
    status: Option<i32>,
    /// The signal by which the user asked to stop.
    stopped: Option<i32>,
    /// `--for` ended it.
    cut_short: bool,
    took: Duration,
}

impl Plan<'_> {
    fn machine(&self, module: EnergyModule) -> Result<LinuxMachine> {
        let mut machine = LinuxMachine::builder()
            .topology(self.here.topology.clone())
            .counters(CountersMode::Chosen { sample: false })
            .module(Box::new(module))
            .build()?;
        let events = match self.counts_instructions {
            true => names::INSTRUCTIONS,
            false => "task-clock",
        };
        let request = Request::parse(&[events.to_owned()], self.profile, Space::All)?;
        machine.configure(&request.plan(self.profile))?;
        Ok(machine)
    }

    /// Starts the program, attaches to the processes, or stays without either.
    fn begin(&self, machine: &mut LinuxMachine) -> Result<()> {
        let args = self.args;
        if args.program.is_empty() && args.pids.is_empty() {
            machine.stay(args.duration.map(|duration| Instant::now() + duration));
            return Ok(());
        }
        if args.program.is_empty() {
            return stat::attach(machine, &args.pids);
        }
        let launch = Launch {
            command: args.program.clone(),
            environment: Vec::new(),
        };
        let Some(targets) = machine.targets() else {
            bail!("this machine starts no programs");
        };
        targets.launch(&launch)?;
        Ok(())
    }

    fn drive(&self, machine: &mut LinuxMachine, most: Option<Duration>) -> Result<Run> {
        let options = Options {
            by: By::All,
            sets: 1,
            derived: Vec::new(),
            of_profile: Vec::new(),
            given: Vec::new(),
            given_amounts: Vec::new(),
            phases: Method::Off,
            complete_rounds: false,
            windows: false,
        };
        let mut collector = Collector::new(options, self.profile.clone());
        let mut power = Power::default();
        let mut limiter = Limiter::default();
        let start = Instant::now();
        loop {
            let left = most.map(|most| most.saturating_sub(start.elapsed()));
            let shortest = Duration::from_millis(1);
            let interval = self.args.interval;
            let wake =
                machine.wait(left.map_or(interval, |left| interval.min(left.max(shortest))))?;
            let mut observation = machine.observe()?;
            limiter.limit(observation.at, &mut observation.remarks);
            for remark in &observation.remarks {
                exit::say(&remark.text);
            }
            power.take(&observation);
            collector.take(&observation, &machine.topology());
            let took = start.elapsed();
            let (status, stopped, cut_short) = match wake {
                Wake::Ended(status) => (status, None, false),
                Wake::Stop(signal) => (None, Some(signal), false),
                Wake::Period if most.is_some_and(|most| took >= most) => (None, None, true),
                Wake::Period => continue,
            };
            let all = collector.totals().all();
            let instructions = all.value(names::INSTRUCTIONS);
            return Ok(Run {
                power,
                instructions: instructions.and_then(|value| value.estimate(all.covered)),
                status,
                stopped,
                cut_short,
                took,
            });
        }
    }
}
