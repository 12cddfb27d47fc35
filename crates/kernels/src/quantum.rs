//! A fixed amount of work, of which only the time that it takes is of interest: `perch noise` repeats it.

use crate::keep::{keep, needed};

/// Does `steps` additions and rotations, each of which waits for the one before: no memory, no branch but the loop's. A
/// step takes 2 or 3 cycles.
#[inline(never)]
pub fn work(steps: u64) {
    let mut x = steps;
    for _ in 0..steps {
        x = keep(keep(x.wrapping_add(0x51)).rotate_left(7));
    }
    needed(x);
}
