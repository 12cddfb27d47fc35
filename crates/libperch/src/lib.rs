//! Counts events in regions of a program's own code.
//!
//! ```
//! libperch::init(&libperch::Options::default())?;
//! {
//!     let _region = libperch::region("solve");
//!     // … what is to be counted
//! }
//! let solve = libperch::values("solve", libperch::Scope::Thread);
//! # #[cfg(not(feature = "off"))]
//! assert_eq!(solve.unwrap().calls, 1);
//! # Ok::<(), libperch::Error>(())
//! ```
//!
//! Each thread counts itself. Regions nest, and may overlap: an outer one may be stopped before one in it. Under
//! `perch stat` the regions appear in its output; the environment chooses events and reports (`docs/regions.md`).
//!
//! Nothing here may be called from a signal handler. With the feature `off` all functions do nothing.
//!
//! C, C++, Fortran and Python use the same through `include/perch.h`.

mod options;
#[cfg_attr(feature = "off", path = "off.rs")]
#[cfg_attr(not(feature = "off"), path = "on.rs")]
mod regions;

#[cfg(not(feature = "off"))]
mod c;
#[cfg(not(feature = "off"))]
mod count;

pub use options::{CountValue, Error, Options, Scope, Values};
pub use perch_regions::Report;
pub use perch_stat::Space;
pub use regions::{
    finish, init, init_if_asked, is_on, json, next_set, read, region, report, reset, start, stop,
    values, write_report,
};

/// A region of the calling thread that is stopped where this is dropped.
#[derive(Debug)]
#[must_use = "the region is stopped where this is dropped"]
pub struct Guard<'a> {
    name: &'a str,
    /// Else an outer region of the same name would be stopped.
    started: bool,
    /// It must be stopped by the thread that started it.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.started {
            // It may have been stopped by name.
            let _ = stop(self.name);
        }
    }
}
