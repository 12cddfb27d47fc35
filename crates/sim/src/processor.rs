//! What plays the threads that the operating system has put on PUs: one interface for all levels of detail.

use crate::{
    core::Finished, counters::Counters, memory::Occupancy, model::OperatingPoint, sharing::Shared,
    thread::Thread, units::Ps,
};

/// The machine's cores, caches and memory, at some level of detail.
///
/// Threads are numbers: indices of the slice that every call gets.
pub(crate) trait Processor: Send {
    /// Puts a thread on a PU, or takes it off. The newcomer begins at `at` at the earliest.
    fn assign(&mut self, pu: usize, thread: Option<u32>, at: Ps, threads: &mut [Thread]);

    /// Who is on a PU. A thread that came to the end of its instructions no longer is.
    fn thread(&self, pu: usize) -> Option<u32>;

    /// What a PU has counted since this was last asked.
    fn take_counters(&mut self, pu: usize) -> Counters;

    /// How long a cycle of a PU's core is, on the average where its clock stops from time to time.
    fn cycle_time(&self, pu: usize) -> Ps;

    /// From `now` on, which is how far it got, each core is at this operating point, as far as it can be set.
    fn set_points(&mut self, now: Ps, points: &[OperatingPoint]);

    /// From now on a thread may fill the ways of caches that it says it may.
    fn set_ways(&mut self, index: u32, thread: &Thread);

    /// Lets threads find their caches as if they had run where they are for long.
    fn warm(&mut self, threads: &[Thread]);

    /// Simulates from `from`, where the last call left off, up to `until`, or less far if threads come to the end of
    /// their instructions: those are added to `finished`. Returns how far it got: beyond `from`.
    fn run(
        &mut self,
        from: Ps,
        until: Ps,
        threads: &mut [Thread],
        finished: &mut Vec<Finished>,
    ) -> Ps;

    /// Whether one long span gives the same result as many short ones, and faster. Then the timer's ticks at which the
    /// operating system has nothing to do are left out.
    fn plays_long_spans(&self) -> bool {
        false
    }

    /// Who holds how many lines of each cache of a level, 1 to 3, in the order of the model.
    fn occupancy(&self, level: u8) -> Vec<Occupancy>;

    /// Several threads may use the data at these addresses.
    fn watch(&mut self, from: u64, bytes: u64);

    /// Lines that threads needed from each other since this was last asked.
    fn take_shared(&mut self, threads: &[Thread]) -> Vec<Shared>;
}
