//! The tests of this crate in one program: one for each file would take minutes more to build. A file that is not named
//! here is not run; `perch`'s test `project` finds it.

mod cache_moves;
mod cache_ways;
mod clocks;
mod config;
mod config_errors;
mod config_plays;
mod config_properties;
mod core;
mod depends;
mod docs;
mod duty;
mod imports;
mod interval;
mod links;
mod memory;
mod metering;
mod noise;
mod o1;
mod occupancy;
mod parallel;
mod pus;
mod scheduler;
mod serving;
mod serving_errors;
mod shared_bus;
mod sharing;
mod single_queue;
mod support;
mod system;
mod time;
mod weights;
