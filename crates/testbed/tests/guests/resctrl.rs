//! Monitoring groups of resctrl, in the kernel's real file system. The emulated processor counts nothing, so all values
//! are 0; what is judged is who is in which group when, and that nothing is left behind.

use perch_skip::skip;
use perch_testbed::{Guest, Topology, perch_binary, vm_tests_skipped};
use serde_json::Value;
use std::time::Duration;

/// What both scripts begin with.
const PRELUDE: &str = r#"
export PERCH_STATE_DIR=/tmp/state
tree=/sys/fs/resctrl
groups=$tree/mon_groups
say() { echo "{\"state\":\"$1\",$2}"; }
# Waits for a state; 60 s of the guest are given up.
await() {
    tries=0
    until eval "$1" || [ $((tries += 1)) -gt 600 ]; do usleep 100000; done
}
ours() { ls -d $groups/perch-[0-9]* 2>/dev/null | wc -l; }
# How many threads of the processes $* are in some group of perch's.
inside() {
    count=0
    for pid in $*; do
        for tid in $(ls /proc/$pid/task 2>/dev/null); do
            grep -q '^mon:.*perch-[0-9]' /proc/$tid/cpu_resctrl_groups 2>/dev/null && count=$((count + 1))
        done
    done
    echo $count
}
"#;

const GROUPS: &str = r#"
say unmounted "\"told\":$(perch modules --json cache | tr -d '\n')"
mount -t resctrl resctrl $tree || exit 1
say mounted "\"told\":$(perch modules --json cache | tr -d '\n'),\"ours\":$(ours)"

# A program from its first instruction, with a child; another program's group with a process in it.
mkdir $groups/theirs $groups/perch-mine
sleep 1000 &
theirs=$!
echo $theirs >$groups/theirs/tasks
mkdir $tree/control
sleep 1000 &
controlled=$!
echo $controlled >$tree/control/tasks
cat >/tmp/program <<'END'
cat /proc/self/cpu_resctrl_groups >/tmp/first
sleep 1000 &
echo $! >/tmp/child
echo $$ >/tmp/parent
until [ -e /tmp/enough ]; do usleep 100000; done
kill $!
END
perch stat --json -o /tmp/out -i 300ms --by process -V cache -- sh /tmp/program &
perch=$!
await '[ -s /tmp/parent ]'
await '[ $(ours) -ge 2 ]'
say running "\"ours\":$(ours),\"first\":\"$(tr '\n' ' ' </tmp/first)\",\"inside\":$(inside $(cat /tmp/parent) $(cat /tmp/child)),\"others\":$(inside $theirs $controlled)"
# A second perch, and a restore, leave the groups of one that lives alone.
perch restore >/tmp/restored
say while "\"inside\":$(inside $(cat /tmp/parent) $(cat /tmp/child)),\"restored\":\"$(cat /tmp/restored)\""
touch /tmp/enough
wait $perch
say ended "\"ours\":$(ours),\"status\":$?"
tail -1 /tmp/out
rm /tmp/enough

# Ctrl-C; a background job of this shell would ignore it.
(await '[ $(ours) -ge 1 ]'; echo $(ours) >/tmp/made; kill -INT $(pidof perch)) &
perch stat -i 300ms -V llc_occupancy -- sleep 1000 2>/dev/null
say interrupted "\"made\":$(cat /tmp/made),\"ours\":$(ours)"

# kill -9, and the next perch.
sleep 1000 &
free=$!
perch stat -i 300ms -V llc_occupancy -p $theirs,$controlled,$free 2>/tmp/said >/dev/null &
perch=$!
# A group that was made for a process of others is removed again.
await '[ $(inside $free) -ge 1 ]'
await 'grep -q "another program.s resctrl group" /tmp/said'
before=$(ours)
inside=$(inside $free)
told=$(grep -c "another program.s resctrl group" /tmp/said)
kill -9 $perch
wait $perch
say killed "\"before\":$before,\"inside\":$inside,\"told\":$told,\"left\":$(ours),\"theirs\":$(grep -c . $groups/theirs/tasks),\"controlled\":$(grep -c . $tree/control/tasks)"
perch restore --json | tr -d '\n' >/tmp/restored
say restored "\"ours\":$(ours),\"inside\":$(inside $free),\"told\":$(cat /tmp/restored)"

kill $free
say over "\"ours\":$(ours),\"theirs\":$(ls -d $groups/theirs $groups/perch-mine $tree/control | wc -l)"
exit 0
"#;

/// Others take all counter IDs but three. The emulated processor never tells that an ID has left the cache, so one that
/// was freed stays in limbo for ever.
const FEW: &str = r#"
mount -t resctrl resctrl $tree || exit 1
number=$(cat $tree/info/L3_MON/num_rmids)
for taken in $(seq $((number - 4))); do mkdir $groups/taken$taken || exit 1; done
for worker in 1 2 3 4 5; do
    sleep 1000 &
    workers="$workers,$!"
