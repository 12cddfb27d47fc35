//! What the harness needs from the host: tools, the cache folder and the repository's own files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

/// Environment variable that says where kernels and built modules are kept.
const CACHE_VARIABLE: &str = "PERCH_TESTBED_DIR";

/// The root of the repository that this crate was built from.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The folder in which kernels, headers and built modules are kept between runs, created if missing.
///
/// # Errors
/// When the folder cannot be created.
pub fn cache_dir() -> Result<PathBuf> {
    let dir = match std::env::var_os(CACHE_VARIABLE) {
        Some(dir) => PathBuf::from(dir),
        None => std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| repository().join("target"), PathBuf::from)
            .join("testbed"),
    };
    fs::create_dir_all(&dir).with_context(|| {
        format!(
            "cannot create {}; set {CACHE_VARIABLE} to a writable folder",
            dir.display()
        )
    })?;
    Ok(dir.canonicalize()?)
}

/// Whether the user asked for no virtual machines (`PERCH_SKIP_VM=1`).
///
/// There is no other way around a VM test: a missing tool fails it.
pub fn vm_tests_skipped() -> bool {
    std::env::var_os("PERCH_SKIP_VM").is_some_and(|v| v == "1")
}

/// Holds `name.lock` in the cache folder, so that two test processes do not prepare the same thing at once.
pub(crate) fn lock(dir: &Path, name: &str) -> Result<File> {
    let path = dir.join(format!("{name}.lock"));
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    file.lock()
        .with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Runs a host tool to its end and gives back its output; a missing tool names the package that has it.
pub(crate) fn tool(command: &mut Command, package: &str) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            bail!("`{name}` is not installed; get it with `apt-get install {package}`")
        }
        other => other.with_context(|| format!("cannot start {name}"))?,
    };
    if !output.status.success() {
        bail!(
            "{command:?} failed ({}):\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output)
}

/// As [`tool`], giving back standard output as text.
pub(crate) fn tool_text(command: &mut Command, package: &str) -> Result<String> {
    Ok(String::from_utf8_lossy(&tool(command, package)?.stdout).into_owned())
}

/// The shared libraries (and the loader) that an executable needs, as absolute host paths; empty for a static one.
pub(crate) fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .context("`ldd` is not installed; get it with `apt-get install libc-bin`")?;
    // ldd fails on static executables and on files that are none at all: both need nothing.
    if !output.status.success() {
        return Ok(Vec::new());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut libraries = Vec::new();
    for line in text.lines() {
        if line.contains("not found") {
            bail!(
                "{} needs a library that is missing here:{line}",
                program.display()
            );
        }
        if let Some(path) = line.split_whitespace().find(|word| word.starts_with('/')) {
            libraries.push(PathBuf::from(path));
        }
    }
    Ok(libraries)
}
