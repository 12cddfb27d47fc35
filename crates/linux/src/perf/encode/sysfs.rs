//! The kernel's tables of PMUs: `/sys/bus/event_source/devices`.

use super::{
    Code,
    terms::{Bits, Field, parse_terms},
};
use perch_core::PuSet;
use perf_event_open_sys::bindings::{PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Events may be defined by others; never this deep.
const DEEPEST: usize = 8;

/// A generic hardware event carries its PMU's number above this bit (`PERF_PMU_TYPE_SHIFT`).
const PMU_TYPE_SHIFT: u32 = 32;

/// The PMUs of a machine.
pub struct Pmus {
    devices: PathBuf,
}

/// One PMU.
pub struct Pmu {
    name: String,
    folder: PathBuf,
}

impl Pmus {
    /// Those below a `/sys`, captured or live.
    pub fn new(sysfs: &Path) -> Self {
        Self {
            devices: sysfs.join("bus/event_source/devices"),
        }
    }

    /// Names of all PMUs, in alphabetical order.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.devices).into_iter().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The PMUs of the cores themselves: `cpu`, or one for each kind of core (`cpu_core` and `cpu_atom`,
    /// `armv8_cortex_a72` and `armv8_cortex_a53`).
    pub fn of_cores(&self) -> Vec<String> {
        let of_core = |name: &String| {
            ["cpu", "cpu_core", "cpu_atom", "cpu_lowpower"].contains(&name.as_str())
                || ["armv7_", "armv8_", "armv9_"]
                    .iter()
                    .any(|p| name.starts_with(p))
                || name.starts_with("apple_") && name.ends_with("_pmu")
        };
        self.names().into_iter().filter(of_core).collect()
    }

    /// One PMU.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn open(&self, name: &str) -> Result<Pmu, String> {
        let folder = self.devices.join(name);
        let plain = !name.is_empty() && !name.contains(['/', '.']);
        if plain && folder.is_dir() {
            return Ok(Pmu {
                name: name.to_owned(),
                folder,
            });
        }
        let names = self.names();
        Err(match names.is_empty() {
            true => "the kernel lists no PMUs in /sys/bus/event_source/devices".to_owned(),
            false => format!("no PMU `{name}` here (there are: {})", names.join(", ")),
        })
    }

    /// The code of terms on a PMU, and the PMU's name. `cpu` and the names of other core PMUs stand for the PMU of the
    /// wanted kind of core.
    pub(super) fn encode(
        &self,
        name: &str,
        terms: &str,
        wanted: Option<&str>,
    ) -> Result<(Code, String), String> {
        let cores = self.of_cores();
        let generic = name == "cpu" && !cores.iter().any(|core| core == "cpu");
        let pmu = match (wanted, &cores[..]) {
            (Some(wanted), _) if name == "cpu" => self.open(wanted)?,
            (None, [only]) if generic => self.open(only)?,
            (None, [_, _, ..]) if generic => {
                return Err(format!(
                    "this processor has several kinds of cores: say which ({})",
                    cores.join(", ")
                ));
            }
            _ => self.open(name)?,
        };
        let mut code = Code {
            kind: pmu.kind()?,
            config: [0; 4],
        };
        pmu.fill(terms, &mut code.config, DEEPEST)?;
        Ok((code, pmu.name))
    }

    /// A generic hardware event on the wanted kind of core.
    pub(super) fn on_core_kind(&self, code: Code, wanted: Option<&str>) -> Result<Code, String> {
        let Some(pmu) =
            wanted.filter(|_| [PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE].contains(&code.kind))
        else {
            return Ok(code);
        };
        let kind = u64::from(self.open(pmu)?.kind()?);
        let mut config = code.config;
        config[0] |= kind << PMU_TYPE_SHIFT;
        Ok(Code { config, ..code })
    }

    /// The name of the PMU that counts a code.
    pub(super) fn name_of(&self, code: Code, wanted: Option<&str>) -> Option<String> {
        if let Some(wanted) = wanted {
            return Some(wanted.to_owned());
        }
        let kind_of = |name: &String| self.open(name).and_then(|pmu| pmu.kind()).ok();
        self.names()
            .into_iter()
            .find(|name| kind_of(name) == Some(code.kind))
    }
}

/// The terms of all x86 processors (`x86_pmu.format_attrs` of the kernel; Intel SDM, volume 3, IA32_PERFEVTSELx).
const X86_TERMS: [(&str, &str); 6] = [
    ("event", "config:0-7,32-35"),
    ("umask", "config:8-15"),
    ("edge", "config:18"),
    ("any", "config:21"),
    ("inv", "config:23"),
    ("cmask", "config:24-31"),
];

fn x86_terms() -> Vec<(String, Bits)> {
    let terms = X86_TERMS.iter();
    terms
        .filter_map(|(name, bits)| Some(((*name).to_owned(), Bits::parse(bits).ok()?)))
        .collect()
}

/// What terms of the cores' PMU make on x86.
///
/// # Errors
/// A term that there is not, or a value that is too large for it.
pub(super) fn config_on_x86(terms: &str) -> Result<[u64; 4], String> {
    let (known, mut config) = (x86_terms(), [0; 4]);
    for (name, value) in parse_terms(terms)? {
        let found = known.iter().find(|(known, _)| known == name);
        let (_, bits) = found.ok_or_else(|| format!("processors of x86 have no term `{name}`"))?;
        bits.place(value.unwrap_or(1), &mut config)?;
    }
    Ok(config)
}

