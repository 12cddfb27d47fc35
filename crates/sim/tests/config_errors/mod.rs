//! Errors in a file are reported with their position; the whole texts are in `snapshots/`.

mod workloads;

use perch_sim::config::{ConfigError, machine_from_text, workload_from_text};
use std::{fmt::Debug, path::Path};

/// A sound machine, in which each case breaks something.
const MACHINE: &str = r#"about = "One core"

[topology]
cores = 4

[kinds.simple]
clock = "1 GHz"
contexts = 2
multithreading = "fine-grained"

[kinds.simple.units]
alu = { ops = ["alu", "multiply", "divide", "branch"] }
fpu = { ops = ["fp", "fp-divide"] }
load-store = { ops = ["load", "store"] }

[kinds.simple.latencies]
alu = 1
multiply = 3
divide = { cycles = 20, busy = 20 }
fp = 4
fp-divide = 15
load = 5
store = 1
branch = 1

[[caches]]
level = 1
holds = "data"
size = "8 KiB"
ways = 4
shared-by = "core"

[[caches]]
level = 2
holds = "both"
size = "1 MiB"
ways = 16
latency = "12 cycles"
shared-by = "machine"

[memory]
latency = "80 ns"
bandwidth = "10 GB/s"
"#;

/// A sound workload, in which each case breaks something.
const WORKLOAD: &str = r#"about = "Two sorts of threads"

[mixes.busy]
shares = { alu = 0.7, load = 0.3 }
working-sets = [{ size = "4 KiB", region = "table" }]

[mixes.waiting]
shares = { load = 1 }
working-sets = [{ size = "1 MiB", pattern = "stride", stride = 64 }]

[[programs]]
name = "main"

[[programs.threads]]
name = "a"
count = 4
repeat = 10
steps = [
    { compute = "busy", instructions = "10M" },
    { lock = "l" },
    { compute = "waiting", instructions = 1_000 },
    { unlock = "l" },
    { barrier = "b" },
]

[[programs.threads]]
name = "b"
steps = [{ sleep = "1 ms" }, { compute = "busy", instructions = "forever" }]
"#;

fn told<T: Debug>(result: Result<T, ConfigError>) -> String {
    match result {
        Err(error) => error.to_string(),
        Ok(sound) => panic!("read as {sound:?}"),
    }
}

/// The error that is reported when `from` is `to`.
fn broken(base: &str, from: &str, to: &str) -> String {
    assert_eq!(base.matches(from).count(), 1, "`{from}` must be there once");
    let text = base.replace(from, to);
    if base == MACHINE {
        told(machine_from_text(&text, Path::new("my/machine.toml")))
    } else {
        told(workload_from_text(&text, Path::new("my/workload.toml")))
    }
}

fn all(base: &str, cases: &[(&str, &str)]) -> String {
    let told: Vec<String> = cases
        .iter()
        .map(|(from, to)| broken(base, from, to))
        .collect();
    told.join("\n\n")
}

fn snapshot(name: &str, told: &str) {
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(name, told) });
}

#[test]
fn the_bases_are_sound() {
    machine_from_text(MACHINE, Path::new("machine.toml")).unwrap();
    workload_from_text(WORKLOAD, Path::new("workload.toml")).unwrap();
}

#[test]
fn of_any_file() {
    snapshot(
        "of_any_file",
        &all(
            MACHINE,
            &[
                ("[topology]", "[topology"),
                ("cores = 4", "cores = 4\ncores = 5"),
                ("about = \"One core\"", ""),
                ("about = \"One core\"", "about = \"One core\"\nscael = 3"),
                ("about = \"One core\"", "about = \" \""),
                ("[memory]", "[memroy]"),
                ("level = 2", "level = \"2\""),
                ("\"80 ns\"", "\"80 nanos\""),
                ("\"80 ns\"", "\"soon\""),
                ("\"1 MiB\"", "-1"),
                ("\"1 MiB\"", "\"1.3 B\""),
                ("\"1 MiB\"", "[1]"),
                (
                    "cores = 4",
                    "cores = 99999999999999999999999999999999999999999999",
                ),
                (
                    "about = \"One core\"",
                    "about = \"One core\"\r\nscale = nan\r",
                ),
            ],
        ),
    );
}

