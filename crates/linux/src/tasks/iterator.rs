//! A BPF iterator over all threads of the machine (`iter/task`, Linux 5.8): one read(2) gives what `schedstat` and `stat`
//! would say of hundreds of them.
//!
//! Source: `Documentation/bpf/bpf_iterators.rst` and `include/uapi/linux/bpf.h` of the kernel. The program only reads. It
//! has a dozen instructions, so it is assembled here: libbpf-rs would need clang on every machine that builds perch.

use super::btf::{Btf, FUNCTION, Offset, STRUCT};
use crate::proc::Schedstat;
use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// What the kernel keeps of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// In the first PID namespace.
    pub tid: i32,
    /// Its process.
    pub pid: i32,
    /// Nanoseconds from boot to its start.
    pub start: u64,
    /// What its `schedstat` says.
    pub spent: Schedstat,
}

/// Bytes that the program writes of each thread: two words of 4 bytes and four of 8.
const RECORD: usize = 40;

/// Where members are in the kernel's structures.
#[derive(Debug)]
struct Layout {
    /// The number of the type of `bpf_iter_task`, to which the program is attached.
    function: u32,
    /// `task` in what the program is given, and `meta`.
    task: Offset,
    meta: Offset,
    /// `seq` in `meta`.
    seq: Offset,
    mm: Offset,
    pid: Offset,
    tgid: Offset,
    start: Offset,
    run: Offset,
    wait: Offset,
    slices: Offset,
}

impl Layout {
    fn find(btf: &Btf<'_>) -> Option<Self> {
        let task = btf.find(STRUCT, "task_struct")?;
        let context = btf.find(STRUCT, "bpf_iter__task")?;
        let meta = btf.find(STRUCT, "bpf_iter_meta")?;
        Some(Self {
            function: btf.find(FUNCTION, "bpf_iter_task")?,
            task: btf.offset(context, &["task"])?,
            meta: btf.offset(context, &["meta"])?,
            seq: btf.offset(meta, &["seq"])?,
            mm: btf.offset(task, &["mm"])?,
            pid: btf.offset(task, &["pid"])?,
            tgid: btf.offset(task, &["tgid"])?,
            // Linux 5.5 named it so; iterators are younger.
            start: btf.offset(task, &["start_boottime"])?,
            run: btf.offset(task, &["se", "sum_exec_runtime"])?,
            wait: btf.offset(task, &["sched_info", "run_delay"])?,
            slices: btf.offset(task, &["sched_info", "pcount"])?,
        })
    }
}

/// The loaded program.
#[derive(Debug)]
pub struct TaskIterator {
    link: OwnedFd,
    buffer: Vec<u8>,
}

impl TaskIterator {
    /// Loads the program.
    ///
    /// # Errors
    /// A kernel without BPF iterators or without a description of its types; CAP_BPF or CAP_PERFMON missing.
    pub fn load() -> io::Result<Self> {
        let unsupported = |why| io::Error::new(io::ErrorKind::Unsupported, why);
        if cfg!(not(all(
            target_endian = "little",
            target_pointer_width = "64"
        ))) {
            return Err(unsupported("only on little-endian machines of 64 bits"));
        }
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux")?;
        let layout = Btf::parse(&bytes).and_then(|btf| Layout::find(&btf));
        let layout = layout.ok_or_else(|| unsupported("the kernel's types are not as expected"))?;
        drop(bytes);
        let program = load(&assemble(&layout), layout.function)?;
        Ok(Self {
            link: link(&program)?,
            buffer: Vec::new(),
        })
    }

