//! Reads the kinds of cores: their pipelines, units and latencies.

use super::{
    modulation,
    quantity::CLOCK,
    table::{Checked, Item, Table},
};
use crate::{
    core::{MOST_CONTEXTS, MOST_POOLS, MOST_QUEUES},
    model::{
        CoreKind, Latency, Multithreading, Op, Partition, QUEUES, Queue, QueueSharing, UnitPool,
        Until, cycle_of,
    },
};

/// PUs of a machine at most.
pub(super) const MOST_PUS: u32 = 4096;

/// Units of a pool at most: the bookings of a cycle are counted in a byte.
const MOST_UNITS: u32 = 255;

/// Cycles for which an instruction keeps its unit at most: half of what units can be booked ahead.
const MOST_BUSY: u32 = 512;

/// Cycles of a latency or a delay at most.
const MOST_CYCLES: u32 = 65_535;

/// Relative capacities are 1024 at most by convention; more is no harm.
const MOST_CAPACITY: u32 = 1_000_000;

/// Instructions in flight of one context at most: their completions are all remembered.
const LARGEST_WINDOW: u32 = 4096;

const KEYS: &[&str] = &[
    "clock",
    "clocks",
    "capacity-dmips-mhz",
    "contexts",
    "multithreading",
    "width",
    "micro-ops",
    "replay",
    "window",
    "window-shared",
    "partition",
    "in-order",
    "branch-delay",
    "mispredict",
    "duty",
    "modulation",
    "throttling",
    "units",
    "queues",
    "misses",
    "misses-per-context",
    "store-misses",
    "store-commits",
    "latencies",
];

/// Entries of a queue at most.
const MOST_ENTRIES: u32 = 4096;

const SHARING: [(&str, QueueSharing); 3] = [
    ("private", QueueSharing::Private),
    ("shared", QueueSharing::Shared),
    ("split", QueueSharing::Split),
];

const UNTIL: [(&str, Until); 3] = [
    ("start", Until::Start),
    ("data", Until::Data),
    ("end", Until::End),
];

const MULTITHREADING: [(&str, Multithreading); 2] = [
    ("fine-grained", Multithreading::FineGrained),
    ("simultaneous", Multithreading::Simultaneous),
];

/// The kinds, in the order of the file.
pub(super) fn read(item: Item<'_>) -> Checked<Vec<CoreKind>> {
    let mut queues = Vec::new();
    let numbered = |(name, item): (&str, Item<'_>)| {
        let mut kind = one(name, &item.table("a kind of core", KEYS)?)?;
        number(&mut kind.queues, &mut queues).map_err(|error| item.wrong(error))?;
        Ok(kind)
    };
    item.named()?.into_iter().map(numbered).collect()
}

/// Gives queues of the same name the same number, in whichever kinds of cores they are.
fn number(queues: &mut [Queue], names: &mut Vec<String>) -> Result<(), String> {
    for queue in queues {
        let known = names.iter().position(|name| *name == queue.name);
        let number = known.unwrap_or(names.len());
        if number == QUEUES {
            return Err(format!(
                "the queues of all kinds of cores have more than {QUEUES} names: give those that are alike the same"
            ));
        }
        if known.is_none() {
            names.push(queue.name.clone());
        }
        queue.number = number as u8;
    }
    Ok(())
}

