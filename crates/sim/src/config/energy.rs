//! Reads what a machine's parts take of energy.

use super::{
    quantity::{ENERGY, POWER, Sort},
    table::{Checked, Item, Table},
};
use crate::{
    energy::{EnergyModel, KindEnergy},
    model::{CoreKind, MachineModel, Op},
};

/// Femtojoules of a nanojoule.
const NANOJOULE: f64 = 1e6;

/// Microwatts of a watt.
const WATT: f64 = 1e6;

const KEYS: &[&str] = &["kinds", "caches", "transfer", "base"];

/// The energy of a machine with these kinds of cores and caches.
pub(super) fn read(item: Item<'_>, machine: &MachineModel) -> Checked<EnergyModel> {
    let table = item.table("the energy", KEYS)?;
    let levels = machine.caches.iter().map(|cache| usize::from(cache.level));
    let levels = levels.max().unwrap_or(0);
    let list = table.need("caches")?;
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
    let named = table.need("kinds")?.named()?;
    let kinds = table.need("kinds")?;
    let mut read: Vec<Option<KindEnergy>> = vec![None; machine.kinds.len()];
    for (name, item) in named {
        let Some(kind) = machine.kinds.iter().position(|kind| kind.name == name) else {
            let names = machine.kinds.iter().map(|kind| kind.name.as_str());
            let hint = perch_core::diagnostic::did_you_mean(name, names);
            return Err(item.wrong_hint(format!("no kind of core `{name}`"), hint));
        };
        read[kind] = Some(one(&item.table(
            "the energy of a kind of core",
            &["ops", "active", "idle", "voltage"],
        )?)?);
    }
    let all = read.into_iter().zip(&machine.kinds);
    let of_kind = |(energy, kind): (Option<KindEnergy>, &CoreKind)| {
        energy.ok_or_else(|| kinds.wrong(format!("no energy of `{}`", kind.name)))
    };
    Ok(EnergyModel {
        kinds: all.map(of_kind).collect::<Checked<_>>()?,
        caches,
        transfer: within(table.need("transfer")?, &ENERGY, NANOJOULE)?,
        base: table
            .get("base")
            .map_or(Ok(0.0), |item| within(item, &POWER, WATT))?,
    })
}

fn within(item: Item<'_>, sort: &Sort, unit: f64) -> Checked<f64> {
    let most = 1_000_000_000_000;
    let bounds = "a millijoule, or a megawatt, at most";
    Ok(item.quantity_within(sort, 0..=most, bounds)? as f64 / unit)
}

fn one(table: &Table<'_>) -> Checked<KindEnergy> {
    let list = table
        .need("ops")?
        .table("the list of instructions' energies", &Op::NAMES)?;
    let mut ops = [0.0; Op::COUNT];
    for op in Op::ALL {
        ops[op as usize] = within(list.need(op.name())?, &ENERGY, NANOJOULE)?;
    }
    let power = |key| {
        let item = table.get(key);
        item.map_or(Ok(0.0), |item| within(item, &POWER, WATT))
    };
    Ok(KindEnergy {
        ops,
        active: power("active")?,
        idle: power("idle")?,
        voltage: table
            .get("voltage")
            .map_or(Ok(1.0), |item| item.number(0.1..=10.0))?,
    })
}
