//! Small machines.

use perch_sim::{
    model::{
        CacheLevel, CoreAt, CoreKind, Holds, Latency, MachineModel, MemoryModel, Multithreading,
        Op, TlbModel, UnitPool,
    },
    units::NANOSECOND,
};

/// Bytes of a line.
pub const LINE: u64 = 64;

/// A level of caches of `lines` lines.
pub fn level(level: u8, holds: Holds, lines: u64, ways: u32, shared_by: &[&[u32]]) -> CacheLevel {
    CacheLevel {
        level,
        holds,
        size: lines * LINE,
        ways,
        line: LINE as u32,
        latency: [1, 7, 31][usize::from(level) - 1] * NANOSECOND,
        shared_by: shared_by.iter().map(|pus| pus.to_vec()).collect(),
        prefetchers: Vec::new(),
        victim: false,
        line_transfer: 0,
        write_through: None,
    }
}

/// A machine whose cores have `contexts` PUs and are in these NUMA nodes; memory takes 100 ns without a queue.
pub fn machine(nodes: &[u32], contexts: u32, caches: Vec<CacheLevel>) -> MachineModel {
    let kind = CoreKind {
        name: "plain".into(),
        cycle: 500,
        clocks: Vec::new(),
        dmips_per_mhz: None,
        contexts,
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
    let core = |node: &u32| CoreAt {
        kind: 0,
        package: *node,
        numa_node: *node,
    };
    MachineModel {
        name: "test".into(),
        about: String::new(),
        sources: Vec::new(),
        scale: 1.0,
        scheduler: Default::default(),
        os: Default::default(),
        kinds: vec![kind],
        cores: nodes.iter().map(core).collect(),
        caches,
        tlb: None,
        memory: MemoryModel {
            latency: 100 * NANOSECOND,
            bandwidth: f64::INFINITY,
            link_bandwidth: 0.0,
            distance: vec![vec![1.0, 1.5], vec![1.5, 1.0]],
        },
        energy: None,
    }
}

/// Two cores with two contexts each, first levels of their own and a common second level.
pub fn pair() -> MachineModel {
    let cores: [&[u32]; 2] = [&[0, 1], &[2, 3]];
    let caches = vec![
        level(1, Holds::Instructions, 8, 2, &cores),
        level(1, Holds::Data, 8, 2, &cores),
        level(2, Holds::Both, 32, 4, &[&[0, 1, 2, 3]]),
    ];
    machine(&[0, 0], 2, caches)
}

/// Two packages of two cores, two levels of each core's own, a third of each package's.
pub fn packages() -> MachineModel {
    let cores: [&[u32]; 4] = [&[0], &[1], &[2], &[3]];
    let caches = vec![
        level(1, Holds::Instructions, 4, 2, &cores),
        level(1, Holds::Data, 4, 1, &cores),
        level(2, Holds::Both, 12, 4, &cores),
        level(3, Holds::Both, 30, 5, &[&[0, 1], &[2, 3]]),
    ];
    machine(&[0, 0, 1, 1], 1, caches)
}

/// Two modules of two cores: the first level of instructions and the second level belong to the module, the third to
/// all, as with AMD's Bulldozer. The third does not divide evenly.
pub fn modules() -> MachineModel {
    let modules: [&[u32]; 2] = [&[0, 1], &[2, 3]];
    let caches = vec![
        level(1, Holds::Instructions, 6, 2, &modules),
        level(1, Holds::Data, 4, 4, &[&[0], &[1], &[2], &[3]]),
        level(2, Holds::Both, 16, 4, &modules),
        level(3, Holds::Both, 50, 16, &[&[0, 1, 2, 3]]),
    ];
    machine(&[0, 0, 0, 0], 1, caches)
}

/// Three cores; the first has no first level, the second none for instructions, the third no second level.
pub fn uneven() -> MachineModel {
    let caches = vec![
        level(1, Holds::Instructions, 4, 2, &[&[2]]),
        level(1, Holds::Data, 4, 2, &[&[1], &[2]]),
        level(2, Holds::Both, 8, 2, &[&[0, 1]]),
        level(3, Holds::Both, 24, 3, &[&[0, 1, 2]]),
    ];
    machine(&[0, 0, 0], 1, caches)
}

/// A TLB of eight pages.
pub fn tlb(private: bool) -> TlbModel {
    TlbModel {
        entries: 8,
        ways: 4,
        page: 4096,
        miss: 20 * NANOSECOND,
        private,
    }
}