    /// All threads of user programs, by rising TID. Those that have exited and wait for their parent are missing.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn read(&mut self) -> io::Result<impl Iterator<Item = Task> + '_> {
        let mut pass = File::from(create(&self.link)?);
        self.buffer.clear();
        loop {
            match pass.read_to_end(&mut self.buffer) {
                Ok(_) => break,
                // After a million threads the kernel lets others run.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let (records, _) = self.buffer.as_chunks::<RECORD>();
        Ok(records.iter().map(task))
    }
}

fn task(record: &[u8; RECORD]) -> Task {
    let (words, _) = record.as_chunks::<8>();
    let [ids, start, run, wait, slices] =
        [0, 1, 2, 3, 4].map(|index| words.get(index).map_or(0, |word| u64::from_ne_bytes(*word)));
    Task {
        tid: ids as i32,
        pid: (ids >> 32) as i32,
        start,
        spent: Schedstat { run, wait, slices },
    }
}

/// Registers, as `include/uapi/linux/bpf.h` numbers them.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const CONTEXT: u8 = 6;
const TASK: u8 = 7;
const FRAME: u8 = 10;

/// The helper `bpf_seq_write`.
const SEQ_WRITE: i32 = 127;

/// Operations: loads and stores of 4 and 8 bytes, moves, an addition, a jump if equal, a call, the end.
const LOAD_4: u8 = 0x61;
const LOAD_8: u8 = 0x79;
const STORE_4: u8 = 0x63;
const STORE_8: u8 = 0x7b;
const MOVE: u8 = 0xbf;
const MOVE_VALUE: u8 = 0xb7;
const ADD_VALUE: u8 = 0x07;
const JUMP_IF_EQUAL: u8 = 0x15;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `struct bpf_insn` on a little-endian machine.
fn instruction(operation: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    u64::from(operation)
        | u64::from(to | from << 4) << 8
        | u64::from(offset as u16) << 16
        | u64::from(value as u32) << 32
}

/// Writes a record of each thread that has memory of its own, so of none of the kernel's.
fn assemble(layout: &Layout) -> Vec<u64> {
    let load = |operation, to, from, offset| instruction(operation, to, from, offset, 0);
    let mut write = Vec::new();
    let mut at = -(RECORD as i16);
    for (member, operation, store, width) in [
        (layout.pid, LOAD_4, STORE_4, 4),
        (layout.tgid, LOAD_4, STORE_4, 4),
        (layout.start, LOAD_8, STORE_8, 8),
        (layout.run, LOAD_8, STORE_8, 8),
        (layout.wait, LOAD_8, STORE_8, 8),
        (layout.slices, LOAD_8, STORE_8, 8),
    ] {
        write.push(load(operation, R1, TASK, member));
        write.push(load(store, FRAME, R1, at));
        at += width;
    }
    write.extend([
        load(LOAD_8, R1, CONTEXT, layout.meta),
        load(LOAD_8, R1, R1, layout.seq),
        instruction(MOVE, R2, FRAME, 0, 0),
        instruction(ADD_VALUE, R2, 0, 0, -(RECORD as i32)),
        instruction(MOVE_VALUE, R3, 0, 0, RECORD as i32),
        instruction(CALL, 0, 0, 0, SEQ_WRITE),
    ]);
    let skip = |register, by: usize| instruction(JUMP_IF_EQUAL, register, 0, by as i16, 0);
    let mut code = vec![
        instruction(MOVE, CONTEXT, R1, 0, 0),
        load(LOAD_8, TASK, CONTEXT, layout.task),
        // The last call has no thread.
        skip(TASK, write.len() + 2),
        load(LOAD_8, R1, TASK, layout.mm),
        skip(R1, write.len()),
    ];
    code.extend(write);
    code.extend([
        instruction(MOVE_VALUE, R0, 0, 0, 0),
        instruction(EXIT, 0, 0, 0, 0),
    ]);
    code
}

/// bpf(2)'s commands, the type of a tracing program and the kind of attachment.
const PROG_LOAD: i64 = 5;
const LINK_CREATE: i64 = 28;
const ITER_CREATE: i64 = 33;
const TRACING: u32 = 26;
const TRACE_ITER: u32 = 28;

/// The part of `union bpf_attr` that loading a program needs.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log: [u32; 4],
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
    /// Debug information of the program: none.
    information: [u64; 4],
    lines: u32,
    attach_type_id: u32,
    attach_program: u32,
    relocations: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct IterCreate {
    link: u32,
    flags: u32,
}

/// Calls bpf(2) for a new descriptor, which it opens with O_CLOEXEC.
fn bpf<T>(command: i64, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are valid for this long, and the kernel writes nothing into these three kinds.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(answer as i32) })
}

fn load(code: &[u64], attach_type_id: u32) -> io::Result<OwnedFd> {
    let mut name = [0; 16];
    name[..11].copy_from_slice(b"perch_tasks");
    // Only programs under a license that is compatible with the GPL may call the helper: this one is under the MIT license
    // or the GPL, as you like.
    let license = c"Dual MIT/GPL";
    bpf(
        PROG_LOAD,
        &ProgLoad {
            program_type: TRACING,
            instruction_count: code.len() as u32,
            instructions: code.as_ptr() as u64,
            license: license.as_ptr() as u64,
            name,
            attach_type: TRACE_ITER,
            attach_type_id,
            ..ProgLoad::default()
        },
    )
}

fn link(program: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes = LinkCreate {
        program: program.as_raw_fd() as u32,
        attach_type: TRACE_ITER,
        ..LinkCreate::default()
    };
    bpf(LINK_CREATE, &attributes)
}

fn create(link: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes = IterCreate {
        link: link.as_raw_fd() as u32,
        flags: 0,
    };
    bpf(ITER_CREATE, &attributes)
}
