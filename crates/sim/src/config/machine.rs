//! Reads a machine.

use super::{
    caches, energy, kind, os,
    quantity::{BANDWIDTH, CYCLES, LATENCY},
    table::{Checked, Item, Source, Table},
    tlb, topology,
};
use crate::{
    model::{
        CacheLevel, CoreAt, CoreKind, Holds, MachineModel, MemoryModel, OsModel, SchedulerKind,
    },
    units::{Ps, SECOND},
};

/// A latency is at most so long, be it of memory across a network: beyond, a unit is wrong.
const LONGEST: Ps = SECOND / 100_000;

/// A latency in cycles is at most so many, as those of a pipeline are.
const MOST_CYCLES: u64 = 65_535;

/// And so long in any clock: beyond, sums of times could overflow.
const LONGEST_CYCLES: Ps = SECOND;

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

/// The cycle of these cores, if all have the same.
pub(super) fn common_cycle<'m>(
    kinds: &[CoreKind],
    mut cores: impl Iterator<Item = &'m CoreAt>,
) -> Option<Ps> {
    let first = kinds[cores.next()?.kind].cycle;
    cores
        .all(|core| kinds[core.kind].cycle == first)
        .then_some(first)
}

/// A time with a unit, or cycles of these cores' clock.
pub(super) fn latency(item: Item<'_>, cycle: Option<Ps>) -> Checked<Ps> {
    let text = item.as_text().unwrap_or("").trim_end().to_lowercase();
    if item.is_number() || text.ends_with("cycles") || text.ends_with("cycle") {
        let Some(cycle) = cycle else {
            return Err(item.wrong(
                "cycles of which clock? cores of several clocks share this: write it in `ns`",
            ));
        };
        let cycles = item.quantity(&CYCLES)?;
        let latency = cycles.saturating_mul(cycle);
        if cycles > MOST_CYCLES || latency > LONGEST_CYCLES {
            let most = MOST_CYCLES.min(LONGEST_CYCLES / cycle.max(1));
            return Err(item.wrong(format!("must be {most} cycles at most")));
        }
        return Ok(latency);
    }
    let latency = item.quantity(&LATENCY)?;
    if latency > LONGEST {
        return Err(item.wrong_hint(
            "must be 10 us at most",
            Some("memory takes about 100 ns, a disk is a device of the workload".to_owned()),
        ));
    }
    Ok(latency)
}

fn read_memory(item: Item<'_>, cycle: Option<Ps>, cores: &[CoreAt]) -> Checked<MemoryModel> {
    let table = item.table("the memory", &["latency", "bandwidth", "distance"])?;
    let nodes = cores
        .iter()
        .map(|core| core.numa_node as usize + 1)
        .max()
        .unwrap_or(1);
    let bandwidth = table.need("bandwidth")?.quantity_within(
        &BANDWIDTH,
        1_000_000..=10_000_000_000_000,
        "from 1 MB/s to 10,000 GB/s",
    )?;
    let distance = match table.get("distance") {
        Some(item) => distances(item, nodes)?,
        None if nodes == 1 => vec![vec![1.0]],
        None => {
            return Err(table.wrong(format!("the memory of {nodes} NUMA nodes needs `distance`")));
        }
    };
    Ok(MemoryModel {
        latency: latency(table.need("latency")?, cycle)?,
        bandwidth: bandwidth as f64,
        distance,
    })
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
