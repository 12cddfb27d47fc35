//! Executes a known number of instructions: two in each round of a loop, and some to start and to end.

use std::process::ExitCode;

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    match rounds {
        Some(rounds) if rounds > 0 => {
            spin(rounds);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: guest-spin ROUNDS, at least 1");
            ExitCode::FAILURE
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn spin(rounds: u64) {
    // SAFETY: only the register named here is touched, no memory and no stack.
    unsafe {
        std::arch::asm!("2:", "dec {n}", "jnz 2b", n = inout(reg) rounds => _, options(nomem, nostack));
    }
}

#[cfg(target_arch = "aarch64")]
fn spin(rounds: u64) {
    // SAFETY: only the register named here is touched, no memory and no stack.
    unsafe {
        std::arch::asm!("2:", "subs {n}, {n}, #1", "b.ne 2b", n = inout(reg) rounds => _, options(nomem, nostack));
    }
}
