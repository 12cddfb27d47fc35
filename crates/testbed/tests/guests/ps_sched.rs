//! PS-Sched in a guest: the operating system's work goes to one PU, and everything is as it was afterwards, whatever
//! happens to perch.

use std::{collections::BTreeMap, path::Path, time::Duration};

use perch_skip::skip;
use perch_testbed::{Guest, Topology, perch_binary, vm_tests_skipped};

/// How many random kills: 100 of them take a quarter of an hour.
const KILLS: &str = "PERCH_PS_SCHED_KILLS";

/// Every line is a label and what belongs to it, separated by blanks.
const SCRIPT: &str = r#"
rng=$(sed -n '/virtio.*-input$/s/^ *\([0-9]*\):.*/\1/p' /proc/interrupts | tail -1)
# Every thread: number, mask, flags of the kernel (PF_NO_SETAFFINITY is 0x4000000), name.
snap() {
    awk '{ id = $1; sub(/.*\) /, ""); print id, $7 }' /proc/[0-9]*/task/[0-9]*/stat >/tmp/flags 2>/dev/null
    awk -v label=$1 '
        FILENAME == "/tmp/flags" { flags[$1] = $2; next }
        /^Name:/ { name = $2 }
        /^Pid:/ { pid = $2 }
        /^Cpus_allowed_list:/ { print label, "thread", pid, $2, flags[pid], name }
    ' /tmp/flags /proc/[0-9]*/task/[0-9]*/status 2>/dev/null
    echo $1 irq $rng $(cat /proc/irq/$rng/smp_affinity_list)
}
# What an operating system does: a daemon that wakes up often, one that starts others, an idle one, one that an
# administrator has bound, and one in a CPU set.
( while :; do usleep 50000; done ) & often=$!
( while :; do sleep 1 & wait; done ) & cron=$!
sleep 100000 & idle=$!
sleep 100000 & placed=$!
taskset -p 4 $placed >/dev/null
cd /sys/fs/cgroup
echo +cpuset >cgroup.subtree_control
mkdir job
echo 2-3 >job/cpuset.cpus
sleep 100000 & caged=$!
echo $caged >job/cgroup.procs
echo names often $often cron $cron idle $idle placed $placed caged $caged shell $$
# Waits until perch has placed a daemon; gives up with what perch says if it has ended, or after ten minutes.
await() {
    tries=0
    until taskset -p $idle | grep -q "mask: $1\$"; do
        if ! kill -0 $perch 2>/dev/null || [ $((tries += 1)) -gt 6000 ]; then
            cat /tmp/said >&2
            exit 1
        fi
        usleep 50000
    done
}
busy='i=0; while [ $i -lt 100000000 ]; do i=$((i+1)); done'
# Only shown.
perch run --dry-run -p ps-sched-1 -- sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done' 2>/tmp/said
echo dry ended $?
sed 's/^/said /' /tmp/said
snap before
for method in 1 2; do
    perch run -p ps-sched-$method --json --output /tmp/report -- sh -c "($busy) & ($busy) & ($busy) & $busy" 2>/tmp/said &
    perch=$!
    await 1
    # What comes later: started by a daemon, and in a session of its own.
    setsid sleep 100000 & late=$!
    echo names perch $perch late $late
    sleep 2
    snap during$method
    kill -TERM $perch
    wait $perch
    echo ended$method status $?
    sed 's/^/said /' /tmp/said >&2
    cat /tmp/report | tr -d '\n' | sed 's/^/report /'
    echo
    killall -9 sh.busy 2>/dev/null
    kill $late
    snap after$method
done
# Killed at random moments; what it leaves is put back by `perch restore`.
seed=7
for kill in $(seq 1 $KILLS); do
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    perch run -p ps-sched-$((kill % 2 + 1)) -q -- sleep 1000 2>/dev/null &
    perch=$!
    usleep $((seed / 65536 % 20 * 100000))
    kill -9 $perch
    wait $perch 2>/dev/null
    killall sleep.program 2>/dev/null
    perch restore >/tmp/said 2>&1 || { echo kill failed $kill; cat /tmp/said >&2; }
    snap kill$kill
done
# Somebody else decides meanwhile: that stays.
perch run -p ps-sched-1 -q -- sleep 1000 2>/tmp/said &
perch=$!
await 1
taskset -p 8 $idle >/dev/null
sleep 3
kill -TERM $perch
wait $perch
snap foreign
exit 0
"#;

/// A thread of the guest at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thread {
    mask: String,
    fixed: bool,
    name: String,
}

type Threads = BTreeMap<i32, Thread>;

