//! Reads a mix that is a recording of a real program.

use super::{
    import::Place,
    table::{Checked, Item, Table},
};
use crate::{
    model::Op,
    workload::{Depends, Mix, Trace},
};
use perch_trace::{Limits, TraceError};
use std::{collections::HashMap, path::PathBuf, sync::Arc};

/// Recordings that are read already.
pub(super) type Recordings = HashMap<PathBuf, Trace>;

/// The keys of a mix: those that describe its instructions, of a recording, and of a mix in another file.
pub(super) const MIX: [&str; 10] = [
    "shares",
    "depends",
    "extra",
    "mispredicted",
    "code",
    "working-sets",
    "trace",
    "thread",
    "from",
    "mix",
];

/// Those that describe instructions, none of which a recording can have.
const OTHERS: &[&str] = MIX.split_at(6).0;

/// The mix of a table with the key `trace`, whose value is `file`. Paths begin where the file itself is.
pub(super) fn read(
    name: &str,
    table: &Table<'_>,
    file: Item<'_>,
    place: &Place<'_>,
    known: &mut Recordings,
) -> Checked<Mix> {
    if let Some(item) = OTHERS.iter().find_map(|key| table.get(key)) {
        return Err(item.wrong("a mix with a `trace` executes what was recorded, nothing else"));
    }
    let words = file.text()?;
    let path = place.beside(words);
    let trace = match known.get(&path) {
        Some(trace) => trace.clone(),
        None => {
            let recording = perch_trace::read(&path, &Limits::default())
                .map_err(|error| refused(file, &error))?;
            let trace = Trace::new(words, None, Arc::new(recording));
            known.insert(path, trace.clone());
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
        depends: Depends::default(),
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
