//! Reads where the cores are: `[topology]` where all are alike, `[[cores]]` where they are not.

use super::{
    kind::MOST_PUS,
    table::{Checked, Item, Table},
};
use crate::model::{CoreAt, CoreKind};

/// The cores of a machine, in the order of their PUs.
pub(super) fn read(file: &Table<'_>, kinds: &[CoreKind]) -> Checked<Vec<CoreAt>> {
    let (item, cores) = match (file.get("topology"), file.get("cores")) {
        (Some(item), None) => (item, even(item, kinds)?),
        (None, Some(item)) => (item, listed(item, kinds)?),
        (Some(_), Some(item)) => {
            return Err(item.wrong("either `[topology]` or `[[cores]]`, not both"));
        }
        (None, None) => return Err(file.wrong("a machine needs `[topology]` or `[[cores]]`")),
    };
    let pus: u64 = cores
        .iter()
        .map(|core| u64::from(kinds[core.kind].contexts))
        .sum();
    if pus > u64::from(MOST_PUS) {
        return Err(item.wrong(format!("{pus} PUs; {MOST_PUS} is the most")));
    }
    Ok(cores)
}

/// The same number of cores everywhere: in each of some nodes in each package (`numa-nodes`), or in each of some packages
/// around a node (`nodes`, counted over the machine), as on a front-side bus.
fn even(item: Item<'_>, kinds: &[CoreKind]) -> Checked<Vec<CoreAt>> {
    let table = item.table(
        "the topology",
        &["packages", "numa-nodes", "nodes", "cores", "kind"],
    )?;
    let count = |item: Item<'_>| item.whole(1..=MOST_PUS);
    let packages = table.get("packages").map_or(Ok(1), count)?;
    let cores = count(table.need("cores")?)?;
    let kind = which(&table, kinds)?;
    // How many pieces have cores of their own, and how many of them are a package and a node.
    let (pieces, package, node) = match (table.get("numa-nodes"), table.get("nodes")) {
        (Some(_), Some(item)) => {
            return Err(item.wrong(
                "either `numa-nodes` (of each package) or `nodes` (of the machine), not both",
            ));
        }
        (Some(item), None) => {
            let each = count(item)?;
            (u64::from(packages) * u64::from(each), each, 1)
        }
        (None, Some(item)) => {
            let nodes = count(item)?;
            if nodes % packages == 0 {
                (u64::from(nodes), nodes / packages, 1)
            } else if packages % nodes == 0 {
                (u64::from(packages), 1, packages / nodes)
            } else {
                return Err(item.wrong(format!(
                    "{nodes} nodes of {packages} packages: as many of the one must fit into each of the other"
                )));
            }
        }
        (None, None) => (u64::from(packages), 1, 1),
    };
    let all = pieces * u64::from(cores);
    if all > u64::from(MOST_PUS) {
        return Err(item.wrong(format!("{all} cores; {MOST_PUS} PUs is the most")));
    }
    let piece = |piece: u32| {
        (0..cores).map(move |_| CoreAt {
            kind,
            package: piece / package,
            numa_node: piece / node,
        })
    };
    Ok((0..pieces as u32).flat_map(piece).collect())
}

/// Some cores after the other, each with its kind and place.
fn listed(item: Item<'_>, kinds: &[CoreKind]) -> Checked<Vec<CoreAt>> {
    let mut cores: Vec<CoreAt> = Vec::new();
    for table in item.tables("a group of cores", &["kind", "count", "package", "node"])? {
        let count = table
            .get("count")
            .map_or(Ok(1), |count| count.whole(1..=MOST_PUS))?;
        let place = |key| {
            table
                .get(key)
                .map_or(Ok(0), |item| item.whole(0..=MOST_PUS - 1))
        };
        let core = CoreAt {
            kind: which(&table, kinds)?,
            package: place("package")?,
            numa_node: place("node")?,
        };
        if cores.len() + count as usize > MOST_PUS as usize {
            return Err(table.wrong(format!("more than {MOST_PUS} cores")));
        }
        if table.get("node").is_none()
            && let Some(other) = cores.iter().find(|other| other.numa_node == core.numa_node)
            && other.package != core.package
        {
            return Err(table.wrong(format!(
                "NUMA node {0} is in package {1} already: nodes are counted over the machine; if the packages share \
                 its memory, say `node = {0}`",
                core.numa_node, other.package
            )));
        }
        cores.extend((0..count).map(|_| core));
    }
    let around = |core: &CoreAt, other: &CoreAt| {
        core.package != other.package && core.numa_node == other.numa_node
    };
    let cut = cores.iter().find(|core| {
        let shared = cores.iter().any(|other| around(core, other));
        let apart =
            |other: &CoreAt| other.package == core.package && other.numa_node != core.numa_node;
        shared && cores.iter().any(apart)
    });
    if let Some(core) = cut {
        return Err(item.wrong(format!(
            "NUMA node {} has a part of package {} and another package: a node may span whole packages only",
            core.numa_node, core.package
        )));
    }
    let gap = |number: &dyn Fn(&CoreAt) -> u32| {
        let most = cores.iter().map(number).max().unwrap_or(0);
        (0..most).find(|wanted| !cores.iter().any(|core| number(core) == *wanted))
    };
    if let Some(package) = gap(&|core| core.package) {
        return Err(item.wrong(format!(
            "package {package} has no cores: packages are counted from 0"
        )));
    }
    if let Some(node) = gap(&|core| core.numa_node) {
        return Err(item.wrong(format!(
            "NUMA node {node} has no cores: nodes are counted from 0"
        )));
    }
    Ok(cores)
}

/// The kind that a table names; it need not where there is one only.
fn which(table: &Table<'_>, kinds: &[CoreKind]) -> Checked<usize> {
    match table.get("kind") {
        Some(item) => item.reference("kind of core", kinds.iter().map(|kind| kind.name.as_str())),
        None if kinds.len() == 1 => Ok(0),
        None => table.need("kind").map(|_| 0),
    }
}
