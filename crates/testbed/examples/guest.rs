//! Boots a guest by hand: `cargo run -p perch-testbed --example guest -- smt2 SCRIPT [PROGRAM...]`.
//! The script is a file or text; the stand-in PMU and the programs are in the guest.

use std::time::Duration;

use anyhow::{Context, Result};
use perch_testbed::{Guest, Topology};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: guest TOPOLOGY SCRIPT [PROGRAM...]";
    let name = args.next().context(usage)?;
    let topology = Topology::ALL
        .into_iter()
        .find(|t| format!("{t:?}").eq_ignore_ascii_case(&name));
    let topology =
        topology.with_context(|| format!("no topology {name}; there are {:?}", Topology::ALL))?;
    let script = args.next().context(usage)?;
    let script = std::fs::read_to_string(&script).unwrap_or(script);
    let guest = Guest::new(topology)
        .fake_pmu()
        .limit(Duration::from_secs(600));
    let output = args
        .fold(guest, |guest, program| guest.program(program))
        .run(&script)?;
    print!("{}", output.stdout);
    eprint!("{}", output.stderr);
    eprintln!("--- console\n{}", output.console);
    std::process::exit(output.status)
}
