//! From an event's spelling to what perf_event_open(2) wants.
//!
//! | spelling | looked up in |
//! | --- | --- |
//! | `cpu/inst_retired.any/`, `cpu/event=0xc0,umask=0x1/u` | the kernel's tables: `/sys/bus/event_source/devices/PMU/{format,events}` |
//! | `r01c0` | nowhere: the processor's raw number, in hexadecimal |
//! | `cycles`, `instructions`, `task-clock`, `LLC-load-misses` | the kernel's generic events |
//! | `sched:sched_switch` | the kernel's tracepoints |
//! | `amd64_fam19h_zen4::RETIRED_INSTRUCTIONS`, `INST_RETIRED:ANY` | libpfm4, if it is installed |

mod generic;
mod pfm;
mod sysfs;
mod tables;
mod terms;
mod tracepoints;

pub use generic::{EVENTS as GENERIC_EVENTS, Generic, cache_events, kernel_names};
pub use pfm::Pfm;
pub use sysfs::{Pmu, Pmus};
pub use tables::{Table, TableEvent};
pub use terms::{Bits, Field};
pub use tracepoints::Tracepoints;

use perf_event::events::Event;
use perf_event_open_sys::bindings::{
    PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE, PERF_TYPE_RAW, perf_event_attr,
};
use std::{cell::OnceCell, path::Path};

/// What an event is to the kernel: the fields of `perf_event_attr` that say what is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Code {
    /// The PMU's number (`type`).
    pub kind: u32,
    /// `config`, `config1`, `config2` and `config3`.
    pub config: [u64; 4],
}

impl Code {
    /// Whether it is a hardware event of the kernel's generic kinds. One that names the PMU of a kind of core has that PMU's
    /// type, and is not.
    pub fn is_of_core(&self) -> bool {
        matches!(
            self.kind,
            PERF_TYPE_HARDWARE | PERF_TYPE_HW_CACHE | PERF_TYPE_RAW
        )
    }
}

impl Event for Code {
    fn update_attrs(self, attr: &mut perf_event_attr) {
        attr.type_ = self.kind;
        attr.config = self.config[0];
        attr.config1 = self.config[1];
        attr.config2 = self.config[2];
        attr.config3 = self.config[3];
    }
}

/// Where an event counts, asked for behind the spelling (`…/u`, `…:k`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Wherever it is permitted.
    #[default]
    All,
    /// In user space only.
    User,
    /// In the kernel only.
    Kernel,
}

/// An event that the kernel will understand, if it has the PMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The spelling that it comes from.
    pub spelling: String,
    /// What it is to the kernel.
    pub code: Code,
    /// Where it counts.
    pub mode: Mode,
    /// The name of its PMU, if known: on hybrid processors the kind of core that counts it.
    pub pmu: Option<String>,
}

/// A spelling that means nothing here, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event `{spelling}`: {why}")]
pub struct EncodeError {
    /// As it was given.
    pub spelling: String,
    /// The reason in words.
    pub why: String,
}

/// Turns spellings into events.
pub struct Encoder {
    pmus: Pmus,
    tracepoints: Tracepoints,
    pfm: OnceCell<Result<Pfm, String>>,
}

impl Encoder {
    /// For this machine.
    pub fn new() -> Self {
        Self::with_sysfs(Path::new("/sys"))
    }

    /// For the machine whose `/sys` was captured below this path.
    pub fn with_sysfs(root: &Path) -> Self {
        Self {
            pmus: Pmus::new(root),
            tracepoints: Tracepoints::new(root),
            pfm: OnceCell::new(),
        }
    }

    /// For this machine, with libpfm4's tables of all processors: to check names, not to count.
    ///
    /// # Errors
    /// libpfm4 is not installed, or too old.
    ///
    /// # Safety
    /// No other thread may read or change the environment meanwhile ([`Pfm::load_all`]).
    pub unsafe fn with_all_tables() -> Result<Self, String> {
        // SAFETY: the caller's promise.
        let pfm = unsafe { Pfm::load_all() }?;
        Ok(Self {
            pfm: OnceCell::from(Ok(pfm)),
            ..Self::new()
        })
    }

    /// Whether libpfm4 has a table of the PMU of that name.
    pub fn has_table(&self, pmu: &str) -> bool {
        self.pfm().is_ok_and(|pfm| pfm.has_table(pmu))
    }