fn one(name: &str, table: &Table<'_>) -> Checked<CoreKind> {
    let clock = one_clock(table.need("clock")?)?;
    let whole = |key, default: u32, most: u32| {
        let least = default.min(1);
        table
            .get(key)
            .map_or(Ok(default), |item| item.whole(least..=most))
    };
    let flag = |key, default: bool| table.get(key).map_or(Ok(default), Item::flag);
    let contexts = whole("contexts", 1, MOST_CONTEXTS as u32)?;
    let multithreading = match table.get("multithreading") {
        Some(item) => item.choice(&MULTITHREADING)?,
        None if contexts == 1 => Multithreading::Simultaneous,
        None => {
            return Err(table.wrong("a kind of core with several contexts needs `multithreading`"));
        }
    };
    let window = whole("window", 1, LARGEST_WINDOW)?;
    let window_shared = flag("window-shared", false)?;
    if let Some(item) = table
        .get("window")
        .filter(|_| window_shared && window < contexts)
    {
        return Err(item.wrong(format!(
            "{contexts} contexts cannot share a window of {window}: each needs one place"
        )));
    }
    let in_order = flag("in-order", true)?;
    let partition = table.get("partition");
    let partition = partition
        .map(|item| read_partition(item, contexts))
        .transpose()?;
    let parts = partition.map_or(1, |partition| contexts / partition.contexts);
    let misses = whole("misses", 0, MOST_ENTRIES)?;
    if let Some(item) = table.get("misses").filter(|_| misses > 0 && window == 1) {
        return Err(item.wrong(
            "no limit to a core with a `window` of 1, which executes one instruction after the other",
        ));
    }
    let modulation = modulation::read(table, cycle_of(clock))?;
    Ok(CoreKind {
        name: name.to_owned(),
        cycle: cycle_of(clock),
        clocks: match table.get("clocks") {
            Some(item) => clocks(item, clock)?,
            None => Vec::new(),
        },
        dmips_per_mhz: match table.get("capacity-dmips-mhz") {
            Some(item) => Some(item.whole(1..=MOST_CAPACITY)?),
            None => None,
        },
        contexts,
        multithreading,
        width: whole("width", 1, 1024)?,
        micro_ops: match table.get("micro-ops") {
            Some(item) => micro_ops(item)?,
            None => [1; Op::COUNT],
        },
        replay: match table.get("replay") {
            Some(item) if in_order => {
                return Err(
                    item.wrong("an in-order core sends no operation before its operand is there")
                );
            }
            _ => whole("replay", 0, MOST_CYCLES)?,
        },
        window,
        window_shared,
        partition,
        in_order,
        units: units(table.need("units")?, parts)?,
        queues: match table.get("queues") {
            None => Vec::new(),
            Some(item) if in_order => {
                return Err(item.wrong(
                    "an in-order core has no queues: its instructions begin in program order",
                ));
            }
            Some(item) => queues(item, contexts, parts)?,
        },
        misses,
        misses_per_context: match table.get("misses-per-context") {
            Some(item) if misses == 0 => {
                return Err(item.wrong("a part of `misses`, of which there is no limit"));
            }
            Some(item) => Some(item.whole(1..=misses)?),
            None => None,
        },
        misses_of_stores: flag("store-misses", true)?,
        store_commits: whole("store-commits", 1, 64)?,
        misses_private: false,
        tlb: None,
        latencies: latencies(table.need("latencies")?)?,
        branch_delay: whole("branch-delay", 0, MOST_CYCLES)?,
        mispredict: whole("mispredict", 0, MOST_CYCLES)?,
        duty: modulation.duty,
        modulation: modulation.stop,
        duty_steps: modulation.steps,
    })
}

fn read_partition(item: Item<'_>, contexts: u32) -> Checked<Partition> {
    let table = item.table("a partition", &["contexts", "from"])?;
    let own = table.need("contexts")?;
    let number = own.whole(1..=MOST_CONTEXTS as u32)?;
    if number >= contexts || !contexts.is_multiple_of(number) {
        return Err(own.wrong(format!(
            "the {contexts} contexts of the core must be several times these: parts of equal size"
        )));
    }
    Ok(Partition {
        contexts: number,
        from: table.need("from")?.whole(2..=contexts)?,
    })
}

/// Whether something is divided among parts of the core, of which it must have an equal number for each.
fn partitioned(table: &Table<'_>, number: u32, parts: u32) -> Checked<bool> {
    let Some(item) = table.get("partitioned") else {
        return Ok(false);
    };
    let divided = item.flag()?;
    if divided && parts == 1 {
        return Err(item.wrong("the core has no parts: give it a `partition`"));
    }
    if divided && !number.is_multiple_of(parts) {
        return Err(item.wrong(format!("{number} cannot be divided among {parts} parts")));
    }
    Ok(divided)
}

fn one_clock(item: Item<'_>) -> Checked<u64> {
    item.quantity_within(&CLOCK, 1_000..=10_000_000_000, "from 1 kHz to 10 GHz")
}

/// In kHz, as cpufreq counts.
fn clocks(item: Item<'_>, highest: u64) -> Checked<Vec<u64>> {
    let mut clocks = Vec::new();
    for item in item.some()? {
        let clock = one_clock(item)?;
        if !clock.is_multiple_of(1_000) {
            return Err(item.wrong("must be a whole number of kHz"));
        }
        if clocks.last().is_some_and(|last| *last >= clock / 1_000) {
            return Err(item.wrong("must be higher than the one before"));
        }
        clocks.push(clock / 1_000);
    }
    match clocks.last() == Some(&(highest / 1_000)) && highest.is_multiple_of(1_000) {
        true => Ok(clocks),
        false => Err(item.wrong("the last one must be that of `clock`, the highest")),
    }
}

