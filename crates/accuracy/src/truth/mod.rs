//! What a program really executes, counted instruction by instruction.

pub mod callgrind;
pub mod kept;
pub mod stepper;

use crate::catalogue::{Program, TruthMethod};
pub use crate::score::TrueShares;
use crate::workspace::Workspace;
use anyhow::{Result, ensure};
use perch_sampling::{Arch, Mix, MixSum};

/// The largest share of instructions whose code may be unknown.
const MOST_UNKNOWN: f64 = 0.02;

/// Dynamic instruction counts of one program.
#[derive(Debug, Clone)]
pub struct Truth {
    /// Shares of instruction classes.
    pub mix: Mix,
    /// Instructions counted.
    pub instructions: f64,
    /// Share of instructions whose code could not be read or decoded (they are not in the mix).
    pub unknown: f64,
    /// One standard error of the floating-point share, 0 to 1; 0 for complete counts.
    pub error: f64,
}

impl Truth {
    /// From sums, unless too much is unknown to call it the truth.
    fn new(sum: &MixSum, unknown: f64, error: f64) -> Result<Self> {
        let instructions = sum.weight() + unknown;
        let unknown = unknown / instructions.max(1.0);
        let mix = sum.mix().filter(|_| unknown <= MOST_UNKNOWN);
        ensure!(
            mix.is_some(),
            "of {instructions} instructions {:.1} % could not be decoded",
            100.0 * unknown
        );
        Ok(Self {
            mix: mix.expect("just checked"),
            instructions,
            unknown,
            error,
        })
    }
}

/// The architecture whose programs run here.
///
/// # Errors
/// One that perch cannot decode.
pub fn native_arch() -> Result<Arch> {
    Ok(match std::env::consts::ARCH {
        "x86_64" => Arch::X86_64,
        "aarch64" => Arch::Aarch64,
        other => anyhow::bail!("perch does not decode {other}"),
    })
}

/// Counts a program's instructions by the given method.
///
/// # Errors
/// A program or tool that fails, or too much code that cannot be read.
pub fn count(program: &Program, method: TruthMethod, workspace: &Workspace) -> Result<Truth> {
    match method {
        TruthMethod::Callgrind => callgrind::count(program, workspace),
        TruthMethod::Stepper => stepper::count(program, workspace),
    }
}
