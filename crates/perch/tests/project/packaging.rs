//! The Debian package: built of the command under test, installed into a root of its own, used, and removed.

use crate::{read, root};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The programs that building and installing take, with their packages.
const TOOLS: [(&str, &str); 6] = [
    ("make", "make"),
    ("gzip", "gzip"),
    ("strip", "binutils"),
    ("dpkg", "dpkg"),
    ("dpkg-deb", "dpkg"),
    ("dpkg-shlibdeps", "dpkg-dev"),
];

/// The packages that are installed here, for dpkg.
const STATUS: &str = "/var/lib/dpkg/status";

/// A tool that is missing, and what has it.
fn missing() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !Path::new(STATUS).is_file() {
        return Some(format!("no {STATUS}: this is no Debian"));
    }
    let (tool, package) = TOOLS.into_iter().find(|(tool, _)| !there(tool))?;
    Some(format!("no {tool}: `apt-get install {package}`"))
}

fn run(command: &mut Command) -> Output {
    let output = command.output();
    output.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Builds the package of the command and the plugin that cargo built for these tests.
fn build(output: &Path) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let plugin = test.with_file_name(perch_trace::record::PLUGIN);
    let mut command = Command::new("sh");
    command.arg(root().join("packaging/deb.sh")).args([
        Path::new(env!("CARGO_BIN_EXE_perch")),
        &plugin,
        // libperch is there, too.
        test.parent().unwrap(),
        output,
    ]);
    // It is not sent anywhere.
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    // Those of `make test`, if it runs this.
    for variable in ["MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL"] {
        command.env_remove(variable);
    }
    let built = run(&mut command);
    assert!(built.status.success(), "{}", text(&built.stderr));
    PathBuf::from(text(&built.stdout).trim_end())
}

/// A root with dpkg's database only: as if these packages were installed, without their files.
fn clean_root(status: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("var/lib/dpkg");
    for name in ["info", "updates", "triggers"] {
        fs::create_dir_all(database.join(name)).unwrap();
    }
    fs::write(database.join("available"), "").unwrap();
    fs::write(database.join("status"), status).unwrap();
    folder
}

fn dpkg<S: AsRef<OsStr>>(root: &Path, arguments: &[S]) -> Output {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", root.display()));
    // dpkg asks for the tools of maintainer scripts, which this package has none of.
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    run(command.args(arguments).env("LC_ALL", "C"))
}

/// All files below a folder, relative to it, without dpkg's database.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if name == "var/lib/dpkg" || name == "var/log" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(name);
            }
        }
    }
    found
}

/// The database without one package.
fn without(status: &str, package: &str) -> String {
    let name = format!("Package: {package}");
    let others = status.split_inclusive("\n\n");
    others
        .filter(|entry| entry.lines().next() != Some(&name))
        .collect()
}

