//! Values that the compiler must compute one by one, in registers.

use std::hint::black_box;

/// The same number, of which the compiler does not know that: it cannot be computed ahead, left out, or put into a vector
/// with others; and since that is something to be done, nothing around it becomes a conditional move.
#[inline(always)]
pub fn keep(x: u64) -> u64 {
    #[cfg(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64"
    ))]
    {
        let mut x = x;
        // SAFETY: no instruction; it only claims to change a register.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) x, options(nomem, nostack, preserves_flags))
        };
        x
    }
    #[cfg(not(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64"
    )))]
    black_box(x)
}

/// The same for a floating-point number.
#[inline(always)]
pub fn keep_float(x: f64) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut x = x;
        // SAFETY: no instruction; it only claims to change a register.
        unsafe {
            std::arch::asm!("/* {0} */", inout(xmm_reg) x, options(nomem, nostack, preserves_flags))
        };
        x
    }
    #[cfg(target_arch = "aarch64")]
    {
        let mut x = x;
        // SAFETY: no instruction; it only claims to change a register.
        unsafe {
            std::arch::asm!("/* {0:d} */", inout(vreg) x, options(nomem, nostack, preserves_flags))
        };
        x
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    black_box(x)
}

/// A result that is needed as far as the compiler knows.
#[inline(always)]
pub fn needed<T>(value: T) {
    black_box(value);
}
