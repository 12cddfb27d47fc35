//! A small reader of perf events, independent of perch's, to check the stand-in PMU by.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use perf_event::events::{Hardware, Raw, Software};
use perf_event::{Builder, ReadFormat};
use serde::{Deserialize, Serialize};

/// What to count.
#[derive(clap::Parser, Debug)]
#[command(about = "Counts events of one thread as one group and prints a JSON line")]
pub struct Options {
    /// The thread
    #[arg(long)]
    pub tid: i32,
    /// How long, in seconds
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Events: cycles, instructions, cache-misses, or a raw code in hexadecimal (0x53c)
    #[arg(required = true)]
    pub events: Vec<EventName>,
}

/// An event by its generic name or raw code.
#[derive(Clone, Debug)]
pub struct EventName {
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Generic(Hardware),
    Coded(u64),
}

impl FromStr for EventName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind =
            match text {
                "cycles" => Kind::Generic(Hardware::CPU_CYCLES),
                "instructions" => Kind::Generic(Hardware::INSTRUCTIONS),
                "cache-misses" => Kind::Generic(Hardware::CACHE_MISSES),
                _ => {
                    let code = text
                        .strip_prefix("0x")
                        .and_then(|hex| u64::from_str_radix(hex, 16).ok());
                    Kind::Coded(code.ok_or_else(|| {
                        format!("{text} is no known event and no hexadecimal code")
                    })?)
                }
            };
        Ok(Self {
            text: text.to_owned(),
            kind,
        })
    }
}

/// What was counted.
#[derive(Debug, Deserialize, Serialize)]
pub struct Counted {
    /// How long the events were enabled, in seconds of the thread's life on a CPU.
    pub enabled: f64,
    /// How long they counted, in seconds.
    pub running: f64,
    /// How long the thread ran meanwhile by the scheduler's own account, in seconds.
    pub on_cpu: f64,
    /// The counts by the names given.
    pub counts: BTreeMap<String, u64>,
}

/// Counts for the given time.
///
/// # Errors
/// When an event does not open or the thread has exited.
pub fn run(options: &Options) -> Result<Counted> {
    let mut group = Builder::new(Software::DUMMY)
        .read_format(
            ReadFormat::GROUP
                | ReadFormat::TOTAL_TIME_ENABLED
                | ReadFormat::TOTAL_TIME_RUNNING
                | ReadFormat::ID,
        )
        .observe_pid(options.tid)
        .any_cpu()
        .build_group()
        .with_context(|| format!("cannot observe thread {}", options.tid))?;
    let mut counters = Vec::new();
    for event in &options.events {
        let mut builder = match event.kind {
            Kind::Generic(generic) => Builder::new(generic),
            Kind::Coded(code) => Builder::new(Raw::new(code)),
        };
        builder.observe_pid(options.tid).any_cpu();
        counters.push(
            group
                .add(&builder)
                .with_context(|| format!("cannot open {}", event.text))?,
        );
    }
    let before = on_cpu(options.tid)?;
    group.enable()?;
    std::thread::sleep(Duration::from_secs_f64(options.seconds));
    group.disable()?;
    let after = on_cpu(options.tid)?;
    let data = group.read()?;
    let (Some(enabled), Some(running)) = (data.time_enabled(), data.time_running()) else {
        bail!("the kernel gave no enabled and running times");
    };
    let counts = options
        .events
        .iter()
        .zip(&counters)
        .map(|(event, counter)| (event.text.clone(), data[counter]));
    Ok(Counted {
        enabled: enabled.as_secs_f64(),
        running: running.as_secs_f64(),
        on_cpu: after - before,
        counts: counts.collect(),
    })
}

/// Seconds that a thread has run so far.
fn on_cpu(tid: i32) -> Result<f64> {
    let path = format!("/proc/{tid}/schedstat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let nanoseconds: f64 = text
        .split(' ')
        .next()
        .unwrap_or_default()
        .parse()
        .with_context(|| format!("{path} is odd"))?;
    Ok(nanoseconds / 1e9)
}
