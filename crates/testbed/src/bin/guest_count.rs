//! Counts events of one thread; see [`perch_testbed::count`].

use clap::Parser;

fn main() -> anyhow::Result<()> {
    let counted = perch_testbed::count::run(&perch_testbed::count::Options::parse())?;
    println!("{}", serde_json::to_string(&counted)?);
    Ok(())
}
