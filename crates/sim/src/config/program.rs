//! Reads the programs of a workload: threads and what they do.

use super::{
    quantity::{COUNT, TIME},
    table::{Checked, Item, Table},
};
use crate::workload::{Mix, ProgramModel, Step, ThreadModel};

/// Threads of a workload at most, all copies of its programs together.
const MOST_THREADS: u64 = 65_536;

/// What stands for "without an end".
const FOREVER: &str = "forever";

/// The programs, in the order of the file.
pub(super) fn read(item: Item<'_>, mixes: &[Mix]) -> Checked<Vec<ProgramModel>> {
    let mut programs: Vec<ProgramModel> = Vec::new();
    let mut threads = 0;
    for table in item.tables(
        "a program",
        &["name", "count", "start", "restart", "threads"],
    )? {
        let program = one(&table, mixes)?;
        if programs.iter().any(|other| other.name == program.name) {
            return Err(table
                .need("name")?
                .wrong(format!("a second program `{}`", program.name)));
        }
        let each: u64 = program
            .threads
            .iter()
            .map(|thread| u64::from(thread.count))
            .sum();
        threads += each * u64::from(program.count);
        if threads > MOST_THREADS {
            return Err(table.wrong(format!(
                "{threads} threads with this program; {MOST_THREADS} is the most"
            )));
        }
        programs.push(program);
    }
    Ok(programs)
}

fn one(table: &Table<'_>, mixes: &[Mix]) -> Checked<ProgramModel> {
    let name = table.need("name")?.text()?.to_owned();
    let count = table
        .get("count")
        .map_or(Ok(1), |count| count.whole(1..=MOST_THREADS as u32))?;
    let start = table
        .get("start")
        .map_or(Ok(0), |start| start.quantity(&TIME))?;
    let mut threads: Vec<ThreadModel> = Vec::new();
    for table in table
        .need("threads")?
        .tables("a thread", &["name", "count", "repeat", "steps"])?
    {
        let thread = thread(&table, mixes)?;
        if threads.iter().any(|other| other.name == thread.name) {
            let message = format!(
                "a second thread `{}`: give one `count`, or another name",
                thread.name
            );
            return Err(table.need("name")?.wrong(message));
        }
        threads.push(thread);
    }
    let restart = match table.get("restart") {
        None => false,
        Some(item) => {
            let restart = item.flag()?;
            if let Some(thread) = threads.iter().find(|thread| restart && endless(thread)) {
                return Err(item.wrong(format!(
                    "`{}` never ends, so the program is never started again",
                    thread.name
                )));
            }
            restart
        }
    };
    Ok(ProgramModel {
        name,
        count,
        start,
        restart,
        threads,
    })
}

fn endless(thread: &ThreadModel) -> bool {
    let computes = |step: &Step| {
        matches!(
            step,
            Step::Compute {
                instructions: u64::MAX,
                ..
            }
        )
    };
    thread.repeat == u64::MAX || thread.steps.iter().any(computes)
}

fn thread(table: &Table<'_>, mixes: &[Mix]) -> Checked<ThreadModel> {
    let name = table.need("name")?.text()?.to_owned();
    let count = table
        .get("count")
        .map_or(Ok(1), |count| count.whole(1..=MOST_THREADS as u32))?;
    let repeat = table.get("repeat").map_or(Ok(1), often)?;
    let list = table.need("steps")?;
    let items = list.some()?;
    let steps: Vec<Step> = items
        .iter()
        .map(|item| step(*item, mixes))
        .collect::<Checked<_>>()?;
    for (item, pair) in items[1..].iter().zip(steps.windows(2)) {
        if matches!(
            pair[0],
            Step::Compute {
                instructions: u64::MAX,
                ..
            }
        ) {
            return Err(item.wrong("the step before never ends, so this one is never reached"));
        }
    }
    let takes_time = |step: &Step| match step {
        Step::Compute { .. } => true,
        Step::Sleep(time) => *time > 0,
        Step::Barrier(_) | Step::Lock(_) | Step::Unlock(_) => false,
    };
    if repeat > 1 && !steps.iter().any(takes_time) {
        return Err(list.wrong("repeated, but no step takes time: add a `compute` or a `sleep`"));
    }
    locks_are_paired(&items, &steps)?;
    Ok(ThreadModel {
        name,
        count,
        steps,
        repeat,
    })
}

/// A count from 1, or without an end.
fn often(item: Item<'_>) -> Checked<u64> {
    match item.as_text() {
        Some(FOREVER) => Ok(u64::MAX),
        Some(text) if !text.starts_with(|c: char| c.is_ascii_digit()) => {
            Err(item.wrong(format!("expected `\"10M\"`, a number or `\"{FOREVER}\"`")))
        }
        _ => item.quantity_within(&COUNT, 1..=u64::MAX - 1, "1 or more"),
    }
}

fn step(item: Item<'_>, mixes: &[Mix]) -> Checked<Step> {
    const ACTIONS: [&str; 5] = ["compute", "barrier", "lock", "unlock", "sleep"];
    let table = item.table(
        "a step",
        &[
            "compute",
            "instructions",
            "barrier",
            "lock",
            "unlock",
            "sleep",
        ],
    )?;
    let given: Vec<_> = ACTIONS
        .iter()
        .filter_map(|key| Some((*key, table.get(key)?)))
        .collect();
    let [(action, value)] = given[..] else {
        return Err(item.wrong(format!("a step does one thing: `{}`", ACTIONS.join("`, `"))));
    };
    if action == "compute" {
        let mix = value.reference("mix", mixes.iter().map(|mix| mix.name.as_str()))?;
        return Ok(Step::Compute {
            mix,
            instructions: often(table.need("instructions")?)?,
        });
    }
    if let Some(instructions) = table.get("instructions") {
        return Err(instructions.wrong("`instructions` belong to `compute`"));
    }
    if action == "sleep" {
        return Ok(Step::Sleep(value.quantity(&TIME)?));
    }
    let name = value.text()?.to_owned();
    Ok(match action {
        "barrier" => Step::Barrier(name),
        "lock" => Step::Lock(name),
        _ => Step::Unlock(name),
    })
}

/// Each turn of the steps lets go what it took, and takes nothing twice.
fn locks_are_paired(items: &[Item<'_>], steps: &[Step]) -> Checked<()> {
    let mut held: Vec<(&str, Item<'_>)> = Vec::new();
    for (item, step) in items.iter().zip(steps) {
        match step {
            Step::Lock(name) if held.iter().any(|(other, _)| other == name) => {
                return Err(item.wrong(format!(
                    "`{name}` is held already: the thread would wait for itself"
                )));
            }
            Step::Lock(name) => held.push((name, *item)),
            Step::Unlock(name) => {
                let Some(at) = held.iter().position(|(other, _)| other == name) else {
                    let hint = perch_core::mistake::did_you_mean(
                        name,
                        held.iter().map(|(other, _)| *other),
                    );
                    return Err(item.wrong_hint(format!("`{name}` is not held here"), hint));
                };
                held.remove(at);
            }
            Step::Compute { .. } | Step::Barrier(_) | Step::Sleep(_) => {}
        }
    }
    match held.first() {
        Some((name, item)) => Err(item.wrong(format!(
            "`{name}` is locked, but not unlocked by the last step"
        ))),
        None => Ok(()),
    }
}
