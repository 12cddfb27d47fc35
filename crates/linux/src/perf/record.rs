//! Records of a perf ring (perf_event_open(2), "MMAP layout"; `struct perf_event_header` and the comment on
//! `enum perf_event_type` in the kernel's `perf_event.h`).
//!
//! perf-event-data expects registers in every sample, but the kernel writes none for a kernel thread, so samples are
//! read here. Any bytes are accepted: a record that is too short or of another kind is no record.

use perf_event_open_sys::bindings as sys;

/// The fields in a sample record, in this order.
pub const SAMPLE_TYPE: u64 = (sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID) as u64;

/// The fields at the end of other records, in this order: thread and time.
pub const TRAILER_TYPE: u64 = (sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME) as u64;

/// The fields in a sample that reads its group, in this order: thread, time, CPU, counts.
pub const WINDOW_TYPE: u64 =
    (sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_CPU | sys::PERF_SAMPLE_READ)
        as u64;

/// The fields in a sample of a tracepoint, in this order: thread, time, CPU, the tracepoint's own record.
pub const RAW_TYPE: u64 =
    (sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_CPU | sys::PERF_SAMPLE_RAW)
        as u64;

/// How the records of a ring are laid out: what its events were opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// Mask of sampled user registers (`perf_regs.h`); 0 for none.
    pub regs: u64,
    /// Whether records other than samples end with [`TRAILER_TYPE`] (`sample_id_all`).
    pub trailer: bool,
    /// Whether samples have the fields of [`WINDOW_TYPE`] instead of those of [`SAMPLE_TYPE`].
    pub windows: bool,
    /// Whether samples have the fields of [`RAW_TYPE`].
    pub raw: bool,
}

/// Where a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuMode {
    /// In the program.
    User,
    /// In the kernel, on the program's behalf.
    Kernel,
    /// Hypervisor, guest or unknown.
    Other,
}

/// The instruction set of the interrupted program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abi {
    /// No registers: a kernel thread.
    None,
    /// A 32-bit program.
    Bits32,
    /// A 64-bit program.
    Bits64,
}

/// Which file is mapped, as `/proc/PID/maps` shows it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The device's major number.
    pub major: u32,
    /// The device's minor number.
    pub minor: u32,
    /// The inode on that device.
    pub inode: u64,
}

/// One sampled instruction address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The address: of the instruction at which the interrupt was taken.
    pub ip: u64,
    /// Process.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// Whether `ip` is a user or a kernel address.
    pub mode: CpuMode,
    /// The program's width; [`Abi::None`] too where no registers were asked for.
    pub abi: Abi,
    /// Sampled registers, eight bytes each in native order, in the mask's order.
    regs: &'a [u8],
}

impl Sample<'_> {
    /// One of a 64-bit program.
    #[cfg(test)]
    pub(crate) fn without_registers(ip: u64, pid: i32, tid: i32, mode: CpuMode) -> Self {
        Self {
            ip,
            pid,
            tid,
            mode,
            abi: Abi::Bits64,
            regs: &[],
        }
    }

    /// The sampled registers, in the order of the mask's bits.
    pub fn regs(&self) -> impl Iterator<Item = u64> + '_ {
        self.regs
            .as_chunks()
            .0
            .iter()
            .map(|bytes| u64::from_ne_bytes(*bytes))
    }
}

/// One record of a perf ring buffer (perf_event_open(2), "MMAP layout").
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// A sample that reads its group.
    Window {
        /// TID.
        tid: i32,
        /// Time in nanoseconds of the event's clock (`use_clockid`).
        time: u64,
        /// The CPU.
        cpu: u32,
        /// The group's totals, as read(2) gives them (`struct read_format`).
        totals: &'a [u8],
    },
    /// A tracepoint was passed.
    Raw {
        /// TID of the thread that was on the CPU.
        tid: i32,
        /// Time in nanoseconds of the event's clock (`use_clockid`).
        time: u64,
        /// The CPU.
        cpu: u32,
        /// The tracepoint's record, as its `format` file describes it.
        data: &'a [u8],
    },
    /// A thread was created.
    Fork {
        /// PID of its process.
        pid: i32,
        /// TID.
        tid: i32,
        /// PID of the creator.
        ppid: i32,
        /// TID of the creator.
        ptid: i32,
        /// Time in nanoseconds of the event's clock (`use_clockid`).
        time: u64,
    },
    /// A thread ended.
    Exit {
        /// PID of its process.
        pid: i32,
        /// TID.
        tid: i32,
        /// Time in nanoseconds of the event's clock (`use_clockid`).
        time: u64,
    },
    /// A thread has a new name.
    Comm {
        /// PID of its process.
        pid: i32,
        /// TID.
        tid: i32,
        /// The name, without the padding.
        name: &'a [u8],
        /// Whether by execve(2).
        exec: bool,
        /// When, in the event's clock; 0 without a trailer.
        time: u64,
    },
    /// An executable mapping was made.
    Mmap {
        /// PID of the process.
        pid: i32,
        /// Its first address.
        address: u64,
        /// Its length in bytes.
        length: u64,
        /// Where in the file it starts, in bytes.
        offset: u64,
        /// The name of the mapped file, or `//anon` and the like.
        file: &'a [u8],
        /// Which file that was; `None` where the kernel gives the build id instead.
        id: Option<FileId>,
        /// When, in the event's clock; 0 without a trailer.
        time: u64,
    },
    /// This many records did not fit into the ring.
    Lost(u64),
    /// The kernel samples less often than asked for, for now.
    Throttle,
    /// Something else.
    Other,
}

