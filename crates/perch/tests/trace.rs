//! `perch record-trace` and `perch trace` as a user calls them.

use perch_skip::skip;
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Output},
};

/// perch with the plugin that cargo builds beside the tests.
fn perch(folder: &Path, arguments: &[&str]) -> Output {
    let test = std::env::current_exe().unwrap();
    let plugin = test.with_file_name(perch_trace::record::PLUGIN);
    Command::new(env!("CARGO_BIN_EXE_perch"))
        .current_dir(folder)
        .env_remove("PERCH_CONFIG")
        .env("PERCH_TRACE_PLUGIN", plugin)
        .args(arguments)
        .output()
        .unwrap()
}

fn error(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_program_is_recorded_looked_at_and_written_for_champsim() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = perch(
        folder.path(),
        &["record-trace", "--json", "--", "/bin/false"],
    );
    if error(&recorded, recorded.status.code().unwrap()).contains("package qemu-user") {
        return skip!(Tool, "there is no qemu-x86_64");
    }
    // The program's own code.
    assert_eq!(recorded.status.code(), Some(1), "{recorded:?}");
    let told: Value = serde_json::from_slice(&recorded.stdout).unwrap();
    assert_eq!(told["files"][0], "false.trace");
    let instructions = told["threads"][0]["instructions"].as_u64().unwrap();
    assert!(instructions > 10_000);

    let looked = perch(
        folder.path(),
        &[
            "trace",
            "false.trace",
            "--champsim",
            "false.champsimtrace",
            "--json",
        ],
    );
    let summary: Value = serde_json::from_slice(&looked.stdout).unwrap();
    assert_eq!(summary["threads"], told["threads"]);
    let file = std::fs::metadata(folder.path().join("false.champsimtrace")).unwrap();
    assert_eq!(file.len(), 64 * instructions);

    let text = perch(folder.path(), &["trace", "false.champsimtrace"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(text.contains(&instructions.to_string()), "{text}");
}

#[test]
fn the_two_kinds_of_recordings_point_to_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("run.jsonl"), "{\"record\":\"header\",\"version\":1}\n").unwrap();
    std::fs::write(path("app.trace"), b"perchtrc\x01\0\0\0\xff").unwrap();
    let said = error(&perch(folder.path(), &["trace", "run.jsonl"]), 125);
    assert!(said.contains("`perch replay`"), "{said}");
    let said = error(&perch(folder.path(), &["replay", "app.trace"]), 125);
    assert!(said.contains("`perch trace`"), "{said}");
}

#[test]
fn what_cannot_be_recorded_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let program = |name: &str, bytes: &[u8]| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(path(name), bytes).unwrap();
        std::fs::set_permissions(path(name), PermissionsExt::from_mode(0o755)).unwrap();
        error(
            &perch(folder.path(), &["record-trace", "--", &path(name)]),
            125,
        )
    };
    let mut elf = std::fs::read("/proc/self/exe").unwrap();
    elf.truncate(64);
    elf[18..20].copy_from_slice(&183u16.to_le_bytes());
    assert!(program("arm", &elf).contains("64-bit Arm (aarch64)"));
    elf[4] = 1;
    assert!(program("narrow", &elf).contains("a 32-bit program"));
    assert!(program("script", b"#!/bin/sh -e\n").contains("-- /bin/sh -e "));
    assert!(program("text", b"nothing").contains("neither an ELF program nor a script"));

    let run = |arguments: &[&str], code| error(&perch(folder.path(), arguments), code);
    assert!(run(&["record-trace", "/bin/true"], 2).contains("-- <PROGRAM>"));
    assert!(run(&["record-trace", "--", "./nothing"], 127).contains("not found"));
    let missing = run(
        &["record-trace", "--plugin", "/nothing.so", "--", "/bin/true"],
        125,
    );
    assert!(
        missing.contains("/nothing.so") || missing.contains("qemu-user"),
        "{missing}"
    );
    assert!(run(&["trace", "text"], 125).contains("text: neither a recording of perch"));
}

/// A mix misses the caches and mispredicts branches as the recording does.
#[test]
fn a_mix_that_is_derived_from_a_recording_resembles_it() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..200_000u32)
        .map(|n| format!("{} ", n.wrapping_mul(2_654_435_761) >> 20))
        .collect();
    std::fs::write(folder.path().join("text"), text).unwrap();
    let recorded = perch(
        folder.path(),
        &[
            "record-trace",
            "-q",
            "-o",
            "gzip.trace",
            "--skip",
            "3M",
            "--instructions",
            "1M",
            "--stop",
            "--",
            "gzip",
            "-c",
            "text",
        ],
    );
    if !recorded.status.success() && error(&recorded, 125).contains("package qemu-user") {
        return skip!(Tool, "there is no qemu-x86_64");
    }
    let arguments = [
        "trace",
        "gzip.trace",
        "--mix",
        "mixes.toml",
        "--check",
        "core2-quad",
        "--json",
    ];
    let derived = perch(folder.path(), &arguments);
    let told: Value =
        serde_json::from_slice(&derived.stdout).unwrap_or_else(|_| panic!("{derived:?}"));
    let check = &told["mixes"][0]["checks"][0];
    let of = |what: &str, key: &str| check[what][key].as_f64().unwrap();
    let (recording, mix) = (of("recording", "ipc"), of("mix", "ipc"));
    // Chains of results are lost, so a mix is faster.
    assert!((0.8..1.6).contains(&(mix / recording)), "{check:#}");
    let misses = |what: &str, level: usize| check[what]["data_misses"][level].as_f64().unwrap();
    for level in 0..2 {
        let (recording, mix) = (misses("recording", level), misses("mix", level));
        assert!((mix - recording).abs() < 1.0 + 0.3 * recording, "{check:#}");
    }
    assert!(
        (of("mix", "mispredicted") - of("recording", "mispredicted")).abs() < 1.0,
        "{check:#}"
    );

    // Workloads import it.
    let workload = "about = \"One\"\n[mixes]\ngzip = { from = \"./mixes.toml\" }\n[[programs]]\nname = \"p\"\n\
                    [[programs.threads]]\nname = \"t\"\nsteps = [{ compute = \"gzip\", instructions = \"1M\" }]\n";
    std::fs::write(folder.path().join("work.toml"), workload).unwrap();
    let simulated = perch(
        folder.path(),
        &["sim", "-m", "core2-quad", "-w", "work.toml", "--json"],
    );
    assert!(simulated.status.success(), "{simulated:?}");

    let table = perch(folder.path(), &arguments[..6]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.contains("recorded") && table.contains("written: mixes.toml"),
        "{table}"
    );
    assert!(
        table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
    let wrong = perch(
        folder.path(),
        &["trace", "gzip.trace", "--mix", "gzip.trace"],
    );
    assert!(error(&wrong, 125).contains("that is what is read (FILE); give another file"));
}
