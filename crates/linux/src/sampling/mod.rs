//! Instruction sampling: where threads are, looked at by a clock, and what the code there does.
//!
//! The kernel's cpu-clock event interrupts a running thread many times a second and records its instruction address
//! and registers. `perch_sampling` says what an address stands for; here is the kernel's side: which events are opened
//! for whom (all threads of a CPU, or single threads), where the code is read from, and the module that turns
//! samples into metrics each period ([`SamplerModule`]).

mod bursts;
mod code;
mod history;
mod known;
mod mapped_file;
mod module;
mod options;
mod pace;
mod per_thread;
mod process;
mod reported;
mod said;
mod source;
mod steer;
mod system_wide;
mod thread;
mod walks;

pub use module::SamplerModule;
pub use options::Options;
