//! By a PMU whose floating-point event has a name, a code and rates drawn at random, perch decides the same
//! as by instruction sampling; and when that PMU lies, perch notices.

use std::collections::BTreeSet;

use crate::profile::FIXED;
use crate::story::{Run, guest, tell};
use fastrand::Rng;
use perch_skip::skip;
use perch_testbed::load::Role;
use perch_testbed::{Topology, vm_tests_skipped};
use serde_json::Value;

/// How many workloads are placed by both ways of knowing.
const SEEDS: u64 = 2;

/// A processor that nobody has seen.
struct Processor {
    event: String,
    code: u64,
    /// Rates by role as the stand-in PMU takes them, fp and int.
    rates: [String; 2],
    threshold: f64,
}

impl Processor {
    fn random(random: &mut Rng) -> Self {
        let event: String = std::iter::repeat_with(|| random.lowercase())
            .take(9)
            .collect();
        // No code of the events that every PMU has: those have no umask 0x80.
        let code = 0x8000 | random.u64(1..=0xff);
        let cycles = random.u64(1_000_000_000..4_000_000_000) as f64;
        let role = |ipc: f64, share: f64| {
            let events = [
                ("cpu-cycles", cycles),
                ("instructions", cycles * ipc),
                (event.as_str(), cycles * share),
                ("cache-misses", cycles / 1e5),
            ];
            events
                .map(|(name, rate)| format!("{name}={rate:.0}"))
                .join(" ")
        };
        let threshold = 0.02 + 0.2 * random.f64();
        let busy = threshold * (1.5 + 4.0 * random.f64());
        let rates = [
            role(0.5 + 1.5 * random.f64(), busy),
            role(0.5 + 3.0 * random.f64(), threshold * 0.3 * random.f64()),
        ];
        Self {
            event,
            code,
            rates,
            threshold,
        }
    }

    fn profile(&self) -> String {
        let Self {
            event, threshold, ..
        } = self;
        format!(
            r#"name = "unheard-of"
title = "a processor that nobody has seen"
[[match]]
any = true
[[unit]]
class = "fp"
count = 1
share = "core"
source = "drawn at random"
[[event]]
alias = "fp_busy"
spellings = ["cpu/{event}/"]
source = "drawn at random"
[[set]]
name = "core"
events = ["cycles", "instructions", "fp_busy"]
[[metric]]
name = "fp_share"
formula = "fp_busy / cycles"
unit = "operations / cycle"
range = [0, 8]
description = "floating-point work per cycle"
source = "drawn at random"
[fp_threshold]
counters = {threshold}
source = "drawn at random"
{FIXED}"#
        )
    }

    fn script(&self) -> String {
        let Self {
            event,
            code,
            rates: [fp, int],
            ..
        } = self;
        let one = |name: &str, options: &str| {
            format!(
                r#"
    begin "{name} $seed"
    perch run {options} --log $LOG --output /tmp/report --json -- $LOAD --seed $seed --threads fp:4,int:4 \
        --rates "fp={fp}" --rates "int={int}" >$LINES 2>/tmp/said &
    perch=$!
    listen
    settle placed 8
    order shuffle
    settle shuffled 10
    order end
    ended $perch perch
    finish
"#
            )
        };
        let pmu = one(
            "pmu",
            // Counts are exact, so that less time will do.
            "--period 500ms --counters pmu --profile /root/unheard-of.toml",
        );
        let sampling = one("sampling", "--counters sampling");
        let lied = one("lied", "--counters auto --profile /root/unheard-of.toml");
        format!(
            "insmod /testbed/fakepmu.ko events={event}:{code:#x} || exit 1
echo '* {int}' >/sys/module/fakepmu/parameters/rules
seed=0; while [ $((seed += 1)) -le {SEEDS} ]; do {pmu} {sampling} done
echo Y >/sys/module/fakepmu/parameters/lie
{lied}"
        )
    }
}

/// The names of the threads that the plan of a look ranks first, as many as there are cores.
fn top(run: &Run, label: &str) -> BTreeSet<String> {
    let bindings = &run.periods[run.look(label).periods - 1]["plan"]["bindings"];
    let number = |binding: &Value, name: &str| {
        let numbers = binding["reason"]["numbers"].as_array().unwrap();
        numbers
            .iter()
            .find(|pair| pair[0] == name)
            .and_then(|pair| pair[1].as_f64())
            .unwrap()
    };
    let bindings = bindings.as_array().unwrap();
    let first = bindings
        .iter()
        .filter(|b| number(b, "fp_rank") <= Topology::Smt2.cores() as f64);
    first
        .map(|b| {
            run.lines
                .iter()
                .find(|l| b["thread"]["tid"] == l.tid)
                .unwrap()
                .name
                .clone()
        })
        .collect()
}

#[test]
fn a_random_pmu_and_sampling_decide_the_same() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let draw = std::env::var("PERCH_TESTBED_DRAW")
        .ok()
        .and_then(|text| text.parse().ok());
    let draw = draw.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("PERCH_TESTBED_DRAW={draw} draws the same processor again");
    let processor = Processor::random(&mut Rng::with_seed(draw));
    eprintln!(
        "{} {:#x} {:?} threshold {}",
        processor.event, processor.code, processor.rates, processor.threshold
    );
    let guest = guest(Topology::Smt2)
        .fake_pmu()
        .text("/root/unheard-of.toml", processor.profile());
    let runs = tell(&guest, &processor.script());
    assert_eq!(runs.len() as u64, 2 * SEEDS + 1);
    for run in &runs {
        assert_eq!(run.ended["perch"], 0, "{}", run.name);
        run.assert_placed(Topology::Smt2, "placed", &run.first_roles());
        run.assert_placed(Topology::Smt2, "shuffled", &run.last_roles());
        let counting = run.header["counting"].as_str().unwrap();
        let sampled = counting.contains("sampling");
        assert_eq!(
            sampled,
            !run.name.starts_with("pmu"),
            "{}: known by {counting}",
            run.name
        );
    }
    for pair in runs[..2 * SEEDS as usize].chunks(2) {
        let [pmu, sampling] = pair else {
            unreachable!("chunks of two")
        };
        for label in ["placed", "shuffled"] {
            assert_eq!(
                top(pmu, label),
                top(sampling, label),
                "{} and {}",
                pmu.name,
                sampling.name
            );
        }
        let fp = pmu
            .last_roles()
            .into_iter()
            .filter(|(_, role)| *role == Role::Fp)
            .count();
        assert_eq!(top(pmu, "shuffled").len(), fp);
    }
    let lied = runs.last().unwrap();
    let remarks = lied
        .periods
        .iter()
        .flat_map(|p| p["remarks"].as_array().cloned().unwrap_or_default());
    let remarks: Vec<String> = remarks
        .filter_map(|r| r["text"].as_str().map(str::to_owned))
        .collect();
    assert!(
        remarks
            .iter()
            .any(|remark| remark.contains("cannot be believed")),
        "of counters that lie was said: {remarks:#?}"
    );
}
