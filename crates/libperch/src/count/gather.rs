//! Reports and values from what the threads counted.

use super::{
    names,
    plan::Plan,
    process::Process,
    thread::{Node, Thread},
};
use crate::{CountValue, Values};
use perch_regions::{Region, Report, Sample, merge};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// All regions of all threads as they are now.
pub(crate) fn report(process: &Process, with_samples: bool) -> Report {
    let plan = &process.plan;
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let mut report = Report {
        pid: process.pid,
        program: Arc::clone(&plan.program),
        counted_by: plan.counted_by(),
        events: plan.columns.events.clone(),
        remarks: plan.remarks.clone(),
        ..Report::default()
    };
    let (mut lost_regions, mut lost_samples) = (0, 0);
    let mut remarks = BTreeSet::new();
    process.each(|thread| {
        let nodes = thread.regions(thread.tid() == own);
        let paths = paths(&nodes, &names::all());
        add_regions(&mut report, thread, &nodes, &paths, plan);
        if with_samples {
            add_samples(&mut report, thread, &paths, process);
        }
        lost_regions += thread.lost_regions;
        lost_samples += thread.lost_samples;
        remarks.extend(thread.remark.clone());
    });
    report.samples.sort_by_key(|sample| sample.at);
    report.remarks.extend(remarks);
    if lost_regions > 0 {
        report.remarks.push(format!(
            "{lost_regions} starts of regions were not counted: too many regions or names, or too many regions inside each other"
        ));
    }
    if lost_samples > 0 && with_samples {
        report
            .remarks
            .push(format!("{lost_samples} samples were not kept: too many"));
    }
    report
}

/// The path of each node.
fn paths(nodes: &[Node], names: &[Arc<str>]) -> Vec<Vec<Arc<str>>> {
    let mut paths: Vec<Vec<Arc<str>>> = vec![Vec::new()];
    for node in &nodes[1..] {
        let mut path = paths[node.parent].clone();
        path.extend(names.get(node.name as usize).cloned());
        paths.push(path);
    }
    paths
}

fn add_regions(
    report: &mut Report,
    thread: &Thread,
    nodes: &[Node],
    paths: &[Vec<Arc<str>>],
    plan: &Plan,
) {
    for (node, path) in nodes.iter().zip(paths).skip(1) {
        // Reset, and not used since.
        if node.calls == 0 && !node.open && node.part.wall == 0 {
            continue;
        }
        report.regions.push(Region {
            path: path.clone(),
            tid: thread.tid(),
            thread: Arc::clone(&thread.name),
            calls: node.calls,
            open: node.open,
            wall: node.part.wall,
            amounts: node.part.amounts(plan, node.threads),
        });
    }
}

fn add_samples(report: &mut Report, thread: &Thread, paths: &[Vec<Arc<str>>], process: &Process) {
    let plan = &process.plan;
    report.samples.extend(thread.samples.iter().map(|sample| {
        Sample {
            path: paths[sample.node].clone(),
            tid: thread.tid(),
            end: sample.end,
            at: sample.at.saturating_sub(process.began),
            wall: sample.part.wall,
            set: plan
                .counters
                .as_ref()
                .map(|counters| counters.number(sample.set)),
            amounts: sample.part.amounts(plan, 1),
        }
    }));
}

/// The values of the regions of this name, of one thread or of all; `None` if there are none. Of a region that is inside
/// one of the same name, only the outer one counts.
pub(crate) fn values(report: &Report, plan: &Plan, name: &str, tid: Option<i32>) -> Option<Values> {
    let mut of_name = Report::default();
    let is_outermost = |path: &[Arc<str>]| {
        path.split_last().is_some_and(|(last, around)| {
            **last == *name && !around.iter().any(|outer| **outer == *name)
        })
    };
    let mut by_thread: BTreeMap<i32, Region> = BTreeMap::new();
    for region in &report.regions {
        if !is_outermost(&region.path) || tid.is_some_and(|tid| tid != region.tid) {
            continue;
        }
        // A region of a thread may be in several others: its time adds up, that of threads does not.
        match by_thread.get_mut(&region.tid) {
            Some(sum) => {
                sum.calls += region.calls;
                sum.open |= region.open;
                sum.wall += region.wall;
                sum.amounts.add(&region.amounts);
                sum.amounts.members = region.amounts.members.max(1);
            }
            None => {
                let path = vec![Arc::from(name)];
                by_thread.insert(
                    region.tid,
                    Region {
                        path,
                        ..region.clone()
                    },
                );
            }
        }
    }
    of_name.regions = by_thread.into_values().collect();
    let (merged, _) = merge([&of_name]);
    let merged = merged.into_iter().next()?;
    let amounts = &merged.amounts;
    let counts = plan.columns.events.iter().filter_map(|(event, alias)| {
        let value = amounts.value(alias)?;
        let count = CountValue {
            value: value.estimate(amounts.covered),
            counted: value.counted,
            share: value.share(amounts.covered),
            doubt: value.doubt,
        };
        Some((event.to_string(), count))
    });
    let metrics = plan.metrics(amounts, merged.wall).values;
    Some(Values {
        calls: merged.calls,
        threads: amounts.members,
        open: merged.open,
        wall_seconds: merged.wall as f64 / 1e9,
        cpu_seconds: amounts.cpu_time as f64 / 1e9,
        counted_seconds: amounts.covered as f64 / 1e9,
        counts: counts.collect(),
        metrics: metrics
            .iter()
            .map(|(name, metric)| (name.to_string(), metric.value))
            .collect(),
    })
}
