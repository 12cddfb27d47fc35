//! Reads the prefetchers of a cache.

use super::{
    quantity::SIZE,
    table::{Checked, Item, Table},
};
use crate::model::{Pattern, Prefetcher};

const KEYS: &[&str] = &[
    "pattern",
    "streams",
    "after",
    "ahead",
    "max-stride",
    "page",
    "in-flight",
    "backlog",
];

const PATTERNS: [(&str, Pattern); 4] = [
    ("next-line", Pattern::NextLine),
    ("adjacent-line", Pattern::AdjacentLine),
    ("stream", Pattern::Stream),
    ("stride", Pattern::Stride),
];

/// The smallest page of most processors.
const PAGE: u64 = 4096;

/// The prefetchers of a cache with such lines, in the order of the file.
pub(super) fn read(item: Item<'_>, line: u32) -> Checked<Vec<Prefetcher>> {
    let tables = item.tables("a prefetcher", KEYS)?;
    tables.iter().map(|table| one(table, line)).collect()
}

fn one(table: &Table<'_>, line: u32) -> Checked<Prefetcher> {
    let pattern = table.need("pattern")?.choice(&PATTERNS)?;
    let whole = |key, default: u32, most: u32| {
        let item = table.get(key);
        item.map_or(Ok(default), |item| item.whole(1..=most))
    };
    let follows = matches!(pattern, Pattern::Stream | Pattern::Stride);
    for key in ["streams", "after", "max-stride"] {
        if let Some(item) = table.get(key).filter(|_| !follows) {
            return Err(item.wrong("only prefetchers of streams and strides have this"));
        }
    }
    if let Some(item) = table
        .get("ahead")
        .filter(|_| pattern == Pattern::AdjacentLine)
    {
        return Err(item.wrong("there is one adjacent line"));
    }
    let page = match table.get("page") {
        None => PAGE.max(u64::from(line)),
        Some(item) => {
            let page = item.quantity(&SIZE)?;
            if !page.is_power_of_two() || page < u64::from(line) {
                return Err(item.wrong("a page is a power of two, and at least a line"));
            }
            page
        }
    };
    let ahead = whole("ahead", 1, 256)?;
    // All lines of a page.
    let most = u32::try_from(page / u64::from(line)).unwrap_or(u32::MAX);
    let longest = match (table.get("max-stride"), pattern) {
        (None, Pattern::Stride) => most,
        (None, _) => ahead,
        (Some(item), _) => {
            let bytes = item.quantity(&SIZE)?;
            let lines = u32::try_from(bytes / u64::from(line)).unwrap_or(u32::MAX);
            if !(1..=most).contains(&lines) {
                return Err(item.wrong("a stride is at least a line, and at most a page"));
            }
            lines
        }
    };
    Ok(Prefetcher {
        pattern,
        streams: match follows {
            true => table.need("streams")?.whole(1..=4096)?,
            false => 0,
        },
        after: match pattern {
            Pattern::NextLine | Pattern::AdjacentLine => 1,
            Pattern::Stream => after(table, 2)?,
            Pattern::Stride => after(table, 3)?,
        },
        ahead,
        longest,
        page,
        under_way: whole("in-flight", u32::MAX, u32::MAX)?,
        backlog: whole("backlog", u32::MAX, u32::MAX)?,
    })
}

/// Needed lines in a row with which it begins: two make a direction.
fn after(table: &Table<'_>, default: u32) -> Checked<u32> {
    let item = table.get("after");
    item.map_or(Ok(default), |item| item.whole(2..=256))
}
