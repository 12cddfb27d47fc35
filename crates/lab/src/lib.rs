//! The papers' experiments: what they claim, held against the simulated machine.
//!
//! ```text
//! experiments/cmt/figure3.toml ──load──▶ Experiment ──run──▶ Results ──┬─▶ table::text, rows as JSON
//! experiments/published.tsv ───────────────┘                           ├─▶ figure::svg
//!                                                                      └─▶ report (HTML)
//! ```
//!
//! An experiment is a file (`docs/lab.md`): runs (machine, workload, who places the threads), what is measured, and
//! claims with a tolerance that was written down before the run.
#![forbid(unsafe_code)]

pub mod calibrate;
mod course;
pub mod derived;
mod endless;
mod error;
pub mod experiment;
pub mod fidelity;
pub mod figure;
pub mod fingerprint;
mod judge;
pub mod kept;
pub mod measure;
pub mod overview;
pub mod page;
pub mod parallel;
pub mod phases;
pub mod placement;
pub mod processor;
pub mod published;
pub mod random;
pub mod results;
pub mod run;
pub mod sample;
pub mod sampled;
pub mod scene;
pub mod session;
mod settled;
pub mod simulate;
pub mod statistics;
pub mod table;
mod tally;
pub mod tournament;
pub mod validate;
mod variation;

pub use error::{Diagnostic, LabError};
pub use experiment::{Experiment, duration};
pub use processor::SimProcessor;
pub use results::Results;
pub use run::{Progress, run, run_on};
pub use tally::{Count, Tally};

use include_dir::{Dir, DirEntry};
use published::EXPERIMENTS;
use std::path::Path;

/// A shipped experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its name: `cmt/figure3`.
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// How many claims it checks.
    pub claims: usize,
}

/// The shipped experiments, by name.
///
/// # Errors
/// A shipped experiment with a mistake: its place.
pub fn list() -> Result<Vec<Summary>, LabError> {
    let summary = |name: String| {
        let experiment = load(&name)?;
        Ok(Summary {
            name,
            title: experiment.title,
            claims: experiment.claims.len(),
        })
    };
    names().into_iter().map(summary).collect()
}

/// The names of the shipped experiments, in order: files right below a directory of `experiments/`.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    for group in EXPERIMENTS.dirs() {
        let files = group.files().map(|file| file.path());
        let files = files.filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        });
        names.extend(files.map(|path| path.with_extension("").to_string_lossy().into_owned()));
    }
    names.sort();
    names
}

/// Whether a user's text names a file: it ends in `.toml` or another extension, or begins as only paths do.
fn is_path(name: &str) -> bool {
    let begins = ["/", "./", "../", "~"];
    Path::new(name).extension().is_some() || begins.iter().any(|start| name.starts_with(start))
}

/// The experiment that a user names: a file if it ends in `.toml` or begins with `./` or `/`, else a shipped one.
///
/// # Errors
/// No such experiment, a file that cannot be read, the first mistake in it.
pub fn load(name_or_path: &str) -> Result<Experiment, LabError> {
    let path = Path::new(name_or_path);
    if is_path(name_or_path) {
        let text = perch_files::read_to_string(path).map_err(|error| LabError::Read {
            path: path.to_owned(),
            error,
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let sibling = |name: &str| {
            perch_files::read_to_string(&directory.join(name)).map_err(|error| error.to_string())
        };
        return experiment::parse(name_or_path, &text, path, &sibling);
    }
    let file = format!("{name_or_path}.toml");
    let text =
        embedded(&EXPERIMENTS, &file).filter(|_| names().iter().any(|name| name == name_or_path));
    let Some(text) = text else {
        let names = names();
        // A paper's name alone stands for all of its experiments.
        let papers = names
            .iter()
            .filter_map(|name| Some(name.split_once('/')?.0));
        let all = names.iter().map(String::as_str).chain(papers);
        let hint = perch_files::toml_of(name_or_path)
            .map(|file| format!("here is a file of that name: write `{file}`"))
            .or_else(|| perch_core::diagnostic::did_you_mean(name_or_path, all));
        return Err(LabError::Unknown {
            name: name_or_path.to_owned(),
            hint: hint.map(|hint| format!("; {hint}")).unwrap_or_default(),
        });
    };
    let group = path.parent().unwrap_or(Path::new(""));
    let sibling = |name: &str| {
        let wanted = group.join(name.trim_start_matches("./"));
        embedded(&EXPERIMENTS, &wanted.to_string_lossy())
            .map(str::to_owned)
            .ok_or_else(|| "not shipped".to_owned())
    };
    experiment::parse(
        name_or_path,
        text,
        &Path::new("experiments").join(&file),
        &sibling,
    )
}

fn embedded(directory: &'static Dir<'static>, path: &str) -> Option<&'static str> {
    match directory.get_entry(path)? {
        DirEntry::File(file) => file.contents_utf8(),
        DirEntry::Dir(_) => None,
    }
}

/// One self-contained HTML page of these results.
///
/// # Errors
/// A picture that cannot be drawn.
pub fn report(results: &[Results]) -> Result<String, LabError> {
    page::page(results)
}
