//! Asks libpfm4 what the spellings of events encode to. Used by tests only: the live machine has its own binding.

use libloading::Library;
use std::{
    collections::BTreeSet,
    env,
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
};

/// The part of perf_event_attr (perf_event_open(2), PERF_ATTR_SIZE_VER5 and later) that matters here.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    rest: [u64; 14],
}

/// `pfm_perf_encode_arg_t`.
#[repr(C)]
struct EncodeArg {
    attr: *mut Attr,
    text: *mut *mut c_char,
    size: usize,
    index: c_int,
    cpu: c_int,
    flags: c_int,
    padding: c_int,
}

/// `pfm_pmu_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PmuInfo {
    name: *const c_char,
    description: *const c_char,
    size: usize,
    pmu: c_int,
    kind: c_int,
    events: c_int,
    first: c_int,
    encodings: c_int,
    counters: c_int,
    fixed: c_int,
    flags: u32,
}

type Initialize = unsafe extern "C" fn() -> c_int;
type Text = unsafe extern "C" fn(c_int) -> *const c_char;
type Info = unsafe extern "C" fn(c_int, *mut PmuInfo) -> c_int;
type Encode = unsafe extern "C" fn(*const c_char, c_int, c_int, *mut c_void) -> c_int;

/// One loaded libpfm.
pub struct Pfm {
    library: Library,
    /// The PMUs that its tables know.
    pub pmus: BTreeSet<String>,
}

impl Pfm {
    /// The system's libpfm, and those that `PERCH_TEST_LIBPFM` names (paths separated by colons): one built for
    /// another architecture knows that architecture's PMUs.
    pub fn all() -> Vec<Self> {
        // SAFETY: no other thread of the test program reads or changes the environment.
        unsafe { env::set_var("LIBPFM_ENCODE_INACTIVE", "1") };
        let more = env::var("PERCH_TEST_LIBPFM").unwrap_or_default();
        ["libpfm.so.4"]
            .into_iter()
            .chain(more.split(':').filter(|path| !path.is_empty()))
            .filter_map(Self::open)
            .collect()
    }

    fn open(path: &str) -> Option<Self> {
        // SAFETY: libpfm has no constructors; the signatures are those of pfmlib.h and pfmlib_perf_event.h, and
        // `size` tells the library how much of each structure there is.
        unsafe {
            let library = Library::new(path).ok()?;
            let initialize = library.get::<Initialize>(b"pfm_initialize").ok()?;
            assert_eq!(initialize(), 0, "{path}: pfm_initialize");
            let info = *library.get::<Info>(b"pfm_get_pmu_info").ok()?;
            let mut pmus = BTreeSet::new();
            for pmu in 0..2000 {
                let mut about: PmuInfo = std::mem::zeroed();
                about.size = size_of::<PmuInfo>();
                if info(pmu, &mut about) == 0 {
                    pmus.insert(CStr::from_ptr(about.name).to_string_lossy().into_owned());
                }
            }
            Some(Self { library, pmus })
        }
    }

    /// The `config` that a spelling encodes to, or libpfm's reason.
    pub fn encode(&self, spelling: &str) -> Result<u64, String> {
        let spelling = CString::new(spelling).map_err(|error| error.to_string())?;
        // SAFETY: as in `open`; `text` is allocated by the library with malloc and given back to free.
        unsafe {
            let encode = self
                .library
                .get::<Encode>(b"pfm_get_os_event_encoding")
                .map_err(|error| error.to_string())?;
            let mut attr: Attr = std::mem::zeroed();
            attr.size = size_of::<Attr>() as u32;
            let mut text: *mut c_char = ptr::null_mut();
            let mut argument = EncodeArg {
                attr: &mut attr,
                text: &mut text,
                size: size_of::<EncodeArg>(),
                index: 0,
                cpu: 0,
                flags: 0,
                padding: 0,
            };
            // Privilege 8: count in user mode. 1: PFM_OS_PERF_EVENT.
            let result = encode(spelling.as_ptr(), 8, 1, (&raw mut argument).cast());
            free(text.cast());
            if result == 0 {
                return Ok(attr.config);
            }
            let reason = self
                .library
                .get::<Text>(b"pfm_strerror")
                .map_err(|error| error.to_string())?;
            Err(CStr::from_ptr(reason(result))
                .to_string_lossy()
                .into_owned())
        }
    }
}

unsafe extern "C" {
    fn free(pointer: *mut c_void);
}
