//! Spellings on captured machines, and on this one.

use super::*;
use std::fs;
use tempfile::TempDir;

/// A machine's `/sys`, as far as its PMUs go.
pub(crate) fn machine(name: &str) -> (TempDir, Encoder) {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/pmu/{name}.txt"));
    let root = tempfile::tempdir().expect("a temporary folder");
    let devices = root.path().join("bus/event_source/devices");
    let list = fs::read_to_string(list).expect("the captured machine");
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (file, text) = line.split_once('\t').expect("file and text");
        let path = devices.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("create");
        fs::write(path, format!("{text}\n")).expect("write");
    }
    let encoder = Encoder::with_sysfs(root.path());
    (root, encoder)
}

fn code(encoder: &Encoder, spelling: &str, pmu: Option<&str>) -> (u32, [u64; 4]) {
    let encoded = encoder.encode(spelling, pmu).expect(spelling);
    (encoded.code.kind, encoded.code.config)
}

fn error(encoder: &Encoder, spelling: &str, pmu: Option<&str>) -> String {
    let error = encoder.encode(spelling, pmu).expect_err(spelling);
    error.to_string()
}

#[test]
fn terms_go_where_the_format_says() {
    let (_root, zen) = machine("zen4");
    // an event of twelve bits is split: the high four go to bits 32 to 35
    let smt_contention = code(&zen, "cpu/event=0x1a0,umask=0x60/", None);
    assert_eq!(smt_contention, (4, [0x1_0000_60a0, 0, 0, 0]));
    assert_eq!(code(&zen, "cpu/instructions/", None), (4, [0xc0, 0, 0, 0]));
    let with_cmask = code(&zen, "cpu/instructions,cmask=2,inv/", None);
    assert_eq!(with_cmask, (4, [0x0280_00c0, 0, 0, 0]));
    let (_root, alder) = machine("alder-lake");
    let loads = code(&alder, "cpu_core/mem-loads/", None);
    assert_eq!(loads, (4, [0x01cd, 3, 0, 0]));
    let slow_loads = code(&alder, "cpu_core/ldlat=30,mem-loads/", None);
    assert_eq!(slow_loads, (4, [0x01cd, 30, 0, 0]));
    assert_eq!(code(&zen, "cpu/config=0x76/", None), (4, [0x76, 0, 0, 0]));
}

#[test]
fn each_kind_of_core_has_its_pmu() {
    let (_root, alder) = machine("alder-lake");
    assert_eq!(alder.pmus().of_cores(), ["cpu_atom", "cpu_core"]);
    let on_atom = alder
        .encode("cpu/instructions/", Some("cpu_atom"))
        .expect("on the small cores");
    assert_eq!(on_atom.code.kind, 10);
    assert_eq!(on_atom.pmu.as_deref(), Some("cpu_atom"));
    assert_eq!(
        code(&alder, "instructions", Some("cpu_atom")),
        (0, [10 << 32 | 1, 0, 0, 0])
    );
    assert_eq!(
        code(&alder, "r1c0", Some("cpu_atom")),
        (10, [0x1c0, 0, 0, 0])
    );
    assert!(error(&alder, "cpu/instructions/", None).contains("say which (cpu_atom, cpu_core)"));
    let atom = alder.pmus().open("cpu_atom").expect("it is there");
    assert_eq!(atom.pus(), "16-23".parse().ok());
    // a single kind of core answers to `cpu`, whatever its PMU is called
    let (_root, arm) = machine("neoverse-n1");
    assert_eq!(code(&arm, "cpu/event=0x75/", None), (8, [0x75, 0, 0, 0]));
    assert_eq!(
        code(&arm, "armv8_pmuv3_0/cpu_cycles/", None),
        (8, [0x11, 0, 0, 0])
    );
}

#[test]
fn generic_and_raw_names_need_no_tables() {
    let (_root, zen) = machine("zen4");
    assert_eq!(code(&zen, "cycles", None), (0, [0; 4]));
    assert_eq!(code(&zen, "cache-misses", None), (0, [3, 0, 0, 0]));
    assert_eq!(code(&zen, "r100f4", None), (4, [0x100f4, 0, 0, 0]));
    assert_eq!(code(&zen, "task-clock", None), (1, [1, 0, 0, 0]));
}

