//! What a region costs a program: a pair of start and stop with libperch, beside PAPI's high-level calls and LIKWID's
//! markers, in the same run and with the same events.

use crate::spread::Spread;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The events of all libraries, by perch's names and by PAPI's.
const SOFTWARE: (&str, &str) = (
    "page-faults,context-switches,cpu-migrations",
    "perf::PAGE-FAULTS,perf::CONTEXT-SWITCHES,perf::CPU-MIGRATIONS",
);

/// Hardware events, for machines that have them.
const HARDWARE: (&str, &str) = ("instructions,cycles", "PAPI_TOT_INS,PAPI_TOT_CYC");

/// A library and how its program is run.
struct Case {
    name: &'static str,
    define: &'static str,
    libraries: &'static [&'static str],
    /// Event names: of perch, or of PAPI.
    events: Option<&'static str>,
    /// Words before the program.
    before: &'static [&'static str],
}

const CASES: [Case; 7] = [
    Case {
        name: "libperch, not initialised",
        define: "WITH_PERCH_OFF",
        libraries: &["-lperch"],
        events: None,
        before: &[],
    },
    Case {
        name: "two read(2) of 3 software events",
        define: "WITH_READ",
        libraries: &[],
        events: None,
        before: &[],
    },
    Case {
        name: "libperch, 3 software events",
        define: "WITH_PERCH",
        libraries: &["-lperch"],
        events: Some(SOFTWARE.0),
        before: &[],
    },
    Case {
        name: "PAPI high-level, 3 software events",
        define: "WITH_PAPI",
        libraries: &["-lpapi"],
        events: Some(SOFTWARE.1),
        before: &[],
    },
    Case {
        name: "libperch, instructions and cycles",
        define: "WITH_PERCH",
        libraries: &["-lperch"],
        events: Some(HARDWARE.0),
        before: &[],
    },
    Case {
        name: "PAPI high-level, instructions and cycles",
        define: "WITH_PAPI",
        libraries: &["-lpapi"],
        events: Some(HARDWARE.1),
        before: &[],
    },
    Case {
        name: "LIKWID markers, instructions and cycles",
        define: "WITH_LIKWID",
        libraries: &["-llikwid"],
        events: None,
        before: &["likwid-perfctr", "-C", "0", "-g", "CLOCK", "-m"],
    },
];

/// What a pair costs.
#[derive(Debug, Serialize)]
pub struct Pair {
    /// The library and the events.
    pub name: &'static str,
    /// Nanoseconds of a pair; `None` if it was not measured.
    pub nanoseconds: Option<Spread>,
    /// Why it was not measured.
    pub why: Option<String>,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:<42} ", self.name)?;
        match (&self.nanoseconds, &self.why) {
            (Some(spread), _) => write!(f, "{spread} ns"),
            (None, why) => write!(f, "not measured: {}", why.as_deref().unwrap_or("?")),
        }
    }
}

/// Measures all cases alternately, each this many times. `libraries` is the folder of the release build.
///
/// # Errors
/// A libperch that was not built.
pub fn measure(libraries: &Path, turns: u32) -> Result<Vec<Pair>> {
    let folder = std::env::temp_dir().join(format!("perch-bench-regions-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let measured = measure_in(&folder, libraries, turns);
    let _ = fs::remove_dir_all(&folder);
    measured
}

fn measure_in(folder: &Path, libraries: &Path, turns: u32) -> Result<Vec<Pair>> {
    let library = libraries.join("liblibperch.so");
    for name in ["libperch.so", "libperch.so.0"] {
        fs::copy(&library, folder.join(name)).with_context(|| {
            format!(
                "{}: not there; build it with `cargo build --release -p perch-libperch`",
                library.display()
            )
        })?;
    }
    let programs: Vec<Result<PathBuf>> = CASES.iter().map(|case| build(case, folder)).collect();
    let mut times: Vec<Result<Vec<f64>>> = programs
        .iter()
        .map(|built| match built {
            Ok(_) => Ok(Vec::new()),
            Err(error) => bail!("{error:#}"),
        })
        .collect();
    for _ in 0..turns {
        for ((case, program), times) in CASES.iter().zip(&programs).zip(&mut times) {
            let (Ok(program), Ok(known)) = (program, &mut *times) else {
                continue;
            };
            match run(case, program, folder) {
                Ok(time) => known.push(time),
                Err(error) => *times = Err(error),
            }
        }
    }
    let pairs = CASES.iter().zip(times).map(|(case, times)| Pair {
        name: case.name,
        nanoseconds: times.as_ref().ok().map(|times| Spread::of(times)),
        why: times.err().map(|error| format!("{error:#}")),
    });
    Ok(pairs.collect())
}

fn build(case: &Case, folder: &Path) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(case.name.replace([' ', ','], "-"));
    let output = Command::new("cc")
        .args(["-O2", "-std=c11", "-pthread"])
        .arg(format!("-D{}", case.define))
        .arg("-I")
        .arg(root.join("../libperch/include"))
        .arg("-o")
        .arg(&program)
        .arg(root.join("regions/pair.c"))
        .arg("-L")
        .arg(folder)
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .args(case.libraries)
        .output()
        .context("cc: not found")?;
    match output.status.success() {
        true => Ok(program),
        false => bail!("it cannot be built: {}", last_line(&output.stderr)),
    }
}

fn run(case: &Case, program: &Path, folder: &Path) -> Result<f64> {
    let mut words = case
        .before
        .iter()
        .map(|word| Path::new(*word))
        .collect::<Vec<_>>();
    words.push(program);
    let output = Command::new(words[0])
        .args(&words[1..])
        .arg("20000")
        .envs(case.events.map(|events| ("PERCH_REGION_EVENTS", events)))
        .envs(case.events.map(|events| ("PAPI_EVENTS", events)))
        // PAPI writes a report at exit.
        .env("PAPI_OUTPUT_DIRECTORY", folder)
        .current_dir(folder)
        .output()
        .with_context(|| format!("{}: not found", words[0].display()))?;
    let told = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    if case.events == Some(HARDWARE.0) && !perf_counts_hardware() {
        bail!("this machine has no hardware counters");
    }
    // PAPI may go on without some of its events, and prints a note.
    if output.status.success() && (told.contains("Warning") || said.contains("Warning")) {
        bail!(
            "{}",
            last_line(&[&*output.stdout, &*output.stderr].concat())
        );
    }
    let mut numbers = told
        .lines()
        .filter_map(|line| line.trim().parse::<f64>().ok());
    match (numbers.next_back(), output.status.success()) {
        (Some(time), true) => Ok(time),
        _ => bail!("{}", last_line(&[output.stdout, output.stderr].concat())),
    }
}

/// Whether the kernel shows hardware counters of cores.
fn perf_counts_hardware() -> bool {
    ["cpu", "cpu_core", "armv8_pmuv3_0"].iter().any(|pmu| {
        Path::new("/sys/bus/event_source/devices")
            .join(pmu)
            .exists()
    })
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.next_back().unwrap_or("it says nothing").to_owned()
}
