//! The kernel's performance events: what is allowed here, counters, sampled records, tasks that come and go.

pub mod limits;
pub mod poll;
pub mod privilege;
pub mod record;
pub mod rings;
pub mod task_events;

pub use poll::Poll;
pub use privilege::Privilege;
pub use record::{Layout, Record};
pub use rings::Ring;
pub use task_events::{TaskEvent, TaskEvents};
