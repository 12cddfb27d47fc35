//! Devices: operations that wait for a place, take their time and move their bytes.

use crate::{
    units::{NANOSECOND, Ps, SECOND},
    workload::DeviceModel,
};
use serde::Serialize;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

/// What a device did. Times are the operating system's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceStats {
    /// The device.
    pub name: String,
    /// Operations that were begun.
    pub operations: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Mean seconds that an operation waited for a place.
    pub waiting: f64,
    /// Mean seconds from the request to its end, the waiting among them.
    pub response: f64,
    /// Share of the places' time in which they had an operation.
    pub utilisation: f64,
}

/// One device in a run.
#[derive(Debug, Clone)]
struct Device {
    /// Of the machine's time, for a byte.
    byte: f64,
    /// When each place is free again.
    places: BinaryHeap<Reverse<Ps>>,
    /// When the bytes of the last operation have passed.
    moved: Ps,
    operations: u64,
    bytes: u64,
    waited: f64,
    responded: f64,
    /// Time of the places in operations that are over.
    busy: Ps,
    /// Begin and end of the others, the oldest first.
    in_work: VecDeque<(Ps, Ps)>,
}

/// All devices of a run.
#[derive(Debug, Clone)]
pub(crate) struct Devices {
    models: Vec<DeviceModel>,
    all: Vec<Device>,
    scale: f64,
}

impl Devices {
    /// Idle devices, on a machine of this scale.
    pub(crate) fn new(models: &[DeviceModel], scale: f64) -> Self {
        let device = |model: &DeviceModel| Device {
            byte: SECOND as f64 / scale / model.bandwidth,
            places: (0..model.parallel.max(1)).map(|_| Reverse(0)).collect(),
            moved: 0,
            operations: 0,
            bytes: 0,
            waited: 0.0,
            responded: 0.0,
            busy: 0,
            in_work: VecDeque::new(),
        };
        Self {
            all: models.iter().map(device).collect(),
            models: models.to_vec(),
            scale,
        }
    }

    /// Starts an operation of `time` nanoseconds of the operating system and `bytes` bytes. Returns when it will be
    /// done.
    pub(crate) fn ask(&mut self, device: usize, time: u64, bytes: u64, now: Ps) -> Ps {
        let latency = (time as f64 * NANOSECOND as f64 / self.scale).round() as Ps;
        let device = &mut self.all[device];
        let free = device.places.pop().map_or(0, |Reverse(free)| free);
        let begin = now.max(free);
        let mut end = begin + latency;
        if bytes > 0 {
            end = end.max(device.moved) + (bytes as f64 * device.byte).round() as Ps;
            device.moved = end;
        }
        let end = end.max(now + 1);
        device.places.push(Reverse(end));
        device.operations += 1;
        device.bytes += bytes;
        device.waited += (begin - now) as f64;
        device.responded += (end - now) as f64;
        while let Some((begin, end)) = device.in_work.front().copied()
            && end <= now
        {
            device.busy += end - begin;
            device.in_work.pop_front();
        }
        device.in_work.push_back((begin, end));
        end
    }

    /// What all have done up to now.
    pub(crate) fn stats(&self, now: Ps) -> Vec<DeviceStats> {
        let seconds = self.scale / SECOND as f64;
        let one = |(model, device): (&DeviceModel, &Device)| {
            let of_one = |begin: Ps, end: Ps| end.min(now).saturating_sub(begin);
            let in_work = device.in_work.iter().map(|(b, e)| of_one(*b, *e));
            let busy = device.busy + in_work.sum::<Ps>();
            let each = seconds / device.operations.max(1) as f64;
            DeviceStats {
                name: model.name.clone(),
                operations: device.operations,
                bytes: device.bytes,
                waiting: device.waited * each,
                response: device.responded * each,
                utilisation: busy as f64 / (now.max(1) as f64 * f64::from(model.parallel.max(1))),
            }
        };
        self.models.iter().zip(&self.all).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn devices(latency: u64, bandwidth: f64, parallel: u32) -> Devices {
        let model = DeviceModel {
            name: "disk".into(),
            latency,
            bandwidth,
            parallel,
        };
        Devices::new(&[model], 1.0)
    }

    #[test]
    fn latencies_overlap_and_bytes_queue() {
        // 1 GB/s: a byte a nanosecond.
        let mut disk = devices(100, 1e9, 2);
        let ns = |devices: &mut Devices, now: Ps, bytes| devices.ask(0, 100, bytes, now) / 1_000;
        assert_eq!(ns(&mut disk, 0, 50), 150);
        assert_eq!(
            ns(&mut disk, 0, 50),
            200,
            "its bytes come after the first's"
        );
        assert_eq!(ns(&mut disk, 0, 0), 250, "no place is free before 150");
        let stats = &disk.stats(250_000)[0];
        assert_eq!((stats.operations, stats.bytes), (3, 100));
        // 150 + 200 + 100 of twice 250.
        assert!((stats.utilisation - 0.9).abs() < 1e-9, "{stats:?}");
        assert!((stats.waiting - 50e-9).abs() < 1e-15, "{stats:?}");
    }

    proptest! {
        /// No more operations than places are in work, and bytes do not pass faster than the device can.
        #[test]
        fn a_device_does_what_it_can_and_no_more(
            asked in proptest::collection::vec((0u64..2_000, 0u64..500, 0u64..3_000), 1..60),
            parallel in 1u32..5,
        ) {
            let mut disk = devices(0, 1e9, parallel);
            let (mut now, mut ends, mut bytes) = (0, Vec::new(), 0);
            for (gap, time, moved) in asked {
                now += gap * 1_000;
                let end = disk.ask(0, time, moved, now);
                prop_assert!(end >= now + (time + moved) * 1_000);
                ends.push(end);
                bytes += moved;
            }
            let last = *ends.iter().max().unwrap();
            prop_assert!(last >= bytes * 1_000);
            let stats = &disk.stats(last)[0];
            prop_assert!(stats.utilisation <= 1.0 + 1e-9, "{stats:?}");
            prop_assert!(stats.response >= stats.waiting);
        }
    }
}
