//! Reads the caches and who shares them.

use super::{
    cycles::{common_cycle, latency},
    ports, prefetchers,
    quantity::SIZE,
    table::{Checked, Item, Table},
};
use crate::model::{CacheLevel, CoreAt, Holds, MachineModel};
use std::collections::BTreeMap;

const KEYS: &[&str] = &[
    "level",
    "holds",
    "size",
    "ways",
    "line",
    "latency",
    "shared-by",
    "kind",
    "prefetchers",
    "victim",
    "line-transfer",
    "write",
    "coalescing",
];

const HOLDS: [(&str, Holds); 3] = [
    ("instructions", Holds::Instructions),
    ("data", Holds::Data),
    ("both", Holds::Both),
];

/// Bytes of a line where the file says nothing.
const LINE: u32 = 64;

/// Lines of all caches at most, so that a file cannot ask for more than the host has.
const MOST_LINES: u64 = 1 << 26;

/// The caches, by rising level.
pub(super) fn read(item: Item<'_>, machine: &MachineModel) -> Checked<Vec<CacheLevel>> {
    let mut caches: Vec<CacheLevel> = Vec::new();
    let mut moving = Vec::new();
    for table in item.tables("a cache", KEYS)? {
        let cache = one(&table, machine)?;
        if let Some(first) = caches.first()
            && first.line != cache.line
        {
            let message = format!(
                "a line of {} B, but {} B in the first cache: all lines are alike",
                cache.line, first.line
            );
            return Err(table
                .get("line")
                .map_or_else(|| table.wrong(&*message), |line| line.wrong(&*message)));
        }
        for other in &caches {
            fits(&cache, other, machine.pus()).map_err(|why| table.wrong(why))?;
        }
        let lines =
            |cache: &CacheLevel| cache.size / u64::from(cache.line) * cache.shared_by.len() as u64;
        if caches.iter().chain([&cache]).map(lines).sum::<u64>() > MOST_LINES {
            return Err(table.wrong(format!(
                "with this more than {MOST_LINES} lines of cache in the machine"
            )));
        }
        caches.push(cache);
        let keys = ["victim", "write"]
            .into_iter()
            .filter_map(|key| table.get(key));
        moving.extend(keys.map(|item| (item, caches.len() - 1)));
    }
    for (item, at) in moving {
        ports::has_feeders(item, &caches[at], &caches)?;
        ports::has_next(item, &caches[at], &caches)?;
    }
    caches.sort_by_key(|cache| cache.level);
    Ok(caches)
}

fn one(table: &Table<'_>, machine: &MachineModel) -> Checked<CacheLevel> {
    let level = table.need("level")?.whole(1..=3)?;
    let holds = table.need("holds")?.choice(&HOLDS)?;
    let line = match table.get("line") {
        None => LINE,
        Some(item) => {
            let line = item.quantity(&SIZE)?;
            if !line.is_power_of_two() || !(16..=4096).contains(&line) {
                return Err(item.wrong("a line is a power of two, from 16 B to 4 KiB"));
            }
            line as u32
        }
    };
    let size = table.need("size")?;
    let bytes = size.quantity_within(&SIZE, 1..=1 << 40, "from 1 B to 1 TiB")?;
    let ways = table.need("ways")?.whole(1..=65_536)?;
    let set = u64::from(ways) * u64::from(line);
    if bytes % set != 0 {
        let near = (bytes + set / 2) / set * set;
        let hint = binary(bytes)
            .filter(|(_, bytes)| bytes % set == 0)
            .map(|(text, bytes)| format!("did you mean `{text}`, {bytes} B?"));
        let would_do = || {
            let sets = (near / set).max(1);
            format!("{} B would do: {sets} × {ways} × {line} B", near.max(set))
        };
        return Err(size.wrong_hint(
            format!("{bytes} B cannot be divided into sets of {ways} ways × {line} B"),
            Some(hint.unwrap_or_else(would_do)),
        ));
    }
    // Sets of another number than a power of two are rare, and a decimal unit is a slip: 32 KB for 32 KiB.
    let sets = bytes / set;
    let meant = binary(bytes).filter(|(_, meant)| {
        size.as_text().is_some() && meant % set == 0 && (meant / set).is_power_of_two()
    });
    if let Some((text, meant)) = meant.filter(|_| !sets.is_power_of_two()) {
        return Err(size.wrong_hint(
            format!("{bytes} B are {sets} sets of {ways} ways × {line} B"),
            Some(format!("did you mean `{text}`, {meant} B?")),
        ));
    }
    let kind = match table.get("kind") {
        None => None,
        Some(item) => Some(item.reference(
            "kind of core",
            machine.kinds.iter().map(|kind| kind.name.as_str()),
        )?),
    };
    let has = |core: &CoreAt| kind.is_none_or(|kind| core.kind == kind);
    let shared_by = sharers(table.need("shared-by")?, kind.is_some(), machine, &has)?;
    if shared_by.is_empty() {
        return Err(table.wrong("no core of the machine is of this `kind`"));
    }
    let places = machine.places();
    let using = shared_by
        .iter()
        .flatten()
        .map(|pu| &machine.cores[places[*pu as usize].0]);
    let cycle = common_cycle(&machine.kinds, using);
    let ported = ports::read(table, (level as u8, holds, line), cycle)?;
    Ok(CacheLevel {
        level: level as u8,
        holds,
        size: bytes,
        ways,
        line,
        latency: match table.get("latency") {
            Some(item) if level == 1 => match latency(item, Some(1))? {
                0 => 0,
                _ => {
                    return Err(
                        item.wrong("the first level's latency is that of `load`: leave this away")
                    );
                }
            },
            Some(item) => latency(item, cycle)?,
            None if level == 1 => 0,
            None => latency(table.need("latency")?, None)?,
        },
        shared_by,
        prefetchers: match table.get("prefetchers") {
            None => Vec::new(),
            Some(item) if holds == Holds::Instructions => {
                return Err(item.wrong(
                    "prefetchers learn from loads and stores: a cache of instructions has none",
                ));
            }
            Some(item) if ported.victim => {
                return Err(item.wrong_hint(
                    "a victim cache takes only what the caches before it evict",
                    Some("give the prefetchers to the cache before it".to_owned()),
                ));
            }
            Some(item) => prefetchers::read(item, line)?,
        },
        victim: ported.victim,
        line_transfer: ported.line_transfer,
        write_through: ported.write_through,
    })
}

