//! Windows, flow and metrics on small hand-assembled programs.

use std::time::Duration;

use perch_sampling::{
    Arch, Class, CodeImage, CodeSource, Estimator, Regs, SampledMetrics, ThreadMix, WindowFinder,
    WindowKind,
};

const BASE: u64 = 0x40_1000;

fn x86(bytes: &[u8]) -> CodeImage {
    let mut image = CodeImage::new(Arch::X86_64);
    image.add(BASE, bytes);
    image
}

fn aarch64(words: &[u32]) -> CodeImage {
    let mut image = CodeImage::new(Arch::Aarch64);
    image.add(
        BASE,
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<_>>(),
    );
    image
}

/// Metrics of samples at these offsets, each `count` times.
fn metrics(image: &CodeImage, samples: &[(u64, usize)]) -> SampledMetrics {
    let mut estimator = Estimator::new(image.arch());
    let mut thread = ThreadMix::default();
    for &(offset, count) in samples {
        for _ in 0..count {
            thread.add(&estimator.sample(image, BASE + offset, None));
        }
    }
    estimator
        .take(image, &mut thread, Duration::from_secs(1))
        .unwrap()
}

#[test]
fn a_loop_stands_for_its_body_wherever_the_sample_falls() {
    // 0: addsd %xmm1,%xmm0  4: mov (%rax),%rcx  7: dec %ecx  9: jne 0  b: ret
    let image = x86(&[
        0xf2, 0x0f, 0x58, 0xc1, 0x48, 0x8b, 0x08, 0xff, 0xc9, 0x75, 0xf5, 0xc3,
    ]);
    let mut finder = WindowFinder::new(Arch::X86_64);
    for offset in [0, 4, 7, 9] {
        let window = finder.window(&image, BASE + offset).unwrap();
        assert_eq!(window.kind, WindowKind::Loop);
        assert_eq!(window.mix.share(Class::ScalarFp), 0.25);
        assert_eq!(window.mix.load_share(), 0.25);
        assert_eq!(window.span, BASE..BASE + 11);
        // Only the decrement follows the load.
        assert_eq!(window.after_load, Some(offset == 7));
    }
    let after = finder.window(&image, BASE + 11).unwrap();
    assert_eq!(after.kind, WindowKind::Path);
}

#[test]
fn a_loop_on_aarch64() {
    // 0: fadd d0,d1,d2  4: ldr x0,[x1,#16]  8: add x0,x1,#1  c: b.ne 0  10: ret
    let image = aarch64(&[0x1e622820, 0xf9400820, 0x91000420, 0x54ffffa1, 0xd65f03c0]);
    let window = WindowFinder::new(Arch::Aarch64)
        .window(&image, BASE + 8)
        .unwrap();
    assert_eq!(window.kind, WindowKind::Loop);
    assert_eq!(window.mix.share(Class::ScalarFp), 0.25);
    assert_eq!(window.after_load, Some(true));
    let together = metrics(&image, &[(8, 30)]);
    assert!((together.fp_share() - 0.25).abs() < 0.01);
}

#[test]
fn a_repeated_string_instruction_is_one_instruction_that_takes_long() {
    // 0: addsd %xmm1,%xmm0  4: rep movsb  6: addsd %xmm1,%xmm0  a: dec %edx  c: jne 0  e: ret
    let image = x86(&[
        0xf2, 0x0f, 0x58, 0xc1, 0xf3, 0xa4, 0xf2, 0x0f, 0x58, 0xc1, 0xff, 0xca, 0x75, 0xf2, 0xc3,
    ]);
    // Two of five instructions, however long the copy takes.
    for samples in [[(4, 40), (6, 20)], [(4, 200), (6, 20)]] {
        let all = metrics(&image, &samples);
        assert!((all.fp_share() - 0.4).abs() < 0.01, "{}", all.fp_share());
    }
}

