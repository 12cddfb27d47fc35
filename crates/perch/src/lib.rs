//! The `perch` command: reads flags, environment and configuration, wires machine, profile, policy and engine
//! together, and draws what comes of it.

pub mod args;
pub mod command;
pub mod config;
pub mod exit;
pub mod processor;
pub mod render;
pub mod timeline;

use clap::Parser;
use std::process::ExitCode;

/// The whole command, from `argv` to the exit code.
pub fn main() -> ExitCode {
    let args = args::Args::parse();
    match command::dispatch(args) {
        Ok(code) => code,
        Err(error) => exit::report(&error),
    }
}
