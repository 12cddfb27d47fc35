//! A recording.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut recording) = perch_engine::Reader::new(bytes, "fuzz.jsonl") {
        while let Ok(Some(_)) = recording.read() {}
    }
});
