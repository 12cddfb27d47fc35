//! The events that a simulated machine counts, under the spellings `sim::NAME`.

use crate::{
    counters::Counters,
    energy::Energy,
    model::{MachineModel, Op, Queue},
};

/// What a thread did in a period.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deed {
    /// Cycles of its cores while it was on them.
    pub cycles: u64,
    /// What its contexts counted.
    pub counters: Counters,
    /// Nanojoules that it took: up to the beginning of the period, and up to its end.
    pub energy: (Energy, Energy),
    /// The same of what counts for a PU but for no thread.
    pub rest: (Energy, Energy),
    /// Bytes of the last level of caches that it had brought in and that were still there at the end.
    pub occupancy: u64,
    /// Bytes of distinct lines that it touched.
    pub footprint: u64,
}

/// Reads an event.
pub type Reader = fn(&Deed) -> u64;

/// How an event is read.
#[derive(Debug, Clone, Copy)]
pub enum Read {
    /// By this.
    By(Reader),
    /// As the entry-cycles of the queue of this number.
    Queue(u8),
}

impl Read {
    /// What was counted.
    pub fn of(self, deed: &Deed) -> u64 {
        match self {
            Self::By(read) => read(deed),
            Self::Queue(number) => deed.counters.queue_entry_cycles[usize::from(number)],
        }
    }
}

/// Every event: its name, what it counts, and where that is read.
pub const EVENTS: [(&str, &str, Reader); 37] = [
    (
        "CYCLES",
        "cycles of the core while the thread was on it",
        |d| d.cycles,
    ),
    ("INSTRUCTIONS", "instructions", |d| {
        d.counters.instructions()
    }),
    (
        "FP_INSTRUCTIONS",
        "floating-point and SIMD instructions",
        |d| d.counters.ops[Op::Fp as usize] + d.counters.ops[Op::FpDivide as usize],
    ),
    ("DIVIDES", "divisions and square roots", |d| {
        d.counters.ops[Op::Divide as usize] + d.counters.ops[Op::FpDivide as usize]
    }),
    ("LOADS", "instructions that read memory", |d| {
        d.counters.ops[Op::Load as usize]
    }),
    ("STORES", "instructions that write memory", |d| {
        d.counters.ops[Op::Store as usize]
    }),
    ("BRANCHES", "branches", |d| {
        d.counters.ops[Op::Branch as usize]
    }),
    ("BRANCH_MISSES", "branches predicted wrongly", |d| {
        d.counters.mispredicted
    }),
    ("L1I_MISSES", "fetches that missed L1", |d| {
        d.counters.fetch_misses[0]
    }),
    ("L2I_MISSES", "fetches that missed L2", |d| {
        d.counters.fetch_misses[1]
    }),
    ("L3I_MISSES", "fetches that missed L3", |d| {
        d.counters.fetch_misses[2]
    }),
    ("L1D_MISSES", "loads and stores that missed L1", |d| {
        d.counters.data_misses[0]
    }),
    (
        "L2_MISSES",
        "fetches, loads and stores that missed L2",
        |d| d.counters.fetch_misses[1] + d.counters.data_misses[1],
    ),
    (
        "L3_MISSES",
        "fetches, loads and stores that missed L3",
        |d| d.counters.fetch_misses[2] + d.counters.data_misses[2],
    ),
    (
        "TLB_MISSES",
        "loads and stores whose page was not in the TLB",
        |d| d.counters.tlb_misses,
    ),
    (
        "COHERENCE_MISSES",
        "lines that another core had written",
        |d| d.counters.coherence_misses,
    ),
    ("BUS_TRANSACTIONS", "lines moved to or from memory", |d| {
        d.counters.bus_transactions
    }),
    ("PREFETCHES", "lines that prefetchers brought", |d| {
        d.counters.prefetches
    }),
    (
        "MEMORY_CYCLES",
        "cycles of loads beyond the first level, each load by itself",
        |d| d.counters.memory_cycles,
    ),
    (
        "ENERGY_NJ",
        "energy in nanojoules, of its instructions and accesses and its share of its cores' power",
        |d| whole(&d.energy, Energy::total),
    ),
    (
        "ENERGY_ISSUE_NJ",
        "of this energy, that of instructions on their way through the core, without units and caches",
        |d| whole(&d.energy, |energy| energy.issue),
    ),
    ("ENERGY_UNITS_NJ", "of this energy, that of units", |d| {
        whole(&d.energy, |energy| energy.units)
    }),
    (
        "ENERGY_CACHES_NJ",
        "of this energy, that of looks into caches",
        |d| whole(&d.energy, |energy| energy.caches.iter().sum()),
    ),
    (
        "ENERGY_MEMORY_NJ",
        "of this energy, that of lines moved to or from memory",
        |d| whole(&d.energy, |energy| energy.transfers),
    ),
    (
        "ENERGY_CORES_NJ",
        "of this energy, the share of the power of cores",
        |d| whole(&d.energy, |energy| energy.cores),
    ),
    (
        "ENERGY_IDLE_NJ",
        "energy of a PU's core while that has no thread, the PU's part",
        |d| whole(&d.rest, |rest| rest.cores),
    ),
    (
        "ENERGY_BACKGROUND_NJ",
        "energy of memory whatever is moved, a PU's part of its node's",
        |d| whole(&d.rest, |rest| rest.background),
    ),
    (
        "ENERGY_UNCORE_NJ",
        "energy of a package besides its cores, a PU's part",
        |d| whole(&d.rest, |rest| rest.uncore),
    ),
    (
        "ENERGY_BASE_NJ",
        "energy of everything else, a PU's part",
        |d| whole(&d.rest, |rest| rest.base),
    ),
    (
        LLC_OCCUPANCY,
        "bytes in the last level of caches at the end of the period: no count, but what is there",
        |d| d.occupancy,
    ),
    (
        FOOTPRINT,
        "bytes of distinct lines that it is expected to have touched in the period; of recordings 0",
        |d| d.footprint,
    ),
    (
        "STALL_CYCLES",
        "cycles in which the thread was on a context and issued nothing",
        |d| d.counters.stall_cycles,
    ),
    (
        "MEMORY_STALL_CYCLES",
        "of these, with a load or a fetch under way that missed L1",
        |d| d.counters.memory_stall_cycles,
    ),
    (
        "CONTENTION_CYCLES",
        "of these, for a slot or a unit that was not free",
        |d| d.counters.contention_cycles,
    ),
    (
        "FP_EMPTY_CYCLES",
        "cycles of the thread with nothing in the core's floating-point units",
        |d| d.counters.fp_empty_cycles,
    ),
    (
        FP_SCHEDULER_EMPTY,
        "cycles of the thread in which no floating-point instruction waited in a scheduler of the core",
        |d| d.counters.fp_scheduler_empty_cycles,
    ),
    (
        QUEUE_ENTRIES,
        "cycles of the thread times the entries that it held; of one queue with its name behind a dot",
        |d| d.counters.queue_entry_cycles.iter().sum(),
    ),
];

