//! Which live threads belong to processes that perch has started or placed, also when perch itself died meanwhile.

use crate::proc::{Gone, Reader, has_mark, list_processes, list_tasks, session_of};
use perch_core::{
    MaskError, ProcessId, ThreadId,
    affinity::{ByGroup, Descendant},
    machine::SESSION_VARIABLE,
};
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

/// The processes of `all` that are known, descend from a known one, or are marked; each with the group if that alone
/// says so.
///
/// A process whose parent has ended shows another one (init, or a subreaper). A session is inherited and never joined, so
/// all that are in one that a known process leads descend from it. A group is joined too, by processes of the same
/// session. While either lives, the number of its leader is not reused.
pub fn related(
    all: &BTreeMap<i32, Ancestry>,
    known: &[ProcessId],
    own: i32,
    mut is_marked: impl FnMut(i32) -> bool,
) -> BTreeMap<i32, Option<ByGroup>> {
    // A known process still lives only if the start time agrees; else the number may belong to an unrelated process.
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
    let mut found: BTreeMap<i32, Option<ByGroup>> = all
        .iter()
        .filter(|(pid, kin)| {
            leaders.get(pid) == Some(&kin.start) || leads(kin.session, kin) || is_marked(**pid)
        })
        .map(|(pid, _)| (*pid, None))
        .collect();
    add_children(all, &mut found);
    // A parent in another session is no shell that has put its child into a group of its own session.
    let lost_parent = |kin: &Ancestry| {
        let parent = all.get(&kin.parent).filter(|_| kin.parent > 1);
        kin.parent == own || parent.is_none_or(|parent| parent.session != kin.session)
    };
    let members = all.iter();
    let members =
        members.filter(|(pid, kin)| !found.contains_key(pid) && leaders.contains_key(&kin.group));
    let (orphans, strangers): (Vec<_>, Vec<_>) =
        members.partition(|(_, kin)| lost_parent(kin) && leads(kin.group, kin));
    let shared: BTreeSet<i32> = strangers.iter().map(|(_, kin)| kin.group).collect();
    found.extend(orphans.into_iter().map(|(pid, kin)| {
        let leader = kin.group;
        let shared = shared.contains(&leader);
        (*pid, Some(ByGroup { leader, shared }))
    }));
    add_children(all, &mut found);
    found
}

