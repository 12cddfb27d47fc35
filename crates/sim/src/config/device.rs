//! Reads the devices of a workload.

use super::{
    quantity::{BANDWIDTH, TIME},
    table::{Checked, Item},
};
use crate::workload::DeviceModel;

/// Operations in work at a time at most: each place is remembered.
const MOST_PARALLEL: u32 = 65_536;

/// Times of an operation are at most so long, in nanoseconds: a day.
pub(super) const LONGEST: u64 = 86_400_000_000_000;

/// The devices, in the order of the file.
pub(super) fn read(item: Option<Item<'_>>) -> Checked<Vec<DeviceModel>> {
    let devices = item.map_or(Ok(Vec::new()), Item::named)?;
    let one = |(name, item): (&str, Item<'_>)| {
        let table = item.table("a device", &["latency", "bandwidth", "parallel"])?;
        let latency = table.get("latency").map_or(Ok(0), |item| {
            item.quantity_within(&TIME, 0..=LONGEST, "a day at most")
        })?;
        let bandwidth = match table.get("bandwidth") {
            None => f64::INFINITY,
            Some(item) => item.quantity_within(
                &BANDWIDTH,
                1_000..=10_000_000_000_000,
                "from 1 kB/s to 10,000 GB/s",
            )? as f64,
        };
        Ok(DeviceModel {
            name: name.to_owned(),
            latency,
            bandwidth,
            parallel: table
                .get("parallel")
                .map_or(Ok(1), |item| item.whole(1..=MOST_PARALLEL))?,
        })
    };
    devices.into_iter().map(one).collect()
}
