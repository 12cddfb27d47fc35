//! A black-box attack on perch's safety promises: kills, damaged journals, programs that execute others, cpusets,
//! namespaces, other users. What must be zero is counted; see `docs/torture.md`.
//!
//! Only the command line of the real perch is used. The programs that it is let loose on are modes of this one.

mod args;
mod attacks;
mod cgroup;
mod crowd;
mod guest;
mod masks;
mod nices;
mod orders;
mod perch;
mod puppet;
mod report;
mod sandbox;
mod supervisor;
mod tally;
mod victim;
mod world;

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    args::start()
}
