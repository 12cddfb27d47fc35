//! What programs that are modules say.
#![no_main]

libfuzzer_sys::fuzz_target!(|line: &str| {
    perch_linux::modules::is_answer(line);
});
