//! Where the `perch` command under test comes from.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::host::repository;

/// Environment variable that names a ready `perch` to test instead of building one.
const BINARY_VARIABLE: &str = "PERCH_BIN";

/// The `perch` command, built from this workspace (or the one that `PERCH_BIN` names).
///
/// It is built by the profile of tests, with what they are built of, rather than once more for a release: that alone
/// takes minutes.
///
/// # Errors
/// When it does not build.
pub fn perch_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(BINARY_VARIABLE) {
        let path = PathBuf::from(path);
        return path
            .canonicalize()
            .with_context(|| format!("{BINARY_VARIABLE} names {}", path.display()));
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "-p",
            "perch",
            "--bin",
            "perch",
            "--message-format",
            "json",
        ])
        .current_dir(repository())
        .output()
        .context("cannot start cargo to build perch")?;
    if !output.status.success() {
        bail!(
            "perch does not build:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "perch")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo built no executable perch")
}
