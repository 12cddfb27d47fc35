//! CPU weights by control groups: an ordinary user's threads in a group that is delegated to the user, in cgroup v2.

use std::time::Duration;

use perch_skip::skip;
use perch_testbed::{Guest, Topology, perch_binary, vm_tests_skipped};
use serde_json::Value;

/// Two programs of user 1000 that spin on PU 0. One object a line: what the kernel shows, and what perch said.
const SCRIPT: &str = r#"
printf 'root::0:0::/root:/bin/sh\nuser::1000:1000::/tmp:/bin/sh\n' >/etc/passwd
chmod 1777 /tmp
: >/tmp/said
top=/sys/fs/cgroup
own=$top/user
echo +cpu >$top/cgroup.subtree_control
mkdir $own $top/bare
chown 1000 $own $own/cgroup.procs $own/cgroup.threads $own/cgroup.subtree_control
spin() {
    su user -c "printf $1 >/proc/\$\$/comm; echo \$\$ >/tmp/$1.pid; while :; do :; done" >/dev/null 2>&1 &
    until [ -s /tmp/$1.pid ]; do usleep 50000; done
    cat /tmp/$1.pid
}
light=$(spin light)
heavy=$(spin heavy)
for pid in $light $heavy; do echo $pid >$own/cgroup.procs; done
perch_as_user() {
    rm -f /tmp/perch.pid
    su user -c "echo \$\$ >/tmp/perch.pid; PERCH_STATE_DIR=/tmp/state XDG_CONFIG_HOME=/tmp exec perch $*" >/tmp/said 2>&1 &
    su=$!
    until [ -s /tmp/perch.pid ]; do usleep 50000; done
    perch=$(cat /tmp/perch.pid)
}
attach() {
    perch_as_user attach --explain --period 200ms --pin "'*=0'" --weight "light=10" $light $heavy
}
# Waits for a state; 60 s of the guest are given up.
await() {
    tries=0
    until eval "$1" || [ $((tries += 1)) -gt 600 ]; do usleep 100000; done
}
grouped() {
    grep -q "/user/perch-$light-" /proc/$light/cgroup
}
show() {
    # A line that perch could not end is ended here.
    (cat /tmp/said; echo) | sed 's/"/./g;s/.*/{"said":"&"}/'
    echo "{\"state\":\"$1\",\"light\":\"$(cat /proc/$light/cgroup)\",\"heavy\":\"$(cat /proc/$heavy/cgroup)\",\"control\":\"$(cat $own/cgroup.subtree_control)\",\"type\":\"$(cat $own/cgroup.type)\",\"weight\":\"$(cat $own/perch-*/cpu.weight 2>/dev/null)\",\"nice\":\"$(cut -d' ' -f19 /proc/$light/stat)\",\"groups\":$(ls -d $own/*/ 2>/dev/null | wc -l)}"
}
ticks() {
    cut -d' ' -f14 /proc/$1/stat
}
show before
attach
await grouped
before_light=$(ticks $light)
before_heavy=$(ticks $heavy)
await '[ $(($(ticks $heavy) - before_heavy)) -ge 300 ]'
echo "{\"light\":$(($(ticks $light) - before_light)),\"heavy\":$(($(ticks $heavy) - before_heavy))}"
show weighed
kill -TERM $perch
wait $su
show stopped
attach
await grouped
kill -9 $perch
wait $su
show killed
perch_as_user restore
wait $su
show restored
# A group that is not the user's.
echo $light >$top/bare/cgroup.procs
attach
await "grep -q Delegate=cpu /tmp/said"
kill -TERM $perch
wait $su
show refused
kill -9 $light $heavy
exit 0
"#;

#[test]
fn a_user_s_threads_get_weights_by_groups_that_are_removed_again() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let output = Guest::new(Topology::Flat2)
        .program(perch_binary().unwrap())
        .limit(Duration::from_secs(1800))
        .run(SCRIPT)
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    eprintln!("{}\n{}", output.stdout, output.stderr);
    let lines = output.stdout.lines();
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let state = |name: &str| {
        let found = lines.iter().find(|line| line["state"] == name);
        found.unwrap_or_else(|| panic!("no state {name}"))
    };
    let untouched = |name: &str| {
        let state = state(name);
        assert_eq!(state["light"], "0::/user", "{state}");
        assert_eq!(state["heavy"], "0::/user", "{state}");
        assert_eq!(
            (&state["control"], &state["type"], &state["groups"]),
            (&"".into(), &"domain".into(), &0.into()),
            "{state}"
        );
    };
    untouched("before");
    for name in ["weighed", "killed"] {
        let state = state(name);
        let light = state["light"].as_str().unwrap();
        assert!(light.starts_with("0::/user/perch-"), "{state}");
        assert_eq!(state["heavy"], "0::/user", "{state}");
        assert_eq!(
            (&state["control"], &state["weight"], &state["nice"]),
            (&"cpu".into(), &"10".into(), &"0".into()),
            "{state}"
        );
    }
    // Ten to one, by the kernel.
    let spent = lines.iter().find(|line| line["heavy"].is_number()).unwrap();
    let [light, heavy] = ["light", "heavy"].map(|name| spent[name].as_f64().unwrap());
    assert!((4.0..25.0).contains(&(heavy / light.max(1.0))), "{spent}");
    untouched("stopped");
    untouched("restored");
    let refused = state("refused");
    assert_eq!(refused["light"], "0::/bare", "{refused}");
    assert_eq!(refused["groups"], 0, "{refused}");
    let said = lines.iter().filter_map(|line| line["said"].as_str());
    assert!(said.into_iter().any(|said| said.contains("Delegate=cpu")));
}
