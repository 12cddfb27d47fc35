//! How far the interval level is from the cycle level: random mixes at random places, played at both.
//!
//! `cargo run --release -p perch-sim --example fidelity [MACHINE [SETS [PLACEMENTS]]]`

use perch_core::PuSet;
use perch_sim::{
    config,
    model::{MachineModel, Op},
    os::SchedulerModel,
    stream::Random,
    system::{Fidelity, System},
    units::Ps,
    workload::{Mix, Pattern, ProgramModel, Step, ThreadModel, WorkingSet, WorkloadModel},
};
use std::{sync::Arc, time::Instant};

const WARM: Ps = 1_500_000_000;
const MEASURED: Ps = 700_000_000;

fn mix(name: String, random: &mut Random) -> Mix {
    let mut shares = [0.0; Op::COUNT];
    let mut set = |op: Op, share: f64| shares[op as usize] = share;
    let fp = random.unit() < 0.5;
    let memory = 0.05 + 0.4 * random.unit();
    set(Op::Load, memory * 0.7);
    set(Op::Store, memory * 0.3 * random.unit());
    set(Op::Branch, 0.05 + 0.15 * random.unit());
    set(Op::Fp, if fp { 0.5 * random.unit() } else { 0.0 });
    if random.unit() < 0.2 {
        set(Op::FpDivide, if fp { 0.02 * random.unit() } else { 0.0 });
        set(Op::Multiply, 0.05 * random.unit());
    }
    let sum: f64 = shares.iter().sum();
    shares[Op::Alu as usize] = (1.0 - sum).max(0.05);
    let working_sets = (0..1 + random.below(2))
        .map(|_| WorkingSet {
            bytes: (1024.0 * 2f64.powf(random.unit() * 11.0)) as u64 / 64 * 64,
            share: 0.2 + random.unit(),
            pattern: if random.unit() < 0.7 {
                Pattern::Random
            } else {
                Pattern::Stride
            },
            stride: [8, 16, 64][random.below(3) as usize],
            region: None,
        })
        .collect();
    Mix {
        name,
        shares,
        depends: random.below(6) as u16,
        extra: 0,
        mispredicted: 0.05 * random.unit() * random.unit(),
        code_bytes: 256 << random.below(7),
        working_sets,
    }
}

fn workload(threads: u64, random: &mut Random) -> WorkloadModel {
    let mixes: Vec<Mix> = (0..threads)
        .map(|at| mix(format!("m{at}"), random))
        .collect();
    let thread = |at: u64| ThreadModel {
        name: format!("t{at}"),
        count: 1,
        steps: vec![Step::Compute {
            mix: at as usize,
            instructions: u64::MAX,
        }],
        repeat: 1,
    };
    WorkloadModel {
        name: "random".into(),
        about: String::new(),
        sources: Vec::new(),
        mixes,
        programs: vec![ProgramModel {
            name: "p".into(),
            count: 1,
            start: 0,
            restart: false,
            threads: (0..threads).map(thread).collect(),
        }],
    }
}

/// Instructions of each thread in the measured time, and how long the host took.
fn play(
    fidelity: Fidelity,
    machine: &Arc<MachineModel>,
    workload: &Arc<WorkloadModel>,
    places: &[u32],
) -> (Vec<f64>, f64) {
    let begun = Instant::now();
    let mut system = System::at(
        fidelity,
        Arc::clone(machine),
        Arc::clone(workload),
        SchedulerModel::default(),
        1,
    );
    system.run(1).expect("no deadlock");
    for (thread, pu) in places.iter().enumerate() {
        system.set_mask(thread, PuSet::single(*pu));
    }
    system.run(WARM).expect("no deadlock");
    let done = |system: &System| -> Vec<f64> {
        let all = system.threads().iter();
        all.map(|thread| thread.counters.instructions() as f64)
            .collect()
    };
    let before = done(&system);
    system.run(WARM + MEASURED).expect("no deadlock");
    let after = done(&system);
    let each = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before);
    (each.collect(), begun.elapsed().as_secs_f64())
}

/// Kendall's tau-b of two rankings; differences below 1 % count as none.
fn tau(a: &[f64], b: &[f64]) -> f64 {
    let (mut agree, mut ties_a, mut ties_b) = (0i64, 0i64, 0i64);
    let mut pairs = 0;
    let sign = |x: f64, y: f64| {
        let near = (x / y - 1.0).abs() < 0.01;
        if near {
            0
        } else if x > y {
            1
        } else {
            -1
        }
    };
    for i in 0..a.len() {
        for j in 0..i {
            let (of_a, of_b) = (sign(a[i], a[j]), sign(b[i], b[j]));
            pairs += 1;
            agree += of_a * of_b;
            ties_a += i64::from(of_a == 0);
            ties_b += i64::from(of_b == 0);
        }
    }
    let rest = ((pairs - ties_a) as f64 * (pairs - ties_b) as f64).sqrt();
    if rest > 0.0 { agree as f64 / rest } else { 1.0 }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let name = args.get(1).map_or("cmt-4x4", String::as_str);
    let sets: u64 = args.get(2).and_then(|at| at.parse().ok()).unwrap_or(5);
    let placements: u64 = args.get(3).and_then(|at| at.parse().ok()).unwrap_or(5);
    let verbose = args.get(4).is_some();
    let machine = Arc::new(config::find_machine(name).expect("a shipped machine"));
    let pus = machine.pus() as u64;
    println!("{name}: threads, mean and largest error of throughput, of a thread, tau, speed-up");
    for threads in [1, 2, 4, 8].into_iter().filter(|threads| *threads <= pus) {
        let (mut errors, mut own_errors, mut taus) = (Vec::new(), Vec::new(), Vec::new());
        let (mut slow, mut fast) = (0.0, 0.0);
        for set in 0..sets {
            let mut random = Random::new(1000 * threads + set);
            let workload = Arc::new(workload(threads, &mut random));
            let (mut cycle, mut interval) = (Vec::new(), Vec::new());
            for _ in 0..placements {
                let mut free: Vec<u32> = (0..pus as u32).collect();
                let places: Vec<u32> = (0..threads)
                    .map(|_| free.remove(random.below(free.len() as u64) as usize))
                    .collect();
                let (exact, took) = play(Fidelity::Cycle, &machine, &workload, &places);
                slow += took;
                let (ours, took) = play(Fidelity::Interval, &machine, &workload, &places);
                fast += took;
                let (sum, our_sum): (f64, f64) = (exact.iter().sum(), ours.iter().sum());
                errors.push((our_sum / sum - 1.0).abs());
                for (at, (exact, ours)) in exact.iter().zip(&ours).enumerate() {
                    own_errors.push((ours / exact - 1.0).abs());
                    if verbose && (ours / exact - 1.0).abs() > 0.08 {
                        println!(
                            "  set {set} {places:?} thread {at}: {exact} ours {ours} {:.3}",
                            ours / exact
                        );
                        println!("    {:?}", workload.mixes[at]);
                    }
                }
                cycle.push(sum);
                interval.push(our_sum);
            }
            taus.push(tau(&cycle, &interval));
        }
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
        let largest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
        println!(
            "{threads:3}  {:5.2} % {:5.2} %   {:5.2} % {:5.2} %   {:.2}   {:.0}",
            100.0 * mean(&errors),
            100.0 * largest(&errors),
            100.0 * mean(&own_errors),
            100.0 * largest(&own_errors),
            mean(&taus),
            slow / fast
        );
    }
}
