//! PS-Sched in a guest: the operating system's work goes to one PU, and everything is as it was afterwards, whatever
//! happens to perch.

use std::{collections::BTreeMap, path::Path, time::Duration};

use perch_skip::skip;
use perch_testbed::{Guest, Topology, perch_binary, vm_tests_skipped};

/// Seconds for the script, however slow the host is.
const LIMIT: u64 = 3600;

/// How many kills at random moments; 100 of them take a quarter of an hour.
const KILLS: &str = "PERCH_PS_SCHED_KILLS";

/// Every line is a label and what belongs to it, separated by blanks.
const SCRIPT: &str = r#"
clocks=/sys/devices/system/cpu/cpufreq
rng=$(sed -n '/virtio.*-input$/s/^ *\([0-9]*\):.*/\1/p' /proc/interrupts | tail -1)
# Every thread: number, mask, flags of the kernel (PF_NO_SETAFFINITY is 0x4000000), name.
snap() {
    echo "$(cut -d' ' -f1 /proc/uptime) snap $1" >&2
    # Of processes that end meanwhile, files are missing.
    { cat /proc/[0-9]*/task/[0-9]*/stat; cat /proc/[0-9]*/task/[0-9]*/status; } 2>/dev/null | awk -v label=$1 '
        /^[0-9]+ \(.*\) / { id = $1; sub(/.*\) /, ""); flags[id] = $7; next }
        /^Name:/ { name = $2 }
        /^Pid:/ { pid = $2 }
        /^Cpus_allowed_list:/ { print label, "thread", pid, $2, flags[pid], name }
    '
    echo $1 irq $rng $(cat /proc/irq/$rng/smp_affinity_list)
    echo $1 set first $(cat $clocks/policy0/scaling_max_freq)
    echo $1 set second $(cat $clocks/policy2/scaling_max_freq)
    echo $1 set queues $(cat /sys/devices/virtual/workqueue/cpumask)
    echo $1 set irqs $(cat /proc/irq/default_smp_affinity)
}
# The operating system gets the first core, which has a clock of its own.
core="--set system=core"
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
        if ! kill -0 $perch 2>/dev/null || [ $((tries += 1)) -gt $TRIES ]; then
            cat /tmp/said >&2
            exit 1
        fi
        usleep 50000
    done
}
# Only shown.
perch run --dry-run -p ps-sched-1 $core -- sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done' 2>/tmp/said
echo dry ended $?
sed 's/^/said /' /tmp/said
snap before
for method in 1 2; do
    perch run -p ps-sched-$method $core --json --output /tmp/report -- guest-load --threads int:4 --seconds 3000 --seed 5 >/tmp/lines 2>/tmp/said &
    perch=$!
    await 3
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
    killall guest-load 2>/dev/null
    kill $late
    snap after$method
done
# Killed at random moments; what it leaves is put back by `perch restore`.
seed=7
for kill in $(seq 1 $KILLS); do
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    perch run -p ps-sched-$((kill % 2 + 1)) $core -q -- sleep 1000 2>/dev/null &
    perch=$!
    usleep $((seed / 65536 % 20 * 100000))
    kill -9 $perch
    wait $perch 2>/dev/null
    perch restore >/tmp/said 2>&1 || { echo kill failed $kill; cat /tmp/said >&2; }
    snap kill$kill
done
# Another process sets a mask meanwhile: that stays.
perch run -p ps-sched-1 $core -q -- sleep 1000 2>/tmp/said &
perch=$!
await 3
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

/// The guest at one moment.
#[derive(Debug, Clone)]
struct Snap {
    threads: Threads,
    /// Where an interrupt may go.
    irq: String,
    /// The highest clocks of the two cores, the PUs of work queues and of new interrupts.
    settings: Vec<String>,
}