#[test]
fn of_cores() {
    snapshot(
        "of_cores",
        &all(
            MACHINE,
            &[
                ("cores = 4", "cores = 4096"),
                ("cores = 4", "cores = 0"),
                (
                    "cores = 4",
                    "packages = 4096\nnuma-nodes = 4096\ncores = 4096",
                ),
                ("cores = 4", "cores = 4\nkind = \"simpel\""),
                (
                    "[topology]\ncores = 4",
                    "[[cores]]\nkind = \"simple\"\nnode = 1",
                ),
                (
                    "[topology]\ncores = 4",
                    "[[cores]]\npackage = 0\n[[cores]]\npackage = 1",
                ),
                (
                    "[topology]\ncores = 4",
                    "[[cores]]\n[[cores]]\nnode = 1\n[[cores]]\npackage = 1\nnode = 1",
                ),
                (
                    "cores = 4",
                    "packages = 2\nnuma-nodes = 1\nnodes = 1\ncores = 1",
                ),
                ("cores = 4", "packages = 3\nnodes = 2\ncores = 1"),
                (
                    "[topology]\ncores = 4",
                    "[topology]\ncores = 4\n[[cores]]\ncount = 1",
                ),
                ("[topology]\ncores = 4", ""),
                ("\"1 GHz\"", "\"30 GHz\""),
                ("multithreading = \"fine-grained\"", ""),
                ("\"fine-grained\"", "\"fine-grain\""),
                ("contexts = 2", "contexts = 2\nwindow = 0"),
                (
                    "contexts = 2",
                    "contexts = 2\nwindow = 1\nwindow-shared = true",
                ),
                ("contexts = 2", "contexts = 2\nduty = 0"),
                ("contexts = 2", "contexts = 2\nduty = 1.5"),
                ("contexts = 2", "contexts = 2\nmodulation = \"3 us\""),
                (
                    "contexts = 2",
                    "contexts = 2\nduty = 0.5\nmodulation = \"2 ms\"",
                ),
                ("contexts = 2", "contexts = 2\nduty = 0.3\nthrottling = 8"),
                ("contexts = 2", "contexts = 2\nthrottling = 1"),
                ("ops = [\"fp\", \"fp-divide\"]", "ops = [\"fp\"]"),
                (
                    "ops = [\"fp\", \"fp-divide\"]",
                    "ops = [\"fp\", \"fp-divide\", \"fp\"]",
                ),
                (
                    "[kinds.simple.latencies]",
                    "more = { ops = [\"fp\"] }\nmost = { ops = [\"fp\"] }\n[kinds.simple.latencies]",
                ),
                (
                    "ops = [\"fp\", \"fp-divide\"]",
                    "ops = [\"fp\", \"fp-div\"]",
                ),
                (
                    "ops = [\"fp\", \"fp-divide\"]",
                    "count = 0, ops = [\"fp\", \"fp-divide\"]",
                ),
                ("busy = 20", "busy = 1000"),
                ("contexts = 2", "contexts = 2\nmisses = 5000"),
                ("contexts = 2", "contexts = 2\nreplay = 7"),
                ("contexts = 2", "contexts = 2\nmicro-ops = { store = 0 }"),
                ("contexts = 2", "contexts = 2\nmicro-ops = { stores = 2 }"),
                (
                    "contexts = 2",
                    "contexts = 4\npartition = { contexts = 3, from = 3 }",
                ),
                (
                    "contexts = 2",
                    "contexts = 4\npartition = { contexts = 2, from = 5 }",
                ),
                (
                    "contexts = 2",
                    "contexts = 2\npartition = { contexts = 2, from = 2 }",
                ),
                (
                    "contexts = 2",
                    "contexts = 4\npartition = { contexts = 2, from = 3 }\nin-order = false\nqueues = { issue = { entries = 9, ops = [\"alu\"], partitioned = true } }",
                ),
                (
                    "contexts = 2",
                    "contexts = 4\npartition = { contexts = 2, from = 3 }\nin-order = false\nqueues = { issue = { entries = 8, ops = [\"alu\"], sharing = \"private\", partitioned = true } }",
                ),
                ("fpu = { ops", "fpu = { count = 2, partitioned = true, ops"),
                ("contexts = 2", "contexts = 2\nmisses-per-context = 2"),
                ("contexts = 2", "contexts = 2\nmisses = 4"),
                (
                    "contexts = 2",
                    "contexts = 2\nwindow = 8\nmisses = 4\nmisses-per-context = 5",
                ),
                (
                    "store = 1\n",
                    "store = 1\n[kinds.simple.queues]\nissue = { entries = 8, ops = [\"alu\"] }\n",
                ),
                (
                    "contexts = 2",
                    "contexts = 2\nin-order = false\nqueues = { issue = { entries = 1, ops = [\"alu\"], sharing = \"split\" } }",
                ),
                (
                    "contexts = 2",
                    "contexts = 2\nin-order = false\nqueues = { issue = { entries = 8, ops = [\"alu\"], sharing = \"split\", per-context = 4 } }",
                ),
                (
                    "contexts = 2",
                    "contexts = 2\nin-order = false\nqueues = { issue = { entries = 8, ops = [\"alu\"], per-context = 9 } }",
                ),
                (
                    "contexts = 2",
                    "contexts = 2\nin-order = false\nqueues = { issue = { entries = 8, ops = [\"alu\", \"alu\"] } }",
                ),
                (
                    "contexts = 2",
                    "contexts = 2\nin-order = false\nqueues = { issue = { entries = 8, ops = [\"alu\"], until = \"retired\" } }",
                ),
                ("store = 1\n", ""),
            ],
        ),
    );
}

