//! A calibration file, and the policies that are given it.
#![no_main]

use perch_policy::{Calibration, Masa, MasaConfig, Symbiosis, SymbiosisConfig};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(calibration) = Calibration::parse(text, "fuzz.toml") {
        let _ = Masa::with_calibration(MasaConfig::default(), &calibration);
        let _ = Symbiosis::with_calibration(SymbiosisConfig::default(), calibration);
    }
});
