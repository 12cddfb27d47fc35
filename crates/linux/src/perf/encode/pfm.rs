//! libpfm4, if it is installed: names of events from the manufacturers' manuals (pfm_get_os_event_encoding(3)).

use super::Code;
use libloading::Library;
use perf_event_open_sys::bindings::perf_event_attr;
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
};

const LIBRARY: &str = "libpfm.so.4";

/// `PFM_OS_PERF_EVENT`: encode for perf_event_open(2), without libpfm's own modifiers.
pub(super) const FOR_PERF: c_int = 1;

/// `PFM_PLM0 | PFM_PLM3`: count in the kernel and in user space; perch decides that itself.
const EVERYWHERE: c_int = 0x1 | 0x8;

/// `pfm_perf_encode_arg_t`.
#[repr(C)]
struct EncodeArgument {
    attr: *mut perf_event_attr,
    full_name: *mut *mut c_char,
    size: usize,
    index: c_int,
    cpu: c_int,
    flags: c_int,
    padding: c_int,
}

/// A `perf_event_attr` with room behind it, should the library know a longer one.
#[repr(C)]
struct Attr {
    attr: perf_event_attr,
    room: [u64; 32],
}

/// With this variable libpfm4 encodes events of processors that it is not on.
const INACTIVE: &str = "LIBPFM_ENCODE_INACTIVE";

type Terminate = unsafe extern "C" fn();
type Initialise = unsafe extern "C" fn() -> c_int;
type Describe = unsafe extern "C" fn(c_int) -> *const c_char;
type Encode = unsafe extern "C" fn(*const c_char, c_int, c_int, *mut c_void) -> c_int;

/// The library, loaded and initialised.
pub struct Pfm {
    encode: Encode,
    describe: Describe,
    /// Keeps the functions above where they are.
    _library: Library,
}

impl Pfm {
    /// Loads the library.
    ///
    /// # Errors
    /// It is not installed, or too old.
    pub fn load() -> Result<Self, String> {
        // SAFETY: libpfm has no constructors with side effects beyond its own tables.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|_| {
            format!(
                "names like this need {LIBRARY}, which is not installed: install the package libpfm4 (Debian, \
                 Ubuntu) or libpfm (Fedora), or write the event as cpu/event=0x…,umask=0x…/"
            )
        })?;
        let missing = |error| format!("{LIBRARY} is not libpfm4: {error}");
        // SAFETY: the names and signatures are those of libpfm4's pfmlib.h, stable since 4.0; the function pointers
        // are used only while `_library` lives.
        let (initialise, describe, encode) = unsafe {
            (
                *library
                    .get::<Initialise>(b"pfm_initialize\0")
                    .map_err(missing)?,
                *library
                    .get::<Describe>(b"pfm_strerror\0")
                    .map_err(missing)?,
                *library
                    .get::<Encode>(b"pfm_get_os_event_encoding\0")
                    .map_err(missing)?,
            )
        };
        let pfm = Self {
            encode,
            describe,
            _library: library,
        };
        // SAFETY: may be called at any time, and again.
        match unsafe { initialise() } {
            0 => Ok(pfm),
            status => Err(format!("{LIBRARY}: {}", pfm.reason(status))),
        }
    }

    /// Loads the library such that it knows the events of all processors that it has tables of, not only of this one:
    /// to check names. From then on it is so for the whole process.
    ///
    /// # Errors
    /// It is not installed, or too old.
    ///
    /// # Safety
    /// No other thread may read or change the environment meanwhile.
    pub unsafe fn load_all() -> Result<Self, String> {
        let loaded = Self::load()?;
        // SAFETY: the name and signature are those of pfmlib.h; what the library allocated is in use nowhere.
        unsafe {
            let end = loaded._library.get::<Terminate>(b"pfm_terminate\0");
            let end = end.map_err(|error| format!("{LIBRARY} is not libpfm4: {error}"))?;
            end();
        }
        // The library reads the variable when it is initialised.
        // SAFETY: the caller's promise.
        unsafe { std::env::set_var(INACTIVE, "1") };
        let again = Self::load();
        // SAFETY: the caller's promise.
        unsafe { std::env::remove_var(INACTIVE) };
        again
    }

    /// Whether the library has a table of that PMU, be it this machine's or not.
    pub fn has_table(&self, name: &str) -> bool {
        self.tables().iter().any(|table| table.pmu == name)
    }

    /// One of the library's functions.
    ///
    /// # Errors
    /// It has none of that name.
    ///
    /// # Safety
    /// `F` must be its signature, and it may be called only while this value lives.
    pub(super) unsafe fn function<F: Copy>(&self, name: &[u8]) -> Result<F, libloading::Error> {
        // SAFETY: the caller's promise.
        unsafe { self._library.get::<F>(name) }.map(|function| *function)
    }

    /// The code of `[pmu::]EVENT[:UMASK]…`.
    ///
    /// # Errors
    /// No such event on this machine.
    pub fn encode(&self, name: &str) -> Result<Code, String> {
        let text = CString::new(name).map_err(|_| "a name with a NUL".to_owned())?;
        let mut attr = Attr {
            attr: perf_event_attr::default(),
            room: [0; 32],
        };
        attr.attr.size = size_of::<perf_event_attr>() as u32;
        let mut argument = EncodeArgument {
            attr: &raw mut attr.attr,
            full_name: ptr::null_mut(),
            size: size_of::<EncodeArgument>(),
            index: 0,
            cpu: 0,
            flags: 0,
            padding: 0,
        };
        // SAFETY: the argument has the layout that its size tells, its pointers are valid for the call, and a null
        // `full_name` is allowed.
        let status = unsafe {
            (self.encode)(
                text.as_ptr(),
                EVERYWHERE,
                FOR_PERF,
                (&raw mut argument).cast(),
            )
        };
        if status != 0 {
            let reason = self.reason(status);
            return Err(format!(
                "libpfm4 does not know it on this processor ({reason}); `showevtinfo` lists what it knows"
            ));
        }
        let attr = attr.attr;
        // SAFETY: plain numbers, whatever libpfm wrote there.
        let (config1, config2) = (attr.config1, attr.config2);
        Ok(Code {
            kind: attr.type_,
            config: [attr.config, config1, config2, attr.config3],
        })
    }

    fn reason(&self, status: c_int) -> String {
        // SAFETY: the function returns a constant string for every number.
        let text = unsafe { (self.describe)(status) };
        if text.is_null() {
            return format!("error {status}");
        }
        // SAFETY: not null, and a constant C string.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}
