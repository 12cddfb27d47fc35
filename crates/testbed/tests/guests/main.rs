//! perch and the testbed itself in virtual machines. One program, so that two machines run at a time: each takes one
//! of the host's CPUs.

mod aarch64;
mod boot;
mod counters;
mod energy;
mod fake_pmu;
mod groups;
mod irq;
mod masa;
mod noise;
mod placement;
mod profile;
mod ps_sched;
mod regions;
mod resctrl;
mod settings;
mod stat;
#[path = "../story/mod.rs"]
mod story;
mod undo;
