//! Every move as it happens, with the numbers behind it.

use super::{count, fit, stderr, wrapped};
use perch_core::{
    ActionKind, Outcome, PuSet, Reason, ThreadId,
    text::{printable, printable_lines},
};
use perch_engine::{ActionTaken, IrqMove, Move, Period, SessionSink, SettingMove};
use std::time::Duration;

/// How long the lines of a period may wait for their reader.
const PATIENCE: Duration = Duration::from_millis(100);

/// Tells moves and remarks on standard error.
#[derive(Debug, Default)]
pub struct Explain {
    dry_run: bool,
    /// Lines that nobody has read.
    missed: usize,
}

impl SessionSink for Explain {
    fn start(&mut self, start: &perch_engine::Start) {
        self.dry_run = start.dry_run;
    }

    fn period(&mut self, period: &Period) {
        let mut text = String::new();
        let (stay, go): (Vec<&Move>, Vec<&Move>) =
            period.moves.iter().partition(|made| stays(period, made));
        if let [made] = stay[..] {
            text += &line(period, made);
        } else if !stay.is_empty() {
            text += &staying(period, &stay);
        }
        for made in go {
            text += &line(period, made);
        }
        for taken in &period.actions {
            let id = taken.thread;
            let name = period.snapshot.thread(id);
            let name = name.map_or("?", |thread| &*thread.info.name);
            text += &action_line(period.snapshot.at, name, taken);
        }
        for made in &period.irq_moves {
            text += &irq_line(period.snapshot.at, made);
        }
        for made in &period.setting_moves {
            text += &setting_line(period.snapshot.at, made);
        }
        for remark in &period.remarks {
            text += &wrapped("perch: ", &printable_lines(&remark.text));
        }
        if text.is_empty() {
            return;
        }
        if self.missed > 0 {
            let missed = count(self.missed, "line");
            text.insert_str(
                0,
                &format!("perch: {missed} left out: nobody read standard error\n"),
            );
        }
        match stderr::write_within(&text, PATIENCE) {
            true => self.missed = 0,
            false => self.missed += text.lines().count() - usize::from(self.missed > 0),
        }
    }
}

/// Whether a thread was bound to the PU on which it was running already.
fn stays(period: &Period, made: &Move) -> bool {
    let to = made.to.as_ref().filter(|_| made.from.is_none());
    let ran_on = period
        .snapshot
        .thread(made.thread)
        .and_then(|of| of.last_pu);
    let done = matches!(made.outcome, Outcome::Applied | Outcome::NotApplied);
    done && to.is_some_and(|to| to.len() == 1 && to.first() == ran_on)
}

/// `worker-2 (4711)`.
fn who(period: &Period, id: ThreadId) -> String {
    let name = period.snapshot.thread(id);
    let name = name.map_or("?", |thread| &*thread.info.name);
    format!("{} ({})", printable(name), id.tid)
}

/// `  3.0 s  worker-2 (4711) → PU 4: FP rank 1 of 8 … (fp_share 0.42)`, in lines that fit.
fn line(period: &Period, made: &Move) -> String {
    let label = format!("{:>5.1} s  ", period.snapshot.at as f64 / 1e9);
    let text = format!(
        "{} {}{}: {}",
        who(period, made.thread),
        target(made.to.as_ref()),
        outcome(made.outcome),
        printable(&why(&made.reason)),
    );
    wrapped(&label, &text)
}

/// `  3.0 s  20 threads bound where they run: worker-2 (4711) PU 4, …`.
fn staying(period: &Period, moves: &[&Move]) -> String {
    let label = format!("{:>5.1} s  ", period.snapshot.at as f64 / 1e9);
    let each = moves.iter().map(|made| {
        let pus = made.to.as_ref().map_or_else(String::new, PuSet::to_string);
        format!("{} PU {pus}", who(period, made.thread))
    });
    let each: Vec<String> = each.collect();
    let threads = count(moves.len(), "thread");
    wrapped(
        &label,
        &format!("{threads} bound where they run: {}", each.join(", ")),
    )
}

