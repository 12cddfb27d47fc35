//! A PMU's `format` files and terms.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (&str, u64)| {
    let (text, value) = input;
    if let Ok(format) = perch_linux::perf::encode::terms::Format::parse(text) {
        let _ = format.place(value, &mut [0; 4]);
    }
});
