//! Interrupts of real devices in a guest of two packages: shown, balanced, and put back whatever happens to perch.

use std::{path::Path, time::Duration};

use perch_skip::skip;
use perch_testbed::{Guest, Topology, perch_binary, vm_tests_skipped};
use serde_json::Value;

/// Two sources, a random number generator and the serial line, both on PU 0. One object a line: what was done, and then
/// what perch says or what the kernel shows.
const SCRIPT: &str = r#"
rng=$(sed -n '/virtio.*-input$/s/^ *\([0-9]*\):.*/\1/p' /proc/interrupts | tail -1)
# The serial line has an interrupt while a process has it open.
sleep 1000 >/dev/ttyS0 &
tty=$(sed -n '/ttyS0$/s/^ *\([0-9]*\):.*/\1/p' /proc/interrupts)
all=$(cat /proc/irq/$rng/smp_affinity_list)
# An interrupt of the generator brings 64 bytes, one of the serial line takes 1 to 16, here about 2. By turns similarly
# many of either come however fast the host is, and no more than the kernel's timer lets the generator be asked.
letters=$(printf '%0256d' 0)
while dd if=/dev/hwrng of=/dev/null bs=64 count=32 2>/dev/null; do echo $letters; done >/dev/ttyS0 &
sources=$!
# Both to PU 0, which takes their next interrupts; and then they may go anywhere again, but the kernel leaves them where
# they are as long as their masks allow.
together() {
    for mask in 0 $all; do
        for irq in $rng $tty; do
            echo $mask >/proc/irq/$irq/smp_affinity_list
        done
        sleep 1
    done
}
together
masks() {
    echo "{\"masks\":\"$1\",\"rng\":\"$(cat /proc/irq/$rng/smp_affinity_list)\",\"tty\":\"$(cat /proc/irq/$tty/smp_affinity_list)\"}"
}
# Waits until perch in the background has reported N intervals.
told() {
    tries=0
    until [ "$(wc -l </tmp/held)" -ge "$1" ] || [ $((tries += 1)) -gt 6000 ]; do usleep 50000; done
}
# Whether one of the two is in the other package.
apart() {
    case "$(cat /proc/irq/$rng/smp_affinity_list) $(cat /proc/irq/$tty/smp_affinity_list)" in
        [23]\ *|*\ [23]) ;;
        *) false ;;
    esac
}
# The same, until it has also moved one of them: on a busy host too little may come of either in the first intervals.
hold() {
    : >/tmp/held
    perch irq --apply --interval 1s --json --log /tmp/irq.jsonl >/tmp/held 2>&1 &
    held=$!
    told $1
    tries=0
    until apart || [ $((tries += 1)) -gt 6000 ]; do usleep 50000; done
}
ended() {
    wait $held
    echo "{\"ended\":$?}"
    cat /tmp/held
}
echo "{\"irqs\":[$rng,$tty]}"
masks before
# Long enough for a turn of each on a busy host too.
perch irq --interval 5s --json
perch irq --interval 1s --all >&2
hold 3
masks held
perch irq --apply --interval 1s 2>&1 | sed 's/"/./g;s/.*/{"second":"&"}/'
kill -TERM $held
ended
masks stopped
# What was recorded leads to the same plans again.
plans() {
    sed -n 's/.*"plan":\(.*\),"moves":.*/{"'$1'":\1}/p' /tmp/$1.jsonl
}
mv /tmp/irq.jsonl /tmp/recorded.jsonl
perch replay /tmp/recorded.jsonl --log /tmp/replayed.jsonl --explain >&2
plans recorded
plans replayed
together
hold 2
masks again
kill -9 $held
ended
masks killed
perch restore --json | tr -d '\n'
echo
masks restored
together
hold 2
# Somebody else decides, for a mask that perch never sets: after that perch leaves it alone, and so does restoring.
echo 0-1 >/proc/irq/$rng/smp_affinity_list
echo 0-1 >/proc/irq/$tty/smp_affinity_list
masks foreign
told $(($(wc -l </tmp/held) + 3))
kill -TERM $held
ended
masks left
kill $sources
exit 0
"#;

fn masks<'a>(said: &'a [Value], when: &str) -> (&'a str, &'a str) {
    let found = said.iter().find(|value| value["masks"] == when);
    let found = found.unwrap_or_else(|| panic!("nothing of {when}"));
    (
        found["rng"].as_str().unwrap(),
        found["tty"].as_str().unwrap(),
    )
}