done
perch stat --json -o /tmp/few -i 300ms --by process -V llc_occupancy -p ${workers#,} 2>/tmp/said &
perch=$!
await '[ $(ours) -ge 3 ]'
await 'grep -q "want of counter IDs" /tmp/said'
say few "\"ours\":$(ours),\"told\":\"$(head -1 /tmp/said)\""
# One of those that have a group ends.
first=$(ls -d $groups/perch-[0-9]* | head -1)
kill $(head -1 $first/tasks)
await "[ ! -d $first ]"
say limbo "\"ours\":$(ours),\"alive\":$(kill -0 $perch && echo true)"
kill $perch
wait $perch
tail -1 /tmp/few
say over "\"ours\":$(ours),\"taken\":$(ls -d $groups/taken* | wc -l),\"number\":$number"
exit 0
"#;

/// Runs a script in a guest with resctrl; what it said, line by line.
fn told(script: &str) -> Vec<Value> {
    let output = Guest::new(Topology::Packages2)
        .program(perch_binary().unwrap())
        // Emulated processors have no such features; kernels since 6.15 take them from the command line.
        .newer_kernel()
        .processor("level=4,legacy-cache=on")
        .kernel_argument(
            "setcpuid=rdt_a,cqm,cqm_llc,cqm_occup_llc,cqm_mbm_total,cqm_mbm_local,cat_l3 rdt=l3cat,cmt,mbmtotal,mbmlocal",
        )
        .limit(Duration::from_secs(1800))
        .run(&format!("{PRELUDE}{script}"))
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    eprintln!("{}{}", output.stdout, output.stderr);
    let lines = output.stdout.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// The line of a state.
fn at<'a>(lines: &'a [Value], state: &str) -> &'a Value {
    let line = lines.iter().find(|line| line["state"] == state);
    line.unwrap_or_else(|| panic!("{state} is missing: {lines:#?}"))
}

#[test]
fn groups_are_made_filled_and_removed() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let lines = told(GROUPS);
    let at = |state: &str| at(&lines, state);

    let told = &at("unmounted")["told"][0];
    assert_eq!(told["works"], false);
    assert!(
        told["how"].as_str().unwrap().contains("mount -t resctrl"),
        "{told:#}"
    );
    let told = &at("mounted")["told"][0];
    assert_eq!(told["works"], true, "{told:#}");
    assert_eq!(told["metrics"].as_array().unwrap().len(), 3, "{told:#}");
    // To look makes nothing.
    // To look makes nothing.
    assert_eq!(at("mounted")["ours"], 0);

    let running = at("running");
    // The shell, its child and a short-lived program; of others none.
    assert!(running["ours"].as_u64() >= Some(2), "{running}");
    assert_eq!(
        (&running["inside"], &running["others"]),
        (&2.into(), &0.into()),
        "{running}"
    );
    // The program was in its group before it ran.
    let first = running["first"].as_str().unwrap();
    assert!(first.contains("mon:perch-"), "{first}");
    let lives = at("while");
    assert_eq!(lives["inside"], 2, "{lives}");
    assert!(
        lives["restored"]
            .as_str()
            .unwrap()
            .contains("Nothing to restore"),
        "{lives}"
    );
    let ended = at("ended");
    assert_eq!(
        (&ended["ours"], &ended["status"]),
        (&0.into(), &0.into()),
        "{ended}"
    );
    let totals = lines.iter().find(|line| line["totals"].is_array()).unwrap();
    let shell = totals["totals"].as_array().unwrap().iter();
    let shell = shell
        .filter(|total| total["name"] == "sh")
        .max_by_key(|total| total["observed_s"].to_string());
    for name in ["llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"] {
        let metric = &shell.unwrap()["metrics"][name];
        assert_eq!(
            (&metric["value"], &metric["unit"]),
            (&0.0.into(), &"B".into()),
            "{totals:#}"
        );
        assert!(metric["of"].is_null(), "{totals:#}");
    }

    let interrupted = at("interrupted");
    assert!(interrupted["made"].as_u64() >= Some(1), "{interrupted}");
    assert_eq!(interrupted["ours"], 0, "{interrupted}");

    let killed = at("killed");
    // Of three processes one was free; the others are in another program's groups.
    assert_eq!(
        (&killed["before"], &killed["inside"]),
        (&1.into(), &1.into()),
        "{killed}"
    );
    assert_eq!(
        (&killed["left"], &killed["told"]),
        (&1.into(), &2.into()),
        "{killed}"
    );
    assert_eq!(
        (&killed["theirs"], &killed["controlled"]),
        (&1.into(), &1.into()),
        "{killed}"
    );
    let restored = at("restored");
    assert_eq!(
        (&restored["ours"], &restored["inside"]),
        (&0.into(), &0.into()),
        "{restored}"
    );
    let told = &restored["told"][0];
    assert_eq!(
        (&told["state"], &told["removed"]),
        (&"monitoring-groups".into(), &1.into()),
        "{restored}"
    );
    let over = at("over");
    assert_eq!(
        (&over["ours"], &over["theirs"]),
        (&0.into(), &3.into()),
        "{over}"
    );
}

#[test]
fn counter_ids_are_few_and_stay_in_limbo() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let lines = told(FEW);
    let few = at(&lines, "few");
    assert_eq!(few["ours"], 3, "{few}");
    let text = few["told"].as_str().unwrap();
    assert!(text.contains("of 2 processes"), "{text}");
    // Its ID is not taken while lines of it may be in the cache; perch goes on.
    let limbo = at(&lines, "limbo");
    assert_eq!(
        (&limbo["ours"], &limbo["alive"]),
        (&2.into(), &true.into()),
        "{limbo}"
    );
    let totals = lines.iter().find(|line| line["totals"].is_array()).unwrap();
    let processes = totals["totals"].as_array().unwrap().iter();
    let known = processes.filter(|process| process["metrics"]["llc_occupancy"]["value"] == 0.0);
    assert_eq!(known.count(), 3, "{totals:#}");
    let over = at(&lines, "over");
    let number = over["number"].as_u64().unwrap();
    assert_eq!(
        (&over["ours"], &over["taken"]),
        (&0.into(), &(number - 4).into()),
        "{over}"
    );
}
