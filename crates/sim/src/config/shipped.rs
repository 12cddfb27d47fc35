//! The machines and workloads of the source tree, and how names find them.

use super::error::ConfigError;
use include_dir::{Dir, include_dir};
use perch_core::diagnostic::did_you_mean;
use std::{
    io,
    path::{Component, Path, PathBuf},
};

static MACHINES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../machines");
static WORKLOADS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../workloads");

/// Where workloads are in the source tree.
const FOLDER: &str = "workloads";

/// A file of the source tree, embedded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped {
    /// Its name, by which it is found: the file's without `.toml`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// The shipped machines, by name.
pub fn shipped_machines() -> Vec<Shipped> {
    files(&MACHINES)
}

/// The shipped workloads, by name.
pub fn shipped_workloads() -> Vec<Shipped> {
    files(&WORKLOADS)
}

/// The shipped files of mixes, by name: workloads import mixes from them.
pub fn shipped_mixes() -> Vec<Shipped> {
    WORKLOADS.get_dir("mixes").map(files).unwrap_or_default()
}

/// The path of a shipped workload, in the source tree.
pub fn workload_path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.toml"))
}

/// The path of a shipped file of mixes, in the source tree.
pub(super) fn mixes_path(name: &str) -> PathBuf {
    Path::new(FOLDER).join("mixes").join(format!("{name}.toml"))
}

/// Reads a file that a shipped workload or file of mixes names, by its path in the source tree.
///
/// # Errors
/// No such shipped file.
pub fn read(path: &Path) -> io::Result<String> {
    let path = straight(path);
    let within = path.strip_prefix(FOLDER).ok();
    let file = within.and_then(|path| WORKLOADS.get_file(path));
    let text = file.and_then(include_dir::File::contents_utf8);
    text.map(str::to_owned)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "not shipped"))
}

/// A path without `.` and `a/..`: what embedded files are found by, which have no links.
pub(super) fn straight(path: &Path) -> PathBuf {
    let mut straight = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(
                    straight.components().next_back(),
                    Some(Component::Normal(_))
                ) =>
            {
                straight.pop();
            }
            part => straight.push(part),
        }
    }
    straight
}

fn files(directory: &'static Dir<'_>) -> Vec<Shipped> {
    let mut files: Vec<Shipped> = directory
        .files()
        .filter(|file| is_toml(file.path()))
        .filter_map(|file| {
            let name = file.path().file_stem()?.to_str()?;
            Some(Shipped {
                name,
                text: file.contents_utf8()?,
            })
        })
        .collect();
    files.sort_by_key(|file| file.name);
    files
}

pub(super) fn is_toml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "toml")
}

/// The one of that name.
pub(super) fn find(
    files: Vec<Shipped>,
    what: &'static str,
    name: &str,
) -> Result<Shipped, ConfigError> {
    if let Some(file) = files.iter().find(|file| file.name == name) {
        return Ok(*file);
    }
    let names: Vec<&str> = files.iter().map(|file| file.name).collect();
    let hint = perch_files::toml_of(name)
        .map(|file| format!("here is a file of that name: write `{file}`"))
        .or_else(|| did_you_mean(name, names.iter().copied()));
    Err(ConfigError::Unknown {
        what,
        name: name.to_owned(),
        hint: hint.map(|hint| format!("; {hint}")).unwrap_or_default(),
        shipped: names.join(", "),
    })
}
