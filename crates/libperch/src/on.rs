//! The functions that a program calls.

use crate::{
    Error, Guard, Options, Report, Scope, Values,
    count::{Asked, Plan, gather, names, output, process},
};
use std::sync::Arc;

/// Counts from now on, in regions of all threads.
///
/// # Errors
/// [`Error::On`]; [`Error::Setting`] for events, metrics or times that mean nothing. What this machine does not count is no
/// error: the report says what is missing.
pub fn init(options: &Options) -> Result<(), Error> {
    said(Asked::new(options).and_then(|asked| match asked.off {
        true => Ok(()),
        false => begin(asked),
    }))
}

/// Counts from now on if the environment asks for it: under `perch stat`, or with `PERCH_REGION_EVENTS` or
/// `PERCH_REGION_REPORT`. Returns whether it does.
///
/// # Errors
/// As [`init`].
pub fn init_if_asked(options: &Options) -> Result<bool, Error> {
    said(Asked::new(options).and_then(|asked| {
        if asked.off || !asked.by_environment {
            return Ok(false);
        }
        begin(asked).map(|()| true)
    }))
}

/// Says a mistake in a variable: programs seldom look at what `init` returns, and their users cannot.
fn said<T>(result: Result<T, Error>) -> Result<T, Error> {
    if let Err(error @ Error::Setting(_)) = &result
        && let Some(variables) = Asked::variables()
    {
        eprintln!("perch: regions are not counted: {error} ({variables})");
    }
    result
}

fn begin(asked: Asked) -> Result<(), Error> {
    process::begin(|| Ok(Arc::new(Plan::new(asked)?)))
}

/// Whether regions are counted.
pub fn is_on() -> bool {
    process::is_on()
}

/// Starts a region of the calling thread. If nothing is counted, that costs a load and a branch.
///
/// # Errors
/// [`Error::Off`], [`Error::TooMany`], [`Error::Busy`].
#[inline]
pub fn start(name: &str) -> Result<(), Error> {
    process::with_thread(|thread, _| {
        let id = thread.name(name)?;
        thread.start(id)
    })
}

/// Stops the innermost region of this name of the calling thread. Inner regions go on.
///
/// # Errors
/// [`Error::Off`], [`Error::NotStarted`], [`Error::Busy`].
#[inline]
pub fn stop(name: &str) -> Result<(), Error> {
    let due = process::with_thread(|thread, process| {
        thread.stop_named(name)?;
        Ok(process.time_to_put(thread.last(), thread.is_outside()))
    })?;
    if due {
        process::put();
    }
    Ok(())
}

/// Starts a region that is stopped where the guard is dropped. What cannot be counted is not, silently: see [`start`].
#[inline]
pub fn region(name: &str) -> Guard<'_> {
    Guard {
        name,
        started: start(name).is_ok(),
        _thread: std::marker::PhantomData,
    }
}

/// Ends a sample of a region of the calling thread here: what the region has done since its start, or since the last call,
/// is in the report as a sample of its own.
///
/// # Errors
/// As [`stop`].
pub fn read(name: &str) -> Result<(), Error> {
    process::with_thread(|thread, _| thread.mark(name))
}

/// Switches the calling thread to the next event set. Without this, a thread switches when it leaves its outermost region,
/// and at every sample; from the first call on, only here.
///
/// # Errors
/// [`Error::Off`], [`Error::Busy`].
pub fn next_set() -> Result<(), Error> {
    process::with_thread(|thread, _| {
        thread.next_set();
        Ok(())
    })
}

/// Forgets what the calling thread has counted in regions of this name, and in those in them.
///
/// # Errors
/// [`Error::Off`], [`Error::NoSuchRegion`], [`Error::Busy`].
pub fn reset(name: &str) -> Result<(), Error> {
    process::with_thread(|thread, _| thread.reset(name))
}

/// What was counted in regions of this name.
///
/// # Errors
/// [`Error::Off`], [`Error::NoSuchRegion`], [`Error::Busy`].
pub fn values(name: &str, scope: Scope) -> Result<Values, Error> {
    let process = process::current().ok_or(Error::Off)?;
    let tid = match scope {
        Scope::Thread => Some(process::with_thread(|thread, _| Ok(thread.tid()))?),
        Scope::Process => None,
    };
    let name = names::shown(name);
    gather::values(&gather::report(process, false), &process.plan, &name, tid)
        .ok_or_else(|| Error::NoSuchRegion(name.to_string()))
}

/// All regions of all threads, as they are now.
///
/// # Errors
/// [`Error::Off`].
pub fn report() -> Result<Report, Error> {
    let process = process::current().ok_or(Error::Off)?;
    Ok(gather::report(process, true))
}

/// The same as JSON, in one line (`docs/regions.md`).
///
/// # Errors
/// [`Error::Off`].
pub fn json() -> Result<String, Error> {
    let process = process::current().ok_or(Error::Off)?;
    Ok(output::json(process, true, false))
}

/// Writes a report now: to `stderr`, or to a file, as JSON if its name ends in `.json`.
///
/// # Errors
/// [`Error::Off`], [`Error::Report`].
pub fn write_report(destination: &str) -> Result<(), Error> {
    let process = process::current().ok_or(Error::Off)?;
    output::write(process, destination)
}

/// Ends counting and writes the report, as at the end of the program. Threads that are in regions must not be counted on.
///
/// # Errors
/// [`Error::Off`], [`Error::Report`].
pub fn finish() -> Result<(), Error> {
    process::finish()
}
