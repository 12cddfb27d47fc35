//! This simulator's side.

use crate::streams::{Kind, MIXED, mix};
use perch_sim::{
    config,
    core::{Core, Supply},
    counters::Counters,
    memory::Memory,
    model::{CoreAt, Holds, MachineModel, Multithreading},
    os::SchedulerModel,
    stream::{Instruction, MixStream},
    system::System,
    units::{NANOSECOND, Ps},
    workload::{ProgramModel, Step, ThreadModel, WorkloadModel},
};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;

/// Seconds that this thread has had a CPU.
fn seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn shipped(name: &str) -> MachineModel {
    config::find_machine(name).expect("a shipped machine")
}

/// The four cores of four contexts with a number of threads.
pub struct Growth {
    system: System,
}

impl Growth {
    /// Time of the machine in a run.
    const SPAN: Ps = 300_000 * NANOSECOND;

    pub fn new(threads: u32, bytes: u64) -> Self {
        let workload = WorkloadModel {
            name: "growth".into(),
            about: "endless threads of one mix".into(),
            sources: Vec::new(),
            devices: Vec::new(),
            mixes: vec![mix(MIXED, bytes, 1)],
            programs: vec![ProgramModel {
                name: "growth".into(),
                count: 1,
                start: 0,
                restart: false,
                system: false,
                requests: None,
                threads: vec![ThreadModel {
                    name: "t".into(),
                    count: threads,
                    steps: vec![Step::Compute {
                        mix: 0,
                        instructions: u64::MAX,
                    }],
                    repeat: 1,
                    nice: 0,
                    pus: Vec::new(),
                }],
            }],
        };
        let scheduler = SchedulerModel::default();
        let machine = Arc::new(shipped("cmt-4x4"));
        let mut system = System::new(machine, Arc::new(workload), scheduler, 1);
        // Caches are warm then.
        system.run(2 * Self::SPAN).expect("no deadlock");
        Self { system }
    }

    fn done(&self) -> u64 {
        let threads = self.system.threads().iter();
        threads.map(|thread| thread.counters.instructions()).sum()
    }

    /// Misses of the simulated level 1 and level 2 in a thousand instructions so far: the same in each run of the bench.
    pub fn misses(&self) -> [f64; 2] {
        let threads = self.system.threads().iter();
        let of_level = |level: usize| {
            let missed =
                |counters: &Counters| counters.fetch_misses[level] + counters.data_misses[level];
            threads
                .clone()
                .map(|thread| missed(&thread.counters))
                .sum::<u64>()
        };
        [0, 1].map(|level| of_level(level) as f64 * 1e3 / self.done() as f64)
    }

    /// Runs on, and says what an instruction took.
    pub fn nanoseconds(&mut self) -> f64 {
        let (before, begun) = (self.done(), seconds());
        let until = self.system.now() + Self::SPAN;
        self.system.run(until).expect("no deadlock");
        (seconds() - begun) * 1e9 / (self.done() - before) as f64
    }
}

/// One core of ChampSim's default configuration, as far as a machine's file can say it.
fn one_core() -> MachineModel {
    let mut machine = shipped("smt2-zen");
    let kind = &mut machine.kinds[0];
    kind.cycle = 250;
    kind.contexts = 1;
    kind.multithreading = Multithreading::Simultaneous;
    kind.width = 4;
    kind.window = 352;
    kind.window_shared = false;
    machine.cores = vec![CoreAt {
        kind: 0,
        package: 0,
        numa_node: 0,
    }];
    for cache in &mut machine.caches {
        let cycles;
        (cache.size, cache.ways, cycles) = match (cache.level, cache.holds) {
            (1, Holds::Instructions) => (32 << 10, 8, 0),
            (1, _) => (48 << 10, 12, 0),
            (2, _) => (512 << 10, 8, 10),
            _ => (2 << 20, 16, 20),
        };
        cache.latency = cycles * kind.cycle;
        cache.shared_by = vec![vec![0]];
    }
    machine
}

struct Stream(MixStream);

impl Supply for Stream {
    fn fill(&mut self, _: u32, into: &mut [Instruction]) -> usize {
        into.fill_with(|| self.0.next());
        into.len()
    }

    fn give_back(&mut self, _: u32, _: &[Instruction]) {}
}

/// Instructions a second of one CPU.
pub fn rate(kind: &Kind) -> f64 {
    let machine = one_core();
    let mut memory = Memory::new(&machine);
    let mut core = Core::new(0, &machine.kinds[0]);
    let mut stream = Stream(kind.stream());
    let begun = seconds();
    core.assign(0, Some(0), 0, &mut stream, &mut memory);
    let (mut now, mut done) = (0, 0);
    while done < kind.ours {
        now += 10_000 * NANOSECOND;
        core.run(now, &mut stream, &mut memory, |_| ());
        done += core.take_counters(0).instructions();
    }
    done as f64 / (seconds() - begun)
}