#[test]
fn modifiers_say_where_it_counts() {
    let (_root, zen) = machine("zen4");
    let mode = |spelling| zen.encode(spelling, None).expect(spelling).mode;
    assert_eq!(mode("cycles"), Mode::All);
    assert_eq!(mode("cycles:u"), Mode::User);
    assert_eq!(mode("cpu/instructions/k"), Mode::Kernel);
    assert_eq!(mode("cpu/instructions/:u"), Mode::User);
    assert!(error(&zen, "cpu/instructions/x", None).contains("unknown modifier `x`"));
}

#[test]
fn errors_name_the_spelling_and_the_reason() {
    let (_root, zen) = machine("zen4");
    let said = |spelling| error(&zen, spelling, None);
    assert!(said("cpu/evnt=1/").contains("neither a term nor an event `evnt` (terms: cmask, edge"));
    assert!(said("cpu/umask=0x1ff/").contains("umask: 0x1ff does not fit into 8 bits"));
    assert!(said("gpu/event=1/").contains("no PMU `gpu` here (there are: amd_l3, cpu, software)"));
    assert!(said("cpu/event=0x76").contains("closing slash"));
    assert!(said("cpu/event=z/").contains("`z` of `event` is no number"));
    assert!(said("../cpu/event=1/").contains("no PMU `..`"));
}

#[test]
fn circles_end() {
    let (root, zen) = machine("zen4");
    let events = root.path().join("bus/event_source/devices/cpu/events");
    fs::write(events.join("a"), "b\n").expect("write");
    fs::write(events.join("b"), "a\n").expect("write");
    assert!(error(&zen, "cpu/a/", None).contains("in a circle"));
}

#[test]
fn libpfm_is_used_or_its_package_is_named() {
    let encoder = Encoder::new();
    match Pfm::load() {
        Ok(pfm) => {
            let clock = pfm.encode("perf::TASK-CLOCK").expect("in every libpfm4");
            assert_eq!(clock, generic::code("task-clock").expect("generic"));
            let unknown = error(&encoder, "no_such_pmu::NO_SUCH_EVENT", None);
            assert!(unknown.contains("libpfm4 does not know it"), "{unknown}");
        }
        Err(why) => {
            assert!(why.contains("libpfm4"), "{why}");
            assert!(error(&encoder, "NO_SUCH_EVENT", None).contains("libpfm4"));
        }
    }
}

#[test]
fn codes_are_spelled_such_that_they_encode_to_the_same() {
    let mut tried = 0;
    for name in ["zen4", "alder-lake"] {
        let (_root, encoder) = machine(name);
        for pmu in encoder.pmus().names() {
            let pmu = encoder.pmus().open(&pmu).unwrap();
            for (event, _) in pmu.events() {
                let first = encoder.encode(&format!("{}/{event}/", pmu.name()), None);
                let Ok(first) = first.map(|encoded| encoded.code) else {
                    continue;
                };
                let spelled = encoder.spelled(first).expect(&event);
                assert_eq!(code(&encoder, &spelled, None), (first.kind, first.config));
                tried += 1;
            }
        }
    }
    assert!(tried > 5, "{tried}");
    let (_root, zen) = machine("zen4");
    let raw = zen.encode("r1000060a0", None).unwrap().code;
    assert_eq!(
        zen.spelled(raw).as_deref(),
        Some("cpu/event=0x1a0,umask=0x60/")
    );
    // Generic events have no code of their own.
    assert_eq!(zen.spelled(zen.encode("cycles", None).unwrap().code), None);
}

#[test]
fn generic_events_of_caches_have_the_kernels_codes() {
    let (_root, zen) = machine("zen4");
    // perf_event_open(2): cache | operation << 8 | result << 16
    assert_eq!(
        code(&zen, "LLC-load-misses", None),
        (3, [0x1_0002, 0, 0, 0])
    );
    assert_eq!(code(&zen, "dTLB-stores", None), (3, [0x103, 0, 0, 0]));
    assert!(zen.encode("LLC-loadmisses", None).is_err());
    assert!(cache_events().all(|name| zen.encode(&name, None).is_ok()));
}

#[test]
fn libpfm4_lists_the_events_that_it_encodes() {
    let encoder = Encoder::new();
    let pfm = encoder.pfm().expect("the package libpfm4");
    let tables = pfm.tables();
    assert!(tables.len() > 50, "{tables:?}");
    let here = tables
        .iter()
        .filter(|table| table.is_present && table.pmu != "perf");
    for table in here {
        let events = pfm.events(table);
        let distinct: std::collections::BTreeSet<&str> = events
            .iter()
            .map(|event| event.name.split(':').next().unwrap())
            .collect();
        assert_eq!(distinct.len(), table.events as usize, "{}", table.pmu);
    }
}