fn units(item: Item<'_>, parts: u32) -> Checked<Vec<UnitPool>> {
    let names = Op::ALL.map(|op| (op.name(), op));
    let mut pools: Vec<UnitPool> = Vec::new();
    for (name, pool) in item.named()? {
        let table = pool.table(
            "a pool of units",
            &["ops", "count", "private", "partitioned"],
        )?;
        let mut ops = Vec::new();
        for word in table.need("ops")?.some()? {
            let op = word.choice(&names)?;
            if ops.contains(&op) {
                return Err(word.wrong(format!("`{}` is there twice", op.name())));
            }
            let earlier = pools.iter().filter(|pool| pool.ops.contains(&op));
            let earlier: Vec<_> = earlier.map(|pool| pool.name.as_str()).collect();
            if earlier.len() == MOST_POOLS {
                let others = earlier.join("` and `");
                return Err(word.wrong(format!(
                    "`{}` is done by `{others}` already: {MOST_POOLS} pools at most",
                    op.name()
                )));
            }
            ops.push(op);
        }
        let count = table
            .get("count")
            .map_or(Ok(1), |count| count.whole(1..=MOST_UNITS))?;
        let private = table.get("private").map_or(Ok(false), Item::flag)?;
        let partitioned = partitioned(&table, count, parts)?;
        if let Some(item) = table.get("partitioned").filter(|_| partitioned && private) {
            return Err(item.wrong("units are `private` or divided among parts, not both"));
        }
        pools.push(UnitPool {
            name: name.to_owned(),
            ops,
            count,
            private,
            partitioned,
        });
    }
    let undone = Op::ALL
        .into_iter()
        .filter(|op| !pools.iter().any(|pool| pool.ops.contains(op)));
    let undone: Vec<_> = undone.map(Op::name).collect();
    if !undone.is_empty() {
        return Err(item.wrong_hint(
            format!("no unit does `{}`", undone.join("`, `")),
            Some("each operation needs a pool: name it in its `ops`".to_owned()),
        ));
    }
    Ok(pools)
}

fn queues(item: Item<'_>, contexts: u32, parts: u32) -> Checked<Vec<Queue>> {
    let names = Op::ALL.map(|op| (op.name(), op));
    let mut queues: Vec<Queue> = Vec::new();
    for (name, item) in item.named()? {
        let table = item.table(
            "a queue",
            &[
                "ops",
                "entries",
                "sharing",
                "per-context",
                "until",
                "partitioned",
            ],
        )?;
        let mut ops = Vec::new();
        for word in table.need("ops")?.some()? {
            let op = word.choice(&names)?;
            if ops.contains(&op) {
                return Err(word.wrong(format!("`{}` is there twice", op.name())));
            }
            let others = queues.iter().filter(|queue| queue.ops.contains(&op));
            if others.count() == MOST_QUEUES {
                return Err(word.wrong(format!(
                    "`{}` is in {MOST_QUEUES} queues already",
                    op.name()
                )));
            }
            ops.push(op);
        }
        let sharing = match table.get("sharing") {
            Some(item) => item.choice(&SHARING)?,
            None => QueueSharing::Shared,
        };
        let least = match sharing {
            QueueSharing::Split => contexts,
            QueueSharing::Private | QueueSharing::Shared => 1,
        };
        let entries = table.need("entries")?.whole(least..=MOST_ENTRIES)?;
        let per_context = table.get("per-context");
        if let Some(item) = &per_context
            && sharing != QueueSharing::Shared
        {
            return Err(item.wrong("only a queue with `sharing = \"shared\"` has `per-context`"));
        }
        let partitioned = partitioned(&table, entries, parts)?;
        if let Some(item) = table.get("partitioned")
            && partitioned
            && sharing != QueueSharing::Shared
        {
            return Err(
                item.wrong("only a queue with `sharing = \"shared\"` is divided among parts")
            );
        }
        queues.push(Queue {
            name: name.to_owned(),
            number: 0,
            ops,
            entries,
            sharing,
            per_context: per_context
                .map(|item| item.whole(1..=entries))
                .transpose()?,
            until: match table.get("until") {
                Some(item) => item.choice(&UNTIL)?,
                None => Until::Start,
            },
            partitioned,
        });
    }
    Ok(queues)
}

/// Micro-operations of an instruction at most.
const MOST_MICRO_OPS: u32 = 64;

fn micro_ops(item: Item<'_>) -> Checked<[u32; Op::COUNT]> {
    let table = item.table("the micro-operations", &Op::NAMES)?;
    let mut micro_ops = [1; Op::COUNT];
    for op in Op::ALL {
        if let Some(item) = table.get(op.name()) {
            micro_ops[op as usize] = item.whole(1..=MOST_MICRO_OPS)?;
        }
    }
    Ok(micro_ops)
}

fn latencies(item: Item<'_>) -> Checked<[Latency; Op::COUNT]> {
    let table = item.table("the latencies", &Op::NAMES)?;
    let mut latencies = [Latency { cycles: 1, busy: 1 }; Op::COUNT];
    let absent = Op::ALL
        .map(Op::name)
        .into_iter()
        .filter(|op| table.get(op).is_none());
    let absent: Vec<_> = absent.collect();
    if !absent.is_empty() {
        return Err(table.wrong(format!("no latency of `{}`", absent.join("`, `"))));
    }
    for op in Op::ALL {
        let item = table.need(op.name())?;
        latencies[op as usize] = if item.is_table() {
            let latency = item.table("a latency", &["cycles", "busy"])?;
            Latency {
                cycles: latency.need("cycles")?.whole(1..=MOST_CYCLES)?,
                busy: latency
                    .get("busy")
                    .map_or(Ok(1), |busy| busy.whole(1..=MOST_BUSY))?,
            }
        } else {
            Latency {
                cycles: item.whole(1..=MOST_CYCLES)?,
                busy: 1,
            }
        };
    }
    Ok(latencies)
}
