//! How often to sample, how much, and for which threads.

/// Settings of instruction sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Samples a second on each busy CPU, where events of all threads are permitted; the fastest, if it adapts.
    ///
    /// 251 costs a compute loop 0.4 to 0.5 % (measured on a Zen 4 guest), gives ten samples, enough for a verdict, in
    /// 40 ms, and is prime, so that it does not beat with timers of round frequencies.
    pub cpu_hz: u32,
    /// Samples a second of each thread, where only events of one's own threads are permitted.
    ///
    /// 99 costs a compute loop 0.15 %.
    pub thread_hz: u32,
    /// A thread that switches more often than this many times a second is sampled for a short part of some periods only
    /// where events are per thread.
    ///
    /// Switching such an event off and on costs the program 4 to 7 µs each time in a virtual machine, where setting a
    /// timer is slow: at this rate 0.3 to 0.5 % of a CPU. Measured by `examples/sampling_cost.rs`.
    pub max_switches: u64,
    /// Sample CPUs more slowly once all running threads are known and steady.
    pub adapt: bool,
    /// Use per-thread events even where per-CPU ones are permitted.
    pub per_thread: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cpu_hz: 251,
            thread_hz: 99,
            max_switches: 750,
            adapt: true,
            per_thread: false,
        }
    }
}
