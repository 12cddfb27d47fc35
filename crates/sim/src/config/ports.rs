//! Reads how lines move between a cache and those before it.

use super::{
    cycles::latency,
    quantity::SIZE,
    table::{Checked, Item, Table},
};
use crate::{
    model::{CacheLevel, Holds},
    units::Ps,
};

/// Lines of a buffer that merges stores, at most: it is searched as a whole.
const MOST: u64 = 64;

/// What a file says about a cache's place behind others.
pub(super) struct Ported {
    pub victim: bool,
    pub line_transfer: Ps,
    pub write_through: Option<u64>,
}

const WRITE: [(&str, bool); 2] = [("back", false), ("through", true)];

/// Reads it. `cycle` is that of the cores that share the cache, if they have the same.
pub(super) fn read(
    table: &Table<'_>,
    (level, holds, line): (u8, Holds, u32),
    cycle: Option<Ps>,
) -> Checked<Ported> {
    let line_transfer = match table.get("line-transfer") {
        None => 0,
        Some(item) if level == 1 => {
            return Err(item.wrong_hint(
                "no cache is before the first level",
                Some(
                    "the next level's `line-transfer` says how fast lines come to this one"
                        .to_owned(),
                ),
            ));
        }
        Some(item) => match latency(item, cycle)? {
            0 => {
                return Err(item.wrong_hint(
                    "moving a line takes some time",
                    Some("leave this away if the bandwidth has no limit".to_owned()),
                ));
            }
            time => time,
        },
    };
    let victim = match table.get("victim") {
        None => false,
        Some(item) => match item.flag()? {
            true if level == 1 => {
                return Err(
                    item.wrong("no cache is before the first level, whose lines it could take")
                );
            }
            victim => victim,
        },
    };
    let through = match table.get("write") {
        None => false,
        Some(item) => match item.choice(&WRITE)? {
            true if level != 1 || holds == Holds::Instructions => {
                return Err(item.wrong("only a first level that holds data may be written through"));
            }
            through => through,
        },
    };
    let coalescing = match table.get("coalescing") {
        None => 0,
        Some(item) if !through => {
            return Err(item.wrong_hint(
                "nothing to merge without `write = \"through\"`",
                Some("it merges stores on their way to the next level".to_owned()),
            ));
        }
        Some(item) => {
            let line = u64::from(line);
            let size = item.quantity_within(&SIZE, line..=MOST * line, "1 to 64 lines")?;
            if size % line != 0 {
                return Err(
                    item.wrong(format!("{size} B are no whole number of lines of {line} B"))
                );
            }
            size
        }
    };
    Ok(Ported {
        victim,
        line_transfer,
        write_through: through.then_some(coalescing),
    })
}

/// What is written through a cache needs a next one, which is written to.
pub(super) fn has_next(item: Item<'_>, cache: &CacheLevel, caches: &[CacheLevel]) -> Checked<()> {
    if cache.write_through.is_none() {
        return Ok(());
    }
    let next = |pu: &u32| {
        let mut caches = caches.iter();
        caches.any(|other| {
            let next = other.level > 1 && other.holds != Holds::Instructions && !other.victim;
            next && other.shared_by.iter().flatten().any(|its| its == pu)
        })
    };
    match cache.shared_by.iter().flatten().find(|pu| !next(pu)) {
        None => Ok(()),
        Some(pu) => Err(item.wrong(format!(
            "PU {pu} has no next level for what it writes through this one"
        ))),
    }
}

/// Each PU of a victim cache must have a cache before it, for data as for instructions: nothing else fills it.
pub(super) fn has_feeders(
    item: Item<'_>,
    cache: &CacheLevel,
    caches: &[CacheLevel],
) -> Checked<()> {
    if !cache.victim {
        return Ok(());
    }
    // Caches that hold only `not` are on the other path.
    let fed = |pu: &u32, not: Holds| {
        let mut caches = caches.iter();
        cache.holds == not
            || caches.any(|other| {
                let before = other.level < cache.level && other.holds != not;
                before && other.shared_by.iter().flatten().any(|its| its == pu)
            })
    };
    let mut pus = cache.shared_by.iter().flatten();
    let lacking = pus.find(|pu| !fed(pu, Holds::Instructions) || !fed(pu, Holds::Data));
    match lacking {
        None => Ok(()),
        Some(pu) => Err(item.wrong_hint(
            format!("PU {pu} has no cache before this one that could fill it"),
            Some("a victim cache takes what a cache of a lower level evicts, for data and for instructions".to_owned()),
        )),
    }
}
