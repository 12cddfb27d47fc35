//! One region of many threads and processes.

use crate::{MOST_REGIONS, Region, Report};
use perch_stat::Amounts;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// What all threads did in one region.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Merged {
    /// The names of the regions around it, outermost first, and its own.
    pub path: Vec<Arc<str>>,
    /// How often it was stopped, by all threads.
    pub calls: u64,
    /// How many threads were in it without having stopped it when they were counted last.
    pub open: u32,
    /// How many processes they are of.
    pub processes: u32,
    /// Whether a process may have done more in it after its last report ([`Report::complete`]).
    pub incomplete: bool,
    /// Nanoseconds from starts to stops, of the thread that was in it longest.
    pub wall: u64,
    /// What the threads did, as a sum; its members are the threads that were in it.
    pub amounts: Amounts,
}

#[derive(Default)]
struct Node {
    merged: Merged,
    processes: HashSet<i32>,
    /// PID and TID of threads that stand for themselves.
    threads: HashSet<(i32, i32)>,
    children: Vec<usize>,
    by_name: HashMap<Arc<str>, usize>,
}

/// The regions of these reports, each before those in it; neighbours in the order in which they were seen first. Beyond
/// [`MOST_REGIONS`], regions are left out; the number is how many.
pub fn merge<'a>(reports: impl IntoIterator<Item = &'a Report>) -> (Vec<Merged>, u64) {
    let mut nodes = vec![Node::default()];
    let mut left_out = 0;
    for report in reports {
        for region in &report.regions {
            match find(&mut nodes, region) {
                Some(at) => nodes[at].add(report, region),
                None => left_out += 1,
            }
        }
    }
    let mut order = Vec::with_capacity(nodes.len() - 1);
    let mut ahead: Vec<usize> = nodes[0].children.iter().rev().copied().collect();
    while let Some(at) = ahead.pop() {
        order.push(at);
        ahead.extend(nodes[at].children.iter().rev());
    }
    let merged = order
        .into_iter()
        .map(|at| std::mem::take(&mut nodes[at].merged));
    (merged.collect(), left_out)
}

/// The node of a region; regions around it that no report has are made.
fn find(nodes: &mut Vec<Node>, region: &Region) -> Option<usize> {
    let mut at = 0;
    for (depth, name) in region.path.iter().enumerate() {
        at = match nodes[at].by_name.get(name) {
            Some(child) => *child,
            None if nodes.len() > MOST_REGIONS => return None,
            None => {
                let child = nodes.len();
                let mut node = Node::default();
                node.merged.path = region.path[..=depth].to_vec();
                nodes.push(node);
                nodes[at].children.push(child);
                nodes[at].by_name.insert(Arc::clone(name), child);
                child
            }
        };
    }
    Some(at)
}

impl Node {
    fn add(&mut self, report: &Report, region: &Region) {
        let merged = &mut self.merged;
        merged.incomplete |= !report.complete;
        merged.calls = merged.calls.saturating_add(region.calls);
        merged.open += u32::from(region.open);
        merged.wall = merged.wall.max(region.wall);
        merged.amounts.add(&region.amounts);
        // A process that counted twice, or executed another program, has left several reports of a thread.
        if region.amounts.members == 1 && !self.threads.insert((report.pid, region.tid)) {
            merged.amounts.members = merged.amounts.members.saturating_sub(1);
        }
        self.processes.insert(report.pid);
        merged.processes = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(path: &str, tid: i32, wall: u64) -> Region {
        let mut amounts = Amounts::default();
        (amounts.members, amounts.cpu_time) = (1, wall / 2);
        Region {
            path: path.split('/').map(Into::into).collect(),
            tid,
            thread: "t".into(),
            calls: 1,
            open: false,
            wall,
            amounts,
        }
    }

    fn report(pid: i32, regions: Vec<Region>) -> Report {
        Report {
            pid,
            regions,
            complete: true,
            ..Report::default()
        }
    }

    #[test]
    fn threads_and_processes_are_added_up_and_inner_regions_follow_outer_ones() {
        let first = report(
            1,
            vec![
                region("b", 1, 10),
                region("a/x", 1, 4),
                region("b/y", 2, 6),
                region("b", 2, 30),
            ],
        );
        let mut second = report(2, vec![region("b", 9, 20)]);
        second.complete = false;
        let (merged, left_out) = merge([&first, &second]);
        let seen: Vec<_> = merged
            .iter()
            .map(|region| {
                (
                    region.path.join("/"),
                    region.amounts.members,
                    region.processes,
                    region.wall,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("b".to_owned(), 3, 2, 30),
                ("b/y".to_owned(), 1, 1, 6),
                ("a".to_owned(), 0, 0, 0),
                ("a/x".to_owned(), 1, 1, 4),
            ]
        );
        assert_eq!((merged[0].amounts.cpu_time, left_out), (30, 0));
        let incomplete: Vec<bool> = merged.iter().map(|region| region.incomplete).collect();
        assert_eq!(incomplete, [true, false, false, false]);
    }

    #[test]
    fn a_thread_that_was_counted_twice_is_one() {
        let twice = [1, 2].map(|calls| {
            let region = Region {
                calls,
                ..region("b", 7, 10)
            };
            report(1, vec![region])
        });
        let (merged, _) = merge(&twice);
        let found = &merged[0];
        assert_eq!(
            (
                found.amounts.members,
                found.processes,
                found.calls,
                found.amounts.cpu_time
            ),
            (1, 1, 3, 10)
        );
    }

    proptest! {
        #[test]
        fn nothing_is_lost(paths in proptest::collection::vec(("[abc](/[abc]){0,3}", 0u64..1000), 0..30)) {
            let regions: Vec<Region> = paths.iter().map(|(path, wall)| region(path, 1, *wall)).collect();
            let cpu: u64 = regions.iter().map(|region| region.amounts.cpu_time).sum();
            let calls = regions.len() as u64;
            let (merged, left_out) = merge([&report(1, regions)]);
            prop_assert_eq!(left_out, 0);
            prop_assert_eq!(merged.iter().map(|region| region.calls).sum::<u64>(), calls);
            prop_assert_eq!(merged.iter().map(|region| region.amounts.cpu_time).sum::<u64>(), cpu);
            for (at, region) in merged.iter().enumerate().filter(|(_, region)| region.path.len() > 1) {
                let around = &region.path[..region.path.len() - 1];
                prop_assert!(merged[..at].iter().any(|other| other.path == around));
            }
        }
    }
}
