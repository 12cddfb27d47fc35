//! Every move as it happens, with the numbers behind it.

use super::{count, stderr};
use perch_core::{
    ActionKind, Outcome, PuSet, Reason, ThreadId,
    text::{printable, printable_lines},
};
use perch_engine::{ActionTaken, IrqMove, Move, Period, SessionSink};
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
        for made in &period.moves {
            let name = |id: ThreadId| {
                period
                    .snapshot
                    .thread(id)
                    .map_or("?", |thread| &*thread.info.name)
            };
            let line = line(period.snapshot.at, name(made.thread), made);
            text += &format!("{}\n", printable(&line));
        }
        for taken in &period.actions {
            let id = taken.thread;
            let name = period.snapshot.thread(id);
            let name = name.map_or("?", |thread| &*thread.info.name);
            let line = action_line(period.snapshot.at, name, taken);
            text += &format!("{}\n", printable(&line));
        }
        for made in &period.irq_moves {
            let line = irq_line(period.snapshot.at, made);
            text += &format!("{}\n", printable(&line));
        }
        for remark in &period.remarks {
            text += &format!("perch: {}\n", printable_lines(&remark.text));
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

/// `  3.0 s  worker-2 (4711)  → PU 4  FP rank 1 of 8 … (fp_share 0.42)`.
pub fn line(at: u64, name: &str, made: &Move) -> String {
    format!(
        "{:>5.1} s  {name} ({})  {}{}  {}",
        at as f64 / 1e9,
        made.thread.tid,
        target(made.to.as_ref()),
        outcome(made.outcome),
        why(&made.reason),
    )
}

/// `  3.0 s  IRQ 24  → PU 2  balances packages (highest_before 1900, …)`.
fn irq_line(at: u64, made: &IrqMove) -> String {
    format!(
        "{:>5.1} s  IRQ {}  {}{}  {}",
        at as f64 / 1e9,
        made.irq,
        target(made.to.as_ref()),
        outcome(made.outcome),
        why(&made.reason),
    )
}

/// `  3.0 s  worker-2 (4711)  weight 10  rule 'worker*=10'`.
fn action_line(at: u64, name: &str, taken: &ActionTaken) -> String {
    let what = match taken.to {
        Some(ActionKind::CpuWeight(weight)) => format!("weight {weight}"),
        None => "weight as before".to_owned(),
    };
    format!(
        "{:>5.1} s  {name} ({})  {what}{}  {}",
        at as f64 / 1e9,
        taken.thread.tid,
        outcome(taken.outcome),
        why(&taken.reason),
    )
}

/// A reason with its numbers.
fn why(reason: &Reason) -> String {
    let numbers = reason.numbers.iter();
    let numbers: Vec<String> = numbers
        .map(|(name, value)| format!("{name} {}", number(*value)))
        .collect();
    match numbers.is_empty() {
        true => reason.text.clone(),
        false => format!("{} ({})", reason.text, numbers.join(", ")),
    }
}

/// `→ PU 4` or `unbound`.
pub fn target(to: Option<&PuSet>) -> String {
    match to {
        Some(pus) if pus.len() == 1 => format!("→ PU {pus}"),
        Some(pus) => format!("→ PUs {pus}"),
        None => "unbound".to_owned(),
    }
}

/// What went wrong, if anything.
fn outcome(outcome: Outcome) -> &'static str {
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
