//! Versions and names that stand in several files are the same.

use crate::{between, read, root};

#[test]
fn the_version_is_the_same_everywhere() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        read("CITATION.cff").contains(&format!("\nversion: {version}\n")),
        "CITATION.cff has another version than Cargo.toml"
    );
    let newest = between(&read("CHANGELOG.md"), "\n## ", "\n").to_owned();
    assert!(
        newest.contains(version),
        "CHANGELOG.md begins with {newest}"
    );
}

/// What crates.io and packagers ask for.
#[test]
fn the_command_has_the_metadata_of_a_package() {
    assert_eq!(env!("CARGO_PKG_LICENSE"), "MIT OR Apache-2.0");
    assert!(!env!("CARGO_PKG_DESCRIPTION").is_empty());
    assert!(!env!("CARGO_PKG_AUTHORS").is_empty());
    let readme = root().join("crates/perch").join(env!("CARGO_PKG_README"));
    assert!(readme.is_file(), "{}", readme.display());
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let package = &manifest["workspace"]["package"];
    let keywords = package["keywords"].as_array().unwrap();
    assert!((1..=5).contains(&keywords.len()), "crates.io takes five");
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(root().join(licence).is_file());
    }
}

/// The toolchain that the project names has what `make lint` needs.
#[test]
fn the_toolchain_is_a_stable_one_with_its_tools() {
    let toolchain: toml::Table = read("rust-toolchain.toml").parse().unwrap();
    let toolchain = &toolchain["toolchain"];
    assert_eq!(toolchain["channel"].as_str(), Some("stable"));
    let components = toolchain["components"].as_array().unwrap();
    for tool in ["rustfmt", "clippy"] {
        assert!(
            components.iter().any(|c| c.as_str() == Some(tool)),
            "{tool}"
        );
    }
}

/// The hosted CI runs what is run by hand.
#[test]
fn the_hosted_ci_calls_the_script() {
    assert!(read(".github/workflows/ci.yml").contains("run: .ci/run\n"));
}
