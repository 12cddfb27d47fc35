//! A recorded instruction stream, of perch or ChampSim, packed or not; what is accepted is walked through.
#![no_main]

use perch_trace::{Limits, Summary, champsim, read_from};
use std::sync::Arc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(recording) = read_from(bytes, &Limits { bytes: 1 << 22 }) {
        let recording = Arc::new(recording);
        let summary = Summary::of(&recording);
        assert_eq!(summary.instructions(), recording.threads().iter().map(|t| t.instructions).sum());
        let _ = champsim::write_thread(&recording, 0, &mut std::io::sink());
    }
});
