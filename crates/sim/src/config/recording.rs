//! Reads a mix that is a recording of a real program.

use super::table::{Checked, Item, Table};
use crate::{
    model::Op,
    workload::{Mix, Trace},
};
use perch_trace::{Limits, TraceError};
use std::{collections::HashMap, path::Path, sync::Arc};

/// Recordings that are read already, by the file's own words.
pub(super) type Recordings = HashMap<String, Trace>;

/// What a mix has besides, none of which a recording can have.
const OTHERS: [&str; 6] = [
    "shares",
    "depends",
    "extra",
    "mispredicted",
    "code",
    "working-sets",
];

/// The mix of a table with the key `trace`, whose value is `file`. Paths begin where the workload's own file is.
pub(super) fn read(
    name: &str,
    table: &Table<'_>,
    file: Item<'_>,
    workload: &str,
    known: &mut Recordings,
) -> Checked<Mix> {
    if let Some(item) = OTHERS.iter().find_map(|key| table.get(key)) {
        return Err(item.wrong("a mix with a `trace` executes what was recorded, nothing else"));
    }
    let words = file.text()?;
    let trace = match known.get(words) {
        Some(trace) => trace.clone(),
        None => {
            let folder = Path::new(workload).parent().unwrap_or(Path::new(""));
            let recording = perch_trace::read(&folder.join(words), &Limits::default())
                .map_err(|error| refused(file, &error))?;
            let trace = Trace::new(words, None, Arc::new(recording));
            known.insert(words.to_owned(), trace.clone());
            trace
        }
    };
    let threads = trace.recording().threads();
    if threads.iter().all(|thread| thread.instructions == 0) {
        return Err(file.wrong("no thread of this recording has an instruction"));
    }
    let thread = match table.get("thread") {
        None => None,
        Some(item) => {
            let number = item.whole(1..=u32::MAX)? as usize;
            match threads.get(number - 1) {
                None => {
                    let count = threads.len();
                    return Err(item.wrong(format!("the recording has the threads 1 to {count}")));
                }
                Some(thread) if thread.instructions == 0 => {
                    return Err(item.wrong("this thread has no instructions"));
                }
                Some(_) => Some(number - 1),
            }
        }
    };
    Ok(Mix {
        name: name.to_owned(),
        shares: [0.0; Op::COUNT],
        depends: 0,
        extra: 0,
        mispredicted: 0.0,
        code_bytes: trace.layout().bytes(),
        working_sets: Vec::new(),
        trace: Some(trace.with_thread(thread)),
    })
}

fn refused(item: Item<'_>, error: &TraceError) -> Box<super::Diagnostic> {
    item.wrong_hint(
        error.to_string(),
        Some("recordings are made by `perch record-trace`; docs/traces.md".to_owned()),
    )
}
