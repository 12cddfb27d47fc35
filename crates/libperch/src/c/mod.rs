//! The C interface: `include/perch.h` has the description of each function.

mod query;

use crate::{Error, Options};
use perch_stat::Space;
use std::{
    cell::{Cell, RefCell},
    ffi::{CStr, CString, c_char, c_int},
    time::Duration,
};

/// Return values: `enum perch_status` of the header.
const OK: c_int = 0;

fn code(error: &Error) -> c_int {
    match error {
        Error::Off => -1,
        Error::On => -2,
        Error::NotStarted(_) => -3,
        Error::NoSuchRegion(_) => -4,
        Error::NoSuchCount(_) => -5,
        Error::TooMany(_) => -6,
        Error::Busy => -7,
        Error::Setting(_) => -8,
        Error::Report(_) => -9,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    /// Whether it says why nothing is counted, or that a report is not written.
    static IS_REASON: Cell<bool> = const { Cell::new(false) };
}

/// Keeps the words of an error for `perch_error`.
fn keep(error: Error) -> c_int {
    let code = code(&error);
    if error != Error::Off {
        let is_reason = matches!(error, Error::Setting(_) | Error::Report(_));
        let _ = IS_REASON.try_with(|last| last.set(is_reason));
        let words = CString::new(error.to_string().replace('\0', "")).unwrap_or_default();
        let _ = LAST.try_with(|last| {
            if let Ok(mut last) = last.try_borrow_mut() {
                *last = words;
            }
        });
    }
    code
}

fn status(result: Result<(), Error>) -> c_int {
    result.map_or_else(keep, |()| OK)
}

/// A text from C; what is no UTF-8 in it is replaced. `None` for a null pointer.
///
/// # Safety
/// Null, or a C string that lives long enough.
unsafe fn text<'a>(text: *const c_char) -> Option<std::borrow::Cow<'a, str>> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// As [`text`], for names that must be there.
///
/// # Safety
/// As [`text`].
unsafe fn name<'a>(name: *const c_char) -> Result<std::borrow::Cow<'a, str>, Error> {
    // SAFETY: the caller's promise.
    unsafe { text(name) }.ok_or_else(|| Error::Setting("a name is a null pointer".to_owned()))
}

/// `perch_options` of the header. Later versions add fields behind these.
#[repr(C)]
pub struct PerchOptions {
    size: usize,
    events: *const *const c_char,
    metrics: *const *const c_char,
    virtuals: *const *const c_char,
    report: *const c_char,
    interval_ms: u32,
    space: c_int,
}

/// Texts up to a null pointer.
///
/// # Safety
/// Null, or a list of C strings that ends with a null pointer.
unsafe fn list(mut texts: *const *const c_char) -> Vec<String> {
    let mut found = Vec::new();
    // SAFETY: the caller's promise.
    while let Some(text) = (!texts.is_null())
        .then(|| unsafe { text(*texts) })
        .flatten()
    {
        found.push(text.into_owned());
        // SAFETY: the list goes on up to a null pointer, which ends the loop.
        texts = unsafe { texts.add(1) };
    }
    found
}

/// # Safety
/// Null, or options of the size that they tell.
unsafe fn options(options: *const PerchOptions) -> Result<Options, Error> {
    if options.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: the first field is there in every version.
    let size = unsafe { (&raw const (*options).size).read() };
    if size < size_of::<PerchOptions>() {
        return Err(Error::Setting(
            "perch_options: set it up with PERCH_OPTIONS_INIT".to_owned(),
        ));
    }
    // SAFETY: it is as long as that.
    let options = unsafe { &*options };
    // SAFETY: the header's promise about the fields.
    unsafe {
        Ok(Options {
            events: list(options.events),
            metrics: list(options.metrics),
            virtuals: list(options.virtuals),
            space: match options.space {
                0 => Space::All,
                1 => Space::User,
                2 => Space::Kernel,
                other => {
                    return Err(Error::Setting(format!(
                        "perch_options: space {other} is none of PERCH_ALL, PERCH_USER and PERCH_KERNEL"
                    )));
                }
            },
            report: text(options.report).map(std::borrow::Cow::into_owned),
            interval: (options.interval_ms > 0)
                .then(|| Duration::from_millis(options.interval_ms.into())),
        })
    }
}

/// See `perch.h`.
///
/// # Safety
/// Null, or options that `PERCH_OPTIONS_INIT` set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_init(asked: *const PerchOptions) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { options(asked) }.and_then(|options| crate::init(&options)))
}

/// See `perch.h`.
///
/// # Safety
/// As [`perch_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_init_if_asked(asked: *const PerchOptions) -> c_int {
    // SAFETY: the caller's promise.
    let begun = unsafe { options(asked) }.and_then(|options| crate::init_if_asked(&options));
    begun.map_or_else(keep, c_int::from)
}

/// See `perch.h`.
#[unsafe(no_mangle)]
pub extern "C" fn perch_is_on() -> c_int {
    c_int::from(crate::is_on())
}

/// See `perch.h`.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_start(region: *const c_char) -> c_int {
    if !crate::is_on() {
        return -1;
    }
    // SAFETY: the caller's promise.
    status(unsafe { name(region) }.and_then(|region| crate::start(&region)))
}

/// See `perch.h`.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_stop(region: *const c_char) -> c_int {
    if !crate::is_on() {
        return -1;
    }
    // SAFETY: the caller's promise.
    status(unsafe { name(region) }.and_then(|region| crate::stop(&region)))
}

/// See `perch.h`.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_read(region: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { name(region) }.and_then(|region| crate::read(&region)))
}

/// See `perch.h`.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_reset(region: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { name(region) }.and_then(|region| crate::reset(&region)))
}

/// See `perch.h`.
#[unsafe(no_mangle)]
pub extern "C" fn perch_next_set() -> c_int {
    status(crate::next_set())
}

/// See `perch.h`.
#[unsafe(no_mangle)]
pub extern "C" fn perch_finish() -> c_int {
    status(crate::finish())
}

/// See `perch.h`.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perch_report(destination: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { name(destination) }.and_then(|place| crate::write_report(&place)))
}

/// See `perch.h`.
#[unsafe(no_mangle)]
pub extern "C" fn perch_error() -> *const c_char {
    if !crate::is_on() && IS_REASON.try_with(Cell::get) != Ok(true) {
        return c"nothing is counted: perch_init was not called, or perch_finish was".as_ptr();
    }
    // Valid up to the thread's next error.
    LAST.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| last.as_ptr()))
        .unwrap_or(c"".as_ptr())
}
