//! Programs of this workspace for processors other than the host's.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::architecture::{Architecture, FOREIGN_LIBRARIES};
use crate::host::{repository, tool_text};

/// Rust's name of 64-bit Arm.
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Debian's compilers for it.
const GCC: &str = "aarch64-linux-gnu-gcc";
const GXX: &str = "aarch64-linux-gnu-g++";

/// perch and the programs of this crate, built for 64-bit Arm: the folder that has them. The first time it takes as long
/// as building all that perch is built of.
///
/// # Errors
/// When a compiler is missing, or something does not build.
pub fn programs_for_aarch64() -> Result<PathBuf> {
    for (program, package) in [
        (GCC, "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
        (GXX, "g++-aarch64-linux-gnu"),
    ] {
        tool_text(Command::new(program).arg("--version"), package)?;
    }
    let variable = |name: &str| format!("{name}_{}", TARGET.replace('-', "_"));
    let of_cargo = |name: &str| {
        let target = TARGET.replace('-', "_").to_uppercase();
        format!("CARGO_TARGET_{target}_{name}")
    };
    let root = Architecture::Aarch64.root()?;
    let pkg_config = root.join(FOREIGN_LIBRARIES[0]).join("pkgconfig");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "--target",
            TARGET,
            "-p",
            "perch",
            "-p",
            "perch-testbed",
            "--bins",
        ])
        .args(["--message-format", "json"])
        .env(of_cargo("LINKER"), GCC)
        .env(variable("CC"), GCC)
        .env(variable("CXX"), GXX)
        .env("PKG_CONFIG_ALLOW_CROSS", "1")
        .env(variable("PKG_CONFIG_PATH"), pkg_config)
        .env(variable("PKG_CONFIG_SYSROOT_DIR"), &root)
        .current_dir(repository())
        .output()
        .context("cannot start cargo to build perch")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "perch does not build for {TARGET} (`rustup target add {TARGET}` gets Rust's library for it):\n{said}"
        );
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "perch")
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
        .and_then(|perch| Some(perch.parent()?.to_owned()))
        .context("cargo built no executable perch")
}
