//! The plugin that makes qemu's user-mode emulation tell perch what a program executes.
//!
//! `qemu-x86_64 -plugin libperch_trace_plugin.so,socket=FD,instructions=N,skip=N PROGRAM`: the bytes of a block of
//! instructions are told when qemu translates it; each execution costs a record for the block and one for each access to
//! memory ([`perch_trace::wire`]). `perch record-trace` starts it so and makes a recording of what it tells.

mod api;
mod link;
mod threads;

use api::Id;
use perch_trace::wire::{self, Kind, record};
use rustix::fd::{FromRawFd, OwnedFd};
use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};
use threads::Wanted;

/// The version of the interface for plugins that this one was made for; qemu looks at it before anything else.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is qemu's")]
pub static qemu_plugin_version: c_int = api::VERSION;

static WANTED: OnceLock<Wanted> = OnceLock::new();
static NEXT_BLOCK: AtomicU32 = AtomicU32::new(0);

/// What qemu calls when it has loaded the plugin: reads the arguments and asks to be told of threads and blocks. Another
/// result than 0 ends qemu.
///
/// # Safety
/// To be called by qemu only: `argv` are `argc` C strings, `info` is what qemu knows of the guest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const api::Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: by this function's contract.
    let (target, arguments) = unsafe {
        let argument = |at: usize| CStr::from_ptr(*argv.add(at)).to_string_lossy();
        let arguments: Vec<_> = (0..argc as usize).map(argument).collect();
        (CStr::from_ptr((*info).target_name), arguments)
    };
    let number = |name: &str| {
        let given = arguments
            .iter()
            .find_map(|argument| argument.strip_prefix(name));
        given.and_then(|number| number.parse::<u64>().ok())
    };
    let (Some(socket), Some(instructions), Some(skip)) =
        (number("socket="), number("instructions="), number("skip="))
    else {
        eprintln!("perch's plugin is started by `perch record-trace`");
        return 1;
    };
    if target != c"x86_64" {
        eprintln!("perch's plugin records x86-64 programs only");
        return 1;
    }
    let _ = WANTED.set(Wanted { skip, instructions });
    // SAFETY: perch hands the socket down to this process, and nobody else in it knows of it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket as i32) };
    link::open(socket, wire::VERSION);
    // SAFETY: these are qemu's functions, called as its header says, while it installs a plugin.
    unsafe {
        api::qemu_plugin_register_vcpu_init_cb(id, on_begin);
        api::qemu_plugin_register_vcpu_exit_cb(id, on_end);
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
        api::qemu_plugin_register_atexit_cb(id, on_exit, std::ptr::null_mut());
    }
    0
}

extern "C" fn on_begin(_: Id, cpu: c_uint) {
    if let Some(wanted) = WANTED.get() {
        threads::begin(cpu, *wanted);
    }
}

extern "C" fn on_end(_: Id, cpu: c_uint) {
    threads::end(cpu);
}

/// The program ends; qemu has already made all threads leave instrumented code.
extern "C" fn on_exit(_: Id, _: *mut c_void) {
    threads::end_all();
    link::send(Kind::End, 0, &[]);
}

/// A block is translated: its bytes are told, and its execution is to be.
extern "C" fn on_translate(_: Id, block: *mut api::Block) {
    let number = NEXT_BLOCK.fetch_add(1, Relaxed);
    // SAFETY: qemu lends the block and its instructions until this returns.
    let count = unsafe { api::qemu_plugin_tb_n_insns(block) }.min(record::MOST_INSTRUCTIONS);
    link::add_block(|told| {
        told.extend_from_slice(&number.to_le_bytes());
        told.extend_from_slice(&(count as u32).to_le_bytes());
        for index in 0..count {
            // SAFETY: as above; the bytes are as many as qemu says.
            let (address, bytes) = unsafe {
                let instruction = api::qemu_plugin_tb_get_insn(block, index);
                let at = index as *mut c_void;
                let flags = api::NO_REGISTERS;
                let both = api::READ_WRITE;
                api::qemu_plugin_register_vcpu_mem_cb(instruction, on_memory, flags, both, at);
                let data = api::qemu_plugin_insn_data(instruction).cast::<u8>();
                let size = api::qemu_plugin_insn_size(instruction);
                let bytes = std::slice::from_raw_parts(data, size);
                (api::qemu_plugin_insn_vaddr(instruction), bytes)
            };
            told.extend_from_slice(&address.to_le_bytes());
            told.push(bytes.len() as u8);
            told.extend_from_slice(bytes);
        }
    });
    // The number and the count travel in the pointer that qemu hands back.
    let data = (u64::from(number) | (count as u64) << 32) as *mut c_void;
    // SAFETY: as above.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_exec_cb(block, on_execute, api::NO_REGISTERS, data);
    }
}

extern "C" fn on_execute(cpu: c_uint, data: *mut c_void) {
    let data = data as u64;
    threads::execute(cpu, record::block(data as u32), data >> 32);
}

extern "C" fn on_memory(cpu: c_uint, info: u32, address: u64, index: *mut c_void) {
    // SAFETY: qemu's functions, with what qemu gave.
    let (shift, store) = unsafe {
        (
            api::qemu_plugin_mem_size_shift(info),
            api::qemu_plugin_mem_is_store(info),
        )
    };
    threads::touch(cpu, record::memory(index as usize, store, shift, address));
}
