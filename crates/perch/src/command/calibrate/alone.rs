//! The metrics of kernels in isolation, measured as perch measures those of any program: perch starts itself as a
//! program that runs the kernels, and watches it.

use super::live::stopped;
use crate::{
    args::{Counters, KernelArgs},
    render::progress::Bar,
};
use anyhow::{Context, Result, bail};
use perch_core::Metric;
use perch_engine::{Acting, Cause, Options, Period, Session, SessionSink};
use perch_kernels::{Bench, Kernel, Sizes};
use perch_lab::calibrate::kernels::Sizes as Caches;
use perch_linux::{LinuxMachine, machine::CountersMode};
use perch_policy::Observe;
use perch_profile::Profile;
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant},
};

/// How often a kernel is looked at while it runs.
const PERIOD: Duration = Duration::from_millis(400);

/// For how long it runs: some periods in which it does nothing else.
pub const EACH: Duration = Duration::from_millis(1500);

/// Signals by which a user ends a calibration.
const STOPPING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// A thread that was on its PU for less of a period says little of what it does.
const BUSY: f64 = 0.05;

/// The metrics of each kernel by its name, and how they were measured.
pub struct Seen {
    /// By kernel.
    pub metrics: BTreeMap<String, BTreeMap<String, f64>>,
    /// How threads were characterised.
    pub counting: String,
}

/// Measures the metrics of kernels on a PU.
///
/// # Errors
/// A kernel that cannot run; the user who stops it.
pub fn metrics(
    machine: LinuxMachine,
    profile: Profile,
    kernels: &[&'static Kernel],
    pu: u32,
    bar: &Bar,
) -> Result<Seen> {
    let own = std::env::current_exe()
        .context("perch cannot find its own executable in /proc/self/exe")?;
    let seconds = EACH.as_secs_f64().to_string();
    let flags = [
        "kernel".to_owned(),
        format!("--pu={pu}"),
        format!("--seconds={seconds}"),
    ];
    let names = kernels.iter().map(|kernel| kernel.name.to_owned());
    let words = flags.into_iter().chain(names).map(Into::into);
    let command = std::iter::once(own.into_os_string()).chain(words).collect();
    let mut watcher = Watcher {
        bar,
        metrics: BTreeMap::new(),
    };
    let options = Options {
        period: Some(PERIOD),
        ..Options::new(Box::new(Observe), Box::new(profile), Acting::DryRun(None))
    };
    let mut session = Session::new(machine, options)?;
    session.launch(command)?;
    let end = session.run(&mut watcher)?;
    match end.cause {
        Cause::Ended(Some(0)) => Ok(Seen {
            metrics: watcher.values(),
            counting: end.counting,
        }),
        // A signal to perch may reach them before perch itself knows of it. Its number is in these bits (wait(2)).
        Cause::Ended(Some(status)) if STOPPING.iter().any(|of| of.as_raw() == status & 0x7f) => {
            Err(stopped(status & 0x7f))
        }
        Cause::Ended(status) => bail!("the kernels' process failed ({status:?})"),
        Cause::Commanded => bail!("the kernels' process was stopped"),
        Cause::Stopped(signal) => {
            session.machine().forward(signal);
            Err(stopped(signal))
        }
    }
}

/// Keeps what is known best of each kernel: in its last period it may have run, and been sampled, for a moment only.
struct Watcher<'a> {
    bar: &'a Bar,
    metrics: BTreeMap<String, BTreeMap<String, Metric>>,
}

impl Watcher<'_> {
    fn values(self) -> BTreeMap<String, BTreeMap<String, f64>> {
        let kernels = self.metrics.into_iter();
        kernels
            .map(|(kernel, metrics)| {
                let values = metrics.into_iter();
                (
                    kernel,
                    values.map(|(name, metric)| (name, metric.value)).collect(),
                )
            })
            .collect()
    }
}

impl SessionSink for Watcher<'_> {
    fn period(&mut self, period: &Period) {
        for thread in &period.snapshot.threads {
            if thread.activity < BUSY || perch_kernels::find(&thread.info.name).is_none() {
                continue;
            }
            let known = self
                .metrics
                .entry(thread.info.name.to_string())
                .or_default();
            for (name, metric) in thread.metrics.iter() {
                let known = known.entry(name.to_string()).or_insert(*metric);
                // Of equals, the latest.
                if metric.confidence >= known.confidence {
                    *known = *metric;
                }
            }
        }
        self.bar.adds(PERIOD.as_millis() as u64);
    }
}

/// How the kernels' machine is opened.
pub fn mode(counters: Option<Counters>) -> CountersMode {
    match counters.unwrap_or(Counters::Auto) {
        Counters::Auto => CountersMode::Auto,
        Counters::Pmu => CountersMode::Pmu,
        Counters::Sampling => CountersMode::Sampling,
    }
}

/// `perch kernel`: runs kernels one after the other, each in a thread of its name.
///
/// # Errors
/// No such kernel or PU, no memory.
pub fn kernel(args: &KernelArgs) -> Result<ExitCode> {
    // Should perch be killed, nothing is left that runs.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let loaded = perch_linux::topology::load(&perch_linux::topology::Source::Native)?;
    let sizes = sizes(&Caches::of(&loaded.topology), 1);
    perch_kernels::bind(args.pu).with_context(|| format!("PU {}", args.pu))?;
    let time = Duration::try_from_secs_f64(args.seconds).context("--seconds")?;
    for name in &args.kernels {
        let Some(kernel) = perch_kernels::find(name) else {
            bail!("no kernel `{name}`");
        };
        let mut bench = Bench::new(kernel, &sizes, None)?;
        let work = move || {
            let begun = Instant::now();
            while begun.elapsed() < time {
                bench.round(kernel);
            }
        };
        let thread = std::thread::Builder::new().name(name.clone()).spawn(work)?;
        if thread.join().is_err() {
            bail!("kernel `{name}` failed");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sizes for the kernels, of which `at_once` run at the same time.
pub fn sizes(caches: &Caches, at_once: usize) -> Sizes {
    Sizes {
        l1: caches.l1 as usize,
        l2: caches.l2 as usize,
        llc: caches.llc as usize,
        share: caches.share as usize,
        beyond: caches.beyond,
        most: (available() / 4 / at_once.max(1)).clamp(LEAST, MOST),
    }
}

/// A kernel's memory, in bytes: not more than the largest caches need, nor less than makes sense.
const MOST: usize = 512 << 20;
const LEAST: usize = 1 << 20;

/// Bytes of memory that are available at the moment. Parsed here: procfs reads no part of /proc/meminfo where one of many
/// fields is missing, and one is needed.
fn available() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kibibytes.unwrap_or(0usize) * 1024
}
