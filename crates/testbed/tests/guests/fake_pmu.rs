//! The stand-in PMU counts what it was told to, so that what perch makes of it can be believed.

use std::collections::BTreeMap;
use std::path::Path;

use perch_skip::skip;
use perch_testbed::count::Counted;
use perch_testbed::load::{Line, Role};
use perch_testbed::{Guest, Topology, vm_tests_skipped};

/// Loads the module, starts a thread of each role with its own rates, and counts one after the other:
/// honestly, by its name after a change of rules, and lying.
const SCRIPT: &str = r#"
set -e
insmod /testbed/fakepmu.ko events=wibble:0x1c3,wobble:0x02d0
cd /sys/bus/event_source/devices/cpu
echo type $(cat type)
echo format $(cat format/event) $(cat format/umask)
echo wibble $(cat events/wibble)
cd - >/dev/null
rules=/sys/module/fakepmu/parameters/rules
echo "* instructions=11000000" >$rules
if echo "* nonsense=1" >$rules 2>/dev/null; then echo refused no; else echo refused yes; fi
guest-load --threads fp:1,int:1,switcher:1 --seconds 60 --seed 5 \
    --rates "fp=cpu-cycles=2000000000 instructions=1500000000 wibble=700000000 cache-misses=3000" \
    --rates "int=cpu-cycles=2000000000 instructions=3000000000 wobble=123" \
    --rates "switcher=cpu-cycles=1000000000 instructions=500000000 wibble=5000" >/tmp/lines &
sleep 2
cat /tmp/lines
for tid in $(sed 's/.*"tid":\([0-9]*\).*/\1/' /tmp/lines); do
    echo counted $tid $(guest-count --tid $tid --seconds 1.5 cycles instructions cache-misses 0x1c3 0x2d0 0x0f0f)
done
echo other $(guest-count --tid $$ --seconds 0.1 instructions)
echo clear >$rules
name=$(sed -n '/"role":"fp"/s/.*"name":"\([a-z]*\)".*/\1/p' /tmp/lines)
tid=$(sed -n '/"role":"fp"/s/.*"tid":\([0-9]*\).*/\1/p' /tmp/lines)
echo "name:$name wibble=40000" >$rules
echo byname $(guest-count --tid $tid 0x1c3)
echo Y >/sys/module/fakepmu/parameters/lie
echo lied $(guest-count --tid $tid --seconds 2 cycles instructions)
kill $!
"#;

/// Asserts that an event advanced at so many a second of running time, within 20 %.
fn assert_rate(counted: &Counted, event: &str, rate: f64) {
    let seen = counted.counts[event] as f64 / counted.running;
    assert!(
        (seen / rate - 1.0).abs() < 0.2,
        "{event}: {seen:.0} a second instead of {rate:.0} in {counted:?}"
    );
}

#[test]
fn events_advance_at_the_chosen_rates() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let output = Guest::new(Topology::Smt2)
        .fake_pmu()
        .program(Path::new(env!("CARGO_BIN_EXE_guest-load")))
        .program(Path::new(env!("CARGO_BIN_EXE_guest-count")))
        .run(SCRIPT)
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    let lines: Vec<Line> = output
        .stdout
        .lines()
        .filter(|l| l.starts_with('{'))
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let tid = |role| lines.iter().find(|line| line.role == role).unwrap().tid;
    let said: BTreeMap<&str, &str> = output
        .stdout
        .lines()
        .filter(|l| !l.starts_with('{'))
        .filter_map(|l| l.split_once(' '))
        .filter(|(key, _)| *key != "counted")
        .collect();
    let counted: BTreeMap<i32, Counted> = output
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("counted ")?.split_once(' '))
        .map(|(tid, json)| (tid.parse().unwrap(), serde_json::from_str(json).unwrap()))
        .collect();
    assert_eq!(said["type"], "4");
    assert_eq!(said["format"], "config:0-7 config:8-15");
    assert_eq!(said["wibble"], "event=0xc3,umask=0x01");
    assert_eq!(said["refused"], "yes");

    let fp = &counted[&tid(Role::Fp)];
    assert_rate(fp, "cycles", 2e9);
    assert_rate(fp, "instructions", 1.5e9);
    assert_rate(fp, "0x1c3", 7e8);
    assert_rate(fp, "cache-misses", 3000.0);
    assert_eq!((fp.counts["0x2d0"], fp.counts["0x0f0f"]), (0, 0));
    let int = &counted[&tid(Role::Int)];
    assert_rate(int, "instructions", 3e9);
    assert_rate(int, "0x2d0", 123.0);
    assert_eq!(int.counts["0x1c3"], 0);
    let switcher = &counted[&tid(Role::Switcher)];
    assert_rate(switcher, "instructions", 5e8);
    assert_rate(switcher, "0x1c3", 5000.0);
    for counted in counted.values() {
        assert!(
            counted.running > 0.0 && counted.running <= counted.enabled * 1.001,
            "{counted:?}"
        );
    }
    // The scheduler's own account leaves out time in interrupts, which weighs on a thread that naps.
    for busy in [fp, int] {
        assert!((busy.running / busy.on_cpu - 1.0).abs() < 0.3, "{busy:?}");
    }

    let by_name: Counted = serde_json::from_str(said["byname"]).unwrap();
    assert_rate(&by_name, "0x1c3", 40000.0);
    let lied: Counted = serde_json::from_str(said["lied"]).unwrap();
    assert_rate(&lied, "cycles", 395.0);
    assert_rate(&lied, "instructions", 395.0);
}