/// A code of the cores' PMU on x86, where the kernel has no such PMU.
pub(super) fn spelled_on_x86(config: &[u64; 4]) -> Option<String> {
    spelled("cpu", &x86_terms(), config)
}

/// Terms that make this code, the event's own first.
fn spelled(pmu: &str, terms: &[(String, Bits)], config: &[u64; 4]) -> Option<String> {
    let mut made = [0; 4];
    let mut written = Vec::new();
    let rank = |name: &str| match name {
        "event" => 0,
        "umask" => 1,
        _ => 2,
    };
    let mut terms: Vec<&(String, Bits)> = terms.iter().collect();
    terms.sort_by_key(|(name, _)| (rank(name), name.clone()));
    for (name, bits) in terms {
        let value = bits.taken(config);
        // What an earlier term has set already needs no other.
        if value == bits.taken(&made) {
            continue;
        }
        bits.place(value, &mut made).ok()?;
        written.push(format!("{name}={value:#x}"));
    }
    (made == *config && !written.is_empty()).then(|| format!("{pmu}/{}/", written.join(",")))
}

impl Pmu {
    /// Its number, `type` in `perf_event_attr`.
    ///
    /// # Errors
    /// An unreadable table.
    pub fn kind(&self) -> Result<u32, String> {
        let text = self.read("type")?;
        text.trim()
            .parse()
            .map_err(|_| format!("{} is no number", self.folder.join("type").display()))
    }

    /// The PUs that it counts on; `None` where the kernel does not tell, which means all.
    pub fn pus(&self) -> Option<PuSet> {
        self.read("cpus").ok()?.parse().ok()
    }

    /// Its name below `/sys/bus/event_source/devices`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of its events, each with the terms that define it, in alphabetical order.
    pub fn events(&self) -> Vec<(String, String)> {
        let names = self.list("events").into_iter();
        // Units and scales are in files of their own, `energy-pkg.scale`.
        let names = names.filter(|name| {
            ![".unit", ".scale", ".snapshot"]
                .iter()
                .any(|e| name.ends_with(e))
        });
        let defined = names.filter_map(|name| {
            let terms = self.read(&format!("events/{name}")).ok()?;
            Some((name, terms.trim().to_owned()))
        });
        defined.collect()
    }

    /// The names of its terms, each with its bits, in alphabetical order.
    pub fn terms(&self) -> Vec<(String, Bits)> {
        let names = self.list("format").into_iter();
        names
            .filter_map(|name| Some((name.clone(), self.bits(&name).ok()??)))
            .collect()
    }

    /// `cpu/event=0x2e,umask=0x41/`: the event that has this code; `None` for a code that its terms cannot make.
    pub(super) fn spelled(&self, config: &[u64; 4]) -> Option<String> {
        spelled(&self.name, &self.terms(), config)
    }

    fn read(&self, file: &str) -> Result<String, String> {
        let path = self.folder.join(file);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.folder.join(folder)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Fills in terms: format names, whole fields, or names of events that are defined by further terms. An event's own
    /// terms come first, so that the other terms may override them.
    fn fill(&self, terms: &str, config: &mut [u64; 4], deep: usize) -> Result<(), String> {
        if deep == 0 {
            return Err(format!(
                "the events of PMU {} are defined in a circle",
                self.name
            ));
        }
        let terms = parse_terms(terms)?;
        let named = |name: &str| {
            let plain = !name.contains('/') && !name.starts_with('.');
            plain
                .then(|| self.read(&format!("events/{name}")).ok())
                .flatten()
        };
        for (name, value) in &terms {
            if value.is_none()
                && let Some(definition) = named(name)
            {
                self.fill(&definition, config, deep - 1)?;
            }
        }
        for (name, value) in &terms {
            match self.bits(name)? {
                Some(bits) => bits
                    .place(value.unwrap_or(1), config)
                    .map_err(|why| format!("{name}: {why}"))?,
                None if value.is_none() && named(name).is_some() => {}
                None => match (Field::from_name(name), value) {
                    (Some(field), Some(value)) => config[field as usize] = *value,
                    // Names and periods say nothing of what is counted.
                    _ if ["name", "period", "freq"].contains(name) => {}
                    _ => return Err(self.unknown(name)),
                },
            }
        }
        Ok(())
    }

    fn bits(&self, name: &str) -> Result<Option<Bits>, String> {
        if name.contains('/') || name.starts_with('.') {
            return Ok(None);
        }
        match self.read(&format!("format/{name}")) {
            Ok(text) => match Bits::parse(&text) {
                Ok(bits) => Ok(Some(bits)),
                Err(why) => Err(format!("format of `{name}` on PMU {}: {why}", self.name)),
            },
            Err(_) => Ok(None),
        }
    }

    fn unknown(&self, name: &str) -> String {
        let pmu = &self.name;
        let or_none = |names: Vec<String>| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        let terms = or_none(self.list("format"));
        let events: Vec<String> = self.list("events");
        let few = or_none(
            events
                .into_iter()
                .filter(|e| !e.contains('.'))
                .take(20)
                .collect(),
        );
        format!(
            "PMU {pmu} has neither a term nor an event `{name}` (terms: {terms}; events: {few})"
        )
    }
}
