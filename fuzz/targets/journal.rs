//! A journal that a killed perch left behind.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = perch_engine::Journal::parse(bytes);
});
