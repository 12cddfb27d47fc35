//! /proc/PID/stat, status, schedstat.
#![no_main]

use perch_linux::proc::{parse_migrations, parse_schedstat, parse_stat, parse_status};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = parse_stat(bytes);
    let _ = parse_status(bytes);
    let _ = parse_schedstat(bytes);
    let _ = parse_migrations(bytes);
});
