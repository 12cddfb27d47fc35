//! The kernel's performance events: what is allowed here, counters, sampled records, tasks that come and go.

pub mod counters;
pub mod encode;
pub mod limits;
pub mod poll;
pub mod privilege;
pub mod probe;
pub mod record;
pub mod rings;
pub mod task_events;

pub use counters::{Counters, OwnCounters, OwnPlan, PuCounters, Snapshot, Sums, ThreadCounts};
pub use poll::Poll;
pub use privilege::Privilege;
pub use probe::{Probe, probe, try_count};
pub use record::{Layout, Record};
pub use rings::Ring;
pub use task_events::{TaskEvent, TaskEvents};
