//! Lines of the tracers osnoise and timerlat in a trace, as text (`Documentation/trace/osnoise-tracer.rst`,
//! `timerlat-tracer.rst`). Pure; any text is survived.

use crate::noise::{
    event::{Kind, Source},
    points::Raw,
};
use perch_core::text::printable;

/// The context in which timerlat measured a latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Context {
    /// The handler of the timer's interrupt.
    Irq,
    /// The thread that it wakes up.
    Thread,
}

/// What a line says. Times are nanoseconds of the trace's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::noise) enum Says {
    /// A sample of osnoise is over.
    Sample {
        /// When.
        time: u64,
        /// How long it was.
        runtime: u64,
        /// How much of it was noise.
        noise: u64,
        /// The longest single noise.
        worst: u64,
    },
    /// An interruption that osnoise's thread saw.
    Interruption {
        /// When it began.
        start: u64,
        /// How long it was.
        length: u64,
    },
    /// Something that ran.
    Ran {
        /// Who.
        who: Raw,
        /// When it began.
        start: u64,
        /// How long it ran, without what interrupted it.
        length: u64,
    },
    /// A latency of timerlat.
    Latency {
        /// Where.
        context: Context,
        /// How long after the time that was asked for.
        length: u64,
    },
    /// Events were lost before this line.
    Lost,
}

/// The CPU that a line is of and what it says; `None` for one of another kind.
pub(in crate::noise) fn read(line: &str) -> Option<(u32, Says)> {
    if let Some(rest) = line.trim_start().strip_prefix("CPU:") {
        // `CPU:1 [LOST 123 EVENTS]`
        let (cpu, rest) = rest.split_once(' ')?;
        return rest
            .starts_with("[LOST")
            .then_some((cpu.parse().ok()?, Says::Lost));
    }
    // `          <...>-1234    [001] d..h.    81.637220: what`
    let (_, rest) = line.split_once('[')?;
    let (cpu, rest) = rest.split_once(']')?;
    let cpu = cpu.trim().parse().ok()?;
    let (head, what) = rest.split_once(": ")?;
    let stamp = head.split_ascii_whitespace().next_back()?;
    Some((cpu, says(stamp, what.trim())?))
}

fn says(stamp: &str, what: &str) -> Option<Says> {
    if what.starts_with('#') {
        return latency(what);
    }
    let Some((event, rest)) = what.split_once(": ") else {
        return sample(stamp, what);
    };
    let (name, start, length) = timed(rest)?;
    let ran = |who| Says::Ran { who, start, length };
    let source = |kind, name: &str| ran(named(kind, name));
    // The number behind the name: of the interrupt, the soft interrupt, the thread.
    let (bare, number) = name.rsplit_once(':').unwrap_or((name, ""));
    match event {
        "sample_threshold" => Some(Says::Interruption { start, length }),
        "nmi_noise" => Some(source(Kind::Nmi, "NMI")),
        "softirq_noise" => Some(source(Kind::Softirq, bare)),
        "thread_noise" => {
            let name = printable(bare).into_owned();
            Some(ran(Raw::Task(number.parse().ok()?, name)))
        }
        // Interrupts of the PU itself have vectors, and the names of x86's tracepoints.
        "irq_noise" if LOCAL.contains(&bare) => Some(source(Kind::LocalIrq, bare)),
        "irq_noise" => Some(source(Kind::Irq, &format!("{bare} (IRQ {number})"))),
        _ => None,
    }
}

fn named(kind: Kind, name: &str) -> Raw {
    Raw::Named(Source {
        kind,
        name: printable(name).into_owned(),
        user: None,
    })
}

/// The names that osnoise gives to interrupts of the PU itself (`arch/x86/kernel/trace.c`).
const LOCAL: [&str; 10] = [
    "local_timer",
    "reschedule",
    "call_function",
    "call_function_single",
    "irq_work",
    "x86_platform_ipi",
    "error_apic",
    "spurious_apic",
    "thermal_apic",
    "deferred_error_apic",
];

/// `  migration/8:54 start 5789.857532043 duration 9909 ns`, also without a name.
fn timed(text: &str) -> Option<(&str, u64, u64)> {
    let (name, rest) = match text.rfind("start ") {
        Some(at) => (text[..at].trim(), &text[at + "start ".len()..]),
        None => return None,
    };
    let mut words = rest.split_ascii_whitespace();
    let start = seconds(words.next()?)?;
    let length = match (words.next()?, words.next()?) {
        ("duration", length) => length.parse().ok()?,
        _ => return None,
    };
    Some((name, start, length))
}

