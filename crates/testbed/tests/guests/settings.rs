//! Settings of the machine in a guest whose processors have clocks: changed, and put back whatever happens to perch or to
//! the PUs.

use std::{path::Path, time::Duration};

use perch_skip::skip;
use perch_testbed::{Guest, Topology, perch_binary, vm_tests_skipped};
use serde_json::Value;

/// Two packages of two PUs, a cpufreq policy each; the second one's clock is changed. One object a line: what was done,
/// and then what perch says or what the kernel shows.
const SCRIPT: &str = r#"
clock=/sys/devices/system/cpu/cpufreq/policy2/scaling_max_freq
queues=/sys/devices/virtual/workqueue
irqs=/proc/irq/default_smp_affinity
now() {
    echo "{\"now\":\"$1\",\"clock\":\"$(cat $clock 2>/dev/null || echo none)\",\"other\":\"$(cat ${clock%/*2/*}/policy0/scaling_max_freq)\",\
\"queues\":\"$(cat $queues/cpumask)\",\"queue\":\"$(cat $queues/writeback/cpumask)\",\"irqs\":\"$(cat $irqs)\"}"
}
waits() {
    tries=0
    until eval "$1" || [ $((tries += 1)) -gt 6000 ]; do usleep 50000; done
}
# The kernel changes a clock's limit in a work queue. Under a real-time policy perch always reads it before that is done.
hold() {
    chrt -f 1 guest-settings 2 >/tmp/held 2>&1 &
    held=$!
    waits '[ "$(cat $irqs)" = 1 ]'
    waits 'grep -q irq/default_smp_affinity /tmp/held'
}
ended() {
    wait $held
    echo "{\"ended\":$?}"
    cat /tmp/held
}
restore() {
    perch restore --json | tr -d '\n'
    echo
}
grep -r . ${clock%/*} >&2
now before
hold
now held
kill -TERM $held
ended
now stopped
hold
kill -9 $held
ended
now killed
restore
now restored
# Another process sets it: perch leaves that alone, while it runs and in the end.
hold
echo 1500000 >$clock
waits 'grep -q "another process has changed" /tmp/held'
now foreign
kill -TERM $held
ended
now left
# The same after a kill.
echo 2000000 >$clock
hold
kill -9 $held
ended
echo 1500000 >$clock
restore
now apart
echo 2000000 >$clock
# Its PUs go offline meanwhile: the kernel keeps the limit, perch the journal.
hold
kill -9 $held
ended
echo 0 >/sys/devices/system/cpu/cpu2/online
echo 0 >/sys/devices/system/cpu/cpu3/online
now offline
perch restore >/tmp/restore 2>&1
echo "{\"status\":$?,\"why\":\"$(tr -d '"\n' </tmp/restore)\"}"
echo 1 >/sys/devices/system/cpu/cpu2/online
echo 1 >/sys/devices/system/cpu/cpu3/online
now online
restore
now again
exit 0
"#;

#[test]
fn settings_are_changed_and_put_back() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let output = Guest::new(Topology::Packages2)
        .clocks()
        .program(perch_binary().unwrap())
        .program(Path::new(env!("CARGO_BIN_EXE_guest-settings")))
        .program(Path::new("/usr/bin/chrt"))
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
    let now = |when: &str| -> [&str; 5] {
        let found = said.iter().find(|value| value["now"] == when);
        let found = found.unwrap_or_else(|| panic!("nothing of {when}"));
        ["clock", "other", "queues", "queue", "irqs"].map(|what| found[what].as_str().unwrap())
    };
    let before = ["2000000", "2000000", "f", "f", "f"];
    let held = ["1000000", "2000000", "1", "1", "1"];
    let foreign = |others: [&'static str; 5]| {
        let [_, other, queues, queue, irqs] = others;
        ["1500000", other, queues, queue, irqs]
    };
    assert_eq!(now("before"), before);
    assert_eq!(now("held"), held);
    // Put back: on a signal by perch, after a kill by `perch restore`; and never what another process has set.
    assert_eq!(now("stopped"), before);
    assert_eq!(now("killed"), held);
    assert_eq!(now("restored"), before);
    assert_eq!(now("foreign"), foreign(held));
    assert_eq!(now("left"), foreign(before));
    assert_eq!(now("apart"), foreign(before));
    let restored: Vec<&Value> = said.iter().filter(|value| value.is_array()).collect();
    let counts: Vec<(u64, u64)> = restored
        .iter()
        .map(|report| {
            let settings = &report[0]["settings"];
            let count = |what: &str| settings[what].as_u64().unwrap();
            (count("restored"), count("left_alone"))
        })
        .collect();
    let all = counts[0].0;
    assert!(all >= 4, "{restored:?}");
    assert_eq!(counts, [(all, 0), (all - 1, 1), (1, 0)]);

    // While its PUs are offline, nothing can be read; the journal waits for them.
    assert_eq!(now("offline")[0], "none");
    let failed = said.iter().find(|value| value["status"].is_u64()).unwrap();
    let why = failed["why"].as_str().unwrap();
    assert!(failed["status"] == 1 && why.contains("offline"), "{failed}");
    assert_eq!(now("online")[0], "1000000");
    assert_eq!(now("again"), before);
    let ended: Vec<i64> = said
        .iter()
        .filter_map(|value| value["ended"].as_i64())
        .collect();
    assert_eq!(ended, [0, 128 + 9, 0, 128 + 9, 128 + 9]);
}
