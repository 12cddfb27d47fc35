//! How fast the memory model is: nanoseconds of a host CPU for one access, by working set.
//!
//! `cargo run --release -p perch-sim --example memory_speed`

use perch_sim::{
    counters::Counters,
    memory::{Access, Hierarchy, Memory},
    model::{
        CacheLevel, CoreAt, CoreKind, Holds, Latency, MachineModel, MemoryModel, Multithreading,
        Op, TlbModel, UnitPool,
    },
    stream::Random,
};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

const CORES: u32 = 4;
const CONTEXTS: u32 = 4;
const ACCESSES: u32 = 20_000_000;

fn level(
    level: u8,
    holds: Holds,
    kilobytes: u64,
    ways: u32,
    latency: u64,
    shared_by: &[Vec<u32>],
) -> CacheLevel {
    CacheLevel {
        level,
        holds,
        size: kilobytes << 10,
        ways,
        line: 64,
        latency,
        shared_by: shared_by.to_vec(),
        prefetchers: Vec::new(),
        victim: false,
        line_transfer: 0,
        write_through: None,
    }
}

fn machine() -> MachineModel {
    let core = |core| (core * CONTEXTS..(core + 1) * CONTEXTS).collect();
    let cores: Vec<Vec<u32>> = (0..CORES).map(core).collect();
    let kind = CoreKind {
        name: "plain".into(),
        cycle: 1000,
        clocks: Vec::new(),
        dmips_per_mhz: None,
        contexts: CONTEXTS,
        multithreading: Multithreading::FineGrained,
        width: 1,
        window: 1,
        window_shared: false,
        partition: None,
        tlb: None,
        micro_ops: [1; Op::COUNT],
        replay: 0,
        queues: Vec::new(),
        misses: 0,
        misses_per_context: None,
        misses_of_stores: true,
        store_commits: 1,
        misses_private: false,
        in_order: true,
        units: vec![UnitPool {
            name: "all".into(),
            ops: Op::ALL.to_vec(),
            count: 1,
            private: false,
            partitioned: false,
        }],
        latencies: [Latency { cycles: 1, busy: 1 }; Op::COUNT],
        branch_delay: 0,
        mispredict: 0,
        duty: 1.0,
        modulation: 3_000_000,
        duty_steps: 0,
    };
    MachineModel {
        name: "speed".into(),
        about: String::new(),
        sources: Vec::new(),
        scale: 1.0,
        scheduler: Default::default(),
        os: Default::default(),
        kinds: vec![kind],
        cores: vec![
            CoreAt {
                kind: 0,
                package: 0,
                numa_node: 0,
            };
            CORES as usize
        ],
        caches: vec![
            level(1, Holds::Instructions, 32, 4, 1000, &cores),
            level(1, Holds::Data, 32, 8, 1000, &cores),
            level(
                2,
                Holds::Both,
                8192,
                16,
                12_000,
                &[(0..CORES * CONTEXTS).collect()],
            ),
        ],
        tlb: Some(TlbModel {
            entries: 256,
            ways: 256,
            page: 4096,
            miss: 20_000,
            private: false,
        }),
        memory: MemoryModel {
            latency: 100_000,
            bandwidth: 20e9,
            link_bandwidth: 0.0,
            distance: Vec::new(),
        },
        energy: None,
    }
}

/// CPU time of this program: other programs on the host do not count.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Random loads and stores of all PUs in turn, in working sets of `bytes` bytes.
fn run(name: &str, bytes: u64, stores: u64, shared: bool) {
    let mut memory = Memory::new(&machine());
    let mut random = Random::new(1);
    let mut counters = Counters::default();
    let pus = CORES * CONTEXTS;
    let begin = cpu_seconds();
    for step in 0..ACCESSES {
        let pu = step % pus;
        let draw = random.next();
        let base = if shared { 0 } else { u64::from(pu) << 32 };
        let address = base + (((draw >> 32) * bytes) >> 32);
        let access = if draw % 100 < stores {
            Access::Store
        } else {
            Access::Load
        };
        let now = u64::from(step / pus) * 1000;
        black_box(memory.access(pu as usize, pu, access, address, now, &mut counters));
    }
    let each = (cpu_seconds() - begin) * 1e9 / f64::from(ACCESSES);
    let share = |misses: u64| misses as f64 * 100.0 / f64::from(ACCESSES);
    println!(
        "{name:<32} {each:5.1} ns; misses {:5.1} % of L1, {:5.1} % of L2, {:4.1} % of the TLB",
        share(counters.data_misses[0]),
        share(counters.data_misses[1]),
        share(counters.tlb_misses),
    );
}

fn main() {
    run("one line", 64, 30, false);
    run("2 KB each", 2 << 10, 30, false);
    run("256 KB each", 256 << 10, 30, false);
    run("4 MB each", 4 << 20, 30, false);
    run("256 KB, read by all", 256 << 10, 0, true);
    run("256 KB, read and written by all", 256 << 10, 30, true);
}
