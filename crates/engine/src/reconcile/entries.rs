//! What is noted in journals about threads and processes.

use crate::{
    journal::{Knob, ProcessRecord, Record, SetRecord},
    ownership::Ownership,
};
use perch_core::{Affinity, MaskChange, MaskError, ProcessId, ThreadId};
use std::collections::BTreeMap;

/// The target to which a thread belongs, with its process.
pub(super) fn target_of(ownership: &Ownership, thread: ThreadId) -> (u32, i32) {
    let pid = ownership.get(thread).map_or(0, |owned| owned.pid);
    (ownership.target(pid), pid)
}

/// A thread that must be left alone.
pub(super) fn freed(ownership: &Ownership, thread: ThreadId) -> Option<Record> {
    let owned = ownership.get(thread)?;
    let process = owned.pid;
    Some(match owned.is_foreign() {
        true => Record::Placed {
            thread,
            process,
            mask: owned.before.clone(),
        },
        false => Record::Free { thread, process },
    })
}

/// A change of a mask, made at `at`, with the thread's target.
pub(super) fn set_record(
    ownership: &Ownership,
    change: &MaskChange,
    at: u64,
) -> Option<(u32, Record)> {
    let (target, process) = target_of(ownership, change.thread);
    let owned = ownership.get(change.thread)?;
    let record = SetRecord {
        thread: change.thread,
        process,
        knob: Knob::Affinity,
        before: owned.before.clone(),
        whole: Some(owned.whole),
        from: owned.asked.iter().cloned().collect(),
        set: change.set.clone(),
        let_go: Some(change.set == owned.before),
        at,
    };
    Some((target, Record::Set(record)))
}

/// The records for each target's journal, in their order.
pub(super) fn by_target(records: Vec<(u32, Record)>) -> BTreeMap<u32, Vec<Record>> {
    let mut targets = BTreeMap::<u32, Vec<Record>>::new();
    for (target, record) in records {
        targets.entry(target).or_default().push(record);
    }
    targets
}

/// A process whose threads perch has not looked at.
pub(super) fn unseen(id: ProcessId) -> Record {
    Record::Process(ProcessRecord {
        id,
        image: None,
        unseen: true,
        first_ended: false,
        ended: None,
    })
}

/// A process with the program that it executes now.
pub(super) fn process_record(affinity: &dyn Affinity, id: ProcessId) -> Record {
    let ProcessId { pid: tid, start } = id;
    Record::Process(ProcessRecord {
        id,
        image: affinity.image(id),
        unseen: false,
        first_ended: affinity.mask(ThreadId { tid, start }) == Err(MaskError::Gone),
        ended: None,
    })
}