#[test]
fn a_branch_that_no_sample_takes_is_left_out() {
    // 0: dec %ecx  2: je c  4: inc %eax  6: inc %ebx  8: jmp 0  (a: nops)
    // c: four addsd  1c: jmp 0
    let mut code = vec![
        0xff, 0xc9, 0x74, 0x08, 0xff, 0xc0, 0xff, 0xc3, 0xeb, 0xf6, 0x90, 0x90,
    ];
    for _ in 0..4 {
        code.extend([0xf2, 0x0f, 0x58, 0xc1]);
    }
    code.extend([0xeb, 0xe2]);
    let image = x86(&code);
    let never = metrics(&image, &[(0, 60), (4, 60), (6, 60)]).fp_share();
    assert!(never < 0.02, "{never}");
    // The other way always, 4 of 7 instructions. The windows, half of the estimate, do not know that: a quarter.
    let always = metrics(&image, &[(0, 40), (0xc, 40), (0x10, 40), (0x14, 40)]).fp_share();
    assert!(((4.0 / 7.0 + 0.25) / 2.0 - always).abs() < 0.05, "{always}");
    let half = metrics(&image, &[(0, 80), (4, 60), (0xc, 50), (0x14, 50)]).fp_share();
    assert!(
        never + 0.05 < half && half < always - 0.05,
        "{never} {half} {always}"
    );
}

#[test]
fn a_called_function_weighs_by_its_calls_and_its_samples() {
    // 0: call 10  5: inc %eax  7: inc %ebx  9: dec %ecx  b: jne 0  d: ret
    // 10: addsd  14: mulsd  18: addsd  1c: ret
    let image = x86(&[
        0xe8, 0x0b, 0, 0, 0, 0xff, 0xc0, 0xff, 0xc3, 0xff, 0xc9, 0x75, 0xf3, 0xc3, 0x90, 0x90,
        0xf2, 0x0f, 0x58, 0xc1, 0xf2, 0x0f, 0x59, 0xc1, 0xf2, 0x0f, 0x58, 0xc1, 0xc3,
    ]);
    // Three of nine instructions, however unevenly the samples fall. The estimate is nearer to that than the shares of
    // the samples in the function, times three of four.
    for (within, without) in [(60, 40), (30, 70)] {
        let all = metrics(&image, &[(0x10, within), (5, without)]);
        let by_samples = 0.75 * within as f64 / 100.0;
        let (share, truth) = (all.fp_share(), 3.0 / 9.0);
        assert!(
            (share - truth).abs() < (by_samples - truth).abs(),
            "{share}, {by_samples}"
        );
        assert!(
            (share - truth).abs() < all.fp_half_width(),
            "{share} ± {}",
            all.fp_half_width()
        );
    }
}

#[test]
fn a_linkage_stub_leads_to_the_function_behind_it() {
    // 0: call 10  5: dec %ecx  7: jne 0  9: ret
    // 10: jmp *0x2000(%rip), the pointer at 0x2016 holding 0x40 + BASE
    // 40: addsd ×3, ret
    let mut code = vec![0xe8, 0x0b, 0, 0, 0, 0xff, 0xc9, 0x75, 0xf7, 0xc3];
    code.resize(0x10, 0x90);
    code.extend([0xff, 0x25, 0x00, 0x20, 0, 0]);
    code.resize(0x40, 0x90);
    code.extend([0xf2, 0x0f, 0x58, 0xc1].repeat(3));
    code.push(0xc3);
    let mut image = x86(&code);
    image.add(BASE + 0x2016, (BASE + 0x40).to_le_bytes());
    // Three of seven instructions (call, three additions, return, decrement, branch).
    let samples = [(5, 70), (0x44, 30)];
    let share = metrics(&image, &samples).fp_share();
    image.add(BASE + 0x2016, [0; 8]);
    let broken = metrics(&image, &samples).fp_share();
    assert!(
        broken + 0.02 < share && share < 3.0 / 7.0 + 0.03,
        "{broken} {share}"
    );
}

