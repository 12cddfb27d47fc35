//! Which events a recording has counts of.

use anyhow::Result;
use perch_engine::recording::{Record, Recording};
use std::{collections::BTreeSet, path::Path, sync::Arc};

/// The events of which some period has a count; `None` for a pipe, which can be read only once.
///
/// # Errors
/// A damaged recording.
pub fn events(file: &Path) -> Result<Option<BTreeSet<Arc<str>>>> {
    if !std::fs::metadata(file).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let mut recording = Recording::open(file)?;
    let mut counted = BTreeSet::new();
    while let Some(record) = recording.read()? {
        let Record::Period(period) = record else {
            continue;
        };
        let observation = &period.observation;
        let of_threads = observation.threads.iter().flat_map(|sample| &sample.counts);
        let of_pus = observation.pus.iter().flat_map(|sample| &sample.counts);
        for count in of_threads.chain(of_pus) {
            if !counted.contains(&count.alias) {
                counted.insert(Arc::clone(&count.alias));
            }
        }
    }
    Ok(Some(counted))
}
