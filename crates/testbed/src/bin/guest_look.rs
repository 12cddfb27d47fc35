//! Takes down every thread's mask at the right moment; see [`perch_testbed::look`].

use clap::Parser;

fn main() -> anyhow::Result<()> {
    let look = perch_testbed::look::run(&perch_testbed::look::Options::parse())?;
    println!("{}", serde_json::to_string(&look)?);
    Ok(())
}
