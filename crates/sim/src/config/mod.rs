//! Machines and workloads from files, with file, line and reason where they are wrong.
//!
//! The format is described in `docs/machines.md` and `docs/workloads.md`. What is read here is sound: the simulator
//! neither panics on it nor leaves out a part of it.

mod arrivals;
mod caches;
mod cycles;
mod depends;
mod device;
mod energy;
mod error;
mod expand;
mod import;
mod kind;
mod machine;
mod modulation;
mod os;
mod ports;
mod prefetchers;
mod program;
mod quantity;
mod recording;
mod shipped;
mod step;
mod table;
mod tlb;
mod topology;
mod workload;

pub use error::{ConfigError, Diagnostic};
pub use expand::expanded;
pub use shipped::{
    Shipped, read as read_shipped, shipped_machines, shipped_mixes, shipped_workloads,
    workload_path,
};

use crate::{model::MachineModel, workload::WorkloadModel};
use std::{io, path::Path};
use table::Source;

/// Bytes, as machine and workload files write them: `32 KiB`, `2 MB`, `64`.
///
/// # Errors
/// A text that is no size, with how sizes are written.
pub fn size(text: &str) -> Result<u64, String> {
    quantity::SIZE.parse(text)
}

/// Reads a machine from a file.
///
/// # Errors
/// A file that cannot be read; the first mistake in it, with its place.
pub fn machine(path: &Path) -> Result<MachineModel, ConfigError> {
    machine_from_text(&text_of(path)?, path)
}

/// Reads a machine from a text. The file's name is the machine's; errors name the path.
///
/// # Errors
/// The first mistake, with its place.
pub fn machine_from_text(text: &str, path: &Path) -> Result<MachineModel, ConfigError> {
    let source = Source {
        path: &path.to_string_lossy(),
        text,
    };
    Ok(machine::read(source, &stem(path))?)
}

/// The machine that a user names: a path if there is a slash in it or it ends in `.toml`, else a shipped one.
///
/// # Errors
/// As [`machine()`]; no shipped machine of that name, with a suggestion.
pub fn find_machine(name_or_path: &str) -> Result<MachineModel, ConfigError> {
    let path = Path::new(name_or_path);
    if is_path(name_or_path) {
        return machine(path);
    }
    let file = shipped::find(shipped_machines(), "machine", name_or_path)?;
    machine_from_text(
        file.text,
        &Path::new("machines").join(format!("{}.toml", file.name)),
    )
}

/// Reads a workload from a file.
///
/// # Errors
/// A file that cannot be read; the first mistake in it, with its place.
pub fn workload(path: &Path) -> Result<WorkloadModel, ConfigError> {
    workload_from_text(&text_of(path)?, path)
}

/// Reads a workload from a text. The file's name is the workload's; errors name the path.
///
/// # Errors
/// The first mistake, with its place.
pub fn workload_from_text(text: &str, path: &Path) -> Result<WorkloadModel, ConfigError> {
    workload_with(text, path, &perch_files::read_to_string)
}

/// Reads a workload from a text. Files from which it imports mixes are read by `read`, which gets paths that begin with
/// the folder of `path`.
///
/// # Errors
/// The first mistake, with its place.
pub fn workload_with(
    text: &str,
    path: &Path,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<WorkloadModel, ConfigError> {
    let path = path.to_string_lossy();
    let source = Source { path: &path, text };
    let place = import::Place::first(&path, read);
    Ok(workload::read(source, &place, &stem(Path::new(&*path)))?)
}

/// The workload that a user names: a path if there is a slash in it or it ends in `.toml`, else a shipped one.
///
/// # Errors
/// As [`workload()`]; no shipped workload of that name, with a suggestion.
pub fn find_workload(name_or_path: &str) -> Result<WorkloadModel, ConfigError> {
    let path = Path::new(name_or_path);
    if is_path(name_or_path) {
        return workload(path);
    }
    let file = shipped::find(shipped_workloads(), "workload", name_or_path)?;
    workload_with(file.text, &workload_path(file.name), &shipped::read)
}

fn is_path(name: &str) -> bool {
    name.contains('/') || shipped::is_toml(Path::new(name))
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn text_of(path: &Path) -> Result<String, ConfigError> {
    perch_files::read_to_string(path).map_err(|error| ConfigError::Read {
        path: path.to_owned(),
        error: match error.kind() {
            io::ErrorKind::InvalidData => io::Error::new(error.kind(), "it is no text (UTF-8)"),
            _ => error,
        },
    })
}
