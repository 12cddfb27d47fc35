//! Whatever happens, every thread gets back the mask that it had: threads that perch bound, those that they
//! started meanwhile, and those that they started when perch was dead already; with CPUs and cpusets that
//! come and go beneath.

use crate::story::{Run, guest, tell};
use perch_skip::skip;
use perch_testbed::load::SpawnKind;
use perch_testbed::{Topology, vm_tests_skipped};

/// All of the guest's PUs.
const ALL: &str = "0-7";

/// How many of the workload's threads are bound in a look.
fn bound(run: &Run, label: &str) -> usize {
    let look = run.look(label);
    run.lines
        .iter()
        .filter(|line| run.task(look, line.tid).allowed != ALL)
        .count()
}

/// Every way of starting a thread appears in the run.
fn assert_every_kind(run: &Run) {
    for kind in [
        SpawnKind::Thread,
        SpawnKind::Fork,
        SpawnKind::Program,
        SpawnKind::Daemon,
    ] {
        assert!(
            run.lines
                .iter()
                .any(|line| line.how == kind && line.parent != 0 || kind == SpawnKind::Thread)
        );
    }
}

/// perch is killed and cannot clean up; before and after that its threads start others.
const KILLED: &str = r"
begin killed
perch run --log $LOG --output /tmp/report -- $LOAD --seed 3 --threads fp:4,int:4 >$LINES 2>/tmp/said &
perch=$!
listen
settle bound 8
order spawn thread int
order spawn fork int
order spawn program fp
order spawn daemon int
look spawned 12 1
kill -9 $perch
ended $perch perch
order spawn thread fp
order spawn fork fp
order spawn program int
order spawn daemon fp
look killed 16
perch restore --json >/tmp/said 2>&1 &
ended $! restore
look restored
perch restore >/tmp/said 2>&1 &
ended $! again
look again
order end
finish
killall guest-load
";

/// perch is stopped politely; the user had placed one thread before.
const STOPPED: &str = r#"
begin stopped
$LOAD --seed 4 --threads fp:4,int:4 >$LINES &
load=$!
listen
look alone 8
placed=$(sed -n '1s/.*"tid":\([0-9]*\).*/\1/p' $LINES)
taskset -p 20 $placed >/dev/null
echo "{\"placed\":$placed}"
perch attach --log $LOG --output /tmp/report $load >/tmp/said 2>&1 &
perch=$!
settle bound 8 bound:8
order spawn thread int
order spawn fork int
order spawn program fp
order spawn daemon int
look spawned 12 2
kill -TERM $perch
ended $perch perch
look restored
order end
finish
killall guest-load
"#;

/// Daemons whose parents are gone before perch looks, also while it ends.
const DAEMONS: &str = r"
begin daemons
$LOAD --seed 7 --threads fp:4,int:4 >$LINES &
load=$!
listen
look alone 8
perch attach --log $LOG --output /tmp/report $load >/tmp/said 2>&1 &
perch=$!
settle bound 8
for number in 1 2 3 4 5 6 7 8; do
    order spawn daemon idle
done
look spawned 16 1
for number in 1 2 3 4; do
    order spawn daemon idle
done
look more 17
kill -TERM $perch
ended $perch perch
look restored 20
order end
finish
killall guest-load
";

#[test]
fn masks_come_back_after_kill() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let runs = tell(&guest(Topology::Smt2), KILLED);
    let [killed] = &runs[..] else {
        panic!("{runs:?}")
    };
    assert_eq!(killed.ended["perch"], 128 + 9);
    assert_every_kind(killed);
    assert_eq!(killed.lines.len(), 16);
    let first = killed.look("bound");
    let is_bound = |task: &&perch_testbed::look::Task| task.allowed != ALL;
    assert!(
        first.tasks.iter().filter(is_bound).count() >= 8,
        "{first:?}"
    );
    // The masks outlive perch and are handed on: else there would be nothing to put right.
    assert!(bound(killed, "killed") >= 10, "{:?}", killed.look("killed"));
    assert_eq!((killed.ended["restore"], killed.ended["again"]), (0, 0));
    killed.assert_allowed("restored", ALL);
    killed.assert_allowed("again", ALL);
}

#[test]
fn masks_come_back_after_stop() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let runs = tell(&guest(Topology::Smt2), &[STOPPED, DAEMONS].concat());
    let [stopped, daemons] = &runs[..] else {
        panic!("{runs:?}")
    };

    // Whoever starts a daemon is bound; perch itself lets the idle go that it has found.
    let bound = daemons.look("bound").tasks.iter();
    assert!(bound.filter(|task| task.allowed != ALL).count() >= 8);
    assert_eq!(daemons.lines.len(), 20);
    daemons.assert_allowed("restored", ALL);

    let placed = stopped
        .others
        .iter()
        .find_map(|v| v["placed"].as_i64())
        .unwrap();
    assert_every_kind(stopped);
    assert_eq!(stopped.lines.len(), 12);
    for look in ["bound", "spawned", "restored"] {
        let task = stopped.task(stopped.look(look), i32::try_from(placed).unwrap());
        assert_eq!(task.allowed, "5", "somebody else's thread in look {look}");
    }
    let bound = stopped.look("bound").tasks.iter();
    assert!(bound.filter(|task| task.allowed != ALL).count() >= 8);
    let restored = stopped.look("restored");
    for line in &stopped.lines {
        // What the placed thread started was placed with it.
        let foreign = [line.tid, line.parent].map(i64::from).contains(&placed);
        let expected = if foreign { "5" } else { ALL };
        assert_eq!(
            stopped.task(restored, line.tid).allowed,
            expected,
            "{line:?}"
        );
    }
}

