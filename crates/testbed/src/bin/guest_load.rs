//! The workload that runs in guests; see [`perch_testbed::load`].

use clap::Parser;

fn main() -> anyhow::Result<()> {
    perch_testbed::load::run(&perch_testbed::load::Options::parse())
}
