//! Records from the kernel's perf rings.
#![no_main]

use perch_linux::perf::record::{Layout, parse};

libfuzzer_sys::fuzz_target!(|input: (u32, u16, u64, [bool; 3], &[u8])| {
    let (kind, misc, regs, [trailer, windows, raw], body) = input;
    let _ = parse(kind % 32, misc, body, Layout { regs, trailer, windows, raw });
});
