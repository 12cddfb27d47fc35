//! Reading `/proc`: the two files that are read for every thread in every period are parsed here, by hand and from
//! bytes; what is read rarely goes through the `procfs` crate.
//!
//! Source of all fields: proc(5), and `Documentation/scheduler/sched-stats.rst` of the kernel for `schedstat`.

mod own;
mod parse;
mod pu_ticks;
mod read;

pub use own::check_numbers;
pub use parse::{
    Schedstat, Stat, Status, parse_migrations, parse_schedstat, parse_stat, parse_status,
};
pub use pu_ticks::{PuTicks, parse_pu_ticks};
pub use read::{
    Gone, Reader, RunClock, has_mark, last_task_number, list_processes, list_tasks, nested_mark,
    process_numbers, session_of, start_of, task_numbers,
};
