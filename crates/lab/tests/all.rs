//! The tests of this crate in one program: one for each file would take minutes more to build. A file that is not named
//! here is not run; `perch`'s test `project` finds it.

mod cache_ways;
mod calibrate;
mod calibrate_noise;
mod energy;
mod fidelity;
mod masa;
mod mistakes;
mod pages;
mod phases;
mod placements;
mod scene;
mod shipped;
mod system_work;
mod tournament;
mod workover;
