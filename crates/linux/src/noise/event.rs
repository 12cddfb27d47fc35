//! What the kernel tells of one PU, and who is behind it. Plain data.

use serde::Serialize;

/// What kind of work takes a PU away from a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A thread of a program.
    Task,
    /// A thread of the kernel.
    KernelThread,
    /// A function that a worker thread of the kernel runs (a workqueue).
    Work,
    /// A soft interrupt.
    Softirq,
    /// An interrupt of a device.
    Irq,
    /// An interrupt of the PU itself: timer, inter-processor interrupts.
    LocalIrq,
    /// A non-maskable interrupt.
    Nmi,
    /// The PU was idle although a thread of perch wanted it: a CPU limit of its control group.
    Idle,
    /// Another thread of perch itself.
    Perch,
}

/// Who interrupted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Source {
    /// The kind of work.
    pub kind: Kind,
    /// Its name: of the thread, the device, the function, the soft interrupt. Printable.
    pub name: String,
    /// The owner of a program's thread; `None` if that is the user of perch, or not known any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// The place of a source in the list of one PU.
pub type SourceId = u32;

/// What happened on a PU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Another thread got the PU.
    Switch {
        /// The thread before.
        from: i32,
        /// Whether that one waits for something now or has ended, so that what it was woken for is done.
        done: bool,
        /// The thread that has the PU now.
        to: i32,
        /// The source that it is.
        source: SourceId,
    },
    /// An interrupt, or soft interrupt, begins.
    Enter(SourceId),
    /// It ends.
    Exit(SourceId),
    /// The thread on the PU begins to run a function of a workqueue.
    Work(SourceId),
    /// That function has returned.
    WorkDone,
    /// A handler of an NMI has run for this time, in nanoseconds.
    Nmi(SourceId, u64),
    /// Events are missing here.
    Lost,
}

/// Something that happened on a PU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// CLOCK_MONOTONIC time in nanoseconds.
    pub time: u64,
    /// What it was.
    pub what: What,
}