/// `  3.0 s  IRQ 24 → PU 2: balances packages (highest_before 1900, …)`.
fn irq_line(at: u64, made: &IrqMove) -> String {
    let label = format!("{:>5.1} s  ", at as f64 / 1e9);
    let text = format!(
        "IRQ {} {}{}: {}",
        made.irq,
        target(made.to.as_ref()),
        outcome(made.outcome),
        printable(&why(&made.reason)),
    );
    wrapped(&label, &text)
}

/// `  3.0 s  cpufreq/policy0/scaling_max_freq → 1500000: slows the PUs of the operating system`.
fn setting_line(at: u64, made: &SettingMove) -> String {
    let label = format!("{:>5.1} s  ", at as f64 / 1e9);
    let to = match (&made.to, &made.found) {
        (Some(asked), Some(found)) => format!("→ {found} (asked for {asked})"),
        (Some(asked), None) => format!("→ {asked}"),
        (None, _) => "as before".to_owned(),
    };
    let text = format!("{} {to}{}", made.setting, outcome(made.outcome));
    let text = format!("{}: {}", printable(&text), printable(&why(&made.reason)));
    wrapped(&label, &text)
}

/// `  3.0 s  worker-2 (4711) weight 10: rule 'worker*=10'`.
fn action_line(at: u64, name: &str, taken: &ActionTaken) -> String {
    let what = match taken.to {
        Some(kind) => action(&kind),
        None => as_before(taken.from.as_ref()),
    };
    let label = format!("{:>5.1} s  ", at as f64 / 1e9);
    let text = format!(
        "{} ({}) {what}{}: {}",
        printable(name),
        taken.thread.tid,
        outcome(taken.outcome),
        printable(&why(&taken.reason)),
    );
    wrapped(&label, &text)
}

/// `weight 10` or `ways L3:0x3`.
pub fn action(kind: &ActionKind) -> String {
    match kind {
        ActionKind::CpuWeight(weight) => format!("weight {weight}"),
        ActionKind::CacheWays(ways) => format!("ways {ways}"),
    }
}

/// What there is without an action, or after this one was undone.
pub fn as_before(undone: Option<&ActionKind>) -> String {
    match undone {
        Some(ActionKind::CacheWays(ways)) => format!("all ways of L{}", ways.level()),
        Some(ActionKind::CpuWeight(_)) | None => "weight as before".to_owned(),
    }
}

/// A reason with the numbers that its text does not say already.
pub fn why(reason: &Reason) -> String {
    let said = reason.text.to_lowercase();
    let numbers = reason.numbers.iter().filter_map(|(name, value)| {
        let (words, value) = (words(name), number(*value));
        let last = words.rsplit(' ').next().unwrap_or(&words).to_lowercase();
        let is_said = said
            .split([',', ':', ';', '(', ')'])
            .any(|part| format!("{part} ").contains(&format!("{last} {value} ")));
        (!is_said).then(|| format!("{words} {value}"))
    });
    let numbers: Vec<String> = numbers.collect();
    match numbers.is_empty() {
        true => reason.text.clone(),
        false => format!("{} ({})", reason.text, numbers.join(", ")),
    }
}

/// A number's name as people write it: `fp_share` is "FP share".
pub fn words(name: &str) -> String {
    let words = name.split('_').map(|word| match word {
        "fp" | "ipc" | "cpi" | "pu" | "llc" | "l1" | "l2" | "l3" | "irq" => word.to_uppercase(),
        _ => word.to_owned(),
    });
    words.collect::<Vec<String>>().join(" ")
}

/// `→ PU 4` or `released`.
fn target(to: Option<&PuSet>) -> String {
    match to {
        Some(pus) if pus.len() == 1 => format!("→ PU {pus}"),
        // A long list cannot be wrapped; --log and --json have it all.
        Some(pus) => fit(&format!("→ PUs {pus}"), 60).trim_end().to_owned(),
        None => "released".to_owned(),
    }
}

/// What went wrong, if anything.
pub fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Applied | Outcome::NotApplied => "",
        Outcome::Gone => " [it has exited]",
        Outcome::ChangedByOthers => " [another process has changed it: left alone]",
        Outcome::NotPermitted => " [not permitted]",
        Outcome::Failed => " [refused by the kernel, or no descriptors or memory left]",
        Outcome::NoUsablePu => " [PU not usable any more]",
    }
}

/// Whole numbers whole, shares to three places.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}