/// The size in binary units that a size in decimal ones stands for in many data sheets.
fn binary(bytes: u64) -> Option<(String, u64)> {
    let units = [
        (1_000_000_000_u64, 30, "GiB"),
        (1_000_000, 20, "MiB"),
        (1_000, 10, "KiB"),
    ];
    let (decimal, shift, name) = units
        .into_iter()
        .find(|(unit, ..)| bytes.is_multiple_of(*unit))?;
    let count = bytes / decimal;
    (count > 0).then(|| (format!("{count} {name}"), count << shift))
}

/// The PUs of each cache.
fn sharers(
    item: Item<'_>,
    of_kind: bool,
    machine: &MachineModel,
    has: &dyn Fn(&CoreAt) -> bool,
) -> Checked<Vec<Vec<u32>>> {
    let words = ["context", "core", "node", "package", "machine"].map(|word| (word, word));
    // The cores that have such a cache, with the numbers of their PUs.
    let mut cores: Vec<(&CoreAt, Vec<u32>)> = Vec::new();
    let mut first = 0;
    for core in &machine.cores {
        let next = first + machine.kind(core).contexts;
        if has(core) {
            cores.push((core, (first..next).collect()));
        }
        first = next;
    }
    if let Ok(groups) = item.list() {
        return match of_kind {
            true => {
                Err(item.wrong("a list of PUs says already who has the cache: leave `kind` away"))
            }
            false => lists(item, groups, first),
        };
    }
    if item.is_number() {
        let count = item.whole(1..=4096)? as usize;
        if !cores.len().is_multiple_of(count) {
            return Err(item.wrong(format!(
                "{} cores cannot be divided by {count}",
                cores.len()
            )));
        }
        let groups = cores.chunks(count);
        if groups.clone().any(|group| {
            group
                .iter()
                .any(|(core, _)| core.package != group[0].0.package)
        }) {
            return Err(item.wrong(format!(
                "groups of {count} cores would reach from one package into the next"
            )));
        }
        return Ok(groups
            .map(|group| group.iter().flat_map(|(_, pus)| pus.clone()).collect())
            .collect());
    }
    let level = item.choice(&words)?;
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (core, pus) in &cores {
        for pu in pus {
            let group = match level {
                "context" => *pu,
                "core" => pus[0],
                "node" => core.numa_node,
                "package" => core.package,
                _ => 0,
            };
            groups.entry(group).or_default().push(*pu);
        }
    }
    Ok(groups.into_values().collect())
}

/// The PUs as the file lists them.
fn lists(item: Item<'_>, groups: Vec<Item<'_>>, pus: u32) -> Checked<Vec<Vec<u32>>> {
    let mut taken = vec![false; pus as usize];
    let mut read = Vec::new();
    for group in groups {
        let mut members = Vec::new();
        for pu in group.some()? {
            let number = pu.whole(0..=pus - 1)?;
            if std::mem::replace(&mut taken[number as usize], true) {
                return Err(pu.wrong(format!("PU {number} is in the list already")));
            }
            members.push(number);
        }
        members.sort_unstable();
        read.push(members);
    }
    if read.is_empty() {
        Err(item.wrong("an empty list"))
    } else {
        Ok(read)
    }
}

/// Two caches must not do the same for one PU, and PUs that share one must not part further out.
fn fits(cache: &CacheLevel, other: &CacheLevel, pus: usize) -> Result<(), String> {
    if cache.holds != other.holds && cache.holds != Holds::Both && other.holds != Holds::Both {
        return Ok(());
    }
    let (inner, outer) = if cache.level < other.level {
        (cache, other)
    } else {
        (other, cache)
    };
    // Which of the outer caches each PU has.
    let mut outer_of = vec![None; pus];
    for (number, group) in outer.shared_by.iter().enumerate() {
        group
            .iter()
            .for_each(|pu| outer_of[*pu as usize] = Some(number));
    }
    for group in &inner.shared_by {
        let first = outer_of[group[0] as usize];
        for pu in group {
            if cache.level == other.level && outer_of[*pu as usize].is_some() {
                return Err(format!(
                    "PU {pu} has a cache of level {} for this already",
                    cache.level
                ));
            }
            if outer_of[*pu as usize] != first {
                return Err(format!(
                    "PUs {} and {pu} share a cache of level {}, so they must share that of level {} too",
                    group[0], inner.level, outer.level
                ));
            }
        }
    }
    Ok(())
}
