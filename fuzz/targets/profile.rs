//! A user's profile file, and formulas and event spellings in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = perch_profile::Profile::parse(text, "fuzz.toml");
    let _ = perch_profile::formula::Formula::parse(text);
    let _ = perch_profile::Spelling::parse(text);
    let _ = perch_profile::CpuIdentity::from_cpuinfo(text);
});
