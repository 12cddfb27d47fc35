//! Reads address translation.

use super::{
    cycles::latency,
    quantity::SIZE,
    table::{Checked, Item, Table},
};
use crate::{
    model::{KindTlb, MachineModel, TlbModel},
    units::Ps,
};

/// TLB entries of a machine at most, so that a file cannot ask for more than the host has.
const MOST_ENTRIES: u64 = 1 << 24;

/// The machine's TLB, and those of kinds of cores that have another one. `cycle` is that of all cores, if it is the same.
pub(super) fn read(item: Item<'_>, cycle: Option<Ps>, machine: &mut MachineModel) -> Checked<()> {
    let table = item.table(
        "the TLB",
        &["entries", "ways", "page", "miss", "private", "kinds"],
    )?;
    let line = machine.caches[0].line;
    let page = table.need("page")?;
    let bytes = page.quantity(&SIZE)?;
    if !bytes.is_power_of_two() || bytes < u64::from(line) || bytes > 1 << 40 {
        return Err(page.wrong(format!(
            "a page is a power of two, from a line ({line} B) to 1 TiB"
        )));
    }
    let KindTlb {
        entries,
        ways,
        miss,
    } = shape(&table, cycle)?;
    machine.tlb = Some(TlbModel {
        entries,
        ways,
        page: bytes,
        miss,
        private: table.get("private").map_or(Ok(false), Item::flag)?,
    });
    let kinds = table.get("kinds").map_or(Ok(Vec::new()), Item::named)?;
    for (name, item) in kinds {
        let names: Vec<&str> = machine.kinds.iter().map(|kind| &*kind.name).collect();
        let Some(at) = names.iter().position(|known| *known == name) else {
            return Err(item.wrong(format!(
                "no kind `{name}`; the kinds are `{}`",
                names.join("`, `")
            )));
        };
        let table = item.table("the TLB of a kind", &["entries", "ways", "miss"])?;
        let own = shape(&table, Some(machine.kinds[at].cycle))?;
        machine.kinds[at].tlb = Some(own);
    }
    let of_core = |core| {
        let contexts = u64::from(machine.kind(core).contexts);
        let of = |tlb: TlbModel| u64::from(tlb.entries) * if tlb.private { contexts } else { 1 };
        machine.tlb_of(core).map_or(0, of)
    };
    if machine.cores.iter().map(of_core).sum::<u64>() > MOST_ENTRIES {
        return Err(table.wrong(format!(
            "more than {MOST_ENTRIES} TLB entries in the machine"
        )));
    }
    Ok(())
}

fn shape(table: &Table<'_>, cycle: Option<Ps>) -> Checked<KindTlb> {
    let entries = table.need("entries")?.whole(1..=1 << 20)?;
    let ways = match table.get("ways") {
        None => entries,
        Some(item) => {
            let ways = item.whole(1..=entries)?;
            if entries % ways != 0 {
                return Err(item.wrong(format!(
                    "{entries} entries cannot be divided into sets of {ways} ways"
                )));
            }
            ways
        }
    };
    Ok(KindTlb {
        entries,
        ways,
        miss: latency(table.need("miss")?, cycle)?,
    })
}
