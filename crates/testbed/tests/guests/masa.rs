//! The example of MASA's section 4 in a guest of two packages: floating-point threads on one, integer threads on the
//! other; one swap, and no more.

use std::collections::{BTreeMap, BTreeSet};

use crate::boot::{self, SURVEY};
use crate::profile::FIXED;
use crate::story::{Run, guest, tell};
use perch_skip::skip;
use perch_testbed::load::Role;
use perch_testbed::{Topology, vm_tests_skipped};
use serde_json::Value;

/// Periods of 2 s that are looked at.
const PERIODS: usize = 6;

/// The stand-in PMU's processor, besides [`FIXED`]: L2 misses are counted only if a policy asks for them, in a turn of their own.
const PROFILE: &str = r#"name = "two-packages"
title = "the stand-in PMU as MASA's processor"
[[match]]
any = true
[[unit]]
class = "fp"
count = 1
share = "core"
source = "MASA, section 2: the logical processors of a package share them"
[[event]]
alias = "fp_ops"
spellings = ["cpu/fpops/"]
source = "the test"
[[event]]
alias = "l2_misses"
spellings = ["cpu/l2miss/"]
source = "the test"
[[set]]
name = "core"
events = ["cycles", "instructions", "fp_ops"]
[[set]]
name = "memory"
events = ["l2_misses"]
on_demand = true
[[metric]]
name = "cycles"
formula = "cycles"
unit = "cycles"
total = true
description = "cycles"
source = "the count itself"
[[metric]]
name = "fp_share"
formula = "fp_ops / cycles"
unit = "operations / cycle"
range = [0, 8]
description = "floating-point work per cycle"
source = "the test"
[[metric]]
name = "fp_load"
formula = "fp_ops / cpu_seconds"
unit = "operations / second"
description = "load of the floating-point units"
source = "MASA, section 4"
[[metric]]
name = "l2_load"
formula = "l2_misses / cpu_seconds"
unit = "misses / second"
description = "load of the caches"
source = "MASA, section 4"
[fp_threshold]
counters = 0.05
source = "the test"
"#;

/// Limits somewhat above what one floating-point thread does alone.
const CALIBRATION: &str = r#"machine = "the test's guest"
date = "2026-11-22"
[[metric]]
name = "l2_load"
priority = 1
share = "package"
limit = 1e7
[[metric]]
name = "fp_load"
priority = 2
share = "package"
limit = 6e8
"#;

/// What kernels like these threads suffer on one core of that machine.
const COUPLINGS: &str = r#"
[[kernel]]
name = "fp"
metrics = { ipc = 0.75, fp_share = 0.25, fp_load = 5e8 }
[[kernel]]
name = "integer"
metrics = { ipc = 1.5, fp_share = 0.0, fp_load = 0.0 }
[[coupling]]
share = "core"
kernel = "fp"
beside = ["fp"]
slowdown = 1.9
[[coupling]]
share = "core"
kernel = "fp"
beside = ["integer"]
slowdown = 1.1
[[coupling]]
share = "core"
kernel = "integer"
beside = ["fp"]
slowdown = 1.1
[[coupling]]
share = "core"
kernel = "integer"
beside = ["integer"]
slowdown = 1.1
"#;

/// Starts the workload with each kind of thread on a package of its own, and then lets all go anywhere, before perch
/// looks. The kernel was told to balance nothing, so nobody but perch moves them.
const WRONG: &str = r#"
$LOAD --seed $1 --threads fp:2,int:2 --gap 0 \
    --rates "fp=cpu-cycles=2000000000 instructions=1500000000 fpops=500000000 l2miss=2000" \
    --rates "int=cpu-cycles=2000000000 instructions=3000000000 fpops=0 l2miss=4000" >$LINES &
load=$!
until [ "$(wc -l <$LINES)" -ge 4 ]; do usleep 20000; done
set -- $(sed -n '/"role":"fp"/s/.*"tid":\([0-9]*\).*/\1/p;' $LINES) \
    $(sed -n '/"role":"int"/s/.*"tid":\([0-9]*\).*/\1/p;' $LINES)
