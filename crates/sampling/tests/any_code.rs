//! Whatever the bytes, estimates end, stay within bounds, and are mixes.

use std::cell::Cell;
use std::time::Duration;

use perch_sampling::{
    Arch, Class, CodeImage, CodeSource, Estimator, InstructionDecoder, Mix, Regs, ThreadMix,
    WindowFinder,
};
use proptest::prelude::*;

const BASE: u64 = 0x1000;

fn arch() -> impl Strategy<Value = Arch> {
    prop_oneof![Just(Arch::X86), Just(Arch::X86_64), Just(Arch::Aarch64)]
}

/// Random bytes, and bytes with many branches, so that windows and graphs are more than a few
/// instructions long.
fn code() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => any::<u8>(),
        1 => prop::sample::select(vec![0x75u8, 0xeb, 0xe8, 0xc3, 0x54, 0x14, 0x94, 0xfe, 0xf0, 0x90, 0x58]),
    ];
    prop::collection::vec(byte, 0..1500)
}

fn is_mix(mix: &Mix) -> bool {
    let total: f64 = Class::ALL.iter().map(|&class| mix.share(class)).sum();
    let unit = |value: f64| (-1e-9..=1.0 + 1e-5).contains(&value);
    (total - 1.0).abs() < 1e-4
        && unit(mix.fp_share())
        && unit(mix.load_share())
        && unit(mix.store_share())
        && unit(mix.divide_share())
        && unit(mix.vector_share())
}

/// Counts the bytes asked for.
struct Counting<'a> {
    image: &'a CodeImage,
    asked: Cell<usize>,
}

impl CodeSource for Counting<'_> {
    fn arch(&self) -> Arch {
        self.image.arch()
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.asked.set(self.asked.get() + buffer.len());
        self.image.read(address, buffer)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_decoder_entry_survives_any_bytes(
        arch in arch(),
        bytes in prop::collection::vec(any::<u8>(), 0..20),
        ip in any::<u64>(),
    ) {
        let mut decoder = InstructionDecoder::new(arch);
        if let Some(decoded) = decoder.decode(&bytes, ip) {
            prop_assert!(usize::from(decoded.len) <= bytes.len());
            prop_assert!(decoded.len > 0);
            prop_assert!(usize::from(decoded.len) <= arch.max_instruction_len());
        }
    }

    #[test]
    fn windows_are_bounded_mixes(arch in arch(), bytes in code(), offset in 0u64..1600, top in any::<bool>()) {
        // At the top of the address space, addresses wrap.
        let base = if top { u64::MAX - bytes.len() as u64 } else { BASE };
        let mut image = CodeImage::new(arch);
        image.add(base, bytes);
        let source = Counting { image: &image, asked: Cell::new(0) };
        let ip = base.wrapping_add(offset);
        if let Some(window) = WindowFinder::new(arch).window(&source, ip) {
            prop_assert!(is_mix(&window.mix));
            prop_assert!(window.span.start <= ip);
        }
        prop_assert!(source.asked.get() <= 512 * 512, "{} bytes", source.asked.get());
    }

    #[test]
    fn estimates_are_mixes_and_repeatable(
        arch in arch(),
        bytes in code(),
        offsets in prop::collection::vec(0u64..1500, 1..120),
        values in prop::collection::vec(any::<u64>(), 33),
    ) {
        let mut image = CodeImage::new(arch);
        image.add(BASE, bytes);
        let regs = Regs::from_mask(arch, arch.sample_regs_mask(), &values);
        let run = || {
            let mut estimator = Estimator::new(arch);
            let mut thread = ThreadMix::default();
            for &offset in &offsets {
                let sample = estimator.sample(&image, BASE + offset, Some(&regs));
                assert_eq!(sample.mix.is_some(), sample.kind.is_some());
                thread.add(&sample);
            }
            estimator.take(&image, &mut thread, Duration::from_secs(1))
        };
        let first = run();
        if let Some(metrics) = &first {
            prop_assert!(is_mix(&metrics.mix));
            prop_assert_eq!(metrics.samples + metrics.undecoded, offsets.len() as u64);
            prop_assert!((0.0..=1.0).contains(&metrics.confidence()));
            prop_assert!((0.0..=1.0).contains(&metrics.fp_half_width()));
            prop_assert!(metrics.memory_stall_share.is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
        prop_assert_eq!(first, run());
    }
}