#[test]
fn of_caches_and_memory() {
    snapshot(
        "of_caches_and_memory",
        &all(
            MACHINE,
            &[
                ("\"8 KiB\"", "8200"),
                ("\"8 KiB\"", "64"),
                ("ways = 16", "ways = 16\nline = 128"),
                ("ways = 16", "ways = 16\nline = 100"),
                ("latency = \"12 cycles\"\n", ""),
                ("level = 1", "level = 1\nlatency = 4"),
                ("level = 2", "level = 4"),
                (
                    "level = 2\nholds = \"both\"\nsize = \"1 MiB\"\nways = 16\nlatency = \"12 cycles\"",
                    "level = 1\nholds = \"both\"\nsize = 8192\nways = 16",
                ),
                ("\"core\"", "\"cores\""),
                ("\"core\"", "3"),
                ("\"core\"", "[[0, 1], [1]]"),
                ("\"core\"", "[[0, 1], [8]]"),
                ("\"machine\"", "\"context\""),
                ("\"1 MiB\"", "\"1 TiB\""),
                (
                    "[memory]",
                    "[tlb]\nentries = 64\nways = 5\npage = 4096\nmiss = 20\n[memory]",
                ),
                (
                    "[memory]",
                    "[tlb]\nentries = 64\npage = 5000\nmiss = 20\n[memory]",
                ),
                (
                    "[memory]",
                    "[tlb]\nentries = 64\npage = 4096\nmiss = 20\nkinds.big = { entries = 8, miss = 20 }\n[memory]",
                ),
                (
                    "[memory]",
                    "[tlb]\nentries = 64\npage = 4096\nmiss = 20\nkinds.simple = { entries = 8, page = 4096, miss = 20 }\n[memory]",
                ),
                ("[memory]", "[memory]\ndistance = [[1, 2], [2, 1]]"),
                ("[memory]", "[memory]\ndistance = [[0.5]]"),
                ("cores = 4", "numa-nodes = 2\ncores = 2"),
                ("\"10 GB/s\"", "0"),
                ("\"10 GB/s\"", "\"10 Gb/s\""),
            ],
        ),
    );
}

#[test]
fn of_links() {
    let two = MACHINE.replace("cores = 4", "numa-nodes = 2\ncores = 2");
    let two = two + "distance = [[1, 2], [2, 1]]\n";
    let cases = [
        (MACHINE, "\"1 GB/s\""),
        (&two, "0"),
        (&two, "\"-1 GB/s\""),
        (&two, "\"1 Gb/s\""),
        (&two, "[[1, 2], [2, 1]]"),
    ];
    let read = |(base, value): &(&str, &str)| {
        let text = format!("{base}link-bandwidth = {value}\n");
        machine_from_text(&text, Path::new("my/machine.toml"))
    };
    assert!(read(&(&two, "\"1 GB/s\"")).is_ok());
    let told: Vec<String> = cases.iter().map(|case| told(read(case))).collect();
    snapshot("of_links", &told.join("\n\n"));
}

