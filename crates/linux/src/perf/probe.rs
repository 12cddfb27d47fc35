//! Does a usable PMU exist here? Counts a loop of known length and looks whether the answer can be true.

use super::{
    encode::{Code, Encoder},
    limits, privilege,
};
use crate::plausibility::Calibration;
use perf_event::{Builder, Counter, ReadFormat};
use std::{fs, io};

/// Turns of the loop: a few milliseconds.
const TURNS: u64 = 5_000_000;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Whether hardware counters count, and count right.
    pub pmu_usable: bool,
    /// Whether only the program's own instructions may be counted, not the kernel's on its behalf.
    pub user_only: bool,
    /// In words for the user: what was found, and what would change it.
    pub why: String,
}

/// Tries the hardware counters on this thread. Takes some milliseconds.
///
/// A failed try is repeated once with all of its counters closed before: another counter of this very process can
/// make a healthy machine look broken.
pub fn probe() -> Probe {
    let tries = || attempt(false).or_else(|_| attempt(true));
    match tries().or_else(|_| tries()) {
        Ok((user_only, share)) => Probe {
            pmu_usable: true,
            user_only,
            why: found(user_only, share),
        },
        Err(why) => Probe {
            pmu_usable: false,
            user_only: true,
            why,
        },
    }
}

fn found(user_only: bool, share: f64) -> String {
    let mut why = "hardware counters count as they should".to_owned();
    if user_only {
        let level = privilege::paranoid().map_or("?".to_owned(), |level| level.to_string());
        why += &format!(", in user space only (kernel.perf_event_paranoid={level})");
    }
    if share < 0.99 {
        why += &format!(
            "; they are shared with others and counted {:.0} % of the time{}",
            share * 100.0,
            watchdog()
        );
    }
    why
}

/// Counts the loop once; whether the kernel was excluded, and the share of time on the PMU.
///
/// On hybrid processors an event belongs to one kind of core, and this thread may run on any: it is counted on all of them,
/// and what they counted is added up.
fn attempt(user_only: bool) -> Result<(bool, f64), String> {
    let encoder = Encoder::new();
    let cores = encoder.pmus().of_cores();
    let kinds: Vec<Option<&str>> = match cores.len() {
        0 | 1 => vec![None],
        _ => cores.iter().map(|core| Some(core.as_str())).collect(),
    };
    let (mut pairs, mut refusals) = (Vec::new(), Vec::new());
    for kind in kinds {
        match open(&encoder, kind, user_only) {
            Ok(pair) => pairs.push(pair),
            Err(error) => refusals.push(error),
        }
    }
    if pairs.is_empty() {
        return Err(refusals.first().map_or_else(String::new, refused));
    }
    let reads = |error: io::Error| format!("hardware counters cannot be read: {error}");
    for (cycles, _) in &mut pairs {
        cycles.enable_group().map_err(reads)?;
    }
    let known = run_loop();
    for (cycles, _) in &mut pairs {
        cycles.disable_group().map_err(reads)?;
    }
    let time = |time: Option<std::time::Duration>| time.map_or(0, |time| time.as_nanos() as u64);
    let mut calibration = Calibration {
        known,
        instructions: 0,
        cycles: 0,
        enabled: 0,
        running: 0,
    };
    for (cycles, instructions) in &mut pairs {
        let counted = cycles.read_full().map_err(reads)?;
        calibration.instructions += instructions.read().map_err(reads)?;
        calibration.cycles += counted.count();
        calibration.enabled = calibration.enabled.max(time(counted.time_enabled()));
        calibration.running += time(counted.time_running());
    }
    // The pairs are switched on and off one after the other.
    calibration.running = calibration.running.min(calibration.enabled);
    calibration.check().map_err(|why| {
        let cause = match calibration.running {
            0 => watchdog(),
            _ => "; a virtual machine may show counters that do not count".to_owned(),
        };
        format!("hardware counters exist but cannot be believed: {why}{cause}")
    })?;
    let share = calibration.running as f64 / calibration.enabled as f64;
    Ok((user_only, share))
}

