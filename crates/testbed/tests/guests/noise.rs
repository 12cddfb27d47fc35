//! Noise of known truth in a guest, as perch measures it there.

use perch_skip::skip;
use perch_testbed::{Guest, Topology, inject, perch_binary, vm_tests_skipped};
use serde_json::Value;
use std::{path::Path, time::Duration};

/// Emulated PUs are slow: a burst is long against what the kernel takes for a switch. The user has no tracepoints.
const SCRIPT: &str = r#"
printf 'root::0:0::/root:/bin/sh\nuser::1000:1000::/tmp:/bin/sh\n' >/etc/passwd
chmod 1777 /tmp
guest-noise --pu 1 --period 100 --burst 20000 --seconds 25 >/tmp/bursts &
injector=$!
sleep 2
perch noise --pus 1 --for 8s --json | tr -d '\n'
echo
su user -c "perch noise --pus 1 --for 2s --json" | tr -d '\n'
echo
perch noise --pus 1 --for 2s >&2
wait $injector
cat /tmp/bursts
# Nothing is left of what perch opened.
mount | grep tracefs >&2
exit 0
"#;

#[test]
fn injected_noise_is_found_and_attributed_in_a_guest() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let output = Guest::new(Topology::Flat2)
        .program(perch_binary().unwrap())
        .program(Path::new(env!("CARGO_BIN_EXE_guest-noise")))
        .limit(Duration::from_secs(1800))
        .run(SCRIPT)
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    eprintln!("{}", output.stderr);
    let reports: Vec<Value> = output
        .stdout
        .lines()
        .filter(|line| line.starts_with("{"))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect();
    let [root, user] = reports.as_slice() else {
        panic!("{}", output.stdout);
    };
    assert!(root["untraced"].is_null(), "{}", root["untraced"]);
    let pu = &root["pus"][0];
    let time = |key: &str| pu[key].as_u64().unwrap();
    let bursts = inject::bursts(&output.stdout).unwrap();
    let truth = inject::truth(&bursts, time("start"), time("end")).unwrap();
    let sources = pu["sources"].as_array().unwrap();
    let found = sources.iter().find(|source| source["name"] == "injected");
    let found = found.unwrap_or_else(|| panic!("{sources:#?}"));
    eprintln!("{truth:?}\n{found:#}");
    let near = |found: &Value, truth: f64, what: &str| {
        let found = found.as_f64().unwrap();
        let off = (found / truth - 1.0).abs();
        assert!(off <= 0.05, "{what}: {found} instead of {truth}");
    };
    let seconds = time("measured") as f64 * 1e-9;
    near(&found["rate"], truth.bursts as f64 / seconds, "rate");
    // Interrupts come within a burst as often as elsewhere and count for themselves: of an emulated PU, they take the more
    // the busier the host is.
    let is_interrupt = |source: &&Value| source["kind"].as_str().unwrap().contains("irq");
    let interrupts = sources.iter().filter(is_interrupt);
    let taken: f64 = interrupts.map(|of| of["share"].as_f64().unwrap()).sum();
    assert!(taken < 0.2, "{sources:#?}");
    let length = truth.median as f64 * (1.0 - taken);
    eprintln!("interrupts take {taken}: {length} ns are left of a burst");
    near(&found["lengths"]["median"], length, "length");
    if truth.regular >= 0.8 {
        let period = &found["period"]["nanoseconds"];
        near(period, truth.period as f64, "period");
    }
    // The tick of the kernel has a name, too.
    let names: Vec<&str> = sources
        .iter()
        .filter_map(|of| of["name"].as_str())
        .collect();
    assert!(names.contains(&"local_timer"), "{names:?}");
    // An ordinary user learns that there is noise, and who may learn whose.
    let why = user["untraced"].as_str().unwrap();
    assert!(why.contains("run as root"), "{why}");
    assert!(user["pus"][0]["lost"].as_f64().unwrap() > 0.05, "{user:#}");
    assert_eq!(user["sources"].as_array().unwrap().len(), 0);
}
