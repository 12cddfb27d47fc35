//! Energy as a metric: the counters of two packages, whose power is known, and instructions of the stand-in PMU.

use perch_skip::skip;
use perch_testbed::{Guest, StandIn, Topology, perch_binary, vm_tests_skipped};
use serde_json::Value;
use std::time::Duration;

/// Package 0 uses 20 W, package 1 40 W; their counters wrap around after 10 and 5 s of the guest. The program runs a
/// billion instructions a second.
const SCRIPT: &str = r#"
insmod /testbed/fakerapl.ko packages=2 milliwatts=20000 range=200000000
insmod /testbed/fakepmu.ko
echo "* instructions=1000000000 cpu-cycles=2000000000" >/sys/module/fakepmu/parameters/rules
echo 2 >/proc/sys/kernel/perf_event_paranoid
printf 'root::0:0::/root:/bin/sh\nuser::1000:1000::/tmp:/bin/sh\n' >/etc/passwd
chmod 1777 /tmp
ls -l /sys/class/powercap/intel-rapl:0/energy_uj >&2
perch modules --json energy | tr -d '\n'
echo
su user -c "PERCH_STATE_DIR=/tmp/state perch modules --json energy" | tr -d '\n'
echo
# The counters of one package wrap around at least twice, and nothing is read in between but by the module itself.
perch stat --json -o /tmp/machine --by package -i 60s --for 14s -e instructions -V energy_pkg,energy_dram
tail -1 /tmp/machine
perch stat --json -o /tmp/program -e instructions -V energy_pkg -m 'epi[nJ]=energy_pkg*1e9/instructions' -- \
    timeout 5 sh -c 'while :; do :; done'
