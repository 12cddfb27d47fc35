//! The loops themselves. Each is a function of its own, so that a sampled address says whose it is, and
//! written in assembly, so that no compiler setting changes the mix of instructions.

use std::hint::black_box;
use std::time::Duration;

use super::Role;

/// Rounds in one call: about a millisecond in an emulated guest, so that role changes take effect soon.
const ROUNDS: u64 = 20_000;

/// Does a bit of what the role is, then returns.
///
/// Software emulation on one host thread lets a busy PU run for a tenth of a second before the next one's turn, so that
/// with eight of them whatever else happens in the guest takes most of a second. At a `pause` instruction it goes on to
/// the next PU at once.
pub(super) fn work(role: Role) {
    std::hint::spin_loop();
    match role {
        Role::Fp => floating_point(ROUNDS),
        Role::Int => integer(ROUNDS),
        Role::Idle => std::thread::sleep(Duration::from_millis(50)),
        Role::Switcher => {
            integer(ROUNDS / 100);
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// 8 scalar floating-point instructions of 10; values stay near 1, far from overflow and denormals.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn floating_point(rounds: u64) {
    // SAFETY: only registers named here are touched, no memory and no stack.
    unsafe {
        std::arch::asm!(
            "2:",
            "mulsd {a}, {scale}",
            "mulsd {b}, {scale}",
            "mulsd {c}, {scale}",
            "mulsd {d}, {scale}",
            "addsd {a}, {step}",
            "addsd {b}, {step}",
            "addsd {c}, {step}",
            "addsd {d}, {step}",
            "dec {n}",
            "jnz 2b",
            a = inout(xmm_reg) 1.0_f64 => _,
            b = inout(xmm_reg) 1.1_f64 => _,
            c = inout(xmm_reg) 1.2_f64 => _,
            d = inout(xmm_reg) 1.3_f64 => _,
            scale = in(xmm_reg) black_box(0.75_f64),
            step = in(xmm_reg) black_box(0.25_f64),
            n = inout(reg) rounds => _,
            options(nomem, nostack)
        );
    }
}

/// Integer instructions alone.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn integer(rounds: u64) {
    // SAFETY: only registers named here are touched, no memory and no stack.
    unsafe {
        std::arch::asm!(
            "2:",
            "imul {a}, {odd}",
            "add {b}, {a}",
            "xor {c}, {b}",
            "rol {c}, 13",
            "sub {d}, {c}",
            "shr {d}, 3",
            "xor {a}, {d}",
            "add {a}, 7",
            "dec {n}",
            "jnz 2b",
            a = inout(reg) black_box(1_u64) => _,
            b = inout(reg) 2_u64 => _,
            c = inout(reg) 3_u64 => _,
            d = inout(reg) 4_u64 => _,
            odd = in(reg) black_box(0x9e37_79b9_7f4a_7c15_u64),
            n = inout(reg) rounds => _,
            options(nomem, nostack)
        );
    }
}

/// The same for 64-bit Arm.
#[cfg(target_arch = "aarch64")]
#[inline(never)]
fn floating_point(rounds: u64) {
    // SAFETY: only registers named here are touched, no memory and no stack.
    unsafe {
        std::arch::asm!(
            "2:",
            "fmul {a:d}, {a:d}, {scale:d}",
            "fmul {b:d}, {b:d}, {scale:d}",
            "fmul {c:d}, {c:d}, {scale:d}",
            "fmul {d:d}, {d:d}, {scale:d}",
            "fadd {a:d}, {a:d}, {step:d}",
            "fadd {b:d}, {b:d}, {step:d}",
            "fadd {c:d}, {c:d}, {step:d}",
            "fadd {d:d}, {d:d}, {step:d}",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            a = inout(vreg) 1.0_f64 => _,
            b = inout(vreg) 1.1_f64 => _,
            c = inout(vreg) 1.2_f64 => _,
            d = inout(vreg) 1.3_f64 => _,
            scale = in(vreg) black_box(0.75_f64),
            step = in(vreg) black_box(0.25_f64),
            n = inout(reg) rounds => _,
            options(nomem, nostack)
        );
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(never)]
fn integer(rounds: u64) {
    // SAFETY: only registers named here are touched, no memory and no stack.
    unsafe {
        std::arch::asm!(
            "2:",
            "mul {a}, {a}, {odd}",
            "add {b}, {b}, {a}",
            "eor {c}, {c}, {b}",
            "ror {c}, {c}, #51",
            "sub {d}, {d}, {c}",
            "lsr {d}, {d}, #3",
            "eor {a}, {a}, {d}",
            "add {a}, {a}, #7",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            a = inout(reg) black_box(1_u64) => _,
            b = inout(reg) 2_u64 => _,
            c = inout(reg) 3_u64 => _,
            d = inout(reg) 4_u64 => _,
            odd = in(reg) black_box(0x9e37_79b9_7f4a_7c15_u64),
            n = inout(reg) rounds => _,
            options(nomem, nostack)
        );
    }
}
