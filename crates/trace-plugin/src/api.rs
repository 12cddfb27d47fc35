//! What the plugin uses of qemu's interface for plugins, version 1, as `include/qemu/qemu-plugin.h` of qemu 7.2 declares it
//! (github.com/qemu/qemu, tag v7.2.0). The functions are in the qemu that loads the plugin.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `QEMU_PLUGIN_VERSION`.
pub const VERSION: c_int = 1;

/// `QEMU_PLUGIN_CB_NO_REGS` of `enum qemu_plugin_cb_flags`.
pub const NO_REGISTERS: c_int = 0;

/// `QEMU_PLUGIN_MEM_RW` of `enum qemu_plugin_mem_rw`. qemu 7.2 calls back for both even if only one was asked for.
pub const READ_WRITE: c_int = 3;

/// `qemu_plugin_id_t`.
pub type Id = u64;

/// `struct qemu_plugin_tb`.
#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_insn`.
#[repr(C)]
pub struct Instruction {
    _opaque: [u8; 0],
}

/// The beginning of `qemu_info_t`.
#[repr(C)]
pub struct Info {
    /// The guest's architecture.
    pub target_name: *const c_char,
}

/// `qemu_plugin_vcpu_simple_cb_t`.
pub type OnThread = extern "C" fn(Id, c_uint);
/// `qemu_plugin_vcpu_tb_trans_cb_t`.
pub type OnTranslate = extern "C" fn(Id, *mut Block);
/// `qemu_plugin_vcpu_udata_cb_t`.
pub type OnExecute = extern "C" fn(c_uint, *mut c_void);
/// `qemu_plugin_vcpu_mem_cb_t`.
pub type OnMemory = extern "C" fn(c_uint, u32, u64, *mut c_void);
/// `qemu_plugin_udata_cb_t`.
pub type OnExit = extern "C" fn(Id, *mut c_void);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: Id, cb: OnThread);
    pub fn qemu_plugin_register_vcpu_exit_cb(id: Id, cb: OnThread);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, cb: OnTranslate);
    pub fn qemu_plugin_register_atexit_cb(id: Id, cb: OnExit, data: *mut c_void);
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        cb: OnExecute,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        cb: OnMemory,
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const c_void;
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    pub fn qemu_plugin_mem_is_store(info: u32) -> bool;
}