mask=1
for tid in $*; do
    taskset -p $mask $tid >/dev/null
    mask=$((mask * 2))
done
# Where each is now shows once it has run there.
sleep 1
for tid in $load $*; do
    taskset -p f $tid >/dev/null
done
"#;

fn script(policy: &str, variant: &str, seed: u32) -> String {
    let variant_line = match variant {
        "" => String::new(),
        _ => format!("variant = \"{variant}\"\\n"),
    };
    format!(
        r#"
begin "{policy} {variant} {seed}"
listen
printf '[policies.{policy}]\n{variant_line}calibration = "/root/calibration.toml"\n' >/tmp/config.toml
set -- {seed}
{WRONG}
# The shell itself may only use the first PU.
taskset f perch attach --policy {policy} --period 2s --config /tmp/config.toml --profile /root/profile.toml --counters pmu \
    --log $LOG --output /tmp/report $load 2>/tmp/said &
perch=$!
look settled 4 {PERIODS}
order end
ended $perch perch
finish
"#
    )
}

/// The moves of a period that bind a thread.
fn bound(period: &Value) -> Vec<&Value> {
    let moves = period["moves"].as_array().unwrap();
    moves.iter().filter(|made| made["to"].is_string()).collect()
}

type Roles = BTreeMap<i32, Role>;

/// The threads of the workload, and the PU where each was.
fn places(period: &Value, roles: &Roles) -> Vec<(i32, usize)> {
    let threads = period["observation"]["threads"].as_array().unwrap();
    let told = threads.iter().filter_map(|thread| {
        let tid = i32::try_from(thread["info"]["id"]["tid"].as_i64()?).ok()?;
        let pu = usize::try_from(thread["last_pu"].as_u64()?).ok()?;
        roles.contains_key(&tid).then_some((tid, pu))
    });
    told.collect()
}

/// The packages on which threads of a role were.
fn packages(period: &Value, roles: &Roles, role: Role) -> BTreeSet<usize> {
    let places = places(period, roles).into_iter();
    places
        .filter(|(tid, _)| roles[tid] == role)
        .map(|(_, pu)| Topology::Packages2.core_of(pu))
        .collect()
}

/// Threads of each role are on both packages.
fn assert_on_both(period: &Value, roles: &Roles, what: impl Fn() -> String) {
    for role in [Role::Fp, Role::Int] {
        assert_eq!(packages(period, roles, role).len(), 2, "{}", what());
    }
}

/// The policy that knows what kernels suffer: each kind is on both packages at the end, and nobody moved after that.
fn set_right(run: &Run) {
    let name = &run.name;
    assert_eq!(run.ended["perch"], 0, "{name}");
    let roles = run.first_roles();
    let periods = &run.periods[..PERIODS];
    let last = &periods[PERIODS - 1];
    let told = || {
        let lines = periods.iter();
        let lines = lines.map(|period| format!("{:?} {}", places(period, &roles), period["moves"]));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        packages(&periods[0], &roles, Role::Fp).len(),
        1,
        "{name}: {}",
        told()
    );
    assert_on_both(last, &roles, || format!("{name}: {}", told()));
    let moved = periods.iter().filter(|period| !bound(period).is_empty());
    assert_eq!(moved.count(), 1, "{name}: {}", told());
}

