//! Reads what the operating system of a machine does of itself: ticks, interrupts, costs.

use super::{
    arrivals::{GAPS, MICROHERTZ_TIMES_NANOSECONDS},
    quantity::{RATE, TIME},
    table::{Checked, Item, Table},
};
use crate::{
    model::{CostModel, IrqModel, MachineModel, OsModel, SchedulerKind},
    workload::Gaps,
};

/// An interrupt, or a change, takes at most so long, in nanoseconds: a second.
const LONGEST: u64 = 1_000_000_000;

/// Interrupts of one sort and PU in a second, in millionths: beyond, a unit is wrong.
const MOST: u64 = 1_000_000_000_000;

/// The keys of `file`, which is that of a machine.
pub(super) fn read(file: &Table<'_>, machine: &MachineModel) -> Checked<OsModel> {
    let mut os = OsModel::default();
    if let Some(item) = file.get("skew-tick") {
        os.skew_tick = item.flag()?;
        let fair = matches!(machine.scheduler, SchedulerKind::Cfs | SchedulerKind::Eevdf);
        if os.skew_tick && !fair {
            return Err(item.wrong_hint(
                "only the schedulers `cfs` and `eevdf` have ticks at different moments",
                Some("Linux has `skew_tick` since 2.6.32".to_owned()),
            ));
        }
    }
    if let Some(item) = file.get("noise") {
        let table = item.table("the noise of a machine", &["irqs"])?;
        for item in table.need("irqs")?.some()? {
            os.irqs.push(irq(item, machine.pus() as u32)?);
        }
    }
    if let Some(item) = file.get("costs") {
        let table = item.table("the costs of changes", &["migrate", "set-clock"])?;
        let cost = |key| table.get(key).map_or(Ok(0), time);
        os.costs = CostModel {
            migrate: cost("migrate")?,
            set_clock: cost("set-clock")?,
        };
        if let Some(item) = table.get("set-clock")
            && machine.kinds.iter().all(|kind| kind.clocks.is_empty())
        {
            return Err(item.wrong_hint(
                "no kind of core has several `clocks`",
                Some("add them to `[kinds.NAME]`, the highest last".to_owned()),
            ));
        }
    }
    Ok(os)
}

fn time(item: Item<'_>) -> Checked<u64> {
    item.quantity_within(&TIME, 0..=LONGEST, "a second at most")
}

fn irq(item: Item<'_>, all: u32) -> Checked<IrqModel> {
    let table = item.table("interrupts", &["rate", "time", "pus", "process"])?;
    let mut pus = Vec::new();
    match table.get("pus") {
        None => pus.extend(0..all),
        Some(item) => {
            for item in item.some()? {
                let pu = item.whole(0..=all - 1)?;
                if pus.contains(&pu) {
                    return Err(item.wrong(format!("PU {pu} is in the list already")));
                }
                pus.push(pu);
            }
        }
    }
    let rate = table.need("rate")?;
    let times = rate.quantity_within(&RATE, 1..=MOST, "above 0, and 1,000,000 a second at most")?;
    let gap = MICROHERTZ_TIMES_NANOSECONDS / times as f64;
    let time = time(table.need("time")?)?;
    if time as f64 >= gap {
        return Err(rate.wrong("PUs would do nothing else: `rate` times `time` must be below 1"));
    }
    Ok(IrqModel {
        pus,
        gap,
        gaps: table
            .get("process")
            .map_or(Ok(Gaps::Poisson), |item| item.choice(&GAPS))?,
        time,
    })
}