/// A CPU goes away and comes back; then another goes, and perch ends while it is away.
const OFFLINE: &str = r#"
begin offline
$LOAD --seed 5 --threads fp:4,int:4 >$LINES &
load=$!
listen
perch attach --log $LOG --output /tmp/report $load >/tmp/said 2>&1 &
perch=$!
settle bound 8
echo 0 >/sys/devices/system/cpu/cpu3/online
look offline 8 4
echo 1 >/sys/devices/system/cpu/cpu3/online
settle online 8
echo 0 >/sys/devices/system/cpu/cpu6/online
look offline-again 8 2
kill -TERM $perch
ended $perch perch
# What anybody gets who asks for all CPUs while one is offline.
sleep 600 &
taskset -p ff $! >/dev/null
echo "{\"control\":$!}"
look restored
kill $!
order end
finish
"#;

#[test]
fn nothing_is_lost_when_cpus_go() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let runs = tell(&guest(Topology::Smt2), OFFLINE);
    let [run] = &runs[..] else { panic!("{runs:?}") };
    run.assert_placed(Topology::Smt2, "bound", &run.last_roles());
    assert_within(run, "offline", &[0, 1, 2, 4, 5, 6, 7]);
    run.assert_placed(Topology::Smt2, "online", &run.last_roles());
    assert_within(run, "offline-again", &[0, 1, 2, 3, 4, 5, 7]);
    // This kernel strikes offline CPUs from every mask that is set; perch cannot do better than anybody.
    let restored = run.look("restored");
    let control = run
        .others
        .iter()
        .find_map(|value| value["control"].as_i64())
        .unwrap();
    let control = run.task(restored, i32::try_from(control).unwrap()).pus();
    assert!(control.len() >= 7, "{control:?}");
    for line in &run.lines {
        let pus = run.task(restored, line.tid).pus();
        assert!(
            control.iter().all(|pu| pus.contains(pu)),
            "{line:?} has {pus:?} and not {control:?}"
        );
    }
}

/// A cpuset shrinks, grows, shrinks again, and perch ends. perch is in the same control group, as in a
/// container, or outside.
const CPUSET: &str = r#"
cd /sys/fs/cgroup
echo +cpuset >cgroup.subtree_control
mkdir job
for perch_in in job .; do
    echo 0-7 >job/cpuset.cpus
    begin "perch in $perch_in"
    sh -c "echo \$\$ >job/cgroup.procs; exec $LOAD --seed 6 --threads fp:4,int:4" >$LINES &
    load=$!
    listen
    sh -c "echo \$\$ >$perch_in/cgroup.procs; exec perch attach --log $LOG --output /tmp/report $load" >/tmp/said 2>&1 &
    perch=$!
    settle bound 8
    echo 0-5 >job/cpuset.cpus
    look shrunk 8 4
    echo 0-7 >job/cpuset.cpus
    settle grown 8
    echo 2-5 >job/cpuset.cpus
    look shrunk-again 8 4
    kill -TERM $perch
    ended $perch perch
    look restored
    echo 0-7 >job/cpuset.cpus
    look whole
    order end
    finish
done
"#;

#[test]
fn nothing_is_lost_when_cpusets_shrink() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let runs = tell(&guest(Topology::Smt2), CPUSET);
    assert_eq!(runs.len(), 2);
    for run in &runs {
        run.assert_placed(Topology::Smt2, "bound", &run.last_roles());
        assert_within(run, "shrunk", &[0, 1, 2, 3, 4, 5]);
        assert_within(run, "shrunk-again", &[2, 3, 4, 5]);
        run.assert_allowed("restored", "2-5");
        run.assert_allowed("whole", ALL);
    }
    // The kernel gives every thread the whole cpuset when that changes. Nobody else has placed them: they are
    // still perch's to place.
    for run in &runs {
        run.assert_placed(Topology::Smt2, "grown", &run.last_roles());
    }
}

/// Every thread is there and may use some of these PUs.
fn assert_within(run: &Run, label: &str, usable: &[usize]) {
    for line in &run.lines {
        let pus = run.task(run.look(label), line.tid).pus();
        assert!(
            pus.iter().any(|pu| usable.contains(pu)),
            "{}, {label}: {line:?} on {pus:?}",
            run.name
        );
    }
}