/// `5789.857532043` or `81.637220` as nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    let digits = part.len();
    if digits > 9 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = part.parse::<u64>().ok()? * 10u64.pow(9 - digits as u32);
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(part)
}

/// Runtime, noise, share, longest, all in microseconds but the share, and counters.
fn sample(stamp: &str, what: &str) -> Option<Says> {
    let mut words = what.split_ascii_whitespace();
    let mut micros = || words.next()?.parse::<u64>().ok()?.checked_mul(1000);
    let (runtime, noise) = (micros()?, micros()?);
    words.next()?.parse::<f64>().ok()?;
    let worst = words.next()?.parse::<u64>().ok()?.checked_mul(1000)?;
    Some(Says::Sample {
        time: seconds(stamp)?,
        runtime,
        noise,
        worst,
    })
}

/// `#1      context    irq timer_latency        932 ns`
fn latency(what: &str) -> Option<Says> {
    let mut words = what.split_ascii_whitespace().skip(1);
    let context = match (words.next()?, words.next()?) {
        ("context", "irq") => Context::Irq,
        ("context", "thread") => Context::Thread,
        _ => return None,
    };
    let length = match (words.next()?, words.next()?) {
        ("timer_latency", length) => length.parse().ok()?,
        _ => return None,
    };
    Some(Says::Latency { context, length })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_as_the_kernel_s_documentation_shows_them() {
        let sample = "           <...>-859     [000] ....    81.637220: 1000000        190  99.98100       9     18      0   1007     18      1";
        let expected = Says::Sample {
            time: 81_637_220_000,
            runtime: 1_000_000_000,
            noise: 190_000,
            worst: 9_000,
        };
        assert_eq!(read(sample), Some((0, expected)));
        let ran = |kind, name: &str, start, length| Says::Ran {
            who: match kind {
                Kind::Task => Raw::Task(54, name.to_owned()),
                kind => named(kind, name),
            },
            start,
            length,
        };
        for (line, expected) in [
            (
                "osnoise/8-961     [008] d.h.  5789.857532: irq_noise: local_timer:236 start 5789.857529929 duration 1845 ns",
                ran(Kind::LocalIrq, "local_timer", 5_789_857_529_929, 1845),
            ),
            (
                "osnoise/8-961     [008] dNh.  5789.858408: irq_noise: virtio0-input.0:31 start 5789.858404871 duration 2848 ns",
                ran(
                    Kind::Irq,
                    "virtio0-input.0 (IRQ 31)",
                    5_789_858_404_871,
                    2848,
                ),
            ),
            (
                "migration/8-54      [008] d...  5789.858413: thread_noise: migration/8:54 start 5789.858409871 duration 3068 ns",
                ran(Kind::Task, "migration/8", 5_789_858_409_871, 3068),
            ),
            (
                "osnoise/8-961     [008] ..s1  5789.858413: softirq_noise:     TIMER:1 start 5789.858409871 duration 1 ns",
                ran(Kind::Softirq, "TIMER", 5_789_858_409_871, 1),
            ),
            (
                "osnoise/8-961     [008] d...  5789.858413: nmi_noise: start 5789.858409871 duration 77 ns",
                ran(Kind::Nmi, "NMI", 5_789_858_409_871, 77),
            ),
            (
                "osnoise/8-961     [008] ....  5789.858413: sample_threshold: start 5789.858404555 duration 8812 ns interferences 2",
                Says::Interruption {
                    start: 5_789_858_404_555,
                    length: 8812,
                },
            ),
        ] {
            assert_eq!(read(line), Some((8, expected)), "{line}");
        }
        let line = "timerlat/0-2001   [000] d.h1    54.029328: #1      context    irq timer_latency       932 ns";
        let expected = Says::Latency {
            context: Context::Irq,
            length: 932,
        };
        assert_eq!(read(line), Some((0, expected)));
        assert_eq!(read("CPU:3 [LOST 77 EVENTS]"), Some((3, Says::Lost)));
        assert_eq!(read("# tracer: osnoise"), None);
    }

    proptest! {
        #[test]
        fn any_line_is_survived(
            text in "\\PC{0,60}",
            words in proptest::collection::vec(
                prop_oneof![
                    Just("[001]".to_owned()), Just("99.5:".to_owned()), Just("start".to_owned()),
                    Just("irq_noise:".to_owned()), Just("duration".to_owned()), Just("#1".to_owned()),
                    Just("context".to_owned()), "[0-9]{1,22}(\\.[0-9]{0,12})?", "\\PC{0,8}",
                ],
                0..12,
            ),
        ) {
            let _ = read(&text);
            let _ = read(&words.join(" "));
        }
    }
}
