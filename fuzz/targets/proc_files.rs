//! /proc/PID/stat, status, schedstat; /proc/stat.
#![no_main]

use perch_linux::proc::{parse_migrations, parse_pu_ticks, parse_schedstat, parse_stat, parse_status};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = parse_stat(bytes);
    let _ = parse_status(bytes);
    let _ = parse_schedstat(bytes);
    let _ = parse_migrations(bytes);
    let _ = parse_pu_ticks(bytes);
});
