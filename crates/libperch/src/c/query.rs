//! Values of regions, for C.

use super::{OK, keep, name};
use crate::{Error, Scope, Values, count::process};
use std::{
    ffi::{CString, c_char, c_int},
    ptr,
};

/// `perch_values` of the header.
#[repr(C)]
pub struct PerchValues {
    calls: u64,
    threads: u32,
    open: u32,
    wall_s: f64,
    cpu_s: f64,
    counted_s: f64,
}

/// `perch_count` of the header.
#[repr(C)]
pub struct PerchCount {
    value: f64,
    counted: f64,
    share: f64,
    quality: c_int,
}

/// `enum perch_quality` of the header.
const EXACT: c_int = 0;
const SCALED: c_int = 1;
const DOUBTFUL: c_int = 2;
const MISSING: c_int = 3;

/// # Safety
/// A C string.
unsafe fn values(region: *const c_char, scope: c_int) -> Result<Values, Error> {
    let scope = match scope {
        0 => Scope::Thread,
        1 => Scope::Process,
        other => {
            return Err(Error::Setting(format!(
                "scope {other} is neither PERCH_THREAD nor PERCH_PROCESS"
            )));
        }
    };
    // SAFETY: the caller's promise.
    crate::values(&unsafe { name(region) }?, scope)
}

/// Puts an answer where the caller wants it.
///
/// # Safety
/// Null, or a place for it.
unsafe fn give<T>(answer: Result<T, Error>, to: *mut T) -> c_int {
    match answer {
        Ok(_) if to.is_null() => keep(Error::Setting("a place is a null pointer".to_owned())),
        Ok(answer) => {
            // SAFETY: the caller's promise.
            unsafe { to.write(answer) };
            OK
        }
        Err(error) => keep(error),
    }
}

/// See `perch.h`.
///
/// # Safety
/// A C string, and a place for the values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_get(
    region: *const c_char,
    scope: c_int,
    to: *mut PerchValues,
) -> c_int {
    // SAFETY: the caller's promise.
    let answer = unsafe { values(region, scope) }.map(|values| PerchValues {
        calls: values.calls,
        threads: values.threads,
        open: values.open,
        wall_s: values.wall_seconds,
        cpu_s: values.cpu_seconds,
        counted_s: values.counted_seconds,
    });
    // SAFETY: the caller's promise.
    unsafe { give(answer, to) }
}

/// See `perch.h`.
///
/// # Safety
/// C strings, and a place for the count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_get_count(
    region: *const c_char,
    scope: c_int,
    event: *const c_char,
    to: *mut PerchCount,
) -> c_int {
    // SAFETY: the caller's promise.
    let answer = unsafe { values(region, scope) }.and_then(|values| {
        // SAFETY: the caller's promise.
        let event = unsafe { name(event) }?;
        let Some(count) = values.counts.get(&*event) else {
            // Known, but not counted on this machine.
            return match events().iter().any(|known| **known == *event) {
                true => Ok(PerchCount {
                    value: f64::NAN,
                    counted: 0.0,
                    share: 0.0,
                    quality: MISSING,
                }),
                false => Err(Error::NoSuchCount(event.into_owned())),
            };
        };
        Ok(PerchCount {
            value: count.value.unwrap_or(f64::NAN),
            counted: count.counted,
            share: count.share,
            quality: match (&count.doubt, count.value) {
                (Some(_), _) => DOUBTFUL,
                (None, None) => MISSING,
                (None, Some(_)) if count.share > 0.995 => EXACT,
                (None, Some(_)) => SCALED,
            },
        })
    });
    // SAFETY: the caller's promise.
    unsafe { give(answer, to) }
}

/// See `perch.h`.
///
/// # Safety
/// C strings, and a place for the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_get_metric(
    region: *const c_char,
    scope: c_int,
    metric: *const c_char,
    to: *mut f64,
) -> c_int {
    // SAFETY: the caller's promise.
    let answer = unsafe { values(region, scope) }.and_then(|values| {
        // SAFETY: the caller's promise.
        let metric = unsafe { name(metric) }?;
        let value = values.metrics.get(&*metric).copied();
        value.ok_or_else(|| Error::NoSuchCount(metric.into_owned()))
    });
    // SAFETY: the caller's promise.
    unsafe { give(answer, to) }
}

fn events() -> Vec<std::sync::Arc<str>> {
    let events = process::current().map(|process| &process.plan.columns.events);
    events
        .into_iter()
        .flatten()
        .map(|(name, _)| std::sync::Arc::clone(name))
        .collect()
}

/// See `perch.h`.
#[unsafe(no_mangle)]
pub extern "C" fn perch_event_count() -> usize {
    events().len()
}

/// See `perch.h`.
///
/// # Safety
/// A place for `room` bytes, or null with room 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_event_name(event: usize, to: *mut c_char, room: usize) -> usize {
    let events = events();
    let name = events.get(event).map_or("", |name| &**name).as_bytes();
    let length = name.len().min(room.saturating_sub(1));
    if room > 0 && !to.is_null() {
        // SAFETY: `length` and a zero are no more than `room`.
        unsafe {
            ptr::copy_nonoverlapping(name.as_ptr(), to.cast(), length);
            to.add(length).write(0);
        }
    }
    name.len()
}

/// See `perch.h`.
#[unsafe(no_mangle)]
pub extern "C" fn perch_json() -> *mut c_char {
    match crate::json().map(CString::new) {
        Ok(Ok(text)) => text.into_raw(),
        Ok(Err(_)) => ptr::null_mut(),
        Err(error) => {
            keep(error);
            ptr::null_mut()
        }
    }
}

/// See `perch.h`.
///
/// # Safety
/// Null, or what `perch_json` returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { CString::from_raw(text) });
    }
}