#[test]
fn the_operating_system_s_work_goes_to_one_pu_and_comes_back() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let kills: u32 = std::env::var(KILLS).map_or(8, |text| text.parse().unwrap());
    let output = Guest::new(Topology::Packages2)
        .device("virtio-rng-pci")
        .module("virtio-rng")
        .program(perch_binary().unwrap())
        .program(Path::new(env!("CARGO_BIN_EXE_guest-look")))
        .limit(Duration::from_secs(3600))
        .run(&format!("KILLS={kills}\n{SCRIPT}"))
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    eprintln!("{}\n{}", output.stdout, output.stderr);
    let lines: Vec<Vec<&str>> = output
        .stdout
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    let snap = |label: &str| -> (Threads, String) {
        let of = lines.iter().filter(|line| line[0] == label);
        let mut threads = Threads::new();
        let mut irq = String::new();
        for line in of {
            if line[1] == "irq" {
                line[3].clone_into(&mut irq);
                continue;
            }
            let flags: u32 = line[4].parse().unwrap_or(0);
            let thread = Thread {
                mask: line[3].to_owned(),
                fixed: flags & 0x0400_0000 != 0,
                name: line[5..].join(" "),
            };
            threads.insert(line[2].parse().unwrap(), thread);
        }
        assert!(threads.len() > 20, "{label}: {threads:?}");
        (threads, irq)
    };
    let names: BTreeMap<&str, i32> = lines
        .iter()
        .filter(|line| line[0] == "names")
        .flat_map(|line| line[1..].chunks(2))
        .map(|pair| (pair[0], pair[1].parse().unwrap()))
        .collect();

    // Before: free daemons may run anywhere.
    let (before, irq) = snap("before");
    for daemon in ["often", "cron", "idle", "shell"] {
        assert_eq!(before[&names[daemon]].mask, "0-3", "{daemon}");
    }
    assert_eq!(
        (before[&names["placed"]].mask.as_str(), irq.as_str()),
        ("2", "0-3")
    );
    let said: String = lines
        .iter()
        .filter(|line| line[0] == "said")
        .map(|line| line[1..].join(" ") + "\n")
        .collect();
    assert!(said.contains("would be bound to PU 0"), "{said}");
    assert!(
        said.contains("kthreadd") && said.contains("sleep"),
        "{said}"
    );

    for method in ["1", "2"] {
        let (during, irq) = snap(&format!("during{method}"));
        let bound: Vec<&Thread> = during
            .values()
            .filter(|thread| thread.mask == "0")
            .collect();
        for daemon in ["often", "cron", "idle", "shell"] {
            assert_eq!(
                during[&names[daemon]].mask, "0",
                "{daemon} with method {method}"
            );
        }
        assert_eq!(irq, "0", "method {method}");
        assert!(bound.len() > 10, "{bound:?}");
        // An administrator's mask, and a CPU set without that PU.
        assert_eq!(during[&names["placed"]].mask, "2");
        assert_eq!(during[&names["caged"]].mask, "2-3");
        // Every thread that could run anywhere and may be moved has been moved: those of the kernel too.
        for (tid, thread) in &during {
            let old = before.get(tid);
            if old.is_some_and(|old| old.mask == "0-3" && !thread.fixed) {
                assert_eq!(thread.mask, "0", "{tid} {thread:?}");
            }
            if thread.fixed {
                assert_eq!(
                    Some(&thread.mask),
                    old.map(|old| &old.mask).or(Some(&thread.mask))
                );
            }
        }
        // The program's threads: none of the first method is there, one of the second.
        let report = lines.iter().filter(|line| line[0] == "report");
        let report = report.map(|line| line[1..].join(" "));
        let report: Vec<serde_json::Value> = report
            .map(|text| serde_json::from_str(&text).unwrap())
            .collect();
        let report = &report[usize::from(method == "2")];
        let program: Vec<&str> = report["threads"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|thread| thread["bound"].as_str())
            .collect();
        assert!(program.iter().any(|pus| *pus == "1-3"), "{program:?}");
        let beside = program.iter().filter(|pus| **pus == "0").count();
        assert_eq!(beside, usize::from(method == "2"), "{program:?}");
        let system = &report["system"];
        assert_eq!(system["pus"], "0", "{system}");
        assert!(system["bound"].as_u64() > Some(10), "{system}");
        assert!(!system["left"].as_array().unwrap().is_empty(), "{system}");

        assert_restored(&before, &snap(&format!("after{method}")));
    }
    for kill in 1..=kills {
        assert_restored(&before, &snap(&format!("kill{kill}")));
    }
    assert!(
        !lines.iter().any(|line| line[0] == "kill"),
        "a restore failed"
    );

    let (foreign, irq) = snap("foreign");
    assert_eq!(foreign[&names["idle"]].mask, "3", "set by others meanwhile");
    let mut others = foreign;
    others.insert(names["idle"], before[&names["idle"]].clone());
    assert_restored(&before, &(others, irq));
}

/// Every thread that is still there has the mask that it had, and new ones have none of perch's.
fn assert_restored(before: &Threads, (after, irq): &(Threads, String)) {
    assert_eq!(irq, "0-3");
    for (tid, thread) in after {
        match before.get(tid) {
            Some(old) => assert_eq!(old.mask, thread.mask, "{tid} {thread:?}"),
            // What is new has inherited nothing.
            None if !thread.fixed => {
                assert!(
                    ["0-3", "2-3", "2"].contains(&thread.mask.as_str()),
                    "{tid} {thread:?}"
                );
            }
            None => {}
        }
    }
}
