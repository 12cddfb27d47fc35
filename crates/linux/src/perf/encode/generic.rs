//! The kernel's own names of events (perf-list(1); `perf_hw_id`, `perf_hw_cache_id` and `perf_sw_ids` in `perf_event.h`).

use super::Code;
use perf_event_open_sys::bindings as sys;

/// A hardware event that the kernel translates for each processor, or one of the kernel itself.
#[derive(Debug, Clone, Copy)]
pub struct Generic {
    /// Its names; the first is perf's usual one.
    pub names: &'static [&'static str],
    /// What it counts.
    pub description: &'static str,
    kind: u32,
    config: u32,
}

const fn hardware(
    names: &'static [&'static str],
    config: u32,
    description: &'static str,
) -> Generic {
    let kind = sys::PERF_TYPE_HARDWARE;
    Generic {
        names,
        description,
        kind,
        config,
    }
}

const fn software(
    names: &'static [&'static str],
    config: u32,
    description: &'static str,
) -> Generic {
    let kind = sys::PERF_TYPE_SOFTWARE;
    Generic {
        names,
        description,
        kind,
        config,
    }
}

/// All of them but those of caches.
pub const EVENTS: &[Generic] = &[
    hardware(
        &["cycles", "cpu-cycles"],
        sys::PERF_COUNT_HW_CPU_CYCLES,
        "core cycles, not counted while halted",
    ),
    hardware(
        &["instructions"],
        sys::PERF_COUNT_HW_INSTRUCTIONS,
        "instructions retired",
    ),
    hardware(
        &["cache-references"],
        sys::PERF_COUNT_HW_CACHE_REFERENCES,
        "cache accesses, usually of the last level",
    ),
    hardware(
        &["cache-misses"],
        sys::PERF_COUNT_HW_CACHE_MISSES,
        "cache misses, usually of the last level",
    ),
    hardware(
        &["branches", "branch-instructions"],
        sys::PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
        "branches retired",
    ),
    hardware(
        &["branch-misses"],
        sys::PERF_COUNT_HW_BRANCH_MISSES,
        "branches that were predicted wrongly",
    ),
    hardware(&["bus-cycles"], sys::PERF_COUNT_HW_BUS_CYCLES, "bus cycles"),
    hardware(
        &["stalled-cycles-frontend"],
        sys::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
        "cycles without instructions from the front end",
    ),
    hardware(
        &["stalled-cycles-backend"],
        sys::PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
        "cycles in which the back end took no instructions",
    ),
    hardware(
        &["ref-cycles"],
        sys::PERF_COUNT_HW_REF_CPU_CYCLES,
        "cycles at a constant frequency",
    ),
    software(
        &["cpu-clock"],
        sys::PERF_COUNT_SW_CPU_CLOCK,
        "time of the PU, in nanoseconds",
    ),
    software(
        &["task-clock"],
        sys::PERF_COUNT_SW_TASK_CLOCK,
        "time for which the thread ran, in nanoseconds",
    ),
    software(
        &["page-faults", "faults"],
        sys::PERF_COUNT_SW_PAGE_FAULTS,
        "page faults",
    ),
    software(
        &["minor-faults"],
        sys::PERF_COUNT_SW_PAGE_FAULTS_MIN,
        "page faults without input or output",
    ),
    software(
        &["major-faults"],
        sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
        "page faults that waited for a device",
    ),
    software(
        &["context-switches", "cs"],
        sys::PERF_COUNT_SW_CONTEXT_SWITCHES,
        "context switches",
    ),
    software(
        &["cpu-migrations", "migrations"],
        sys::PERF_COUNT_SW_CPU_MIGRATIONS,
        "moves from one PU to another",
    ),
    software(
        &["alignment-faults"],
        sys::PERF_COUNT_SW_ALIGNMENT_FAULTS,
        "accesses to unaligned memory that trapped",
    ),
    software(
        &["emulation-faults"],
        sys::PERF_COUNT_SW_EMULATION_FAULTS,
        "instructions that the kernel emulated",
    ),
    software(
        &["cgroup-switches"],
        sys::PERF_COUNT_SW_CGROUP_SWITCHES,
        "context switches to a thread of another control group",
    ),
    software(&["dummy"], sys::PERF_COUNT_SW_DUMMY, "nothing"),
];

