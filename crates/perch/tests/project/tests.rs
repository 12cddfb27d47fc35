//! Tests that are one program for a whole crate name all of its files: cargo no longer finds those by itself.

use crate::{read, root};
use std::fs;

#[test]
fn no_file_of_tests_is_left_out() {
    let mut crates = 0;
    for entry in fs::read_dir(root().join("crates")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let tests = entry.path().join("tests");
        if !tests.join("all.rs").is_file() {
            continue;
        }
        crates += 1;
        let all = read(&format!("crates/{name}/tests/all.rs"));
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        for file in fs::read_dir(&tests).unwrap().flatten() {
            let path = file.path();
            let is_module =
                path.extension().is_some_and(|ext| ext == "rs") || path.join("mod.rs").is_file();
            let module = path.file_stem().unwrap().to_str().unwrap();
            let is_named = all.lines().any(|line| line == format!("mod {module};"))
                || manifest.contains(&format!("path = \"tests/{module}.rs\""));
            assert!(
                !is_module || is_named,
                "crates/{name}/tests/all.rs lacks `mod {module};`"
            );
        }
    }
    assert!(crates >= 4, "{crates}");
}