/// Reads forward through a record's body.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*head))
    }

    fn id(&mut self) -> Option<i32> {
        self.u32().map(|id| id as i32)
    }

    fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*head))
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    /// A name up to its first NUL, and the time behind it.
    fn text_and_time(self, layout: Layout) -> Option<(&'a [u8], u64)> {
        let text = if layout.trailer {
            self.0.get(..self.0.len().checked_sub(16)?)?
        } else {
            self.0
        };
        let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        let time = if layout.trailer {
            u64::from_ne_bytes(*self.0.last_chunk()?)
        } else {
            0
        };
        Some((&text[..end], time))
    }
}

/// Reads one record: its kind and flags from the header, and the bytes behind the header.
///
/// Returns `None` for bytes that are no such record.
pub fn parse(kind: u32, misc: u16, body: &[u8], layout: Layout) -> Option<Record<'_>> {
    let mut bytes = Bytes(body);
    Some(match kind {
        sys::PERF_RECORD_SAMPLE if layout.windows => {
            let (_pid, tid) = (bytes.id()?, bytes.id()?);
            let time = bytes.u64()?;
            let (cpu, _reserved) = (bytes.u32()?, bytes.u32()?);
            Record::Window {
                tid,
                time,
                cpu,
                totals: bytes.0,
            }
        }
        sys::PERF_RECORD_SAMPLE if layout.raw => {
            let (_pid, tid) = (bytes.id()?, bytes.id()?);
            let time = bytes.u64()?;
            let (cpu, _reserved) = (bytes.u32()?, bytes.u32()?);
            let length = bytes.u32()?;
            Record::Raw {
                tid,
                time,
                cpu,
                data: bytes.take(length as usize)?,
            }
        }
        sys::PERF_RECORD_SAMPLE => sample(bytes, misc, layout.regs)?,
        sys::PERF_RECORD_FORK | sys::PERF_RECORD_EXIT => {
            let (pid, ppid) = (bytes.id()?, bytes.id()?);
            let (tid, ptid) = (bytes.id()?, bytes.id()?);
            let time = bytes.u64()?;
            match kind {
                sys::PERF_RECORD_EXIT => Record::Exit { pid, tid, time },
                _ => Record::Fork {
                    pid,
                    tid,
                    ppid,
                    ptid,
                    time,
                },
            }
        }
        sys::PERF_RECORD_COMM => {
            let (pid, tid) = (bytes.id()?, bytes.id()?);
            let (name, time) = bytes.text_and_time(layout)?;
            let exec = u32::from(misc) & sys::PERF_RECORD_MISC_COMM_EXEC != 0;
            Record::Comm {
                pid,
                tid,
                name,
                exec,
                time,
            }
        }
        sys::PERF_RECORD_MMAP2 => {
            let (pid, _tid) = (bytes.id()?, bytes.id()?);
            let (address, length) = (bytes.u64()?, bytes.u64()?);
            let offset = bytes.u64()?;
            let id = file_id(Bytes(bytes.take(24)?), misc);
            let _protection_and_flags = bytes.take(8)?;
            let (file, time) = bytes.text_and_time(layout)?;
            Record::Mmap {
                pid,
                address,
                length,
                offset,
                file,
                id,
                time,
            }
        }
        sys::PERF_RECORD_LOST => {
            let _event = bytes.u64()?;
            Record::Lost(bytes.u64()?)
        }
        sys::PERF_RECORD_LOST_SAMPLES => Record::Lost(bytes.u64()?),
        sys::PERF_RECORD_THROTTLE => Record::Throttle,
        _ => Record::Other,
    })
}

/// Device, inode and the inode's generation, unless a build id stands in their place.
fn file_id(mut bytes: Bytes<'_>, misc: u16) -> Option<FileId> {
    if u32::from(misc) & sys::PERF_RECORD_MISC_MMAP_BUILD_ID != 0 {
        return None;
    }
    Some(FileId {
        major: bytes.u32()?,
        minor: bytes.u32()?,
        inode: bytes.u64()?,
    })
}

