//! Reads the requests that come to a program.

use super::{
    device::LONGEST,
    quantity::{COUNT, RATE, TIME},
    step::often,
    table::{Checked, Item},
};
use crate::workload::{Arrivals, Gaps, RequestsModel};

/// Clients of a program at most: each is remembered.
const MOST_CLIENTS: u32 = 1_000_000;

pub(super) const GAPS: [(&str, Gaps); 2] =
    [("poisson", Gaps::Poisson), ("constant", Gaps::Constant)];

const KEYS: &[&str] = &["rate", "clients", "think", "process", "queue", "count"];

/// Millionths of a second's requests in a nanosecond's.
pub(super) const MICROHERTZ_TIMES_NANOSECONDS: f64 = 1e15;

/// The requests.
pub(super) fn read(item: Item<'_>) -> Checked<RequestsModel> {
    let table = item.table("the arrivals of a program", KEYS)?;
    let gaps = table
        .get("process")
        .map_or(Ok(Gaps::Poisson), |item| item.choice(&GAPS))?;
    let queue = table
        .get("queue")
        .map_or(Ok(u64::MAX), |item| item.quantity(&COUNT))?;
    let arrivals = match (table.get("rate"), table.get("clients")) {
        (Some(rate), None) => {
            if let Some(think) = table.get("think") {
                return Err(
                    think.wrong("only `clients` think: with a `rate` requests come by themselves")
                );
            }
            let rate = rate.quantity_within(
                &RATE,
                1..=1_000_000_000_000_000,
                "above 0, and 1,000,000,000 a second at most",
            )?;
            Arrivals::Open {
                gap: MICROHERTZ_TIMES_NANOSECONDS / rate as f64,
                gaps,
            }
        }
        (None, Some(clients)) => {
            let clients = clients.whole(1..=MOST_CLIENTS)?;
            let think = table.get("think");
            let time = think.map_or(Ok(0), |item| {
                item.quantity_within(&TIME, 0..=LONGEST, "a day at most")
            })?;
            if time == 0 && queue != u64::MAX {
                return Err(think.unwrap_or(item).wrong(
                    "clients that are refused and do not `think` would ask again at once, without an end",
                ));
            }
            Arrivals::Closed {
                clients,
                think: time as f64,
                gaps,
            }
        }
        _ => {
            return Err(table.wrong(
                "either `rate = \"100 / s\"` (requests come by themselves) or `clients = 10` (each waits for its reply)",
            ));
        }
    };
    Ok(RequestsModel {
        arrivals,
        queue,
        count: table.get("count").map_or(Ok(u64::MAX), often)?,
    })
}
