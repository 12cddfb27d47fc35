//! Another program's code, as instructions, windows and metrics.
#![no_main]

use perch_sampling::{Arch, CodeImage, Estimator, InstructionDecoder, ThreadMix};
use std::time::Duration;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for arch in [Arch::X86_64, Arch::X86, Arch::Aarch64] {
        let _ = InstructionDecoder::new(arch).decode(bytes, 0x1000);
        let mut image = CodeImage::new(arch);
        image.add(0x1000, bytes);
        let mut estimator = Estimator::new(arch);
        let mut thread = ThreadMix::default();
        for at in (0..bytes.len().min(64) as u64).step_by(4) {
            thread.add(&estimator.sample(&image, 0x1000 + at, None));
        }
        if let Some(metrics) = estimator.take(&image, &mut thread, Duration::from_secs(1)) {
            assert!((0.0..=1.0).contains(&metrics.fp_share()));
        }
    }
});