fn check(run: &Run) {
    let name = &run.name;
    assert_eq!(run.ended["perch"], 0, "{name}");
    let roles = run.first_roles();
    let samples = |period: &Value| places(period, &roles);
    let packages = |period: &Value, role: Role| packages(period, &roles, role);
    let periods = &run.periods[..PERIODS];
    let swaps: Vec<usize> = (0..PERIODS)
        .filter(|at| !bound(&periods[*at]).is_empty())
        .collect();
    let told = || {
        let lines = periods.iter().map(|period| {
            format!(
                "{:?} {} {}",
                samples(period),
                period["moves"],
                period["observation"]["pus"]
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    // (FP, FP) (INT, INT) at first.
    let [swap] = swaps[..] else {
        panic!("{name}: swaps after periods {swaps:?} of\n{}", told())
    };
    let before = &periods[swap];
    assert_eq!(packages(before, Role::Fp).len(), 1, "{name}: {}", told());
    assert_eq!(packages(before, Role::Int).len(), 1, "{name}: {}", told());
    // One of each kind changes places.
    let moved = bound(before);
    let kinds: BTreeSet<Role> = moved
        .iter()
        .map(|made| roles[&i32::try_from(made["thread"]["tid"].as_i64().unwrap()).unwrap()])
        .collect();
    assert_eq!((moved.len(), kinds.len()), (2, 2), "{name}: {}", told());
    // (INT, FP) (INT, FP) at the end.
    let last = &periods[PERIODS - 1];
    assert_on_both(last, &roles, || format!("{name}: {}", told()));

    // What was on demand only was counted, and PUs as well as threads.
    let counting = run.header["counting"].as_str().unwrap();
    assert!(
        counting.contains("in 2 multiplexed sets") && counting.contains("PUs counted"),
        "{counting}"
    );
    let counted = |period: &Value, alias: &str| -> Vec<f64> {
        let pus = period["observation"]["pus"].as_array().unwrap();
        assert_eq!(pus.len(), Topology::Packages2.pus());
        let counts = pus.iter().flat_map(|pu| pu["counts"].as_array().unwrap());
        let counts = counts.filter(|count| count["alias"] == alias);
        counts
            .map(|count| count["value"].as_f64().unwrap())
            .collect()
    };
    assert!(
        periods
            .iter()
            .any(|period| counted(period, "l2_misses").len() == 4)
    );
    // What PUs counted is the work of the two floating-point threads, wherever each of them ran: not of one, not of three.
    let of_fp = |period: &Value| counted(period, "fp_ops").len() == Topology::Packages2.pus();
    let (mut done, mut ran) = (0.0, 0.0);
    for period in periods.iter().filter(|period| of_fp(period)) {
        done += counted(period, "fp_ops").iter().sum::<f64>();
        // Threads are read before PUs; on a busy host some time may pass in between.
        let seconds = period["observation"]["pus"][0]["interval"]
            .as_f64()
            .unwrap()
            / 1e9;
        let threads = period["observation"]["threads"].as_array().unwrap();
        let times = threads.iter().filter_map(|thread| {
            let tid = i32::try_from(thread["info"]["id"]["tid"].as_i64()?).ok()?;
            let busy = thread["cpu_time"].as_f64()? / thread["interval"].as_f64()?;
            (roles.get(&tid) == Some(&Role::Fp)).then_some(busy * seconds)
        });
        ran += times.sum::<f64>();
    }
    let share = done / (5e8 * ran);
    assert!(
        (0.6..1.4).contains(&share),
        "{name}: {share} of what two threads do in {ran} s of CPU time"
    );
}

/// The runs of policies, by name and variant, each with a seed of its own.
fn runs(policies: &[(&str, &str)]) -> Vec<Run> {
    let guest = guest(Topology::Packages2)
        .kernel_argument("isolcpus=domain,1-3")
        .fake_pmu()
        .text("/root/profile.toml", format!("{PROFILE}{FIXED}"))
        .text(
            "/root/calibration.toml",
            format!("{CALIBRATION}{COUPLINGS}"),
        );
    let mut scripts = SURVEY.to_owned()
        + "insmod /testbed/fakepmu.ko events=fpops:0x8011,l2miss:0x8022 || exit 1\n\
        echo '* cpu-cycles=1000000000 instructions=500000000' >/sys/module/fakepmu/parameters/rules\n";
    for (seed, (policy, variant)) in (1..).zip(policies) {
        scripts += &script(policy, variant, seed);
    }
    let mut runs = tell(&guest, &scripts);
    boot::assert_is(Topology::Packages2, &runs.remove(0));
    assert_eq!(runs.len(), policies.len());
    runs
}

#[test]
fn one_swap_sets_it_right() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    check(&runs(&[("masa", "perch")])[0]);
}

#[test]
#[ignore = "takes minutes: make guests"]
fn the_paper_s_variant_and_symbiosis_set_it_right_too() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let runs = runs(&[("masa", "paper"), ("symbiosis", "")]);
    check(&runs[0]);
    set_right(&runs[1]);
}
