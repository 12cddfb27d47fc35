//! Makes noise of known truth; see [`perch_testbed::inject`].

use clap::Parser;

fn main() -> anyhow::Result<()> {
    let bursts = perch_testbed::inject::run(&perch_testbed::inject::Options::parse())?;
    println!("{}", serde_json::to_string(&bursts)?);
    Ok(())
}
