//! All tests of this crate but those of single files, in one program: a program for each file would take minutes more to
//! build.

mod config;
mod config_errors;
mod config_plays;
mod config_properties;
mod core;
mod docs;
mod interval;
mod memory;
mod metering;
mod pus;
mod serving;
mod serving_errors;
mod shared_bus;
mod sharing;
mod support;
mod system;
mod time;
