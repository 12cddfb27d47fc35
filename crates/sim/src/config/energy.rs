//! Reads what a machine's parts take of energy.

use super::{
    quantity::{ENERGY, POWER, Sort},
    table::{Checked, Item, Table},
};
use crate::model::{CoreKind, EnergyModel, KindEnergy, MachineModel, Op};

/// Femtojoules of a nanojoule.
const NANOJOULE: f64 = 1e6;

/// Microwatts of a watt.
const WATT: f64 = 1e6;

const KEYS: &[&str] = &[
    "kinds",
    "caches",
    "transfer",
    "background",
    "uncore",
    "base",
];

const KIND_KEYS: &[&str] = &[
    "ops", "issue", "caches", "active", "idle", "voltage", "voltages",
];

/// The energy of a machine with these kinds of cores and caches.
pub(super) fn read(item: Item<'_>, machine: &MachineModel) -> Checked<EnergyModel> {
    let table = item.table("the energy", KEYS)?;
    let levels = machine.caches.iter().map(|cache| usize::from(cache.level));
    let levels = levels.max().unwrap_or(0);
    let caches = of_caches(table.need("caches")?, levels)?;
    let named = table.need("kinds")?.named()?;
    let kinds = table.need("kinds")?;
    let mut read: Vec<Option<KindEnergy>> = vec![None; machine.kinds.len()];
    for (name, item) in named {
        let Some(kind) = machine.kinds.iter().position(|kind| kind.name == name) else {
            let names = machine.kinds.iter().map(|kind| kind.name.as_str());
            let hint = perch_core::diagnostic::did_you_mean(name, names);
            return Err(item.wrong_hint(format!("no kind of core `{name}`"), hint));
        };
        let table = item.table("the energy of a kind of core", KIND_KEYS)?;
        read[kind] = Some(one(&table, &machine.kinds[kind], levels)?);
    }
    let all = read.into_iter().zip(&machine.kinds);
    let of_kind = |(energy, kind): (Option<KindEnergy>, &CoreKind)| {
        energy.ok_or_else(|| kinds.wrong(format!("no energy of `{}`", kind.name)))
    };
    Ok(EnergyModel {
        kinds: all.map(of_kind).collect::<Checked<_>>()?,
        caches,
        transfer: within(table.need("transfer")?, &ENERGY, NANOJOULE)?,
        background: power(&table, "background")?,
        uncore: power(&table, "uncore")?,
        base: power(&table, "base")?,
    })
}

/// A power that is 0 if it is not there.
fn power(table: &Table<'_>, key: &'static str) -> Checked<f64> {
    let item = table.get(key);
    item.map_or(Ok(0.0), |item| within(item, &POWER, WATT))
}

/// An energy for each level.
fn of_caches(list: Item<'_>, levels: usize) -> Checked<[f64; 3]> {
    let items = list.list()?;
    if items.len() != levels {
        return Err(list.wrong(format!(
            "a list of {} for {levels} levels of caches: an energy for each, beginning with the first",
            items.len()
        )));
    }
    let mut caches = [0.0; 3];
    for (energy, item) in caches.iter_mut().zip(items) {
        *energy = within(item, &ENERGY, NANOJOULE)?;
    }
    Ok(caches)
}

/// A voltage for each clock of a kind, none lower than that of a lower clock.
fn voltages(item: Item<'_>, kind: &CoreKind) -> Checked<Vec<(u64, f64)>> {
    let items = item.list()?;
    if kind.clocks.is_empty() {
        return Err(item.wrong_hint(
            format!("`{}` has no `clocks`", kind.name),
            Some("write `voltage` for that of its only clock".to_owned()),
        ));
    }
    if items.len() != kind.clocks.len() {
        return Err(item.wrong(format!(
            "a list of {} for {} `clocks`: a voltage for each, beginning with the lowest clock",
            items.len(),
            kind.clocks.len()
        )));
    }
    let mut voltages: Vec<(u64, f64)> = Vec::new();
    for (clock, item) in kind.clocks.iter().zip(items) {
        let voltage = item.number(0.1..=10.0)?;
        if voltages.last().is_some_and(|(_, last)| *last > voltage) {
            return Err(item.wrong("must not be lower than that of a lower clock"));
        }
        voltages.push((*clock, voltage));
    }
    Ok(voltages)
}

fn within(item: Item<'_>, sort: &Sort, unit: f64) -> Checked<f64> {
    let most = 1_000_000_000_000;
    let bounds = "a millijoule, or a megawatt, at most";
    Ok(item.quantity_within(sort, 0..=most, bounds)? as f64 / unit)
}

fn one(table: &Table<'_>, kind: &CoreKind, levels: usize) -> Checked<KindEnergy> {
    let list = table
        .need("ops")?
        .table("the list of instructions' energies", &Op::NAMES)?;
    let mut ops = [0.0; Op::COUNT];
    for op in Op::ALL {
        ops[op as usize] = within(list.need(op.name())?, &ENERGY, NANOJOULE)?;
    }
    let issue = table.get("issue");
    let issue = issue.map_or(Ok(0.0), |item| within(item, &ENERGY, NANOJOULE))?;
    let caches = table.get("caches");
    let at_clocks = table.get("voltages");
    let at_clocks = at_clocks.map(|item| voltages(item, kind)).transpose()?;
    if let Some(item) = table.get("voltage").filter(|_| at_clocks.is_some()) {
        return Err(item.wrong("`voltages` has that of each clock: write only one of both"));
    }
    Ok(KindEnergy {
        ops,
        issue: kind.micro_ops.map(|number| f64::from(number) * issue),
        caches: caches.map(|item| of_caches(item, levels)).transpose()?,
        active: power(table, "active")?,
        idle: power(table, "idle")?,
        voltage: table
            .get("voltage")
            .map_or(Ok(1.0), |item| item.number(0.1..=10.0))?,
        voltages: at_clocks.unwrap_or_default(),
    })
}
