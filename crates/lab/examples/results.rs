//! Runs experiments again and keeps their results in `docs/results/`, with the state of the simulator that made them; then
//! `pages` makes the tables of the result pages.
//!
//! ```text
//! cargo run --release -p perch-lab --example results              # all: an hour or more on 2 CPUs
//! cargo run --release -p perch-lab --example results masa cmt/figure3
//! ```

use perch_lab::{fingerprint, kept, load, names, results::Row, run};
use serde::Serialize;
use std::{error::Error, fs, path::Path, time::Instant};

/// As `perch lab run --json` prints it.
#[derive(Serialize)]
struct Told<'a> {
    experiment: &'a str,
    #[serde(flatten)]
    row: &'a Row,
}

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &String| {
        let below = |of: &String| name == of || name.starts_with(&format!("{of}/"));
        wanted.is_empty() || wanted.iter().any(below)
    };
    let chosen: Vec<String> = names().into_iter().filter(is_wanted).collect();
    if chosen.is_empty() {
        return Err(format!("no experiment of these names: {wanted:?}").into());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let state = fingerprint::of_tournament(&fingerprint::of_levels()?)?;
    let list = folder.join("fingerprints.json");
    let mut states = kept::fingerprints(&folder)?;
    for name in chosen {
        let start = Instant::now();
        let experiment = load(&name)?;
        let results = run(&experiment, &mut ())?;
        let rows = results.rows.iter();
        let rows = rows.map(|row| Told {
            experiment: &name,
            row,
        });
        let text = serde_json::to_string_pretty(&rows.collect::<Vec<_>>())?;
        fs::write(folder.join(format!("{name}.json")), text + "\n")?;
        states.insert(name.clone(), state.of(&experiment).to_owned());
        fs::write(&list, serde_json::to_string_pretty(&states)? + "\n")?;
        eprintln!("{name}: {:.0} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}
