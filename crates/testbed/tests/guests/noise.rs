//! Noise of known truth in a guest, as perch measures it there.

use perch_skip::skip;
use perch_testbed::{Guest, Topology, inject, perch_binary, vm_tests_skipped};
use serde_json::Value;
use std::{path::Path, time::Duration};

/// Emulated PUs are slow: a burst is long against what the kernel takes for a switch. The user has no tracepoints.
const SCRIPT: &str = r#"
printf 'root::0:0::/root:/bin/sh\nuser::1000:1000::/tmp:/bin/sh\n' >/etc/passwd
chmod 1777 /tmp
guest-noise --pu 1 --period 100 --burst 20000 --seconds 40 >/tmp/bursts &
injector=$!
sleep 2
perch noise --pus 1 --for 15s --json | tr -d '\n'
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
        .limit(Duration::from_secs(600))
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
    near(&found["lengths"]["median"], truth.median as f64, "length");
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

/// The kernel's own tracers, and what a killed perch leaves of them.
const TRACERS: &str = r#"
mount -t tracefs nodev /sys/kernel/tracing
cd /sys/kernel/tracing
guest-noise --pu 1 --period 100 --burst 20000 --seconds 40 >/tmp/bursts &
injector=$!
sleep 2
perch noise --tracer osnoise --pus 1 --for 15s --json | tr -d '\n'
echo
perch noise --tracer timerlat --pus 0-1 --for 4s --json | tr -d '\n'
echo
perch noise --tracer osnoise --for 3s >&2
perch noise --tracer timerlat --for 3s >&2
wait $injector
cat /tmp/bursts
left() {
    echo "{\"left\":\"$1\",\"instances\":\"$(ls instances | tr '\n' ' ')\",\"own\":\"$(cat current_tracer)\"}"
}
left ended
perch noise --tracer timerlat --for 600s &
killed=$!
until grep -q timerlat instances/*/current_tracer 2>/dev/null; do usleep 50000; done
perch noise --tracer osnoise --for 1s 2>&1 | sed 's/"/./g;s/.*/{"second":"&"}/' | head -1
kill -9 $killed
wait $killed
left killed
perch restore >&2
left restored
perch noise --tracer timerlat --for 600s >/dev/null &
stopped=$!
until grep -q timerlat instances/*/current_tracer 2>/dev/null; do usleep 50000; done
kill -TERM $stopped
wait $stopped
echo "{\"status\":$?}"
left stopped
exit 0
"#;

#[test]
fn the_kernel_s_tracers_run_in_an_instance_that_goes_away() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let output = Guest::new(Topology::Flat2)
        .real_time_kernel()
        .program(perch_binary().unwrap())
        .program(Path::new(env!("CARGO_BIN_EXE_guest-noise")))
        .limit(Duration::from_secs(600))
        .run(TRACERS)
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    eprintln!("{}", output.stderr);
    let said: Vec<Value> = output
        .stdout
        .lines()
        .filter(|line| line.starts_with("{"))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect();
    let of = |key: &str, value: &str| {
        let found = said.iter().find(|said| said[key] == value);
        found.unwrap_or_else(|| panic!("no {key} {value} in {}", output.stdout))
    };
    let osnoise = of("method", "osnoise");
    let pu = &osnoise["pus"][0];
    assert!(pu["quanta"].as_u64().unwrap() >= 10, "{pu:#}");
    let time = |key: &str| pu[key].as_u64().unwrap();
    let bursts = inject::bursts(&output.stdout).unwrap();
    let truth = inject::truth(&bursts, time("start"), time("end")).unwrap();
    let sources = pu["sources"].as_array().unwrap();
    let found = sources.iter().find(|source| source["name"] == "injected");
    let found = found.unwrap_or_else(|| panic!("{sources:#?}"));
    // Without the interrupts in its bursts. The clocks of the trace and of the bursts differ by up to a burst.
    let share = truth.total as f64 / time("measured") as f64;
    let off = found["share"].as_f64().unwrap() / share - 1.0;
    eprintln!("{truth:?}\n{found:#}");
    assert!((-0.2..0.1).contains(&off), "{found:#} of {share}");

    let timerlat = of("tracer", "timerlat");
    let rows = timerlat["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{timerlat:#}");
    for row in rows {
        assert!(row["lengths"]["count"].as_u64().unwrap() > 10, "{row:#}");
    }

    for (when, instances) in [
        ("ended", false),
        ("killed", true),
        ("restored", false),
        ("stopped", false),
    ] {
        let left = of("left", when);
        let found = left["instances"].as_str().unwrap();
        assert_eq!(found.starts_with("perch-noise-"), instances, "{left}");
        assert_eq!(left["own"], "nop", "{left}");
    }
    let second = said
        .iter()
        .find_map(|said| said["second"].as_str())
        .unwrap();
    assert!(second.contains("in use already"), "{second}");
    let status = said.iter().find_map(|said| said["status"].as_u64());
    assert_eq!(status, Some(143));
}
