//! Reads the steps of threads.

use super::{
    quantity::{COUNT, SIZE, TIME},
    table::{Checked, Item, Table},
};
use crate::workload::{DeviceModel, Mix, Step};
use perch_core::diagnostic::did_you_mean;

/// What stands for "without an end".
const FOREVER: &str = "forever";

/// What a step may do.
const ACTIONS: [&str; 8] = [
    "compute", "barrier", "lock", "unlock", "sleep", "io", "spawn", "join",
];

/// Keys that say more of what a step does, each with that.
const DETAILS: [(&str, &str); 4] = [
    ("instructions", "compute"),
    ("bytes", "io"),
    ("time", "io"),
    ("count", "spawn"),
];

const KEYS: &[&str] = &[
    "compute",
    "instructions",
    "barrier",
    "lock",
    "unlock",
    "sleep",
    "io",
    "bytes",
    "time",
    "spawn",
    "count",
    "join",
];

/// What steps may name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names<'a> {
    pub mixes: &'a [Mix],
    pub devices: &'a [DeviceModel],
    /// The kinds of threads of the program.
    pub kinds: &'a [&'a str],
}

/// All steps of a thread.
pub(super) fn read(items: &[Item<'_>], names: Names<'_>, most: u32) -> Checked<Vec<Step>> {
    let one = |item: &Item<'_>| step(*item, names, most);
    let steps: Vec<Step> = items.iter().map(one).collect::<Checked<_>>()?;
    for (item, pair) in items[1..].iter().zip(steps.windows(2)) {
        if is_endless(&pair[0]) {
            return Err(item.wrong("the step before never ends, so this one is never reached"));
        }
    }
    locks_are_paired(items, &steps)?;
    for (item, step) in items.iter().zip(&steps) {
        let Step::Join(kind) = step else { continue };
        let starts =
            |step: &Step| matches!(step, Step::Spawn { kind: started, .. } if started == kind);
        if !steps.iter().any(starts) {
            return Err(item.wrong(format!(
                "this thread never starts `{0}`, so there is nobody to wait for: add a step `spawn = \"{0}\"`",
                names.kinds[*kind]
            )));
        }
    }
    Ok(steps)
}

/// Whether a step never ends.
pub(super) fn is_endless(step: &Step) -> bool {
    let forever = u64::MAX;
    matches!(step, Step::Compute { instructions, .. } if *instructions == forever)
}

/// Whether a step takes time of itself, whatever others do.
pub(super) fn takes_time(step: &Step) -> bool {
    match step {
        Step::Compute { .. } => true,
        Step::Sleep(time) => *time > 0,
        Step::Io { time, bytes, .. } => *time > 0 || *bytes > 0,
        _ => false,
    }
}

/// A count from 1, or without an end.
pub(super) fn often(item: Item<'_>) -> Checked<u64> {
    match item.as_text() {
        Some(FOREVER) => Ok(u64::MAX),
        Some(text) if !text.starts_with(|c: char| c.is_ascii_digit()) => {
            Err(item.wrong(format!("expected `\"10M\"`, a number or `\"{FOREVER}\"`")))
        }
        _ => item.quantity_within(&COUNT, 1..=u64::MAX - 1, "1 or more"),
    }
}

fn step(item: Item<'_>, names: Names<'_>, most: u32) -> Checked<Step> {
    let table = item.table("a step", KEYS)?;
    let given: Vec<_> = ACTIONS
        .iter()
        .filter_map(|key| Some((*key, table.get(key)?)))
        .collect();
    let [(action, value)] = given[..] else {
        return Err(item.wrong(format!("a step does one thing: `{}`", ACTIONS.join("`, `"))));
    };
    for (detail, of) in DETAILS {
        if let Some(item) = table.get(detail).filter(|_| of != action) {
            return Err(item.wrong(format!("`{detail}` belongs to `{of}`")));
        }
    }
    let kinds = || names.kinds.iter().copied();
    Ok(match action {
        "compute" => Step::Compute {
            mix: value.reference("mix", names.mixes.iter().map(|mix| mix.name.as_str()))?,
            instructions: often(table.need("instructions")?)?,
        },
        "sleep" => Step::Sleep(value.quantity(&TIME)?),
        "io" => io(&table, value, names.devices)?,
        "spawn" => Step::Spawn {
            kind: value.reference("thread", kinds())?,
            count: table
                .get("count")
                .map_or(Ok(1), |count| count.whole(1..=most))?,
        },
        "join" => Step::Join(value.reference("thread", kinds())?),
        "barrier" => Step::Barrier(value.text()?.to_owned()),
        "lock" => Step::Lock(value.text()?.to_owned()),
        _ => Step::Unlock(value.text()?.to_owned()),
    })
}

fn io(table: &Table<'_>, value: Item<'_>, devices: &[DeviceModel]) -> Checked<Step> {
    if devices.is_empty() {
        return Err(value.wrong_hint(
            "the workload has no devices",
            Some("declare one: `[devices.disk]` with `latency` and `bandwidth`".to_owned()),
        ));
    }
    let device = value.reference("device", devices.iter().map(|device| device.name.as_str()))?;
    let time = table.get("time").map(|item| item.quantity(&TIME));
    let bytes = match table.get("bytes") {
        None => 0,
        Some(item) => {
            let bytes = item.quantity_within(&SIZE, 0..=1 << 50, "1 PiB at most")?;
            if bytes > 0 && devices[device].bandwidth.is_infinite() {
                return Err(item.wrong(format!(
                    "`{}` has no `bandwidth`, so bytes take no time: give it one, or leave them away",
                    devices[device].name
                )));
            }
            bytes
        }
    };
    Ok(Step::Io {
        device,
        time: time.unwrap_or(Ok(devices[device].latency))?,
        bytes,
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
                    let hint = did_you_mean(name, held.iter().map(|(other, _)| *other));
                    return Err(item.wrong_hint(format!("`{name}` is not held here"), hint));
                };
                held.remove(at);
            }
            _ => {}
        }
    }
    match held.first() {
        Some((name, item)) => Err(item.wrong(format!(
            "`{name}` is locked, but not unlocked by the last step"
        ))),
        None => Ok(()),
    }
}
