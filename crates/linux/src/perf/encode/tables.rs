//! What libpfm4's tables hold: the names and descriptions of all events of a PMU (pfm_get_event_info(3),
//! pfm_get_event_attr_info(3)).

use super::pfm::Pfm;
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};

/// `PFM_ATTR_UMASK`: an attribute that selects what an event counts.
const UMASK: c_int = 1;

/// `is_present` in the flags of `pfm_pmu_info_t`: this machine has the PMU.
const PRESENT: u32 = 1;

/// More PMUs than any libpfm4 has numbers for.
const PMUS: c_int = 4096;

/// Events of a PMU and unit masks of an event that are read at most, should the library lead in a circle.
const MOST: usize = 100_000;

/// `pfm_pmu_info_t`, with room for what later versions append.
#[repr(C)]
struct PmuInfo {
    name: *const c_char,
    description: *const c_char,
    size: usize,
    pmu: c_int,
    kind: c_int,
    events: c_int,
    first_event: c_int,
    max_encoding: c_int,
    counters: c_int,
    fixed_counters: c_int,
    flags: u32,
    room: [u64; 8],
}

/// `pfm_event_info_t`.
#[repr(C)]
struct EventInfo {
    name: *const c_char,
    description: *const c_char,
    equivalent: *const c_char,
    size: usize,
    code: u64,
    pmu: c_int,
    data: c_int,
    index: c_int,
    attributes: c_int,
    reserved: c_int,
    flags: u32,
    room: [u64; 8],
}

/// `pfm_event_attr_info_t`.
#[repr(C)]
struct AttributeInfo {
    name: *const c_char,
    description: *const c_char,
    equivalent: *const c_char,
    size: usize,
    code: u64,
    kind: c_int,
    index: c_int,
    control: c_int,
    flags: u32,
    default: u64,
    room: [u64; 8],
}

type PmuOf = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
type Next = unsafe extern "C" fn(c_int) -> c_int;
type EventOf = unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int;
type AttributeOf = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void) -> c_int;

/// A PMU of which libpfm4 has a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// libpfm4's name of it, such as `amd64_fam19h_zen4`.
    pub pmu: String,
    /// What it is, in libpfm4's words.
    pub description: String,
    /// Whether this machine has it.
    pub is_present: bool,
    /// General-purpose counters, and counters of one event each.
    pub counters: (u32, u32),
    /// How many events it has, without their unit masks.
    pub events: u32,
    first: c_int,
}

/// An event of a table: with a unit mask, if it has any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEvent {
    /// `EVENT` or `EVENT:UMASK`.
    pub name: String,
    /// In libpfm4's words.
    pub description: String,
}

impl Pfm {
    /// The PMUs that the library knows.
    pub fn tables(&self) -> Vec<Table> {
        // SAFETY: the signature is that of pfmlib.h.
        let Ok(pmu_of) = (unsafe { self.function::<PmuOf>(b"pfm_get_pmu_info\0") }) else {
            return Vec::new();
        };
        let table = |number| {
            let mut info = PmuInfo {
                name: ptr::null(),
                description: ptr::null(),
                size: 0,
                pmu: 0,
                kind: 0,
                events: 0,
                first_event: -1,
                max_encoding: 0,
                counters: 0,
                fixed_counters: 0,
                flags: 0,
                room: [0; 8],
            };
            // SAFETY: the structure is at least as large as the library's; a size of 0 asks for its first version.
            let status = unsafe { pmu_of(number, (&raw mut info).cast()) };
            (status == 0 && !info.name.is_null()).then(|| Table {
                pmu: text(info.name),
                description: text(info.description),
                is_present: info.flags & PRESENT != 0,
                counters: (number_of(info.counters), number_of(info.fixed_counters)),
                events: number_of(info.events),
                first: info.first_event,
            })
        };
        (0..PMUS).filter_map(table).collect()
    }

    /// All events of a table.
    pub fn events(&self, table: &Table) -> Vec<TableEvent> {
        // SAFETY: the signatures are those of pfmlib.h.
        let functions = unsafe {
            (
                self.function::<Next>(b"pfm_get_event_next\0"),
                self.function::<EventOf>(b"pfm_get_event_info\0"),
                self.function::<AttributeOf>(b"pfm_get_event_attr_info\0"),
            )
        };
        let (Ok(next), Ok(event_of), Ok(attribute_of)) = functions else {
            return Vec::new();
        };
        let mut events = Vec::new();
        let mut index = table.first;
        while index >= 0 && events.len() < MOST {
            if let Some(info) = event(event_of, index) {
                with_masks(attribute_of, index, &info, &mut events);
            }
            // SAFETY: any number is allowed.
            index = unsafe { next(index) };
        }
        events
    }
}

fn event(event_of: EventOf, index: c_int) -> Option<EventInfo> {
    let mut info = EventInfo {
        name: ptr::null(),
        description: ptr::null(),
        equivalent: ptr::null(),
        size: 0,
        code: 0,
        pmu: 0,
        data: 0,
        index: 0,
        attributes: 0,
        reserved: 0,
        flags: 0,
        room: [0; 8],
    };
    // SAFETY: as for PMUs.
    let status = unsafe { event_of(index, super::pfm::FOR_PERF, (&raw mut info).cast()) };
    (status == 0 && !info.name.is_null()).then_some(info)
}

/// Adds the event, once for each of its unit masks.
fn with_masks(
    attribute_of: AttributeOf,
    index: c_int,
    info: &EventInfo,
    events: &mut Vec<TableEvent>,
) {
    let (name, description) = (text(info.name), text(info.description));
    let before = events.len();
    for number in 0..info.attributes {
        let mut attribute = AttributeInfo {
            name: ptr::null(),
            description: ptr::null(),
            equivalent: ptr::null(),
            size: 0,
            code: 0,
            kind: 0,
            index: 0,
            control: 0,
            flags: 0,
            default: 0,
            room: [0; 8],
        };
        let into = (&raw mut attribute).cast();
        // SAFETY: as for PMUs.
        let status = unsafe { attribute_of(index, number, super::pfm::FOR_PERF, into) };
        if status == 0 && attribute.kind == UMASK && !attribute.name.is_null() {
            events.push(TableEvent {
                name: format!("{name}:{}", text(attribute.name)),
                description: format!("{description}: {}", text(attribute.description)),
            });
        }
        if events.len() >= MOST {
            return;
        }
    }
    if events.len() == before {
        events.push(TableEvent { name, description });
    }
}

fn number_of(count: c_int) -> u32 {
    u32::try_from(count).unwrap_or(0)
}

/// A constant string of the library; "" for none.
fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: not null, and a constant C string.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_string_lossy().trim().to_owned()
}