#[test]
fn the_package_is_installed_works_alone_and_is_removed() {
    if let Some(why) = missing() {
        return perch_skip::skip!(Tool, "{why}");
    }
    if !rustix::process::geteuid().is_root() {
        return perch_skip::skip!(Root, "dpkg gives the files of a package to root");
    }
    let output = tempfile::tempdir().unwrap();
    let package = build(output.path());
    let here = fs::read_to_string(STATUS).unwrap();
    let clean = clean_root(&here);
    let installed = dpkg(
        clean.path(),
        &[OsStr::new("--install"), package.as_os_str()],
    );
    assert!(installed.status.success(), "{}", text(&installed.stderr));

    let found = files(clean.path());
    for file in [
        "usr/bin/perch",
        "usr/lib/perch/libperch_trace_plugin.so",
        "usr/lib/libperch.so.0",
        "usr/lib/libperch.so",
        "usr/lib/libperch.a",
        "usr/lib/pkgconfig/perch.pc",
        "usr/include/perch.h",
        "usr/include/perch.hpp",
        "usr/include/perch/compat/likwid-marker.h",
        "usr/include/perch/compat/papi.h",
        "usr/share/perch/perch.f90",
        "usr/share/perch/python/perch/__init__.py",
        "usr/share/doc/perch/examples/regions/region.c",
        "usr/share/man/man1/perch.1.gz",
        "usr/share/man/man1/perch-run.1.gz",
        "usr/share/bash-completion/completions/perch",
        "usr/share/zsh/vendor-completions/_perch",
        "usr/share/fish/vendor_completions.d/perch.fish",
        "usr/share/doc/perch/copyright",
        "usr/share/doc/perch/docs/extending.md",
        "usr/share/doc/perch/examples/machines/smt2-zen.toml",
    ] {
        assert!(found.contains(file), "{file} is not in {found:?}");
    }
    // The installed file is all that the command needs: profiles, machines, workloads and experiments are in it.
    let perch = |arguments: &[&str]| {
        let mut command = Command::new(clean.path().join("usr/bin/perch"));
        command.args(arguments).current_dir(clean.path());
        command.env_clear().env("PATH", "/usr/bin:/bin");
        let output = run(&mut command);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let version = format!("perch {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(perch(&["--version"]), version);
    assert!(perch(&["profiles", "show", "zen4"]).contains("name = \"zen4\""));
    assert!(perch(&["lab", "list"]).contains("cmt/figure3"));
    an_instrumented_program_is_built_with_it(clean.path());
    let simulated = perch(&["sim", "-m", "cmt-4x4", "-w", "mixed", "-t", "100ms"]);
    assert!(simulated.contains("mixed on cmt-4x4"), "{simulated}");

    let purged = dpkg(clean.path(), &["--purge", "perch"]);
    assert!(purged.status.success(), "{}", text(&purged.stderr));
    assert_eq!(files(clean.path()), BTreeSet::new());

    // It says which libraries it needs, and dpkg holds it to that.
    let poor = clean_root(&without(&here, "libhwloc15"));
    let refused = dpkg(poor.path(), &[OsStr::new("--install"), package.as_os_str()]);
    assert!(!refused.status.success());
    let why = text(&refused.stderr);
    assert!(why.contains("libhwloc15"), "{why}");
    the_metadata_of_cargo_deb_puts_files_where_they_are(&found);
}

/// pkg-config finds the installed header and library, and the program runs with them.
fn an_instrumented_program_is_built_with_it(root: &Path) {
    let pc = |arguments: &[&str]| -> Option<Vec<String>> {
        let output = Command::new("pkg-config")
            .args(arguments)
            .arg("perch")
            .env("PKG_CONFIG_PATH", root.join("usr/lib/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", root)
            // /usr/include and /usr/lib are not those of this root.
            .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
            .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
            .output()
            .ok()?;
        assert!(output.status.success(), "{}", text(&output.stderr));
        let words = text(&output.stdout);
        Some(words.split_whitespace().map(str::to_owned).collect())
    };
    let (Some(cflags), Some(libs)) = (pc(&["--cflags"]), pc(&["--libs"])) else {
        return perch_skip::skip!(Tool, "no pkg-config: `apt-get install pkg-config`");
    };
    let program = root.join("region-c");
    let built = run(Command::new("cc")
        .arg("-pthread")
        .args(cflags)
        .arg("-o")
        .arg(&program)
        .arg(root.join("usr/share/doc/perch/examples/regions/region.c"))
        .args(libs));
    assert!(built.status.success(), "{}", text(&built.stderr));
    let mut command = Command::new(&program);
    command
        .env("LD_LIBRARY_PATH", root.join("usr/lib"))
        .env("PERCH_REGION_REPORT", "stderr")
        .env("PERCH_REGION_EVENTS", "page-faults");
    let output = run(&mut command);
    assert!(text(&output.stderr).contains("\nround "), "{output:?}");
    fs::remove_file(&program).unwrap();
}

/// cargo-deb's list has each of the package's folders, and no other.
fn the_metadata_of_cargo_deb_puts_files_where_they_are(packed: &BTreeSet<String>) {
    let manifest: toml::Table = read("crates/perch/Cargo.toml").parse().unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    let description = read("packaging/debian/long-description");
    assert_eq!(deb["extended-description"].as_str(), Some(&*description));
    let folders: BTreeSet<&str> = deb["assets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|asset| asset[1].as_str().unwrap())
        .collect();
    let unlisted = |file: &&String| !folders.iter().any(|folder| file.starts_with(folder));
    let unlisted: Vec<&String> = packed.iter().filter(unlisted).collect();
    assert!(
        unlisted.is_empty(),
        "cargo-deb would leave out {unlisted:?}"
    );
    for folder in folders {
        let used = packed.iter().any(|file| file.starts_with(folder));
        assert!(used, "cargo-deb would add {folder}");
    }
}