#[test]
fn interrupts_are_shown_balanced_and_put_back() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let output = Guest::new(Topology::Packages2)
        .device("virtio-rng-pci")
        .module("virtio-rng")
        .program(perch_binary().unwrap())
        .program(Path::new(env!("CARGO_BIN_EXE_guest-look")))
        .limit(Duration::from_secs(1800))
        .run(SCRIPT)
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    eprintln!("{}\n{}", output.stdout, output.stderr);
    let said: Vec<Value> = output
        .stdout
        .lines()
        .filter(|line| line.starts_with(['{', '[']))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let irqs = &said[0]["irqs"];

    // Shown: both come on PU 0, nothing on the other package; one of them should go there.
    let shown = said
        .iter()
        .find(|value| value["interrupts"].is_array())
        .unwrap();
    let line = |irq: &Value| {
        let lines = shown["interrupts"].as_array().unwrap();
        let label = irq.to_string();
        lines
            .iter()
            .find(|line| line["label"] == label.as_str())
            .unwrap()
    };
    for irq in irqs.as_array().unwrap() {
        let line = line(irq);
        assert!(line["rate"].as_f64().unwrap() > 0.0, "{line}");
        assert_eq!(line["by_pu"][0][0], 0, "{line}");
        assert_eq!(line["allowed"], "0-3", "{line}");
    }
    let moves = shown["moves"].as_array().unwrap();
    let between: Vec<&Value> = moves
        .iter()
        .filter(|made| made["level"] == "package")
        .collect();
    assert_eq!(between.len(), 1, "{moves:?}");
    assert!(
        [2, 3].map(Value::from).contains(&between[0]["to"]),
        "{moves:?}"
    );

    // Applied: one of them is in the other package, and it stays so.
    assert_eq!(masks(&said, "before"), ("0-3", "0-3"));
    let package = |mask: &str| mask.parse::<u32>().map_or(0, |pu| pu / 2);
    for when in ["held", "again"] {
        let (rng, tty) = masks(&said, when);
        assert_ne!(package(rng), package(tty), "{when}: {rng} {tty}");
    }
    let second = said
        .iter()
        .find_map(|value| value["second"].as_str())
        .unwrap();
    assert!(
        second.contains("another perch (PID ") && second.contains(") places interrupts"),
        "{second}"
    );

    // Put back: on a signal by perch, after a kill by the next one; and never a mask that another process has set.
    assert_eq!(masks(&said, "stopped"), ("0-3", "0-3"));
    assert_eq!(masks(&said, "killed"), masks(&said, "again"));
    assert_eq!(masks(&said, "restored"), ("0-3", "0-3"));
    let restored = said.iter().find(|value| value.is_array()).unwrap();
    assert!(
        restored[0]["irqs"]["restored"].as_u64().unwrap() > 0,
        "{restored}"
    );
    assert_eq!(masks(&said, "foreign"), ("0-1", "0-1"));
    assert_eq!(masks(&said, "left"), ("0-1", "0-1"));
    let ended: Vec<i64> = said
        .iter()
        .filter_map(|value| value["ended"].as_i64())
        .collect();
    assert_eq!(ended, [0, 128 + 9, 0]);

    // Recorded: a replay asks for the same, as often as something was decided.
    let plans = |of: &str| -> Vec<&Value> {
        let plans = said.iter().filter_map(|value| value.get(of));
        plans.filter(|plan| !plan.is_null()).collect()
    };
    let recorded = plans("recorded");
    assert!(recorded.len() >= 3, "{recorded:?}");
    assert!(
        recorded.iter().any(|plan| plan["irqs"].is_array()),
        "{recorded:?}"
    );
    assert_eq!(recorded, plans("replayed"));

    // In effect: after the first move the loads of the packages were closer than before.
    let packages = |seen: &Value| -> Vec<f64> {
        let loads = seen["packages"].as_array().unwrap();
        loads.iter().map(|load| load[1].as_f64().unwrap()).collect()
    };
    let applied: Vec<&Value> = said
        .iter()
        .filter(|value| value["outcomes"].is_array())
        .collect();
    assert!(!applied.is_empty());
    assert_eq!(applied[0]["outcomes"][0][1], "applied");
    let even = |loads: &[f64]| {
        let total: f64 = loads.iter().sum();
        // How many interrupts a letter takes depends on the host.
        loads.iter().all(|load| *load > 0.02 * total)
    };
    assert!(!even(&packages(shown)), "{shown}");
    let settled = said
        .iter()
        .any(|seen| seen["packages"].is_array() && even(&packages(seen)));
    assert!(settled);
}