/// Caches by perf's names.
const CACHES: [(&str, u32); 7] = [
    ("L1-dcache", sys::PERF_COUNT_HW_CACHE_L1D),
    ("L1-icache", sys::PERF_COUNT_HW_CACHE_L1I),
    ("LLC", sys::PERF_COUNT_HW_CACHE_LL),
    ("dTLB", sys::PERF_COUNT_HW_CACHE_DTLB),
    ("iTLB", sys::PERF_COUNT_HW_CACHE_ITLB),
    ("branch", sys::PERF_COUNT_HW_CACHE_BPU),
    ("node", sys::PERF_COUNT_HW_CACHE_NODE),
];

/// What is counted of a cache, by perf's endings: operation and result.
const ACCESSES: [(&str, u32, u32); 6] = [
    (
        "loads",
        sys::PERF_COUNT_HW_CACHE_OP_READ,
        sys::PERF_COUNT_HW_CACHE_RESULT_ACCESS,
    ),
    (
        "load-misses",
        sys::PERF_COUNT_HW_CACHE_OP_READ,
        sys::PERF_COUNT_HW_CACHE_RESULT_MISS,
    ),
    (
        "stores",
        sys::PERF_COUNT_HW_CACHE_OP_WRITE,
        sys::PERF_COUNT_HW_CACHE_RESULT_ACCESS,
    ),
    (
        "store-misses",
        sys::PERF_COUNT_HW_CACHE_OP_WRITE,
        sys::PERF_COUNT_HW_CACHE_RESULT_MISS,
    ),
    (
        "prefetches",
        sys::PERF_COUNT_HW_CACHE_OP_PREFETCH,
        sys::PERF_COUNT_HW_CACHE_RESULT_ACCESS,
    ),
    (
        "prefetch-misses",
        sys::PERF_COUNT_HW_CACHE_OP_PREFETCH,
        sys::PERF_COUNT_HW_CACHE_RESULT_MISS,
    ),
];

/// The code of a generic name.
pub(super) fn code(name: &str) -> Option<Code> {
    let event = EVENTS.iter().find(|event| event.names.contains(&name));
    let (kind, config) = match event {
        Some(event) => (event.kind, event.config),
        None => (sys::PERF_TYPE_HW_CACHE, of_cache(name)?),
    };
    let config = [u64::from(config), 0, 0, 0];
    Some(Code { kind, config })
}

/// `PERF_TYPE_HW_CACHE`: the cache, the operation and the result, a byte each.
fn of_cache(name: &str) -> Option<u32> {
    let (cache, number) = CACHES.iter().find(|(cache, _)| name.starts_with(cache))?;
    let ending = name[cache.len()..].strip_prefix('-')?;
    let (_, operation, result) = ACCESSES.iter().find(|(known, ..)| *known == ending)?;
    Some(number | operation << 8 | result << 16)
}

/// The names of events that are the kernel's own, as it writes them.
pub fn kernel_names() -> Vec<String> {
    let generic = EVENTS.iter().flat_map(|event| event.names);
    generic
        .map(|name| (*name).to_owned())
        .chain(cache_events())
        .collect()
}

/// The names of all events of caches; no processor has all of them.
pub fn cache_events() -> impl Iterator<Item = String> {
    let all = CACHES
        .iter()
        .flat_map(|(cache, _)| ACCESSES.iter().map(move |(access, ..)| (cache, access)));
    all.map(|(cache, access)| format!("{cache}-{access}"))
}
