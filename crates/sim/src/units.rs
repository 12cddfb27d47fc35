//! Units of time in the simulated machine.

/// Time of the simulated machine in picoseconds: fine enough for cores of different clocks side by side, and 213 days
/// fit.
pub type Ps = u64;

/// Picoseconds in a second.
pub const SECOND: Ps = 1_000_000_000_000;

/// Picoseconds in a microsecond.
pub const MICROSECOND: Ps = 1_000_000;

/// Picoseconds in a nanosecond.
pub const NANOSECOND: Ps = 1_000;
