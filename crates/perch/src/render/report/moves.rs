//! The first moves of a session, with the reasons.

use super::{
    super::{count, fit, wrapped},
    seconds,
};
use perch_core::{Outcome, ThreadId};
use perch_engine::report::{MoveReport, Report};
use std::{collections::HashMap, fmt::Write};

/// Lines that are printed.
const LINES: usize = 8;
/// Names on a line that stands for several moves.
const NAMES: usize = 4;

pub(super) fn list(report: &Report, letters: &HashMap<ThreadId, char>) -> String {
    let moves = &report.moves;
    let total: u64 = moves.outcomes.iter().map(|(_, number)| number).sum();
    if total == 0 {
        return String::new();
    }
    let mut text = format!(
        "\nMoves: {} bound, {} moved, {} released",
        moves.bound, moves.moved, moves.released
    );
    for (outcome, number) in &moves.outcomes {
        let what = match outcome {
            Outcome::Applied | Outcome::NotApplied => continue,
            Outcome::Gone => "had ended",
            Outcome::ChangedByOthers => "left alone, placed by others",
            Outcome::NotPermitted => "not permitted",
            Outcome::Failed => "failed for want of descriptors or memory",
            Outcome::NoUsablePu => "without a usable PU",
        };
        let _ = write!(text, "; {number} {what}");
    }
    text.push('\n');
    let all: Vec<&MoveReport> = moves.first.iter().chain(&moves.last).collect();
    let mut told = 0;
    for lines in folded(&all).iter().take(LINES) {
        told += lines.len();
        text += &match lines[..] {
            [made] => line(made, letters),
            _ => stayed(lines, letters),
        };
    }
    if (told as u64) < total {
        let _ = writeln!(
            text,
            "  … {} more; --explain prints each as it happens",
            total - told as u64
        );
    }
    text
}

/// Threads that a period bound to where they ran already share a line: they did not move. Each other move has its own.
fn folded<'a>(all: &[&'a MoveReport]) -> Vec<Vec<&'a MoveReport>> {
    let mut lines: Vec<Vec<&MoveReport>> = Vec::new();
    for made in all {
        let stays = |of: &MoveReport| of.stays() && of.period == made.period;
        let line = lines
            .iter_mut()
            .find(|line| made.stays() && line.iter().all(|of| stays(of)));
        match line {
            Some(line) => line.push(made),
            None => lines.push(vec![made]),
        }
    }
    lines
}

/// `h sor-5 (4711)`: the letter of the table, the name that the thread had then, and its TID.
fn who(made: &MoveReport, letters: &HashMap<ThreadId, char>) -> String {
    let letter = letters.get(&made.thread).copied().unwrap_or(' ');
    format!(
        "{letter} {} ({})",
        fit(&made.name, 12).trim_end(),
        made.thread.tid
    )
}

fn line(made: &MoveReport, letters: &HashMap<ThreadId, char>) -> String {
    let target = match &made.to {
        Some(pus) => fit(&format!("→ PU {pus}"), 24).trim_end().to_owned(),
        None => "released".to_owned(),
    };
    let label = format!("  {:>5.1} s  ", seconds(made.at));
    let text = format!("{} {target}: {}", who(made, letters), made.reason.text);
    wrapped(&label, &text)
}

fn stayed(moves: &[&MoveReport], letters: &HashMap<ThreadId, char>) -> String {
    let names = moves.iter().take(NAMES).map(|made| {
        let pus = made
            .to
            .as_ref()
            .map_or_else(String::new, ToString::to_string);
        format!("{} PU {pus}", who(made, letters).trim_start())
    });
    let names: Vec<String> = names.collect();
    let more = match moves.len() > NAMES {
        true => ", …",
        false => "",
    };
    let label = format!("  {:>5.1} s  ", seconds(moves[0].at));
    let text = format!(
        "{} bound where they ran: {}{more}",
        count(moves.len(), "thread"),
        names.join(", ")
    );
    wrapped(&label, &text)
}
