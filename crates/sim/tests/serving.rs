//! Requests, devices, and threads that come and go, against what queueing theory and plain counting say.

use crate::support::{machine, system};
use perch_sim::{
    config::workload_from_text,
    model::Multithreading,
    os::RequestStats,
    system::{SimError, System},
    thread::State,
    units::SECOND,
    workload::WorkloadModel,
};
use proptest::prelude::*;
use std::{collections::BTreeSet, path::Path};

/// A workload of one mix, ALU instructions of a cycle each, with these lines besides.
fn workload(lines: &str) -> WorkloadModel {
    let text =
        format!("about = \"a test\"\n[mixes.m]\nshares = {{ alu = 1 }}\ndepends = 1\n{lines}");
    workload_from_text(&text, Path::new("test.toml")).unwrap_or_else(|error| panic!("{error}"))
}

/// A server of `threads` threads whose service takes these steps.
fn server(arrivals: &str, threads: u32, steps: &str) -> WorkloadModel {
    workload(&format!(
        "[devices.disk]\nlatency = \"1 ms\"\n[[programs]]\nname = \"server\"\narrivals = {{ {arrivals} }}\n\
         [[programs.threads]]\nname = \"worker\"\ncount = {threads}\nserves = true\nsteps = [{steps}]\n"
    ))
}

/// The machine is a thousand times slower than its operating system's time.
fn on(cores: usize, workload: WorkloadModel, seed: u64) -> System {
    system(
        machine(cores, 1, Multithreading::FineGrained),
        workload,
        seed,
    )
}

fn finish(mut system: System) -> System {
    system
        .run(100 * SECOND)
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(system.is_done());
    system
}

fn requests(system: &System) -> RequestStats {
    system.outcome().requests.remove(0)
}

#[track_caller]
fn near(value: f64, wanted: f64, part: f64) {
    assert!((value / wanted - 1.0).abs() < part, "{value}, not {wanted}");
}

/// Waiting in an M/D/1 queue: ρS / (2 (1 - ρ)) (Pollaczek and Khinchine). The relative standard error of a mean over n
/// customers is about sqrt(2 / n) / (1 - ρ).
fn waiting(load: f64, service: f64) -> f64 {
    load * service / (2.0 * (1.0 - load))
}

#[test]
fn a_server_that_sleeps_is_an_m_d_1_queue() {
    for rate in [300, 600, 800] {
        let arrivals = format!("rate = \"{rate} / s\", count = 200_000");
        let system = finish(on(1, server(&arrivals, 1, "{ sleep = \"1 ms\" }"), 7));
        let stats = requests(&system);
        assert_eq!(
            (stats.arrived, stats.served, stats.dropped),
            (200_000, 200_000, 0)
        );
        let load = f64::from(rate) * 1e-3;
        near(stats.waiting, waiting(load, 1e-3), 0.05);
        near(stats.mean, stats.waiting + 1e-3, 1e-6);
        near(stats.rate, f64::from(rate), 0.01);
    }
}

#[test]
fn a_server_that_computes_is_an_m_d_1_queue() {
    // A thousand instructions take a microsecond of the machine: a millisecond of the operating system.
    let steps = "{ compute = \"m\", instructions = 1_000 }";
    let system = finish(on(
        1,
        server("rate = \"600 / s\", count = 10_000", 1, steps),
        3,
    ));
    let stats = requests(&system);
    let service = stats.mean - stats.waiting;
    assert!((1e-3..1.05e-3).contains(&service), "{service}");
    near(stats.waiting, waiting(600.0 * service, service), 0.1);
    assert_eq!(system.threads()[0].counters.instructions(), 10_000 * 1_000);
}

#[test]
fn a_disk_with_one_place_is_an_m_d_1_queue_and_with_many_has_no_queue() {
    for (parallel, wanted) in [(1, waiting(0.6, 1e-3)), (200, 0.0)] {
        let mut model = server(
            "rate = \"600 / s\", count = 100_000",
            200,
            "{ io = \"disk\" }",
        );
        model.devices[0].parallel = parallel;
        let system = finish(on(1, model, 11));
        let disk = &system.outcome().devices[0];
        assert_eq!(disk.operations, 100_000);
        assert!(
            (disk.waiting - wanted).abs() < 0.05 * wanted + 1e-6,
            "{disk:?}"
        );
        near(disk.utilisation, 0.6 / f64::from(parallel), 0.02);
    }
}

/// Little's law: the mean number in the system, looked at from outside, is the rate times the mean response time.
#[test]
fn there_are_as_many_requests_as_arrive_while_one_is_served() {
    let steps = "{ compute = \"m\", instructions = 500 }, { io = \"disk\" }";
    let mut system = on(1, server("rate = \"700 / s\"", 4, steps), 5);
    let (mut present, looks) = (0, 12_000);
    for look in 1..=looks {
        // Every half millisecond of the operating system.
        system.run(look * 500_000).unwrap();
        present += system.present(0);
    }
    let stats = requests(&system);
    assert!(stats.served > 4_000);
    near(present as f64 / looks as f64, stats.rate * stats.mean, 0.02);
}

