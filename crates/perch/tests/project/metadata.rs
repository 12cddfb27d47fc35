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

/// The toolchain that the project names can build it.
#[test]
fn the_toolchain_is_no_older_than_what_the_crates_need() {
    let toolchain: toml::Table = read("rust-toolchain.toml").parse().unwrap();
    let number = |version: &str| -> Vec<u32> {
        version
            .split('.')
            .map(|part| part.parse().unwrap())
            .collect()
    };
    let channel = toolchain["toolchain"]["channel"].as_str().unwrap();
    assert!(number(channel) >= number(env!("CARGO_PKG_RUST_VERSION")));
}

/// The hosted CI runs what is run by hand.
#[test]
fn the_hosted_ci_calls_the_script() {
    assert!(read(".github/workflows/ci.yml").contains("run: .ci/run\n"));
}
