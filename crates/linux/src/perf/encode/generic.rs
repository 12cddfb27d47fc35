//! The kernel's own names of events (perf-list(1), `perf_hw_id` and `perf_sw_ids` in `perf_event.h`).

use super::Code;
use perf_event_open_sys::bindings as sys;

/// The code of a generic name.
pub(super) fn code(name: &str) -> Option<Code> {
    let hardware = |config| (sys::PERF_TYPE_HARDWARE, config);
    let software = |config| (sys::PERF_TYPE_SOFTWARE, config);
    let (kind, config) = match name {
        "cycles" | "cpu-cycles" => hardware(sys::PERF_COUNT_HW_CPU_CYCLES),
        "instructions" => hardware(sys::PERF_COUNT_HW_INSTRUCTIONS),
        "cache-references" => hardware(sys::PERF_COUNT_HW_CACHE_REFERENCES),
        "cache-misses" => hardware(sys::PERF_COUNT_HW_CACHE_MISSES),
        "branches" | "branch-instructions" => hardware(sys::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
        "branch-misses" => hardware(sys::PERF_COUNT_HW_BRANCH_MISSES),
        "bus-cycles" => hardware(sys::PERF_COUNT_HW_BUS_CYCLES),
        "stalled-cycles-frontend" => hardware(sys::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND),
        "stalled-cycles-backend" => hardware(sys::PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
        "ref-cycles" => hardware(sys::PERF_COUNT_HW_REF_CPU_CYCLES),
        "cpu-clock" => software(sys::PERF_COUNT_SW_CPU_CLOCK),
        "task-clock" => software(sys::PERF_COUNT_SW_TASK_CLOCK),
        "page-faults" | "faults" => software(sys::PERF_COUNT_SW_PAGE_FAULTS),
        "minor-faults" => software(sys::PERF_COUNT_SW_PAGE_FAULTS_MIN),
        "major-faults" => software(sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
        "context-switches" | "cs" => software(sys::PERF_COUNT_SW_CONTEXT_SWITCHES),
        "cpu-migrations" | "migrations" => software(sys::PERF_COUNT_SW_CPU_MIGRATIONS),
        "alignment-faults" => software(sys::PERF_COUNT_SW_ALIGNMENT_FAULTS),
        "emulation-faults" => software(sys::PERF_COUNT_SW_EMULATION_FAULTS),
        "dummy" => software(sys::PERF_COUNT_SW_DUMMY),
        _ => return None,
    };
    let config = [u64::from(config), 0, 0, 0];
    Some(Code { kind, config })
}
