//! A recording.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(recording) = perch_engine::recording::Recording::read(bytes, "fuzz.jsonl") {
        for period in recording {
            let _ = period;
        }
    }
});