#[test]
fn of_prefetchers() {
    let with = |text: &'static str| format!("ways = 16\nprefetchers = [{text}]");
    let wrong = [
        "",
        "{ ahead = 2 }",
        "{ pattern = \"streams\" }",
        "{ pattern = \"stream\" }",
        "{ pattern = \"stream\", streams = 8, after = 1 }",
        "{ pattern = \"stride\", streams = 8, max-stride = \"8 KiB\" }",
        "{ pattern = \"stride\", streams = 8, max-stride = 8 }",
        "{ pattern = \"stride\", streams = 8, page = 1000 }",
        "{ pattern = \"next-line\", streams = 8 }",
        "{ pattern = \"next-line\", ahead = 0 }",
        "{ pattern = \"adjacent-line\", ahead = 2 }",
        "{ pattern = \"next-line\", depth = 2 }",
    ];
    let wrong: Vec<String> = wrong.into_iter().map(with).collect();
    let mut changes: Vec<(&str, &str)> =
        wrong.iter().map(|to| ("ways = 16", to.as_str())).collect();
    changes.push((
        "holds = \"both\"",
        "holds = \"instructions\"\nprefetchers = [{ pattern = \"next-line\" }]",
    ));
    snapshot("of_prefetchers", &all(MACHINE, &changes));
}

#[test]
fn keys_and_words_have_synonyms() {
    for (from, to, hint) in [
        ("contexts = 2", "threads = 2", "did you mean `contexts`?"),
        (
            "cores = 4",
            "cores = 4\nsockets = 1",
            "did you mean `packages`?",
        ),
        ("ways = 16", "associativity = 16", "did you mean `ways`?"),
        ("\"machine\"", "\"socket\"", "did you mean `package`?"),
        ("clock = ", "frequency = ", "did you mean `clock`?"),
    ] {
        let told = broken(MACHINE, from, to);
        assert!(told.ends_with(hint), "{told}");
    }
    let told = broken(WORKLOAD, "\"stride\"", "\"sequential\"");
    assert!(told.ends_with("did you mean `stride`?"), "{told}");
}

#[test]
fn units_of_sizes_have_any_case_and_keys_either_separator() {
    let read = |from: &str, to: &str| {
        let text = MACHINE.replace(from, to);
        machine_from_text(&text, Path::new("machine.toml")).unwrap()
    };
    let sound = read("", "");
    for (from, to) in [
        ("8 KiB", "8kib"),
        ("1 MiB", "1 mib"),
        ("1 GHz", "1 GHZ"),
        ("12 cycles", "12 Cycles"),
        ("80 ns", "80 NS"),
        ("fp-divide = 15", "fp_divide = 15"),
    ] {
        assert_eq!(read(from, to), sound, "{to}");
    }
    let text = MACHINE.replace("shared-by = \"core\"", "shared_by = \"core\"");
    assert_eq!(
        machine_from_text(&text, Path::new("machine.toml")).unwrap(),
        sound
    );
    let twice = "shared-by = \"core\"\nshared_by = \"core\"";
    let told = broken(MACHINE, "shared-by = \"core\"", twice);
    assert!(told.contains("a second key `shared-by`"), "{told}");
    // What data sheets call 8 KB is 8 KiB.
    let told = broken(MACHINE, "8 KiB", "8KB");
    assert!(told.contains("did you mean `8 KiB`, 8192 B?"), "{told}");
    // Also where it can be divided into sets.
    let told = broken(MACHINE, "8 KiB", "32KB");
    assert!(told.contains("did you mean `32 KiB`, 32768 B?"), "{told}");
    let told = broken(MACHINE, "10 GB/s", "10 Gb/s");
    assert!(
        told.contains("did you mean `GB/s`? (a small b is for bits)"),
        "{told}"
    );
}

#[test]
fn latencies_are_plausible() {
    let told = broken(MACHINE, "80 ns", "95 ms");
    assert!(told.contains("must be 10 us at most"), "{told}");
    let told = broken(MACHINE, "12 cycles", "1000000 cycles");
    assert!(told.contains("must be 65535 cycles at most"), "{told}");
    machine_from_text(
        &MACHINE.replace("80 ns", "10 us"),
        Path::new("machine.toml"),
    )
    .unwrap();
}

#[test]
fn of_cycles_of_several_clocks() {
    let text = MACHINE.replace(
        "[topology]\ncores = 4",
        "[[cores]]\nkind = \"simple\"\n[[cores]]\nkind = \"fast\"",
    );
    let kind = text[text.find("[kinds.simple]").unwrap()..text.find("[[caches]]").unwrap()]
        .replace("simple", "fast")
        .replace("1 GHz", "2 GHz");
    let text = text.replace("[memory]", &format!("{kind}\n[memory]"));
    let mistake = told(machine_from_text(&text, Path::new("hybrid.toml")));
    snapshot("of_cycles_of_several_clocks", &mistake);
    // In a time it can be said.
    machine_from_text(
        &text.replace("12 cycles", "12 ns"),
        Path::new("hybrid.toml"),
    )
    .unwrap();
}
