//! Reads how lines move between a cache and those before it.

use super::{
    machine::latency,
    table::{Checked, Item, Table},
};
use crate::{
    model::{CacheLevel, Holds},
    units::Ps,
};

/// What a file says about a cache's place behind others.
pub(super) struct Ported {
    pub victim: bool,
    pub line_transfer: Ps,
}

/// Reads it. `cycle` is that of the cores that share the cache, if they have the same.
pub(super) fn read(table: &Table<'_>, level: u8, cycle: Option<Ps>) -> Checked<Ported> {
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
    Ok(Ported {
        victim,
        line_transfer,
    })
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
