//! Windows, flow and metrics on small hand-assembled programs.

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
    estimator.take(image, &mut thread).unwrap()
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
fn a_repeated_string_instruction_stands_for_itself() {
    // addsd %xmm1,%xmm0; rep movsb; addsd %xmm1,%xmm0; ret
    let image = x86(&[
        0xf2, 0x0f, 0x58, 0xc1, 0xf3, 0xa4, 0xf2, 0x0f, 0x58, 0xc1, 0xc3,
    ]);
    let all = metrics(&image, &[(4, 40)]);
    assert_eq!(all.mix.share(Class::Other), 1.0);
    assert_eq!(all.fp_share(), 0.0);
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
    // The other way taken as often by samples per instruction: 4 of 7 instructions each time.
    let always = metrics(&image, &[(0, 40), (0xc, 40), (0x10, 40), (0x14, 40)]).fp_share();
    assert!((always - 4.0 / 7.0).abs() < 0.05, "{always}");
    let half = metrics(&image, &[(0, 80), (4, 60), (0xc, 50), (0x14, 50)]).fp_share();
    assert!(
        never + 0.1 < half && half < always - 0.1,
        "{never} {half} {always}"
    );
}

#[test]
fn a_called_function_weighs_as_often_as_it_is_called() {
    // 0: call 10  5: inc %eax  7: inc %ebx  9: dec %ecx  b: jne 0  d: ret
    // 10: addsd  14: mulsd  18: addsd  1c: ret
    let image = x86(&[
        0xe8, 0x0b, 0, 0, 0, 0xff, 0xc0, 0xff, 0xc3, 0xff, 0xc9, 0x75, 0xf3, 0xc3, 0x90, 0x90,
        0xf2, 0x0f, 0x58, 0xc1, 0xf2, 0x0f, 0x59, 0xc1, 0xf2, 0x0f, 0x58, 0xc1, 0xc3,
    ]);
    // Three of nine instructions, however unevenly the samples fall: the function stalls.
    for samples in [[(0x18, 90), (5, 10)], [(0x18, 20), (5, 80)]] {
        let share = metrics(&image, &samples).fp_share();
        assert!((share - 3.0 / 9.0).abs() < 0.03, "{share}");
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
    let share = metrics(&image, &[(5, 70), (0x44, 30)]).fp_share();
    assert!((share - 3.0 / 7.0).abs() < 0.03, "{share}");
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
    let metrics = estimator.take(&image, &mut thread).unwrap();
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
    assert!(estimator.take(&image, &mut thread).is_none());
    thread.add(&estimator.sample(&image, BASE, None));
    let metrics = estimator.take(&image, &mut thread).unwrap();
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
