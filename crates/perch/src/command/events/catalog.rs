//! Every event that is known by a name: the profile's, the kernel's, those of the PMUs, libpfm4's, tracepoints.

use perch_linux::perf::encode::{Code, Encoder, GENERIC_EVENTS, Table, cache_events};
use perch_profile::{Profile, Spelling};
use perch_stat::canonical;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Where a name comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The processor profile.
    Profile,
    /// The kernel's generic names.
    Kernel,
    /// A PMU's own names in `/sys`.
    Pmu,
    /// libpfm4.
    Libpfm4,
    /// The kernel's tracepoints.
    Tracepoint,
}

/// An event.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// As `perch stat -e` takes it.
    pub name: String,
    /// Where the name comes from.
    pub source: Source,
    /// The PMU, the profile or the table.
    pub of: String,
    /// What it counts; empty if the source does not say.
    pub description: String,
    /// How the source spells it.
    pub spellings: Vec<String>,
    /// What it is to the kernel; `None` if it means nothing here.
    #[serde(skip)]
    pub code: Option<Code>,
    /// Why there is no code.
    pub problem: Option<String>,
}

impl Entry {
    /// `profile zen4`, `kernel`, `PMU cpu`, `libpfm4 adl_glc`, `tracepoint`.
    pub fn origin(&self) -> String {
        match self.source {
            Source::Profile => format!("profile {}", self.of),
            Source::Kernel => "kernel".to_owned(),
            Source::Pmu => format!("PMU {}", self.of),
            Source::Libpfm4 => format!("libpfm4 {}", self.of),
            Source::Tracepoint => "tracepoint".to_owned(),
        }
    }

    fn has(&self, words: &[String]) -> bool {
        let (name, description) = (self.name.to_lowercase(), self.description.to_lowercase());
        let plain = name.replace(['_', '-', '.'], " ");
        words.iter().all(|word| {
            let word = word.to_lowercase();
            [&name, &plain, &description]
                .iter()
                .any(|text| text.contains(&word))
        })
    }
}

/// A PMU of this machine.
#[derive(Debug, Clone, Serialize)]
pub struct PmuEntry {
    /// Its name.
    pub name: String,
    /// Its number, `type` in `perf_event_attr`.
    pub kind: Option<u32>,
    /// The PUs that count with it; `None` for all.
    pub pus: Option<String>,
    /// How many events have names.
    pub events: usize,
    /// Names of the terms of its events.
    pub terms: Vec<String>,
}

/// All events, each source read when it is asked for.
pub struct Catalog<'a> {
    encoder: &'a Encoder,
    profile: &'a Profile,
    is_foreign: bool,
}

/// libpfm4's tables of the kernel's own events, which perch lists itself.
const KERNEL_TABLES: [&str; 2] = ["perf", "perf_raw"];

impl<'a> Catalog<'a> {
    /// Of this machine; with another processor's profile, of that one.
    pub fn new(encoder: &'a Encoder, profile: &'a Profile, is_foreign: bool) -> Self {
        Self {
            encoder,
            profile,
            is_foreign,
        }
    }

    /// What a spelling is to the kernel.
    ///
    /// # Errors
    /// Why it means nothing.
    pub fn code(&self, spelling: &str, pmu: Option<&str>) -> Result<Code, String> {
        let encoded = self
            .encoder
            .encode(spelling, pmu.filter(|_| !self.is_foreign));
        encoded
            .map(|encoded| encoded.code)
            .map_err(|error| error.why)
    }

    fn entry(
        &self,
        name: &str,
        source: Source,
        of: &str,
        description: &str,
        spelling: &str,
    ) -> Entry {
        let code = self.code(spelling, None);
        Entry {
            name: name.to_owned(),
            source,
            of: of.to_owned(),
            description: description.to_owned(),
            spellings: vec![spelling.to_owned()],
            problem: code.as_ref().err().cloned(),
            code: code.ok(),
        }
    }

    /// The profile's events.
    pub fn of_profile(&self) -> Vec<Entry> {
        let described = self.described();
        let events = self.profile.events.iter().map(|event| {
            let choice = &event.choice;
            let tried = |spelling: &String| self.code(spelling, choice.pmu.as_deref());
            let codes: Vec<Result<Code, String>> = choice.spellings.iter().map(tried).collect();
            let code = codes.iter().find_map(|code| code.as_ref().ok()).copied();
            Entry {
                name: match &choice.pmu {
                    Some(pmu) => format!("{}@{pmu}", event.name),
                    None => event.name.to_string(),
                },
                source: Source::Profile,
                of: self.profile.name.clone(),
                description: {
                    let mut spellings = choice.spellings.iter();
                    match spellings.find_map(|spelling| described.get(spelling)) {
                        Some(text) => format!("{text} ({})", event.source),
                        None => event.source.clone(),
                    }
                },
                spellings: choice.spellings.clone(),
                problem: match code {
                    Some(_) => None,
                    None => codes.into_iter().find_map(Result::err),
                },
                code,
            }
        });
        events.collect()
    }

    /// What libpfm4 says of the profile's events, by spelling.
    fn described(&self) -> BTreeMap<String, String> {
        let Ok(pfm) = self.encoder.pfm() else {
            return BTreeMap::new();
        };
        let mut described = BTreeMap::new();
        for table in self.relevant() {
            for event in pfm.events(&table) {
                let spelling = format!("{}::{}", table.pmu, event.name);
                described.insert(spelling, event.description);
            }
        }
        described.retain(|_, text| !text.is_empty());
        described
    }