    /// libpfm4, if it is installed.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub fn pfm(&self) -> Result<&Pfm, String> {
        self.pfm
            .get_or_init(Pfm::load)
            .as_ref()
            .map_err(Clone::clone)
    }

    /// The kernel's tracepoints.
    pub fn tracepoints(&self) -> &Tracepoints {
        &self.tracepoints
    }

    /// The code of `cpu/…/` as on x86, for machines that have no such PMU: to look it up, not to count it.
    ///
    /// # Errors
    /// Terms that x86 does not have.
    pub fn encode_on_x86(&self, spelling: &str) -> Result<Code, String> {
        let terms = spelling
            .strip_prefix("cpu/")
            .and_then(|rest| rest.strip_suffix('/'))
            .ok_or_else(|| format!("`{spelling}` is not of the form cpu/term=value,…/"))?;
        Ok(Code {
            kind: PERF_TYPE_RAW,
            config: sysfs::config_on_x86(terms)?,
        })
    }

    /// How a code is written as a device's event, `cpu/event=0x2e,umask=0x41/`; `None` for generic and software events,
    /// tracepoints, and PMUs that are not here. Without a PMU of the cores, raw codes are written as on x86.
    pub fn spelled(&self, code: Code) -> Option<String> {
        let of_kind = |name: &String| {
            let pmu = self.pmus.open(name).ok()?;
            (pmu.kind() == Ok(code.kind)).then_some(pmu)
        };
        match self.pmus.names().iter().find_map(of_kind) {
            Some(pmu) => pmu.spelled(&code.config),
            None if code.kind == PERF_TYPE_RAW => sysfs::spelled_on_x86(&code.config),
            None => None,
        }
    }

    /// The PMUs of this machine.
    pub fn pmus(&self) -> &Pmus {
        &self.pmus
    }

    /// The event of a spelling. On a hybrid processor `pmu` names the kind of core for spellings that do not.
    ///
    /// # Errors
    /// A spelling that means nothing here.
    pub fn encode(&self, spelling: &str, pmu: Option<&str>) -> Result<Encoded, EncodeError> {
        self.look_up(spelling.trim(), pmu)
            .map_err(|why| EncodeError {
                spelling: spelling.to_owned(),
                why,
            })
    }

    fn look_up(&self, spelling: &str, pmu: Option<&str>) -> Result<Encoded, String> {
        let encoded = |code: Code, mode: Mode| Encoded {
            spelling: spelling.to_owned(),
            code,
            mode,
            pmu: self.pmus.name_of(code, pmu),
        };
        if let Some((name, rest)) = spelling.split_once('/') {
            let (terms, modifier) = rest
                .rsplit_once('/')
                .ok_or("a closing slash is missing: write `pmu/term=value,…/`")?;
            let (code, found) = self.pmus.encode(name, terms, pmu)?;
            return Ok(Encoded {
                pmu: Some(found),
                ..encoded(code, mode(modifier)?)
            });
        }
        let (name, modifier) = match spelling.rsplit_once(':') {
            Some((name, modifier)) if !name.ends_with(':') => match mode(modifier) {
                Ok(mode) if !modifier.is_empty() => (name, mode),
                _ => (spelling, Mode::All),
            },
            _ => (spelling, Mode::All),
        };
        if let Some(config) = raw_number(name) {
            let kind = match pmu {
                Some(pmu) => self.pmus.open(pmu)?.kind()?,
                None => PERF_TYPE_RAW,
            };
            let config = [config, 0, 0, 0];
            return Ok(encoded(Code { kind, config }, modifier));
        }
        if let Some(code) = generic::code(name) {
            let code = self.pmus.on_core_kind(code, pmu)?;
            return Ok(encoded(code, modifier));
        }
        if let Some(code) = self.tracepoints.code(name)? {
            return Ok(encoded(code, modifier));
        }
        let code = self.pfm()?.encode(name);
        if code.is_err() && self.tracepoints.may_lack(name) {
            return Err(
                "a tracepoint cannot be looked up while tracefs is not mounted: \
                 `mount -t tracefs nodev /sys/kernel/tracing` (as root)"
                    .into(),
            );
        }
        Ok(encoded(code?, modifier))
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

/// `r` and up to sixteen hexadecimal digits.
fn raw_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('r')?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok())?
}

fn mode(letters: &str) -> Result<Mode, String> {
    match letters.trim_start_matches(':') {
        "" | "uk" | "ku" => Ok(Mode::All),
        "u" => Ok(Mode::User),
        "k" => Ok(Mode::Kernel),
        other => Err(format!(
            "unknown modifier `{other}`: u (user space), k (kernel) or nothing"
        )),
    }
}

#[cfg(test)]
pub(crate) mod tests;
