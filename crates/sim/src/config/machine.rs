//! Reads a machine.

use super::{
    caches,
    cycles::{common_cycle, latency},
    energy, kind, os,
    quantity::BANDWIDTH,
    table::{Checked, Item, Source, Table},
    tlb, topology,
};
use crate::{
    model::{CacheLevel, CoreAt, Holds, MachineModel, MemoryModel, OsModel, SchedulerKind},
    units::Ps,
};

/// Reads and checks a machine; `name` is the file's.
pub(super) fn read(source: Source<'_>, name: &str) -> Checked<MachineModel> {
    let root = source.parse()?;
    let known = &[
        "about",
        "sources",
        "scale",
        "scheduler",
        "skew-tick",
        "noise",
        "costs",
        "topology",
        "cores",
        "kinds",
        "caches",
        "tlb",
        "memory",
        "energy",
    ];
    let file = Table::new(source, root.get_ref(), 0..0, "a machine", known)?;
    let about = file.need("about")?.text()?.to_owned();
    let sources = texts(file.get("sources"))?;
    let scale = file
        .get("scale")
        .map_or(Ok(1.0), |scale| scale.number(1.0..=1e6))?;
    let scheduler = file
        .get("scheduler")
        .map_or(Ok(SchedulerKind::default()), |item| {
            item.choice(&SchedulerKind::ALL)
        })?;
    let kinds = kind::read(file.need("kinds")?)?;
    let cores = topology::read(&file, &kinds)?;
    let mut machine = MachineModel {
        name: name.to_owned(),
        about,
        sources,
        scale,
        scheduler,
        os: OsModel::default(),
        kinds,
        cores,
        caches: Vec::new(),
        tlb: None,
        memory: MemoryModel {
            latency: 0,
            bandwidth: 0.0,
            link_bandwidth: 0.0,
            distance: Vec::new(),
        },
        energy: None,
    };
    machine.os = os::read(&file, &machine)?;
    machine.caches = caches::read(file.need("caches")?, &machine)?;
    own_misses(&mut machine);
    misses_of_stores(&mut machine);
    let cycle = common_cycle(&machine.kinds, machine.cores.iter());
    if let Some(tlb) = file.get("tlb") {
        tlb::read(tlb, cycle, &mut machine)?;
    }
    machine.memory = read_memory(file.need("memory")?, cycle, &machine.cores)?;
    machine.energy = file
        .get("energy")
        .map(|item| energy::read(item, &machine))
        .transpose()?;
    Ok(machine)
}

/// Finds the kinds of cores whose contexts have a first-level data cache of their own.
fn own_misses(machine: &mut MachineModel) {
    let places = machine.places();
    let data = |level: &&CacheLevel| level.level == 1 && level.holds != Holds::Instructions;
    let first = machine.caches.iter().filter(data);
    let alone = first.flat_map(|level| &level.shared_by);
    for pus in alone.filter(|pus| pus.len() == 1) {
        let core = &machine.cores[places[pus[0] as usize].0];
        let kind = &mut machine.kinds[core.kind];
        kind.misses_private = kind.contexts > 1;
    }
}

/// A store that misses a first level that is written through does not bring the line there: it needs no register for that.
fn misses_of_stores(machine: &mut MachineModel) {
    let places = machine.places();
    let through = machine.caches.iter();
    let through = through.filter(|level| level.write_through.is_some());
    for pu in through.flat_map(|level| level.shared_by.iter().flatten()) {
        let core = &machine.cores[places[*pu as usize].0];
        machine.kinds[core.kind].misses_of_stores = false;
    }
}

/// A list of strings, if it is there.
pub(super) fn texts(list: Option<Item<'_>>) -> Checked<Vec<String>> {
    let list = list.map_or(Ok(Vec::new()), Item::list)?;
    list.into_iter()
        .map(|text| Ok(text.text()?.to_owned()))
        .collect()
}

fn read_memory(item: Item<'_>, cycle: Option<Ps>, cores: &[CoreAt]) -> Checked<MemoryModel> {
    let table = item.table(
        "the memory",
        &["latency", "bandwidth", "distance", "link-bandwidth"],
    )?;
    let nodes = cores
        .iter()
        .map(|core| core.numa_node as usize + 1)
        .max()
        .unwrap_or(1);
    let memory = bandwidth(table.need("bandwidth")?)?;
    let link_bandwidth = match table.get("link-bandwidth") {
        None => 0.0,
        Some(item) if nodes == 1 => {
            return Err(item.wrong_hint(
                "no link: the machine has a single NUMA node",
                Some("`bandwidth` limits the traffic with its memory".to_owned()),
            ));
        }
        Some(item) => bandwidth(item)?,
    };
    let distance = match table.get("distance") {
        Some(item) => distances(item, nodes)?,
        None if nodes == 1 => vec![vec![1.0]],
        None => {
            return Err(table.wrong(format!("the memory of {nodes} NUMA nodes needs `distance`")));
        }
    };
    Ok(MemoryModel {
        latency: latency(table.need("latency")?, cycle)?,
        bandwidth: memory,
        link_bandwidth,
        distance,
    })
}

/// Bytes a second.
fn bandwidth(item: Item<'_>) -> Checked<f64> {
    let range = 1_000_000..=10_000_000_000_000;
    let bytes = item.quantity_within(&BANDWIDTH, range, "from 1 MB/s to 10,000 GB/s")?;
    Ok(bytes as f64)
}

/// A square of numbers, a row for each node.
fn distances(item: Item<'_>, nodes: usize) -> Checked<Vec<Vec<f64>>> {
    let rows = item.list()?;
    let square = |item: Item<'_>, found: usize, what: &str| match found == nodes {
        true => Ok(()),
        false => Err(item.wrong(format!("{found} {what} for {nodes} NUMA nodes"))),
    };
    square(item, rows.len(), "rows")?;
    rows.into_iter()
        .map(|row| {
            let numbers = row.list()?;
            square(row, numbers.len(), "distances")?;
            numbers
                .into_iter()
                .map(|number| number.number(1.0..=1000.0))
                .collect()
        })
        .collect()
}
