//! Which live threads belong to processes that perch has started or placed, also when perch itself died meanwhile.

use crate::proc::{Gone, Reader, has_mark, list_processes, list_tasks, session_of};
use perch_core::{MaskError, ProcessId, ThreadId, affinity::Descendant, machine::SESSION_VARIABLE};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// What decides about kinship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ancestry {
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    pub start: u64,
}

/// The processes of `all` that are known, descend from a known one, or are marked.
///
/// A process whose parent has ended shows another one (init, or a subreaper); it is recognised by its process group or
/// session, if the leader of that was a known process: while a group lives its number is not reused.
pub fn related(
    all: &BTreeMap<i32, Ancestry>,
    known: &[ProcessId],
    mut is_marked: impl FnMut(i32) -> bool,
) -> BTreeSet<i32> {
    // A known process still lives only if the start time agrees; else the number may belong to a stranger.
    let stranger = |id: &ProcessId| all.get(&id.pid).is_some_and(|kin| kin.start != id.start);
    let leaders: BTreeMap<i32, u64> = known
        .iter()
        .filter(|id| !stranger(id))
        .map(|id| (id.pid, id.start))
        .collect();
    let leads = |leader: i32, kin: &Ancestry| {
        leaders
            .get(&leader)
            .is_some_and(|start| kin.start >= *start)
    };
    let mut found: BTreeSet<i32> = all
        .iter()
        .filter(|(pid, kin)| {
            leaders.get(pid) == Some(&kin.start)
                || leads(kin.group, kin)
                || leads(kin.session, kin)
                || is_marked(**pid)
        })
        .map(|(pid, _)| *pid)
        .collect();
    loop {
        let children: Vec<i32> = all
            .iter()
            .filter(|(pid, kin)| {
                !found.contains(pid)
                    && found.contains(&kin.parent)
                    // A child is never older than its parent; if it is, the parent's number was given out again.
                    && all.get(&kin.parent).is_some_and(|parent| parent.start <= kin.start)
            })
            .map(|(pid, _)| *pid)
            .collect();
        if children.is_empty() {
            return found;
        }
        found.extend(children);
    }
}

/// See [`perch_core::Affinity::descendants`].
pub fn find(
    session: &str,
    processes: &[ProcessId],
    known: &dyn Fn(ThreadId) -> bool,
) -> Result<Vec<Descendant>, MaskError> {
    let unlisted = |gone: Gone| match gone {
        Gone::Ended => MaskError::Other("/proc is not mounted".to_owned()),
        Gone::Refused(errno) => MaskError::Other(format!(
            "/proc cannot be read: {}",
            std::io::Error::from(errno)
        )),
    };
    let mut reader = Reader::new();
    let mut all = BTreeMap::new();
    for pid in list_processes().map_err(unlisted)? {
        // `/proc/PID/stat` would add up the times of all threads first.
        match reader.stat(pid, pid) {
            Ok(stat) => {
                let kin = Ancestry {
                    parent: stat.parent,
                    group: stat.group,
                    session: stat.session,
                    start: stat.start,
                };
                all.insert(pid, kin);
            }
            Err(gone) if is_not_ours(gone) => {}
            Err(gone) => return Err(unlisted(gone)),
        }
    }
    // perch itself and its own kind are never descendants, though they may carry a mark (perch run under perch run).
    let own = std::process::id() as i32;
    let found = related(&all, processes, |pid| {
        !session.is_empty()
            && session_of(pid, SESSION_VARIABLE)
                .is_some_and(|value| has_mark(&value.to_string_lossy(), session))
    });
    let mut descendants = Vec::new();
    for pid in found.into_iter().filter(|pid| *pid != own) {
        let tasks = match list_tasks(pid) {
            Ok(tasks) => tasks,
            Err(gone) if is_not_ours(gone) => continue,
            Err(gone) => return Err(unlisted(gone)),
        };
        for tid in tasks {
            let start = match reader.stat(pid, tid) {
                Ok(stat) => stat.start,
                Err(gone) if is_not_ours(gone) => continue,
                Err(gone) => return Err(unlisted(gone)),
            };
            // The directory of a process number that went to another process meanwhile.
            if tid == pid && start != all[&pid].start {
                break;
            }
            let thread = ThreadId { tid, start };
            if known(thread) {
                continue;
            }
            let mask = match reader.status(pid, tid) {
                Ok(status) => status.mask,
                Err(gone) if is_not_ours(gone) => continue,
                Err(gone) => return Err(unlisted(gone)),
            };
            let process = ProcessId {
                pid,
                start: all[&pid].start,
            };
            descendants.extend(mask.map(|mask| Descendant {
                thread,
                process,
                parent: all[&pid].parent,
                mask,
            }));
        }
    }
    Ok(descendants)
}

/// Whether a file cannot be read because its thread has ended or is another user's, rather than for want of means.
fn is_not_ours(gone: Gone) -> bool {
    matches!(
        gone,
        Gone::Ended | Gone::Refused(Errno::ACCESS | Errno::PERM)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kin(parent: i32, group: i32, session: i32, start: u64) -> Ancestry {
        Ancestry {
            parent,
            group,
            session,
            start,
        }
    }

    fn id(pid: i32, start: u64) -> ProcessId {
        ProcessId { pid, start }
    }

    #[test]
    fn descendants_orphans_and_marked_processes() {
        let all = BTreeMap::from([
            (1, kin(0, 1, 1, 0)),
            (10, kin(1, 10, 10, 50)),
            (11, kin(10, 10, 10, 60)),
            (12, kin(11, 12, 12, 70)),
            // Its parent ended, but it is still in the known process' group.
            (13, kin(1, 10, 10, 65)),
            // A stranger, and one that carries the mark.
            (14, kin(1, 14, 14, 66)),
            (15, kin(1, 15, 15, 67)),
        ]);
        let found = related(&all, &[id(10, 50)], |pid| pid == 15);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [10, 11, 12, 13, 15]);
    }

    #[test]
    fn a_number_given_out_again_is_a_stranger_with_all_its_family() {
        let all = BTreeMap::from([(10, kin(1, 10, 10, 500)), (11, kin(10, 10, 10, 501))]);
        assert!(related(&all, &[id(10, 50)], |_| false).is_empty());
    }

    #[test]
    fn a_leader_that_ended_still_names_its_group() {
        let all = BTreeMap::from([(11, kin(1, 10, 10, 60)), (12, kin(1, 10, 10, 40))]);
        // 12 is older than the known leader: its group had that number before.
        assert_eq!(
            related(&all, &[id(10, 50)], |_| false),
            BTreeSet::from([11])
        );
    }

    proptest! {
        #[test]
        fn what_is_found_is_closed_under_descent(
            parents in proptest::collection::vec(0..30i32, 1..30), first in 1..30i32,
        ) {
            let all: BTreeMap<i32, Ancestry> = parents
                .iter()
                .enumerate()
                .map(|(at, parent)| (at as i32 + 1, kin(*parent, 1000, 1000, 7)))
                .collect();
            let found = related(&all, &[id(first, 7)], |_| false);
            for (pid, kin) in &all {
                let by_parent = all.contains_key(&kin.parent) && found.contains(&kin.parent);
                prop_assert_eq!(found.contains(pid), *pid == first || by_parent);
            }
        }
    }
}
