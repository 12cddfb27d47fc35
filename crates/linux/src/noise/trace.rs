//! The tracepoints of one PU, read through a ring of perf events.

use super::{
    event::{Event, What},
    points::{Decoder, Points, Raw},
};
use crate::{
    limits::{Budget, Kept, Purpose},
    perf::{
        limits::NOFILE_REMEDY,
        privilege::refusal,
        record::{Layout, RAW_TYPE, Record},
        rings::Ring,
        task_events::ring_refused,
    },
};
use perch_core::MachineError;
use perf_event::{Builder, Clock, Counter, SampleFlag, events::Tracepoint};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;

/// Bytes of a PU's ring: some 20,000 events.
const RING: usize = 2 << 20;

/// The events of one PU, from when it was opened.
pub(super) struct Trace {
    ring: Kept<Ring>,
    /// Events that write into the same ring.
    _others: Vec<Counter>,
    decoder: Decoder,
    events: Vec<Event>,
    lost: u64,
}

/// What was read from a PU.
#[derive(Debug, Default)]
pub(super) struct Traced {
    /// In order of time.
    pub events: Vec<Event>,
    /// What their sources are.
    pub sources: Vec<Raw>,
    /// How many events did not fit into the ring.
    pub lost: u64,
}

impl Trace {
    /// Starts to record on this PU. The calling thread should be on it: then nothing interrupts others.
    ///
    /// # Errors
    /// Not permitted, no descriptors, no memory that may be locked: with the remedy.
    pub fn open(pu: u32, points: &Arc<Points>) -> Result<Self, MachineError> {
        const WHAT: &str = "tracepoints of whole PUs";
        let layout = Layout {
            raw: true,
            ..Layout::default()
        };
        let ids: Vec<u16> = points.ids().collect();
        let budget = Budget::of_process();
        let Some(place) = budget.reserve(Purpose::PuCounters, ids.len()) else {
            return Err(MachineError::NotPermitted {
                what: WHAT.to_owned(),
                remedy: NOFILE_REMEDY.to_owned(),
            });
        };
        let mut counters = Vec::with_capacity(ids.len());
        for id in ids {
            let counter = tracepoint(id, pu)
                .build()
                .map_err(|error| refusal(WHAT, error))?;
            counters.push(counter);
        }
        let mut counters = counters.into_iter();
        let Some(first) = counters.next() else {
            return Err(MachineError::Other(
                "the kernel has no tracepoints".to_owned(),
            ));
        };
        let mut ring = Ring::map(first, RING, layout).map_err(ring_refused)?;
        let mut others: Vec<Counter> = counters.collect();
        for other in &mut others {
            ring.collect_from(other)
                .and_then(|()| other.enable())
                .map_err(|error| refusal(WHAT, error))?;
        }
        ring.enable().map_err(|error| refusal(WHAT, error))?;
        Ok(Self {
            ring: place.keep(ring),
            _others: others,
            decoder: Decoder::new(Arc::clone(points)),
            events: Vec::new(),
            lost: 0,
        })
    }

    /// Whether the ring is half full. One short system call.
    pub fn should_drain(&self) -> bool {
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&*self.ring, PollFlags::IN)];
        poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// Reads what is in the ring; how many events there are by now.
    pub fn drain(&mut self) -> usize {
        let Self {
            ring,
            decoder,
            events,
            lost,
            ..
        } = self;
        ring.drain(|record| match record {
            Record::Raw { time, data, .. } => {
                let what = decoder.read(data);
                events.extend(what.map(|what| Event { time, what }));
            }
            Record::Lost(count) => {
                *lost += count;
                let time = events.last().map_or(0, |event| event.time);
                events.push(Event {
                    time,
                    what: What::Lost,
                });
            }
            _ => {}
        });
        events.len()
    }

    /// Stops, and hands over what was read.
    pub fn finish(mut self) -> Traced {
        // What cannot be stopped ends with its descriptor.
        let _ = self.ring.disable();
        self.drain();
        // A ring is written by one PU: records are in order but for those of an NMI that came while one was written.
        self.events.sort_by_key(|event| event.time);
        Traced {
            events: self.events,
            sources: self.decoder.into_sources(),
            lost: self.lost,
        }
    }
}

fn tracepoint(id: u16, pu: u32) -> Builder<'static> {
    let mut builder = Builder::new(Tracepoint::with_id(u64::from(id)));
    builder
        .any_pid()
        .one_cpu(pu as usize)
        .include_kernel()
        .sample_period(1)
        .sample(SampleFlag::from_bits_retain(RAW_TYPE))
        .clockid(Clock::MONOTONIC)
        .wakeup_watermark(RING / 2);
    builder
}
