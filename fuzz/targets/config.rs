//! The configuration file and times in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = perch::config::ConfigFile::parse(text, std::path::Path::new("config.toml"));
    let _ = perch::args::parse_period(text);
});
