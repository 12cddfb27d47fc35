//! The accuracy experiment's command.

use clap::Parser;
use perch_accuracy::command::{Args, run};
use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    run(&Args::parse())
}
