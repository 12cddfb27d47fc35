//! Small programs that each use one part of a processor that threads share, on the machine where they run.
//!
//! A [`Kernel`] is a tight loop that counts its rounds; a [`Crew`] runs several at once, each on a PU of its own, and
//! tells how many rounds a second each one did. `perch calibrate` measures with them what sharing costs
//! (`docs/calibration.md`). Simulated machines have their own (`crates/lab/kernels.toml`) under the same names.
#![warn(clippy::undocumented_unsafe_blocks)]

mod crew;
mod keep;
mod loops;
mod memory;
mod quantum;
mod table;

pub use crew::{Crew, CrewError, Rate, Seat, Window, bind};
pub use memory::Room;
pub use quantum::work;
pub use table::{KERNELS, Kernel, Sizes, find};

/// One thread's state between two rounds of a kernel.
#[derive(Debug)]
pub struct Bench {
    /// Its data, at least as much as the kernel asks for.
    room: Room,
    /// The number of lines that a random walk goes through, less one: a power of two less one.
    mask: u64,
    /// Where a walk in order is, in bytes.
    at: usize,
    /// The state of the random numbers, and a sink for unused results.
    x: u64,
}

impl Bench {
    /// For a kernel on a machine with these caches. `room` is memory from before, which is taken if it is enough.
    ///
    /// # Errors
    /// No memory.
    pub fn new(kernel: &Kernel, sizes: &Sizes, room: Option<Room>) -> std::io::Result<Self> {
        let wanted = (kernel.room)(sizes);
        let room = match room {
            Some(room) if room.serves(&wanted) => room.limited(wanted.bytes),
            _ => Room::new(wanted)?,
        };
        let lines = (room.bytes() / memory::LINE).max(1) as u64;
        Ok(Self {
            mask: (1 << lines.ilog2()) - 1,
            room,
            at: 0,
            x: 0x9e37_79b9_7f4a_7c15,
        })
    }

    /// One round of the kernel: some microseconds.
    pub fn round(&mut self, kernel: &Kernel) {
        (kernel.round)(self);
    }

    /// Gives its memory back for the next kernel.
    pub fn into_room(self) -> Room {
        self.room
    }
}