fn sample(mut bytes: Bytes<'_>, misc: u16, mask: u64) -> Option<Record<'_>> {
    let ip = bytes.u64()?;
    let (pid, tid) = (bytes.id()?, bytes.id()?);
    let mode = match u32::from(misc) & sys::PERF_RECORD_MISC_CPUMODE_MASK {
        sys::PERF_RECORD_MISC_USER => CpuMode::User,
        sys::PERF_RECORD_MISC_KERNEL => CpuMode::Kernel,
        _ => CpuMode::Other,
    };
    let (mut abi, mut regs) = (Abi::None, &[][..]);
    if mask != 0 {
        abi = match bytes.u64()? {
            1 => Abi::Bits32,
            2 => Abi::Bits64,
            _ => Abi::None,
        };
        if abi != Abi::None {
            regs = bytes.take(mask.count_ones() as usize * 8)?;
        }
    }
    Some(Record::Sample(Sample {
        ip,
        pid,
        tid,
        mode,
        abi,
        regs,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn pair(low: i32, high: i32) -> u64 {
        u64::from(low as u32) | u64::from(high as u32) << 32
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            kind in 0u32..24,
            misc: u16,
            body in proptest::collection::vec(any::<u8>(), 0..400),
            regs: u64,
            trailer: bool,
            windows: bool,
            raw: bool,
        ) {
            let layout = Layout { regs, trailer, windows, raw };
            if let Some(Record::Sample(sample)) = parse(kind, misc, &body, layout) {
                prop_assert!(sample.regs().count() <= regs.count_ones() as usize);
            }
        }

        #[test]
        fn samples_come_back(ip: u64, pid: i32, tid: i32, mask: u64, user: bool, kernel_thread: bool) {
            let values: Vec<u64> = (0..u64::from(mask.count_ones())).collect();
            let mut body = vec![ip, pair(pid, tid)];
            if mask != 0 {
                body.push(if kernel_thread { 0 } else { 2 });
                if !kernel_thread {
                    body.extend(&values);
                }
            }
            let body = words(&body);
            let misc = if user { 2 } else { 1 };
            let layout = Layout { regs: mask, ..Layout::default() };
            let Some(Record::Sample(sample)) = parse(9, misc, &body, layout) else {
                panic!("no sample")
            };
            prop_assert_eq!((sample.ip, sample.pid, sample.tid), (ip, pid, tid));
            prop_assert_eq!(sample.mode == CpuMode::User, user);
            let regs: Vec<u64> = sample.regs().collect();
            prop_assert_eq!(regs, if kernel_thread { vec![] } else { values });
            prop_assert!(parse(9, misc, &body[..body.len() - 1], layout).is_none());
        }
    }

    #[test]
    fn windows_come_back() {
        let layout = Layout {
            windows: true,
            ..Layout::default()
        };
        let body = words(&[pair(10, 11), 99, pair(3, 0), 1, 5, 5, 700, 1]);
        let expected = Record::Window {
            tid: 11,
            time: 99,
            cpu: 3,
            totals: &body[24..],
        };
        assert_eq!(parse(9, 2, &body, layout), Some(expected));
        assert_eq!(parse(9, 2, &body[..20], layout), None);
    }

    #[test]
    fn tracepoints_come_back() {
        let layout = Layout {
            raw: true,
            ..Layout::default()
        };
        let mut body = words(&[pair(10, 11), 99, pair(3, 0)]);
        body.extend(4u32.to_ne_bytes());
        body.extend([1, 2, 3, 4]);
        let expected = Record::Raw {
            tid: 11,
            time: 99,
            cpu: 3,
            data: &[1, 2, 3, 4],
        };
        assert_eq!(parse(9, 1, &body, layout), Some(expected));
        assert_eq!(parse(9, 1, &body[..body.len() - 1], layout), None);
    }

    #[test]
    fn task_records_come_back() {
        let layout = Layout {
            trailer: true,
            ..Layout::default()
        };
        let fork = words(&[pair(10, 7), pair(11, 8), 99, pair(7, 8), 99]);
        let expected = Record::Fork {
            pid: 10,
            tid: 11,
            ppid: 7,
            ptid: 8,
            time: 99,
        };
        assert_eq!(parse(7, 0, &fork, layout), Some(expected));
        let mut comm = words(&[pair(10, 11)]);
        comm.extend(b"worker\0\0");
        comm.extend(words(&[pair(10, 11), 5]));
        let expected = Record::Comm {
            pid: 10,
            tid: 11,
            name: b"worker",
            exec: true,
            time: 5,
        };
        assert_eq!(parse(3, 1 << 13, &comm, layout), Some(expected));
        let mut mmap = words(&[pair(10, 11), 0x1000, 0x2000, 0x3000, pair(8, 1), 42, 7, 0]);
        mmap.extend(b"//anon\0\0");
        mmap.extend(words(&[pair(10, 11), 6]));
        let expected = |id| Record::Mmap {
            pid: 10,
            address: 0x1000,
            length: 0x2000,
            offset: 0x3000,
            file: b"//anon",
            id,
            time: 6,
        };
        let id = FileId {
            major: 8,
            minor: 1,
            inode: 42,
        };
        assert_eq!(parse(10, 2, &mmap, layout), Some(expected(Some(id))));
        let build_id = 2 | sys::PERF_RECORD_MISC_MMAP_BUILD_ID as u16;
        assert_eq!(parse(10, build_id, &mmap, layout), Some(expected(None)));
        assert_eq!(
            parse(2, 0, &words(&[1, 17]), layout),
            Some(Record::Lost(17))
        );
    }
}
