//! Taskstats messages: requests, and what the kernel tells of a thread.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NetlinkMessage, NetlinkPayload, NlaBuffer, NlasIterator,
    ParseableParametrized,
};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};

/// The only command (TASKSTATS_CMD_GET); its attribute says what it asks for.
const GET: u8 = 1;

/// Attributes of requests.
pub(super) const ASK_FOR_TID: u16 = 1;
pub(super) const REGISTER: u16 = 3;
pub(super) const DEREGISTER: u16 = 4;

/// Attributes of records: a thread's number and its numbers, both inside of a third one.
const TID: u16 = 1;
const STATS: u16 = 3;
const THREAD: u16 = 4;

/// The kernel's TASK_COMM_LEN.
const NAME: usize = 16;

/// What a thread had done when it ended. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitRecord {
    /// The thread, by its number in the initial PID namespace.
    pub tid: i32,
    /// Its name, up to the first 0.
    pub name: [u8; NAME],
    /// From its start to this record, exact to a microsecond; suspended time does not count.
    pub elapsed: u64,
    /// Time on a PU, as `schedstat` tells it: what came after the last clock tick is not in it, so it may be 0.
    pub run: u64,
    /// Time runnable but waiting for a PU.
    pub wait: u64,
    /// How often it came to a PU.
    pub slices: u64,
}

/// A request or a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Taskstats {
    Request(DefaultNla),
    /// `None` of a whole process, or of a form that is not known here.
    Record(Option<ExitRecord>),
}

impl GenlFamily for Taskstats {
    fn family_name() -> &'static str {
        "TASKSTATS"
    }

    fn command(&self) -> u8 {
        GET
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Taskstats {
    fn buffer_len(&self) -> usize {
        match self {
            Self::Request(attribute) => attribute.buffer_len(),
            Self::Record(_) => 0,
        }
    }

    fn emit(&self, buffer: &mut [u8]) {
        if let Self::Request(attribute) = self {
            attribute.emit(buffer);
        }
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Taskstats {
    fn parse_with_param(bytes: &[u8], _: GenlHeader) -> Result<Self, DecodeError> {
        let thread = attribute(bytes, THREAD);
        let record = thread.and_then(|thread| {
            let tid = attribute(thread.value(), TID);
            let tid = tid.and_then(|tid| number(tid.value(), 0).map(u32::from_ne_bytes))?;
            let stats = attribute(thread.value(), STATS)?;
            // Of all that is known of a record, this alone is told twice.
            record(stats.value()).filter(|record| record.tid as u32 == tid)
        });
        Ok(Self::Record(record))
    }
}

/// The record in a datagram of taskstats, which has this number as a generic netlink family.
pub fn parse(datagram: &[u8], family: u16) -> Option<ExitRecord> {
    let message = NetlinkMessage::<GenlMessage<Taskstats>>::deserialize(datagram).ok()?;
    match message.payload {
        NetlinkPayload::InnerMessage(of) if of.resolved_family_id() == family => match of.payload {
            Taskstats::Record(record) => record,
            Taskstats::Request(_) => None,
        },
        _ => None,
    }
}

fn attribute(bytes: &[u8], kind: u16) -> Option<NlaBuffer<&[u8]>> {
    let mut attributes = NlasIterator::new(bytes).map_while(Result::ok);
    attributes.find(|attribute| attribute.kind() == kind)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Reads a `struct taskstats`, of which every version but one (Linux 6.14 to 6.14.8) only adds fields at the end.
fn record(stats: &[u8]) -> Option<ExitRecord> {
    let version = u16::from_ne_bytes(number(stats, 0)?);
    // The longest and the shortest delay for a PU, for blocks and for pages.
    let moved = match version {
        15 => 6 * size_of::<u64>(),
        _ => 0,
    };
    let long = |at| number(stats, at).map(u64::from_ne_bytes);
    Some(ExitRecord {
        tid: i32::from_ne_bytes(number(stats, 128 + moved)?),
        name: number(stats, 80 + moved)?,
        elapsed: long(144 + moved)?.saturating_mul(1_000),
        run: long(72 + moved)?,
        wait: long(24)?,
        slices: long(16)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FAMILY: u16 = 21;

    /// A datagram about a thread, as the kernel would send it with this version of the structure.
    fn datagram(version: u16, record: &ExitRecord) -> Vec<u8> {
        let moved = if version == 15 { 48 } else { 0 };
        let mut stats = vec![0; 416 + 2 * moved];
        stats[..2].copy_from_slice(&version.to_ne_bytes());
        let mut put = |at: usize, value: u64| {
            stats[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        };
        put(16, record.slices);
        put(24, record.wait);
        put(72 + moved, record.run);
        put(144 + moved, record.elapsed / 1_000);
        stats[80 + moved..][..NAME].copy_from_slice(&record.name);
        stats[128 + moved..][..4].copy_from_slice(&record.tid.to_ne_bytes());
        message(record.tid as u32, stats)
    }

    fn message(tid: u32, stats: Vec<u8>) -> Vec<u8> {
        let tid = DefaultNla::new(TID, tid.to_ne_bytes().to_vec());
        let attributes = [tid, DefaultNla::new(STATS, stats)];
        let mut inside = vec![0; attributes.as_slice().buffer_len()];
        attributes.as_slice().emit(&mut inside);
        let thread = Taskstats::Request(DefaultNla::new(THREAD, inside));
        let mut message = GenlMessage::from_payload(thread);
        message.set_resolved_family_id(FAMILY);
        let mut message = NetlinkMessage::from(message);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn example() -> ExitRecord {
        ExitRecord {
            tid: 4711,
            name: *b"worker-1\0\0\0\0\0\0\0\0",
            elapsed: 150_003_000,
            run: 140_000_123,
            wait: 9_000_456,
            slices: 37,
        }
    }

    #[test]
    fn each_version_of_the_structure_is_read() {
        for version in [8, 13, 15, 16] {
            let bytes = datagram(version, &example());
            assert_eq!(parse(&bytes, FAMILY), Some(example()), "{version}");
            assert_eq!(parse(&bytes, FAMILY + 1), None);
        }
        // That one under another number.
        let mut bytes = datagram(15, &example());
        bytes[36..38].copy_from_slice(&16u16.to_ne_bytes());
        assert_eq!(parse(&bytes, FAMILY), None);
    }

    #[test]
    fn a_record_of_another_thread_tells_nothing() {
        let mut bytes = datagram(13, &example());
        // Headers of netlink, generic netlink, and two attributes.
        bytes[28] ^= 1;
        assert_eq!(parse(&bytes, FAMILY), None);
    }

    proptest! {
        #[test]
        fn a_short_structure_is_not_read_past_its_end(version in 0u16..20, length in 0usize..416) {
            let whole = datagram(version, &example());
            // What stands before the structure.
            let stats = &whole[36..];
            let read = parse(&message(4711, stats[..length].to_vec()), FAMILY);
            let needed = if version == 15 { 200 } else { 152 };
            prop_assert_eq!(read, (length >= needed).then(example));
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, start in 0usize..40) {
            let _ = parse(&bytes, FAMILY);
            let whole = datagram(13, &example());
            let _ = parse(&[&whole[..start], &bytes].concat(), FAMILY);
        }
    }
}