/// Counters of cycles and instructions, on this kind of core or on any.
fn open(encoder: &Encoder, kind: Option<&str>, user_only: bool) -> io::Result<(Counter, Counter)> {
    let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
    let build = |name: &str| {
        let event = encoder.encode(name, kind).map_err(io::Error::other)?;
        let mut builder = Builder::new(event.code);
        builder.exclude_kernel(user_only).read_format(times);
        Ok::<_, io::Error>(builder)
    };
    let mut cycles = build("cycles")?.build()?;
    let instructions = build("instructions")?
        .enabled(true)
        .build_with_group(&mut cycles)?;
    Ok((cycles, instructions))
}

/// Whether the kernel counts an event for a thread.
///
/// # Errors
/// Why it does not, and what to do.
pub fn try_count(code: Code) -> Result<(), String> {
    let opened = |user_only: bool| {
        let mut builder = Builder::new(code);
        builder.exclude_kernel(user_only).build().map(|_| ())
    };
    let refused_in_kernel =
        |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
    match opened(false) {
        Err(error) if refused_in_kernel(&error) => opened(true),
        result => result,
    }
    .map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => "the PMU does not count it for threads".to_owned(),
        _ => refused(&error),
    })
}

fn refused(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "the processor shows no hardware counters, as in most virtual machines (a host can pass them on: QEMU \
             `-cpu host,pmu=on`, VMware `vpmc.enable`, metal instances in clouds)"
                .to_owned()
        }
        Some(libc::EMFILE | libc::ENFILE) => limits::NOFILE_REMEDY.to_owned(),
        code => {
            let error = code.map_or(io::Error::from(error.kind()), io::Error::from_raw_os_error);
            privilege::refusal("hardware counters", error).to_string()
        }
    }
}

/// What to do if the NMI watchdog holds a counter.
pub(super) fn watchdog() -> String {
    let on = fs::read_to_string("/proc/sys/kernel/nmi_watchdog").is_ok_and(|on| on.trim() == "1");
    match on {
        true => "; the NMI watchdog holds one: `sysctl kernel.nmi_watchdog=0`".to_owned(),
        false => String::new(),
    }
}

/// Executes at least as many instructions as it returns.
#[inline(never)]
fn run_loop() -> u64 {
    let mut turns = TURNS;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: counts a register down; touches neither memory nor stack.
    unsafe {
        std::arch::asm!("2:", "dec {0}", "jnz 2b", inout(reg) turns, options(nomem, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: counts a register down; touches neither memory nor stack.
    unsafe {
        std::arch::asm!("2:", "subs {0}, {0}, #1", "b.ne 2b", inout(reg) turns, options(nomem, nostack));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    while turns > 0 {
        turns = std::hint::black_box(turns) - 1;
    }
    std::hint::black_box(turns);
    2 * TURNS
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_skip::skip;

    #[test]
    fn without_a_pmu_it_says_so() {
        let probe = probe();
        let listed = crate::perf::encode::Encoder::new().pmus().of_cores();
        if listed.is_empty() && cfg!(target_arch = "x86_64") {
            assert!(!probe.pmu_usable, "{probe:?}");
        }
        assert!(!probe.why.is_empty());
    }

    #[test]
    fn a_usable_pmu_counts_as_many_instructions_as_there_are() {
        let probe = probe();
        if !probe.pmu_usable {
            return skip!(Pmu, "{}", probe.why);
        }
        let (mut cycles, mut instructions) = open(&Encoder::new(), None, probe.user_only).unwrap();
        let mut count = |loops: u64| {
            cycles.reset_group().unwrap();
            cycles.enable_group().unwrap();
            let known: u64 = (0..loops).map(|_| run_loop()).sum();
            cycles.disable_group().unwrap();
            (known, instructions.read().unwrap())
        };
        // What the loops themselves take cancels out, and so does what the kernel does at each start.
        let ((few, of_few), (many, of_many)) = (count(1), count(5));
        let seen = (of_many - of_few) as f64 / (many - few) as f64;
        assert!((0.95..1.2).contains(&seen), "{seen} of what was executed");
    }

    #[test]
    fn refusals_are_in_words() {
        let said = |code| refused(&io::Error::from_raw_os_error(code));
        assert!(said(libc::ENOENT).contains("virtual machines"));
        assert!(said(libc::EMFILE).contains("ulimit -n"));
        assert!(said(libc::EACCES).contains("perf"));
    }
}