tail -1 /tmp/program
perch power --json --idle 2s -o /tmp/power -- timeout 5 sh -c 'while :; do :; done'
echo "rc $?" >&2
tail -1 /tmp/power
perch run -p observe --json -o /tmp/run -- timeout 5 sh -c 'while :; do :; done'
tr -d '\n' </tmp/run
echo
# An ordinary user, by perf's PMU.
echo 0 >/proc/sys/kernel/perf_event_paranoid
su user -c "PERCH_STATE_DIR=/tmp/state perch modules --json energy" | tr -d '\n'
echo
su user -c "PERCH_STATE_DIR=/tmp/state perch stat --json -o /tmp/perf --by package -i 60s --for 5s -V energy_pkg,energy_dram"
tail -1 /tmp/perf
exit 0
"#;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn joules_of_packages_and_of_instructions() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let output = Guest::new(Topology::Packages2)
        .program(perch_binary().unwrap())
        .stand_in(StandIn::Rapl)
        .fake_pmu()
        .limit(Duration::from_secs(1800))
        .run(SCRIPT)
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    eprintln!("{}{}", output.stdout, output.stderr);
    let lines: Vec<Value> = output
        .stdout
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let [
        root,
        user,
        machine,
        program,
        summary,
        report,
        user_by_perf,
        by_perf,
    ] = lines.as_slice()
    else {
        panic!("{}", output.stdout);
    };
    assert_eq!(root[0]["works"], true, "{root:#}");
    let metrics = root[0]["metrics"].as_array().unwrap();
    let names: Vec<&str> = metrics
        .iter()
        .map(|metric| metric["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["energy_pkg", "energy_dram"]);
    // The kernel lets only root read them, and perch says so.
    assert_eq!(user[0]["works"], false, "{user:#}");
    let why = user[0]["how"].as_str().unwrap();
    assert!(why.contains("energy_uj") && why.contains("root"), "{why}");

    let watts = |entity: &Value, name: &str| {
        let metric = &entity["metrics"][name];
        assert_eq!(metric["unit"], "J", "{entity:#}");
        assert!(
            metric["of"].is_null() && metric["partial"].is_null(),
            "{entity:#}"
        );
        number(&metric["value"]) / number(&entity["observed_s"])
    };
    for told in [machine, by_perf] {
        let packages = told["totals"].as_array().unwrap();
        assert_eq!(packages.len(), 2, "{told:#}");
        for package in packages {
            let expected = 20.0 * (number(&package["id"]) + 1.0);
            let found = watts(package, "energy_pkg");
            assert!((found / expected - 1.0).abs() < 0.05, "{found} W: {told:#}");
            let found = watts(package, "energy_dram");
            assert!(
                (found / expected - 0.25).abs() < 0.02,
                "{found} W: {told:#}"
            );
        }
    }
    // What the user may not read in files, perf counts if it may.
    let how = user_by_perf[0]["how"].as_str().unwrap();
    assert_eq!(user_by_perf[0]["works"], true, "{how}");
    assert!(how.contains("perf's PMU power"), "{how}");
    let all = number(&machine["all"]["metrics"]["energy_pkg"]["value"]);
    // Energy is read where the interval begins and where it ends.
    let observed = number(&machine["totals"][0]["observed_s"]);
    assert!((all / observed / 60.0 - 1.0).abs() < 0.02, "{machine:#}");
    // Both end within one reading of all PUs, which takes milliseconds here.
    let wall = number(&machine["wall_s"]);
    assert!((wall / observed - 1.0).abs() < 0.02, "{machine:#}");

    // In the row of a program it is the whole machine's, which the row says, as does what follows from it.
    let all = &program["all"];
    let (energy, each) = (&all["metrics"]["energy_pkg"], &all["metrics"]["epi"]);
    for metric in [energy, each] {
        assert_eq!(metric["of"], "machine", "{program:#}");
    }
    let instructions = number(&all["counts"]["instructions"]["value"]);
    let expected = number(&energy["value"]) * 1e9 / instructions;
    assert!(
        (number(&each["value"]) / expected - 1.0).abs() < 1e-6,
        "{program:#}"
    );
    let power = number(&energy["value"]) / number(&program["wall_s"]);
    assert!((power / 60.0 - 1.0).abs() < 0.1, "{power} W: {program:#}");

    // All of that by one command, which also measures the power before.
    let wall = number(&summary["wall_s"]);
    let parts = summary["parts"].as_array().unwrap();
    let names: Vec<&Value> = parts.iter().map(|part| &part["metric"]).collect();
    let (dram, package) = ("energy_dram", "energy_pkg");
    assert_eq!(
        names,
        [dram, dram, dram, package, package, package],
        "{summary:#}"
    );
    for (part, watts) in parts.iter().zip([5.0, 10.0, 15.0, 20.0, 40.0, 60.0]) {
        let energy = number(&part["energy_j"]);
        for (key, expected) in [
            ("mean_w", watts),
            ("idle_w", watts),
            ("edp_js", energy * wall),
        ] {
            let found = number(&part[key]);
            assert!(
                (found / expected - 1.0).abs() < 0.1,
                "{key} {found}: {summary:#}"
            );
        }
        assert!(
            number(&part["peak_w"]) >= 0.99 * number(&part["mean_w"]),
            "{summary:#}"
        );
        // These packages take the same power all the time.
        assert!(
            number(&part["above_idle_j"]).abs() < 0.1 * energy,
            "{summary:#}"
        );
        match summary["instructions"].as_f64() {
            Some(count) => {
                let each = number(&part["energy_per_instruction_nj"]) * count / 1e9;
                assert!((each / energy - 1.0).abs() < 1e-6, "{summary:#}");
            }
            // The stand-in PMU counts what it is told, not what is executed, and perch may have noticed.
            None => {
                let why = summary["why_no_instructions"].as_str().unwrap();
                assert!(why.contains("cannot be believed"), "{why}");
                assert!(part["energy_per_instruction_nj"].is_null(), "{summary:#}");
            }
        }
    }

    // The report of a run has it too.
    let packages = report["energy"].as_array().unwrap();
    assert_eq!(packages.len(), 2, "{report:#}");
    for (package, watts) in packages.iter().zip([20.0, 40.0]) {
        let found = number(&package["energy"]) / number(&package["time"]) * 1e9;
        assert!((found / watts - 1.0).abs() < 0.1, "{found} W: {packages:?}");
    }
}