#[test]
fn footprint_and_stalls_come_from_registers_and_predecessors() {
    // 0: mov (%rax),%rcx  3: add $0x40,%rax  7: dec %ecx  9: jne 0
    let image = x86(&[
        0x48, 0x8b, 0x08, 0x48, 0x83, 0xc0, 0x40, 0xff, 0xc9, 0x75, 0xf5,
    ]);
    let mut estimator = Estimator::new(Arch::X86_64);
    let mut thread = ThreadMix::default();
    let mask = Arch::X86_64.sample_regs_mask();
    let mut state = 1u64;
    for _ in 0..1000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut values = [0u64; 17];
        values[0] = 0x7000_0000 + (state >> 40) % 8_192 * 64;
        let regs = Regs::from_mask(Arch::X86_64, mask, &values);
        thread.add(&estimator.sample(&image, BASE + 3, Some(&regs)));
    }
    let metrics = estimator
        .take(&image, &mut thread, Duration::from_secs(1))
        .unwrap();
    assert_eq!(metrics.memory_stall_share, Some(1.0));
    let bytes = metrics.footprint_bytes.unwrap();
    assert!((0.6..1.6).contains(&(bytes / 524_288.0)), "{bytes}");
    assert!(metrics.memory_intensity(128 << 10).unwrap() > 0.5);
    assert_eq!(metrics.memory_intensity(1 << 20), Some(0.0));
}

#[test]
fn rewritten_code_is_seen_after_invalidation_only() {
    let before = x86(&[0xff, 0xc0, 0xff, 0xc9, 0x75, 0xfa, 0xc3]);
    let after = x86(&[0xf2, 0x0f, 0x58, 0xc1, 0xff, 0xc9, 0x75, 0xf8, 0xc3]);
    let mut estimator = Estimator::new(Arch::X86_64);
    let share = |estimator: &mut Estimator, image: &CodeImage| {
        estimator.sample(image, BASE, None).mix.unwrap().fp_share()
    };
    assert_eq!(share(&mut estimator, &before), 0.0);
    assert_eq!(share(&mut estimator, &after), 0.0);
    estimator.invalidate(BASE + 2..BASE + 3);
    assert!(share(&mut estimator, &after) > 0.3);
    assert_eq!(estimator.known_addresses(), 1);
}

#[test]
fn unreadable_code_counts_as_undecoded() {
    let image = x86(&[0xff, 0xc0]);
    let mut estimator = Estimator::new(Arch::X86_64);
    let mut thread = ThreadMix::default();
    thread.add(&estimator.sample(&image, 0xdead_0000, None));
    assert_eq!(thread.samples(), 1);
    assert!(
        estimator
            .take(&image, &mut thread, Duration::from_secs(1))
            .is_none()
    );
    thread.add(&estimator.sample(&image, BASE, None));
    let metrics = estimator
        .take(&image, &mut thread, Duration::from_secs(1))
        .unwrap();
    assert_eq!((metrics.samples, metrics.undecoded), (1, 1));
    assert_eq!(thread.samples(), 0);
}

#[test]
fn estimators_may_move_between_threads() {
    let image = x86(&[0xff, 0xc0, 0xff, 0xc9, 0x75, 0xfa, 0xc3]);
    let mut estimator = Estimator::new(Arch::X86_64);
    let handle = std::thread::spawn(move || estimator.sample(&image, BASE, None).kind);
    assert_eq!(handle.join().unwrap(), Some(WindowKind::Loop));
}