    /// The kernel's generic events, and the named events of this machine's PMUs.
    pub fn of_kernel(&self) -> Vec<Entry> {
        let generic = GENERIC_EVENTS.iter().flat_map(|event| {
            event
                .names
                .iter()
                .map(|name| self.entry(name, Source::Kernel, "", event.description, name))
        });
        let caches = cache_events().map(|name| self.entry(&name, Source::Kernel, "", "", &name));
        let mut entries: Vec<Entry> = generic.chain(caches).collect();
        if self.is_foreign {
            return entries;
        }
        for name in self.encoder.pmus().names() {
            let Ok(pmu) = self.encoder.pmus().open(&name) else {
                continue;
            };
            for (event, terms) in pmu.events() {
                let spelling = format!("{name}/{event}/");
                entries.push(self.entry(&spelling, Source::Pmu, &name, &terms, &spelling));
            }
        }
        entries
    }

    /// The tables of libpfm4 that count: those of PMUs that are here, or that the other processor's profile names.
    fn relevant(&self) -> Vec<Table> {
        let Ok(pfm) = self.encoder.pfm() else {
            return Vec::new();
        };
        let spelled = self
            .profile
            .events
            .iter()
            .flat_map(|event| &event.choice.spellings);
        let named: BTreeSet<&str> = spelled
            .filter_map(|spelling| match Spelling::parse(spelling) {
                Ok(Spelling::Pfm { pmu, .. }) => Some(pmu),
                _ => None,
            })
            .collect();
        let counts = |table: &Table| match self.is_foreign {
            true => named.contains(table.pmu.as_str()),
            false => table.is_present || named.contains(table.pmu.as_str()),
        };
        let tables = pfm.tables().into_iter();
        tables
            .filter(|table| counts(table) && !KERNEL_TABLES.contains(&table.pmu.as_str()))
            .collect()
    }

    /// libpfm4's events.
    pub fn of_tables(&self) -> Vec<Entry> {
        let Ok(pfm) = self.encoder.pfm() else {
            return Vec::new();
        };
        let mut entries = Vec::new();
        for table in self.relevant() {
            for event in pfm.events(&table) {
                let spelling = format!("{}::{}", table.pmu, event.name);
                let (name, text) = (&event.name, &event.description);
                entries.push(self.entry(name, Source::Libpfm4, &table.pmu, text, &spelling));
            }
        }
        entries
    }

    /// What else `--all` lists, in words.
    pub fn tables(&self) -> String {
        match self.encoder.pfm() {
            Err(why) => format!("The names in manufacturers' manuals are not known here: {why}"),
            Ok(_) => {
                let relevant = self.relevant();
                let tables: Vec<String> = relevant
                    .iter()
                    .map(|table| format!("{} ({} events)", table.pmu, table.events))
                    .collect();
                match tables.is_empty() {
                    true => "libpfm4 has no table of this processor.".to_owned(),
                    false => format!(
                        "`perch events WORD` also searches libpfm4's {}, and `--all` lists them.",
                        tables.join(", ")
                    ),
                }
            }
        }
    }

    /// The kernel's tracepoints.
    pub fn tracepoints(&self) -> Vec<Entry> {
        if self.is_foreign {
            return Vec::new();
        }
        let names = self.encoder.tracepoints().names();
        let entry = |name: &String| self.entry(name, Source::Tracepoint, "", "", name);
        names.iter().map(entry).collect()
    }

    /// Why the kernel's tracepoints are not known, if they are not.
    pub fn why_no_tracepoints(&self) -> Option<String> {
        if self.is_foreign || !self.encoder.tracepoints().names().is_empty() {
            return None;
        }
        self.code("sched:sched_switch", None).err()
    }

    fn all(&self) -> impl Iterator<Item = Entry> + '_ {
        let few = self.of_profile().into_iter().chain(self.of_kernel());
        few.chain(std::iter::once_with(|| self.of_tables()).flatten())
            .chain(std::iter::once_with(|| self.tracepoints()).flatten())
    }

    /// Events that have all the words in their name or description.
    pub fn matching(&self, words: &[String]) -> Vec<Entry> {
        self.all().filter(|entry| entry.has(words)).collect()
    }

    /// The event of that name, by the order in which `perch stat -e` looks names up.
    pub fn named(&self, name: &str) -> Option<Entry> {
        let meant = canonical(name);
        let is = |entry: &Entry| match entry.source {
            Source::Profile => entry.name == meant,
            _ => entry.name == name || entry.spellings.iter().any(|spelling| spelling == name),
        };
        self.all().find(is)
    }

    /// The events that have that code.
    pub fn with_code(&self, code: &Code) -> Vec<Entry> {
        let same = |entry: &Entry| entry.code.is_some_and(|found| found == *code);
        self.all().filter(same).collect()
    }

    /// Names to suggest.
    pub fn short_names(&self) -> Vec<String> {
        let entries = self.of_profile().into_iter().chain(self.of_kernel());
        entries.map(|entry| entry.name).collect()
    }

    /// The PMUs of this machine.
    pub fn pmus(&self) -> Vec<PmuEntry> {
        let pmus = self.encoder.pmus();
        let entry = |name: &String| {
            let pmu = pmus.open(name).ok()?;
            Some(PmuEntry {
                name: name.clone(),
                kind: pmu.kind().ok(),
                pus: pmu.pus().map(|pus| pus.to_string()),
                events: pmu.events().len(),
                terms: pmu.terms().into_iter().map(|(name, _)| name).collect(),
            })
        };
        pmus.names().iter().filter_map(entry).collect()
    }
}
