//! `perch stat` on more threads than it has descriptors for, on threads of a millisecond, and on programs that come and go:
//! no number may be wrong that has no mark. The kernel's account of the program (getrusage(2)) tells what is right.

use super::Context;
use crate::{crowd::PAGES, perch::Perch, sandbox::Sandbox};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::{fs, time::Duration};

/// A program that was counted on a busy machine for so long hangs.
const PATIENCE: Duration = Duration::from_secs(240);

/// CPU times that differ by less than this part, or by less than these seconds, are the same. The threads' run times and
/// the kernel's account have one source, but getrusage(2) is rounded to a microsecond for each process.
const SAME: (f64, f64) = (0.02, 0.03);

/// A count of less than this part of the time is marked.
const WHOLE: f64 = 0.98;

/// Programs of one try, all at once.
struct Load {
    name: &'static str,
    programs: Vec<Vec<String>>,
    /// Page faults that there are at least.
    faults: usize,
}

fn loads(sandbox: &Sandbox, quick: bool) -> [Load; 4] {
    let program = sandbox.program.to_string_lossy().into_owned();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    // Fewer than the kernel's limit of mappings allows in a process.
    let (processes, crowd) = if quick { (2, 100) } else { (10, 2_000) };
    let (one, threads) = if quick { (1, 200) } else { (1, 15_000) };
    let short = if quick { 50 } else { 2_000 };
    let executed = if quick { 50 } else { 1_000 };
    let crowd_of = |threads: usize| words(&[&program, "crowd", &threads.to_string()]);
    let storm = format!("i=0; while [ $i -lt {executed} ]; do /bin/true; i=$((i+1)); done");
    [
        Load {
            name: "crowds",
            programs: vec![crowd_of(crowd); processes],
            faults: processes * crowd * PAGES,
        },
        Load {
            name: "one crowd",
            programs: vec![crowd_of(threads); one],
            faults: threads * PAGES,
        },
        Load {
            name: "short threads",
            programs: vec![words(&[&program, "shorts", &short.to_string()]); 2],
            faults: 2 * short * PAGES,
        },
        Load {
            name: "executed programs",
            programs: vec![words(&["sh", "-c", &storm]); 2],
            // Each program maps at least its own pages.
            faults: 2 * executed * PAGES,
        },
    ]
}

pub fn attack(context: &mut Context) -> Result<()> {
    let loads = loads(context.sandbox, context.quick);
    let rounds = context.rounds(loads.len() as u64, 1, 3);
    for round in 0..rounds {
        for load in &loads {
            if !context.begin()? {
                return Ok(());
            }
            // Every second round with few descriptors.
            one(context, load, round % 2 == 1).with_context(|| load.name)?;
            context.end();
        }
    }
    Ok(())
}

fn one(context: &mut Context, load: &Load, few: bool) -> Result<()> {
    let file = context.sandbox.room().join("numbers.jsonl");
    let file = file.to_string_lossy().into_owned();
    let limit = if few { "ulimit -n 1000; " } else { "" };
    let script = format!("{limit}exec \"$@\"");
    let perch = Perch::new(context.sandbox).behind(["sh", "-c", &script, "sh"]);
    let mut args: Vec<String> = [
        "stat",
        "--json",
        "-o",
        &file,
        "-i",
        "1s",
        "-e",
        "page-faults",
    ]
    .iter()
    .chain(&["--by", "process", "--", "sh", "-c"])
    .map(|word| (*word).to_owned())
    .collect();
    let each = load.programs.iter().map(|words| {
        let quoted = words.iter().map(|word| format!("'{word}'"));
        format!("{} & ", quoted.collect::<Vec<String>>().join(" "))
    });
    args.push(format!("{}wait", each.collect::<String>()));
    let done = perch.start(args)?.wait(PATIENCE)?;
    context.tally.judge(&done, load.name);
    context
        .tally
        .hold(done.code() == Some(0), "perch stat failed", || {
            format!("{}: {}", load.name, done.text())
        });
    let text = fs::read_to_string(&file).unwrap_or_default();
    let last = text.lines().last().context("no totals")?;
    judge(context, load, &serde_json::from_str(last)?)
}

/// Compares what perch says with what must be.
fn judge(context: &mut Context, load: &Load, totals: &Value) -> Result<()> {
    let number = |value: &Value| value.as_f64().with_context(|| format!("{value}: {totals}"));
    let tally = &mut context.tally;
    let used = number(&totals["user_s"])? + number(&totals["system_s"])?;
    let same = |time: f64| (time - used).abs() < (SAME.0 * used).max(SAME.1);
    let all = &totals["all"];
    let time = number(&all["cpu_s"])?;
    tally.hold(same(time), "CPU time of all is wrong", || {
        format!("{}: {time} s for {used} s", load.name)
    });
    let rows = totals["totals"].as_array().context("no rows")?;
    let rows = rows.iter().map(|row| number(&row["cpu_s"]));
    let rows = rows.sum::<Result<f64>>()? + number(&totals["unmeasured_s"])?;
    tally.hold(same(rows), "CPU time of rows is wrong", || {
        format!("{}: {rows} s for {used} s", load.name)
    });
    let count = &all["counts"]["page-faults"];
    let counted = number(&all["counted_s"])?;
    let whole = counted >= WHOLE * time && count["share"].as_f64().unwrap_or(1.0) >= WHOLE;
    // A count that is missing is no wrong one.
    let wrong = whole
        && count["value"]
            .as_f64()
            .is_some_and(|value| value < load.faults as f64);
    tally.hold(!wrong, "a count is wrong and has no mark", || {
        format!("{}: at least {}: {all}", load.name, load.faults)
    });
    Ok(())
}