/// The interactive response time law: clients = rate × (response + thinking).
#[test]
fn clients_wait_for_their_replies() {
    for process in ["poisson", "constant"] {
        let arrivals =
            format!("clients = 8, think = \"5 ms\", process = \"{process}\", count = 20_000");
        let stats = requests(&finish(on(
            1,
            server(&arrivals, 2, "{ sleep = \"2 ms\" }"),
            2,
        )));
        near(stats.rate * (stats.mean + 5e-3), 8.0, 0.02);
        assert!(stats.median <= stats.p95 && stats.p95 <= stats.p99 && stats.p99 <= stats.max);
    }
}

#[test]
fn a_full_queue_refuses() {
    // Twice as many as can be served, and no queue: half are refused.
    let arrivals = "rate = \"2000 / s\", process = \"constant\", queue = 0, count = 1_000";
    let stats = requests(&finish(on(
        1,
        server(arrivals, 1, "{ sleep = \"0.9 ms\" }"),
        1,
    )));
    assert_eq!((stats.served, stats.dropped), (500, 500));
    assert_eq!((stats.waiting, stats.waiting_share), (0.0, 0.0));
}

#[test]
fn threads_that_wait_for_ever_are_told() {
    let stuck = workload(
        "[[programs]]\nname = \"p\"\n[[programs.threads]]\nname = \"main\"\n\
         steps = [{ lock = \"l\" }, { spawn = \"child\", count = 2 }, { join = \"child\" }, { unlock = \"l\" }]\n\
         [[programs.threads]]\nname = \"child\"\ncount = 0\n\
         steps = [{ lock = \"l\" }, { compute = \"m\", instructions = 10 }, { unlock = \"l\" }]\n",
    );
    let error = on(1, stuck, 1).run(SECOND).unwrap_err();
    let SimError::Deadlock { waiting, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(
        waiting,
        [
            "  main of p waits for the end of 2 `child`",
            "  child-1 of p waits for lock `l`, held by main",
            "  child-2 of p waits for lock `l`, held by main",
        ]
    );
    // New requests do not wake a thread that is stuck.
    let mut both = server(
        "rate = \"100 / s\"",
        1,
        "{ barrier = \"b\" }, { sleep = \"1 ms\" }",
    );
    both.programs[0]
        .threads
        .push(perch_sim::workload::ThreadModel {
            name: "gone".into(),
            count: 1,
            steps: vec![
                perch_sim::workload::Step::Sleep(1),
                perch_sim::workload::Step::Barrier("b".into()),
            ],
            repeat: 1,
            nice: 0,
            pus: Vec::new(),
        });
    let error = on(1, both, 1).run(SECOND).unwrap_err().to_string();
    assert!(
        error.contains("worker of server waits at barrier `b` (1 of 2 are there)"),
        "{error}"
    );
}

#[test]
fn threads_that_start_themselves_for_ever_are_told() {
    for (steps, why) in [
        // More and more at a time.
        (
            "{ spawn = \"bomb\", count = 2 }, { compute = \"m\", instructions = 10 }",
            "65536 at a time",
        ),
        // One after the other, in no time.
        (
            "{ spawn = \"bomb\" }, { sleep = \"1 ms\" }, { join = \"bomb\" }",
            "65536 at a time",
        ),
    ] {
        let text = format!(
            "[[programs]]\nname = \"p\"\n[[programs.threads]]\nname = \"bomb\"\nsteps = [{steps}]\n"
        );
        let error = on(1, workload(&text), 1)
            .run(SECOND)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(why) && error.contains("of `p` starts `bomb`"),
            "{error}"
        );
    }
}

/// Waves of short threads: each has its own number, all end, and what they ran on is used again.
#[test]
fn many_short_threads_come_and_go() {
    let text = "[[programs]]\nname = \"p\"\n[[programs.threads]]\nname = \"main\"\nrepeat = 500\n\
         steps = [{ spawn = \"child\", count = 20 }, { join = \"child\" }]\n\
         [[programs.threads]]\nname = \"child\"\ncount = 0\nsteps = [{ compute = \"m\", instructions = 50 }, { barrier = \"b\" }]\n";
    let system = finish(on(4, workload(text), 1));
    assert_eq!(system.threads().len(), 10_001);
    let tids: BTreeSet<i32> = system.threads().iter().map(|t| t.identity.tid).collect();
    assert_eq!(tids.len(), 10_001);
    for thread in system.threads() {
        assert_eq!(thread.state, State::Ended);
        let child = thread.identity.parent.is_some();
        assert_eq!(thread.counters.instructions(), if child { 50 } else { 0 });
    }
}

