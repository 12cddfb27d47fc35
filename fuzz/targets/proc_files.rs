//! /proc/PID/stat, status, schedstat.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = perch_linux::proc::parse::parse_stat(bytes);
    let _ = perch_linux::proc::parse::parse_status(bytes);
    let _ = perch_linux::proc::parse::parse_schedstat(bytes);
});
