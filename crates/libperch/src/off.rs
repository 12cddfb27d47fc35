//! The same functions, doing nothing.

use crate::{Error, Guard, Options, Report, Scope, Values};

/// Does nothing.
///
/// # Errors
/// None.
pub fn init(_options: &Options) -> Result<(), Error> {
    Ok(())
}

/// Does nothing.
///
/// # Errors
/// None.
pub fn init_if_asked(_options: &Options) -> Result<bool, Error> {
    Ok(false)
}

/// Nothing is counted.
pub fn is_on() -> bool {
    false
}

/// Does nothing.
///
/// # Errors
/// None.
#[inline(always)]
pub fn start(_name: &str) -> Result<(), Error> {
    Ok(())
}

/// Does nothing.
///
/// # Errors
/// None.
#[inline(always)]
pub fn stop(_name: &str) -> Result<(), Error> {
    Ok(())
}

/// A guard without a region.
#[inline(always)]
pub fn region(name: &str) -> Guard<'_> {
    Guard {
        name,
        started: false,
        _thread: std::marker::PhantomData,
    }
}

/// Does nothing.
///
/// # Errors
/// None.
pub fn read(_name: &str) -> Result<(), Error> {
    Ok(())
}

/// Does nothing.
///
/// # Errors
/// None.
pub fn next_set() -> Result<(), Error> {
    Ok(())
}

/// Does nothing.
///
/// # Errors
/// None.
pub fn reset(_name: &str) -> Result<(), Error> {
    Ok(())
}

/// There are no values.
///
/// # Errors
/// Always [`Error::Off`].
pub fn values(_name: &str, _scope: Scope) -> Result<Values, Error> {
    Err(Error::Off)
}

/// There is no report.
///
/// # Errors
/// Always [`Error::Off`].
pub fn report() -> Result<Report, Error> {
    Err(Error::Off)
}

/// There is no report.
///
/// # Errors
/// Always [`Error::Off`].
pub fn json() -> Result<String, Error> {
    Err(Error::Off)
}

/// Does nothing.
///
/// # Errors
/// None.
pub fn write_report(_destination: &str) -> Result<(), Error> {
    Ok(())
}

/// Does nothing.
///
/// # Errors
/// None.
pub fn finish() -> Result<(), Error> {
    Ok(())
}
