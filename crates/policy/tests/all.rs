//! The tests of this crate in one program: one for each file would take minutes more to build. A file that is not named
//! here is not run; `perch`'s test `project` finds it.

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