/// A new thread does not come before all that were there.
#[test]
fn threads_that_come_and_go_starve_nobody() {
    let text = "[[programs]]\nname = \"p\"\n[[programs.threads]]\nname = \"long\"\n\
         steps = [{ compute = \"m\", instructions = \"forever\" }]\n\
         [[programs.threads]]\nname = \"main\"\nrepeat = \"forever\"\n\
         steps = [{ spawn = \"child\" }, { join = \"child\" }]\n\
         [[programs.threads]]\nname = \"child\"\ncount = 0\nsteps = [{ compute = \"m\", instructions = 40_000 }]\n";
    let mut system = on(1, workload(text), 1);
    system.run(4 * SECOND / 1_000).unwrap();
    let long = &system.threads()[0];
    let share = long.cpu_time as f64 / system.now() as f64;
    assert!((0.35..0.65).contains(&share), "{share}");
}

/// A server of any shape.
fn servers() -> impl Strategy<Value = WorkloadModel> {
    let arrivals = prop_oneof![
        (100u32..3_000).prop_map(|rate| format!("rate = \"{rate} / s\"")),
        (1u32..20, 1u32..10)
            .prop_map(|(clients, think)| format!("clients = {clients}, think = \"{think} ms\"")),
    ];
    let steps = proptest::collection::vec(
        prop_oneof![
            (1u32..2_000).prop_map(|n| format!("{{ compute = \"m\", instructions = {n} }}")),
            (1u32..2_000).prop_map(|us| format!("{{ io = \"disk\", time = \"{us} us\" }}")),
            Just("{ sleep = \"1 ms\" }".to_owned()),
            Just(
                "{ lock = \"l\" }, { compute = \"m\", instructions = 99 }, { unlock = \"l\" }"
                    .to_owned()
            ),
            (1u32..4).prop_map(|n| format!(
                "{{ spawn = \"child\", count = {n} }}, {{ join = \"child\" }}"
            )),
        ],
        1..4,
    );
    let rest = (any::<bool>(), 0u32..5, 1u32..6, 1u32..300);
    (arrivals, steps, rest).prop_map(|(arrivals, steps, (constant, queue, threads, count))| {
        let process = if constant { "constant" } else { "poisson" };
        let queue = if queue == 0 { String::new() } else { format!(", queue = {queue}") };
        let arrivals = format!("{arrivals}, process = \"{process}\"{queue}, count = {count}");
        let steps = steps.join(", ");
        workload(&format!(
            "[devices.disk]\nparallel = 2\n[[programs]]\nname = \"server\"\narrivals = {{ {arrivals} }}\n\
             [[programs.threads]]\nname = \"worker\"\ncount = {threads}\nserves = true\nsteps = [{steps}]\n\
             [[programs.threads]]\nname = \"child\"\ncount = 1\nrepeat = 2\nsteps = [{{ spawn = \"grandchild\" }}, {{ compute = \"m\", instructions = 70 }}]\n\
             [[programs.threads]]\nname = \"grandchild\"\ncount = 0\nsteps = [{{ io = \"disk\", time = \"30 us\" }}]\n"
        ))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Every request that came was served, refused, waits or is in work; no thread is lost; in the end all are done.
    #[test]
    fn no_request_and_no_thread_is_lost(model in servers(), seed in any::<u64>(), looks in proptest::collection::vec(1u64..200, 1..12)) {
        let count = model.programs[0].requests.unwrap().count;
        let mut system = on(2, model, seed);
        let mut now = 0;
        for look in looks {
            now += look * 1_000_000;
            system.run(now).unwrap();
            let stats = requests(&system);
            prop_assert_eq!(stats.arrived, stats.served + stats.dropped + stats.unfinished);
            prop_assert_eq!(stats.unfinished, system.present(0) as u64);
            for thread in system.threads() {
                prop_assert_eq!(thread.ended.is_some(), thread.state == State::Ended);
            }
        }
        let system = finish(system);
        let stats = requests(&system);
        prop_assert_eq!((stats.arrived, stats.unfinished), (count, 0));
        prop_assert!(system.threads().iter().all(|thread| thread.state == State::Ended));
        for one in system.served(0) {
            prop_assert!(one.arrived <= one.begun && one.begun <= one.done);
        }
    }

    /// The seed decides everything, and nothing else does: not even how often one looks.
    #[test]
    fn the_same_seed_gives_the_same_bits(model in servers(), seed in any::<u64>()) {
        let run = || {
            let system = finish(on(2, model.clone(), seed));
            let times: Vec<_> = system.threads().iter().map(|t| (t.ended, t.cpu_time, t.counters)).collect();
            (system.served(0).to_vec(), times, system.outcome())
        };
        prop_assert_eq!(run(), run());
    }
}
