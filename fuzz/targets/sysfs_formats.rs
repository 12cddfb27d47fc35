//! A PMU's `format` files, and values put where they say.
#![no_main]

use perch_linux::perf::encode::Bits;

libfuzzer_sys::fuzz_target!(|input: (&str, u64)| {
    let (text, value) = input;
    if let Ok(bits) = Bits::parse(text) {
        let _ = bits.place(value, &mut [0; 4]);
    }
});