/// Adds what descends from those that are found.
fn add_children(all: &BTreeMap<i32, Ancestry>, found: &mut BTreeMap<i32, Option<ByGroup>>) {
    loop {
        let children: Vec<(i32, Option<ByGroup>)> = all
            .iter()
            .filter(|(pid, _)| !found.contains_key(pid))
            .filter_map(|(pid, kin)| {
                // A child is never older than its parent; if it is, the parent's number was given out again.
                let parent = all.get(&kin.parent)?;
                let of = found.get(&kin.parent)?;
                (parent.start <= kin.start).then_some((*pid, *of))
            })
            .collect();
        if children.is_empty() {
            return;
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
    let found = related(&all, processes, own, |pid| {
        !session.is_empty()
            && session_of(pid, SESSION_VARIABLE)
                .is_some_and(|value| has_mark(&value.to_string_lossy(), session))
    });
    let mut descendants = Vec::new();
    for (pid, by_group) in found.into_iter().filter(|(pid, _)| *pid != own) {
        let tasks = match list_tasks(pid) {
            Ok(tasks) => tasks,
            Err(gone) if is_not_ours(gone) => continue,
            Err(gone) => return Err(unlisted(gone)),
        };
        for tid in tasks {
            let start = match reader.stat(pid, tid) {
                // Only the kernel gives such a thread its mask: workers of its work queues, for instance.
                Ok(stat) if stat.refuses_affinity() => continue,
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
                by_group,
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

    #[test]
    fn workers_of_the_kernel_inherit_nothing_from_perch() {
        let mut reader = Reader::new();
        let kthreadd = match reader.stat(2, 2) {
            Ok(stat) if stat.name() == "kthreadd" => ProcessId {
                pid: 2,
                start: stat.start,
            },
            // Only the first PID namespace shows them.
            _ => return,
        };
        let found = find("", &[kthreadd], &|_| false).unwrap();
        assert!(found.iter().any(|found| found.parent == 2));
        for descendant in found {
            let ThreadId { tid, .. } = descendant.thread;
            if let Ok(stat) = reader.stat(descendant.process.pid, tid) {
                assert!(!stat.refuses_affinity(), "{}", stat.name());
            }
        }
    }

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

    /// What is found, and whether more than a group says so.
    fn found(all: &BTreeMap<i32, Ancestry>, known: &[ProcessId]) -> BTreeMap<i32, Option<ByGroup>> {
        related(all, known, 9, |pid| pid == 15)
    }

    fn by_group(leader: i32, shared: bool) -> Option<ByGroup> {
        Some(ByGroup { leader, shared })
    }

    #[test]
    fn descendants_orphans_and_marked_processes() {
        let all = BTreeMap::from([
            (1, kin(0, 1, 1, 0)),
            (10, kin(1, 10, 10, 50)),
            (11, kin(10, 10, 10, 60)),
            (12, kin(11, 12, 12, 70)),
            // Its parent ended, but it is still in the known process's session.
            (13, kin(1, 10, 10, 65)),
            // An unrelated process, and one that carries the mark.
            (14, kin(1, 14, 14, 66)),
            (15, kin(1, 15, 15, 67)),
        ]);
        let sure = [10, 11, 12, 13, 15].map(|pid| (pid, None));
        assert_eq!(found(&all, &[id(10, 50)]), BTreeMap::from(sure));
    }

    #[test]
    fn a_number_given_out_again_is_a_stranger_with_all_its_family() {
        let all = BTreeMap::from([(10, kin(1, 10, 10, 500)), (11, kin(10, 10, 10, 501))]);
        assert!(found(&all, &[id(10, 50)]).is_empty());
    }

    #[test]
    fn a_leader_that_ended_still_names_its_session_and_its_group() {
        let all = BTreeMap::from([(11, kin(1, 10, 10, 60)), (12, kin(1, 10, 10, 40))]);
        // 12 is older than the known leader: its session had that number before.
        assert_eq!(found(&all, &[id(10, 50)]), BTreeMap::from([(11, None)]));
        let all = BTreeMap::from([(11, kin(1, 10, 3, 60))]);
        assert_eq!(
            found(&all, &[id(10, 50)]),
            BTreeMap::from([(11, by_group(10, false))])
        );
    }

    /// `app1 | app2` of a shell, 3; app1 alone is known. Then daemons of one of them, whose parents have ended.
    #[test]
    fn a_member_of_a_group_is_unrelated_unless_it_has_lost_its_parent() {
        let mut all = BTreeMap::from([
            (1, kin(0, 1, 1, 0)),
            (2, kin(1, 2, 2, 1)),
            (3, kin(2, 3, 3, 40)),
            (10, kin(3, 10, 3, 50)),
            (11, kin(3, 10, 3, 51)),
            (12, kin(11, 10, 3, 60)),
        ]);
        let app1 = BTreeMap::from([(10, None)]);
        assert_eq!(found(&all, &[id(10, 50)]), app1);
        // They went to init, to another session's subreaper, or to this perch; and one has a child.
        all.extend([
            (20, kin(1, 10, 3, 70)),
            (21, kin(2, 10, 3, 71)),
            (22, kin(9, 10, 3, 72)),
            (23, kin(20, 23, 23, 73)),
        ]);
        let orphans = |shared| [20, 21, 22, 23].map(|pid| (pid, by_group(10, shared)));
        let with = |shared| app1.clone().into_iter().chain(orphans(shared)).collect();
        assert_eq!(found(&all, &[id(10, 50)]), with(true));
        // Without the strangers.
        all.retain(|pid, _| ![11, 12].contains(pid));
        assert_eq!(found(&all, &[id(10, 50)]), with(false));
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
            let found = related(&all, &[id(first, 7)], 1001, |_| false);
            for (pid, kin) in &all {
                let by_parent = all.contains_key(&kin.parent) && found.contains_key(&kin.parent);
                prop_assert_eq!(found.contains_key(pid), *pid == first || by_parent);
            }
        }
    }
}
