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
    /// The floating-point share in each stretch counted, in the order of time.
    pub stretches: Vec<f64>,
    /// Whether the stretches are spread over all of the program, to its end.
    pub to_the_end: bool,
}

impl Truth {
    /// From sums, unless too much is unknown to call it the truth.
    fn new(
        sum: &MixSum,
        unknown: f64,
        error: f64,
        stretches: Vec<f64>,
        to_the_end: bool,
    ) -> Result<Self> {
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
            stretches,
            to_the_end,
        })
    }
}

/// Standard error of the mean of independent values.
fn standard_error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if n < 2.0 {
        return f64::INFINITY;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (n - 1.0) / n).sqrt()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_mean() {
        assert_eq!(standard_error(&[0.25; 9]), 0.0);
        let error = standard_error(&[1.0, 3.0]);
        assert!((error - 1.0).abs() < 1e-12, "{error}");
        assert!(standard_error(&[1.0]).is_infinite());
    }
}