/// A loop of floating-point work on which all samples fall. It calls a function whose own loop never comes round, and whose
/// end is far: the walk cannot tell and is caught there.
fn drained() -> (CodeImage, Vec<(u64, usize)>) {
    // 0: twenty additions  50: call 80  55: dec %ecx  57: jne 0  59: ret
    let mut code = [0xf2, 0x0f, 0x58, 0xc1].repeat(20);
    code.extend([0xe8, 0x2b, 0, 0, 0, 0xff, 0xc9, 0x75, 0xa7, 0xc3]);
    code.resize(0x80, 0x90);
    // 80: inc %eax ×30, dec %edx, jne 80; inc %ebx ×60; ret
    code.extend([0xff, 0xc0].repeat(30));
    code.extend([0xff, 0xca, 0x75, 0xc0]);
    code.extend([0xff, 0xc3].repeat(60));
    code.push(0xc3);
    (x86(&code), (0..20).map(|at| (4 * at, 12)).collect())
}

#[test]
fn a_walk_into_code_without_samples_does_not_outweigh_the_samples() {
    let (image, samples) = drained();
    let metrics = metrics(&image, &samples);
    // The windows say 20 of 23; a walk that stays in the function says next to nothing.
    assert!(metrics.fp_share() > 0.5, "{}", metrics.fp_share());
    let (half_width, error) = (metrics.fp_half_width(), 20.0 / 23.0 - metrics.fp_share());
    assert!(half_width >= error, "{error} off, ± {half_width}");
}

#[test]
fn the_same_samples_in_every_period_say_the_same() {
    let (image, samples) = drained();
    for period in [Duration::from_millis(100), Duration::from_secs(1)] {
        let mut estimator = Estimator::new(Arch::X86_64);
        let mut thread = ThreadMix::default();
        let mut shares = Vec::new();
        for _ in 0..6 {
            for &(offset, count) in &samples {
                for _ in 0..count {
                    thread.add(&estimator.sample(&image, BASE + offset, None));
                }
            }
            let metrics = estimator.take(&image, &mut thread, period).unwrap();
            shares.push(metrics.fp_share());
        }
        for pair in shares.windows(2) {
            assert!(
                pair[0].max(pair[1]) < 1.5 * pair[0].min(pair[1]),
                "{shares:?}"
            );
        }
    }
}

#[test]
fn what_fades_does_so_by_time() {
    // The branch of the first period is no longer taken: how soon that shows does not depend on the period's length.
    let image = x86(&[
        0xff, 0xc9, 0x74, 0x08, 0xff, 0xc0, 0xff, 0xc3, 0xeb, 0xf6, 0x90, 0x90, 0xf2, 0x0f, 0x58,
        0xc1, 0xf2, 0x0f, 0x58, 0xc1, 0xeb, 0xea,
    ]);
    let after = |period: Duration| {
        let mut estimator = Estimator::new(Arch::X86_64);
        let mut thread = ThreadMix::default();
        let mut take = |offsets: [u64; 2], period| {
            for offset in offsets.repeat(30) {
                thread.add(&estimator.sample(&image, BASE + offset, None));
            }
            estimator
                .take(&image, &mut thread, period)
                .unwrap()
                .fp_share()
        };
        take([0, 0xc], period);
        take([0, 4], period)
    };
    let (short, long) = (
        after(Duration::from_millis(10)),
        after(Duration::from_secs(60)),
    );
    assert!(long < short, "{long} after a minute, {short} at once");
}

#[test]
fn agreement_makes_sure_and_windows_alone_less_so() {
    let image = x86(&[0xf2, 0x0f, 0x58, 0xc1, 0xff, 0xc9, 0x75, 0xf8, 0xc3]);
    let mut estimator = Estimator::new(Arch::X86_64);
    let mut filled = || {
        let mut thread = ThreadMix::default();
        for _ in 0..250 {
            thread.add(&estimator.sample(&image, BASE, None));
        }
        thread
    };
    let (mut one, mut other) = (filled(), filled());
    let second = Duration::from_secs(1);
    let together = estimator.take(&image, &mut one, second).unwrap();
    let apart = estimator.take_apart(&mut other, second).unwrap();
    assert!(together.confidence() > 0.75, "{}", together.confidence());
    assert!(together.fp_share_error() > together.fp.standard_error());
    assert!(apart.fp_share_error() > together.fp_share_error());
}
