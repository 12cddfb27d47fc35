//! How time grows with simulated threads, and this simulator beside ChampSim on the same instructions.
//!
//! `cargo bench -p perch-sim --bench side_by_side`; with `PERCH_CHAMPSIM=/path/to/champsim` in the environment ChampSim's
//! binary, built by the user from its public repository with its default configuration, runs in turn with ours. Times are
//! the host CPU's, not the clock's.

mod champsim;
mod ours;
mod streams;

use ours::Growth;
use std::path::Path;
use streams::STREAMS;

/// Runs of each, in turn.
const PAIRS: usize = 5;

fn main() {
    // Cargo runs benchmarks as tests too: then there is nothing to do.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    growth();
    match std::env::var_os("PERCH_CHAMPSIM") {
        Some(binary) => beside(Path::new(&binary)),
        None => println!("ChampSim: not run; PERCH_CHAMPSIM=/path/to/its/binary names it"),
    }
}

/// The median, with the least and the most.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self {
            median: values[values.len() / 2],
            least: values[0],
            most: values[values.len() - 1],
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            median,
            least,
            most,
        } = self;
        write!(f, "{median:.1} ({least:.1} to {most:.1})")
    }
}

/// Nanoseconds of the host for one simulated instruction, by threads.
fn growth() {
    println!(
        "nanoseconds of a host CPU for an instruction on cmt-4x4; median (least to most) of {PAIRS}"
    );
    for (name, bytes) in [("1 KB a thread", 1 << 10), ("32 KB a thread", 32 << 10)] {
        println!("{name}");
        let all = [4, 16, 64, 256, 1024];
        let mut runs: Vec<Growth> = all.map(|threads| Growth::new(threads, bytes)).into();
        let mut times = vec![Vec::new(); all.len()];
        for _ in 0..PAIRS {
            for (run, times) in runs.iter_mut().zip(&mut times) {
                times.push(run.nanoseconds());
            }
        }
        for ((threads, times), run) in all.iter().zip(times).zip(&runs) {
            let [first, second] = run.misses();
            println!(
                "  {threads:>5} threads  {}; misses in 1,000 instructions: {first:.0} of L1, {second:.0} of L2",
                Spread::of(times)
            );
        }
    }
}

/// Both simulators on the same instructions, in pairs.
fn beside(binary: &Path) {
    println!(
        "thousands of instructions in a second of one host CPU; median (least to most) of {PAIRS} pairs"
    );
    for stream in &STREAMS {
        let trace = champsim::write(stream).expect("room for a trace in the temporary directory");
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            mine.push(ours::rate(stream) / 1e3);
            match champsim::rate(binary, trace.path(), stream) {
                Ok(rate) => theirs.push(rate / 1e3),
                Err(error) => return println!("ChampSim: {}: {error}", binary.display()),
            }
        }
        let ratios = mine.iter().zip(&theirs).map(|(mine, theirs)| mine / theirs);
        let ratio = Spread::of(ratios.collect());
        println!("{}", stream.name);
        println!("  perch     {}", Spread::of(mine));
        println!("  ChampSim  {}", Spread::of(theirs));
        println!("  ratio     {ratio}");
    }
}