#[test]
fn the_operating_system_s_work_goes_to_one_pu_and_comes_back() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let kills: u32 = std::env::var(KILLS).map_or(3, |text| text.parse().unwrap());
    let output = Guest::new(Topology::Packages2)
        .device("virtio-rng-pci")
        .module("virtio-rng")
        .clocks()
        .program(perch_binary().unwrap())
        .program(Path::new(env!("CARGO_BIN_EXE_guest-load")))
        .limit(Duration::from_secs(LIMIT))
        .run(&format!("KILLS={kills} TRIES=6000\n{SCRIPT}"))
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    eprintln!("{}\n{}", output.stdout, output.stderr);
    let lines: Vec<Vec<&str>> = output
        .stdout
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    let snap = |label: &str| -> Snap {
        let of = lines.iter().filter(|line| line[0] == label);
        let mut threads = Threads::new();
        let (mut irq, mut settings) = (String::new(), Vec::new());
        for line in of {
            if line[1] == "irq" {
                line[3].clone_into(&mut irq);
                continue;
            }
            if line[1] == "set" {
                settings.push(line[3].to_owned());
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
        Snap {
            threads,
            irq,
            settings,
        }
    };
    let names: BTreeMap<&str, i32> = lines
        .iter()
        .filter(|line| line[0] == "names")
        .flat_map(|line| line[1..].chunks(2))
        .map(|pair| (pair[0], pair[1].parse().unwrap()))
        .collect();

    // Before: free daemons may run anywhere.
    let before = snap("before");
    let mask = |snap: &Snap, name: &str| snap.threads[&names[name]].mask.clone();
    for daemon in ["often", "cron", "idle", "shell"] {
        assert_eq!(mask(&before, daemon), "0-3", "{daemon}");
    }
    assert_eq!(
        (mask(&before, "placed"), before.irq.as_str()),
        ("2".to_owned(), "0-3")
    );
    assert_eq!(before.settings, ["2000000", "2000000", "f", "f"]);
    let said: String = lines
        .iter()
        .filter(|line| line[0] == "said")
        .map(|line| line[1..].join(" ") + "\n")
        .collect();
    for part in [
        "would be bound to PU 0-1",
        "kthreadd",
        "sleep",
        "cpufreq/policy0/scaling_max_freq",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }

    let reports: Vec<serde_json::Value> = lines
        .iter()
        .filter(|line| line[0] == "report")
        .map(|line| serde_json::from_str(&line[1..].join(" ")).unwrap())
        .collect();
    for (method, report) in ["1", "2"].into_iter().zip(&reports) {
        let during = snap(&format!("during{method}"));
        for daemon in ["often", "cron", "idle", "shell", "late"] {
            // The one that came late is known by its last number.
            let known = names.get(daemon).and_then(|tid| during.threads.get(tid));
            if let Some(thread) = known {
                assert_eq!(thread.mask, "0-1", "{daemon} with method {method}");
            }
        }
        assert_eq!(during.irq, "0-1", "method {method}");
        // The first method slows down the operating system's core, the second the others: 75 % and 86 % of 2 GHz.
        let clocks = match method {
            "1" => ["1500000", "2000000"],
            _ => ["2000000", "1500000"],
        };
        assert_eq!(during.settings, [clocks[0], clocks[1], "3", "3"]);
        // An administrator's mask, and a CPU set without these PUs.
        assert_eq!(mask(&during, "placed"), "2");
        assert_eq!(mask(&during, "caged"), "2-3");
        // Every thread that could run anywhere and may be moved has been moved: those of the kernel too.
        let mut moved = 0;
        for (tid, thread) in during.threads.iter().filter(|(_, thread)| !thread.fixed) {
            if before.threads.get(tid).is_some_and(|old| old.mask == "0-3") {
                assert_eq!(thread.mask, "0-1", "{tid} {thread:?}");
                moved += 1;
            }
        }
        assert!(moved > 10, "{during:?}");
        // The program's threads: none of the first method is there, one of the second.
        let program: Vec<&str> = report["threads"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|thread| thread["bound"].as_str())
            .collect();
        assert!(program.contains(&"2-3"), "{program:?}");
        let beside = program.iter().filter(|pus| **pus == "0-1").count();
        assert_eq!(beside, usize::from(method == "2"), "{program:?}");
        let system = &report["system"];
        assert_eq!(system["pus"], "0-1", "{system}");
        assert!(system["bound"].as_u64() > Some(10), "{system}");
        assert!(!system["left"].as_array().unwrap().is_empty(), "{system}");

        assert_restored(&before, &snap(&format!("after{method}")));
    }
    for kill in 1..=kills {
        assert_restored(&before, &snap(&format!("kill{kill}")));
    }
    let failed = lines.iter().any(|line| line[0] == "kill");
    assert!(!failed, "a restore failed");

    let mut foreign = snap("foreign");
    assert_eq!(mask(&foreign, "idle"), "3", "set by others meanwhile");
    let idle = before.threads[&names["idle"]].clone();
    foreign.threads.insert(names["idle"], idle);
    assert_restored(&before, &foreign);
}

/// Every thread that is still there has the mask that it had, and new ones have none of perch's; likewise the rest.
fn assert_restored(before: &Snap, after: &Snap) {
    assert_eq!(after.irq, before.irq);
    assert_eq!(after.settings, before.settings);
    // The kernel's workers come and go, and have the masks that the kernel gives them.
    let others =
        |(_, thread): &(&i32, &Thread)| !thread.fixed && !thread.name.starts_with("kworker");
    for (tid, thread) in after.threads.iter().filter(others) {
        match before.threads.get(tid) {
            Some(old) => assert_eq!(old.mask, thread.mask, "{tid} {thread:?}"),
            // What is new has inherited nothing.
            None => assert!(
                ["0-3", "2-3", "2"].contains(&thread.mask.as_str()),
                "{tid} {thread:?}"
            ),
        }
    }
}
