//! What both kinds of sampling events have in common.

use crate::perf::record::{Layout, SAMPLE_TYPE};
use perch_sampling::Arch;
use perf_event::{Builder, SampleFlag, events::Software};
use std::fs;

/// The instruction set of this build, which is that of 64-bit programs here.
pub(super) const NATIVE: Arch = if cfg!(target_arch = "aarch64") {
    Arch::Aarch64
} else {
    Arch::X86_64
};

/// What the records look like.
pub(super) fn layout() -> Layout {
    Layout {
        regs: NATIVE.sample_regs_mask(),
        ..Layout::default()
    }
}

/// Bytes of one sample record with all registers.
pub(super) fn sample_bytes() -> usize {
    8 + 8 + 8 + 8 + 8 * layout().regs.count_ones() as usize
}

/// A cpu-clock event at this many samples a second, no more than the kernel allows at all.
pub(super) fn cpu_clock(hz: u32, wake_at: usize) -> Builder<'static> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .sample_frequency(u64::from(allowed_rate(hz)))
        .sample(SampleFlag::from_bits_retain(SAMPLE_TYPE) | SampleFlag::REGS_USER)
        .sample_regs_user(layout().regs)
        .exclude_idle(true)
        .wakeup_watermark(wake_at);
    builder
}

/// Reads what the kernel allows: the wanted rate, or `kernel.perf_event_max_sample_rate` if that is lower.
pub(super) fn allowed_rate(hz: u32) -> u32 {
    fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate")
        .ok()
        .and_then(|text| text.trim().parse::<u32>().ok())
        .map_or(hz, |most| hz.min(most))
        .max(1)
}
