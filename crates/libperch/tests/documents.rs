//! The header, the modules for other languages and the page say what the library has.

use std::{collections::BTreeSet, fs, path::Path};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names behind a mark, up to the first character that is none of a name.
fn names(text: &str, mark: &str) -> BTreeSet<String> {
    let name = |rest: &str| {
        rest.chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    text.split(mark).skip(1).map(name).collect()
}

fn exported() -> BTreeSet<String> {
    let sources = read("src/c/mod.rs") + &read("src/c/query.rs");
    let mut found = names(&sources, "extern \"C\" fn perch_");
    assert!(found.len() > 15, "{found:?}");
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn the_header_declares_each_function_twice() {
    let header = read("include/perch.h");
    let (on, off) = header.split_once("#else /* PERCH_DISABLE */").unwrap();
    for name in exported() {
        let call = format!("perch_{name}(");
        assert!(on.contains(&call), "{call} is not declared");
        assert!(
            off.contains(&call),
            "{call} is missing where all is switched off"
        );
    }
}

#[test]
fn python_and_fortran_have_the_functions() {
    let python = read("../../python/perch/__init__.py");
    let fortran = read("include/perch.f90");
    for name in exported() {
        assert!(
            python.contains(&format!("\"perch_{name}\"")),
            "perch_{name}"
        );
        // Lists of texts are the C interface's; in Fortran the environment chooses.
        let left_out = ["event_count", "event_name", "json", "free"];
        assert!(
            left_out.contains(&name.as_str()) || fortran.contains(&format!("'perch_{name}'")),
            "perch_{name}"
        );
    }
}

#[test]
fn the_page_has_every_variable() {
    let page = read("../../docs/regions.md");
    let variables = names(&read("src/count/asked.rs"), "&str = \"PERCH_");
    assert!(variables.len() >= 7, "{variables:?}");
    for name in variables {
        assert!(page.contains(&format!("`PERCH_{name}`")), "PERCH_{name}");
    }
}
