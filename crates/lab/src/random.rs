//! Workloads and placements drawn at random, to judge models and policies on more than hand-made cases.

use perch_sim::{
    model::Op,
    stream::Random,
    workload::{Mix, Pattern, ProgramModel, Step, ThreadModel, WorkingSet, WorkloadModel},
};

/// The least and the largest working set, in bytes: 1 KiB to 2 MiB, each size as likely as half of it.
const SMALLEST: f64 = 1024.0;
const DOUBLINGS: f64 = 11.0;

/// A mix: integer or floating-point, with little or much memory, one or two working sets that are walked at random or
/// in order, code of 256 B to 16 KiB, chains of dependencies of any width up to five or none.
pub fn mix(name: String, random: &mut Random) -> Mix {
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
    let others: f64 = shares.iter().sum();
    shares[Op::Alu as usize] = (1.0 - others).max(0.05);
    let sets = 1 + random.below(2);
    Mix {
        name,
        shares,
        depends: (random.below(6) as u16).into(),
        mispredicted: 0.05 * random.unit() * random.unit(),
        code_bytes: 256 << random.below(7),
        working_sets: (0..sets).map(|_| working_set(random)).collect(),
        ..Mix::default()
    }
}

fn working_set(random: &mut Random) -> WorkingSet {
    WorkingSet {
        bytes: (SMALLEST * (random.unit() * DOUBLINGS).exp2()) as u64 / 64 * 64,
        share: 0.2 + random.unit(),
        pattern: match random.unit() < 0.7 {
            true => Pattern::Random,
            false => Pattern::Stride,
        },
        stride: [8, 16, 64][random.below(3) as usize],
        region: None,
    }
}

/// A program of `threads` threads, each with a mix of its own, that compute for ever.
pub fn workload(threads: u32, random: &mut Random) -> WorkloadModel {
    let kind = |at: u32| ThreadModel {
        name: format!("t{at}"),
        count: 1,
        steps: vec![Step::Compute {
            mix: at as usize,
            instructions: u64::MAX,
        }],
        repeat: 1,
        nice: 0,
        pus: Vec::new(),
    };
    WorkloadModel {
        name: "random".into(),
        about: "drawn at random".into(),
        sources: Vec::new(),
        mixes: (0..threads)
            .map(|at| mix(format!("m{at}"), random))
            .collect(),
        devices: Vec::new(),
        programs: vec![ProgramModel {
            name: "random".into(),
            count: 1,
            start: 0,
            restart: false,
            system: false,
            requests: None,
            threads: (0..threads).map(kind).collect(),
        }],
    }
}

/// A PU for each of `threads` threads: none twice while others are free, then none three times, and so on.
pub fn places(threads: u32, pus: u32, random: &mut Random) -> Vec<u32> {
    let mut free = Vec::new();
    let mut place = || {
        if free.is_empty() {
            free.extend(0..pus);
        }
        free.remove(random.below(free.len() as u64) as usize)
    };
    (0..threads).map(|_| place()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_spread_as_evenly_as_can_be() {
        let mut chance = Random::new(3);
        for threads in [1, 4, 6, 11] {
            let places = places(threads, 4, &mut chance);
            let count = |pu: u32| places.iter().filter(|place| **place == pu).count() as u32;
            let counts: Vec<u32> = (0..4).map(count).collect();
            assert_eq!(counts.iter().sum::<u32>(), threads);
            assert!(
                counts
                    .iter()
                    .all(|count| (threads / 4..=threads.div_ceil(4)).contains(count))
            );
        }
    }
}
