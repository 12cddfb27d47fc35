//! All tests of this crate but those of single files, in one program: a program for each file would take minutes more to
//! build.

mod calibration;
mod cpi;
mod cpi_cases;
mod cpi_machine;
mod cpi_solo;
mod explain;
mod fixed;
mod irq;
mod masa;
mod ps_sched;
mod registry;
mod sos;
mod support;
mod symbiosis;
mod workover;
