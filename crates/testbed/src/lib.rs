//! Boots virtual machines with topologies that one small host does not have, and tests perch in them.
//!
//! A [`Guest`] is QEMU's software emulation (no KVM needed) of a machine with a given [`Topology`],
//! running the distribution's own stable cloud kernel, a busybox user land and whatever host
//! programs the test hands in. One boot costs 5 to 12 seconds, so a test collects as much as it can
//! in one boot and judges afterwards.
//!
//! ```no_run
//! use perch_testbed::{Guest, Topology};
//!
//! let out = Guest::new(Topology::Smt2).run("nproc")?;
//! assert_eq!(out.stdout.trim(), "8");
//! # anyhow::Ok(())
//! ```
//!
//! A guest lives on the host's clock, and on a busy host gets little done in a second. So no test judges what has become
//! of a number of periods: it waits for a state that must come and last before perch has seen a given amount of every
//! thread's work ([`until`]).
//!
//! The kernel, its headers and the modules built against them are kept in `target/testbed`
//! (`PERCH_TESTBED_DIR` overrides it); nothing is installed on the host. The Debian packages that
//! the host itself needs are listed in `testbed/apt-packages.txt`.

mod apt;
mod architecture;
mod clocks;
pub mod count;
mod cross;
pub mod even;
mod guest;
mod host;
mod initramfs;
pub mod inject;
mod kernel;
pub mod load;
pub mod look;
mod module;
mod perch;
mod qemu;
mod recording;
mod topology;
pub mod until;

pub use architecture::Architecture;
pub use cross::programs_for_aarch64;
pub use guest::{Guest, Output};
pub use host::{cache_dir, repository, vm_tests_skipped};
pub use kernel::Kernel;
pub use module::StandIn;
pub use perch::perch_binary;
pub use topology::Topology;