/// The energy, which only a machine counts whose file says what its parts take; its parts' names begin like it.
pub const ENERGY: &str = "ENERGY_";

/// Energy that counts for PUs only.
pub const REST: [&str; 4] = [
    "ENERGY_IDLE_NJ",
    "ENERGY_BACKGROUND_NJ",
    "ENERGY_UNCORE_NJ",
    "ENERGY_BASE_NJ",
];

/// Nanojoules of a period, so that the sum of periods is that of all.
fn whole(energy: &(Energy, Energy), part: impl Fn(&Energy) -> f64) -> u64 {
    (part(&energy.1) as u64).saturating_sub(part(&energy.0) as u64)
}

/// Cycles with an empty floating-point scheduler, which are counted only if the machine has one.
pub const FP_SCHEDULER_EMPTY: &str = "FP_SCHEDULER_EMPTY_CYCLES";

/// The occupancy of queues, of which there may be none.
pub const QUEUE_ENTRIES: &str = "QUEUE_ENTRY_CYCLES";

/// Bytes touched, which are known of threads only.
pub const FOOTPRINT: &str = "FOOTPRINT";

/// The cache occupancy, for which all lines are looked at.
pub const LLC_OCCUPANCY: &str = "LLC_OCCUPANCY";

/// How an event is read of a machine.
pub fn find(spelling: &str, machine: &MachineModel) -> Option<Read> {
    let name = spelling.strip_prefix("sim::")?;
    if let Some((event, queue)) = name.split_once('.') {
        let known = queues(machine).find(|known| known.name == queue);
        let known = known.filter(|_| event.eq_ignore_ascii_case(QUEUE_ENTRIES));
        return known.map(|queue| Read::Queue(queue.number));
    }
    EVENTS
        .iter()
        .find(|(known, ..)| known.eq_ignore_ascii_case(name))
        .map(|(_, _, read)| Read::By(*read))
}

/// All queues of all kinds of cores.
fn queues(machine: &MachineModel) -> impl Iterator<Item = &Queue> {
    machine.kinds.iter().flat_map(|kind| &kind.queues)
}

/// Whether a machine has what this event counts: what is not there is not counted, rather than nothing.
pub(crate) fn is_counted(spellings: &[String], machine: &MachineModel) -> bool {
    let is = |name| names(spellings, name);
    match () {
        () if names_energy(spellings) => machine.energy.is_some(),
        () if is(FP_SCHEDULER_EMPTY) => queues(machine).any(Queue::is_fp_scheduler),
        () if is(QUEUE_ENTRIES) => queues(machine).next().is_some(),
        () => true,
    }
}

/// Whether one of these spellings is the event of this name.
pub(crate) fn names(spellings: &[String], name: &str) -> bool {
    let mut names = spellings.iter().filter_map(|s| s.strip_prefix("sim::"));
    names.any(|spelled| spelled.eq_ignore_ascii_case(name))
}

/// Whether one of these spellings is an event of energy.
fn names_energy(spellings: &[String]) -> bool {
    let mut names = spellings.iter().filter_map(|s| s.strip_prefix("sim::"));
    names.any(|name| {
        name.get(..ENERGY.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(ENERGY))
    })
}

/// The event that was perhaps meant.
pub fn suggest(spelling: &str, machine: &MachineModel) -> Option<String> {
    let name = spelling.strip_prefix("sim::").unwrap_or(spelling);
    let of_queues = queues(machine).map(|queue| format!("{QUEUE_ENTRIES}.{}", queue.name));
    let plain = EVENTS.iter().map(|(known, ..)| (*known).to_owned());
    let known: Vec<String> = plain.chain(of_queues).collect();
    perch_core::diagnostic::nearest(name, known.iter().map(String::as_str)).map(str::to_owned)
}
