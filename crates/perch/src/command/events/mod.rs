//! `perch events`: which events there are, what they are, and how they are written.

pub mod catalog;

use crate::{
    args::EventsArgs,
    processor,
    render::{
        events::{self as render, Explained, Translated},
        wrapped,
    },
};
use anyhow::{Result, anyhow, bail};
use catalog::{Catalog, Entry, Source};
use perch_core::{EventChoice, diagnostic::did_you_mean};
use perch_linux::{
    perf::{
        encode::{Code, Encoder},
        probe, try_count,
    },
    topology::{self, load},
};
use perch_profile::Profile;
use perch_stat::{Request, Space};
use std::process::ExitCode;

/// Lists, searches, explains or translates.
///
/// # Errors
/// No such event, no such profile.
pub fn events(args: &EventsArgs) -> Result<ExitCode> {
    let source = topology::Source::Native;
    let here = processor::choose(None, &source, &load(&source)?)?.profile;
    let profile = match &args.profile {
        Some(name) => processor::library()?.choose(name)?.clone(),
        None => here.clone(),
    };
    let is_foreign = profile.name != here.name;
    let encoder = match is_foreign {
        // SAFETY: this command has no other threads.
        true => unsafe { Encoder::with_all_tables() }.map_err(|why| anyhow!(why))?,
        false => Encoder::new(),
    };
    let events = Events {
        catalog: Catalog::new(&encoder, &profile, is_foreign),
        encoder: &encoder,
        profile: &profile,
        is_foreign,
    };
    if args.pmus {
        return events.pmus(args.json);
    }
    if !args.sets.is_empty() {
        return events.translate(&args.sets, args.json);
    }
    match &args.patterns[..] {
        [] => events.list(args.all, args.json),
        [name] => events.one(name, args.json),
        words => events.search(words, args.json),
    }
}

/// The names by which events of this machine are known to people: those of its profile and of the kernel.
pub fn short_names(profile: &Profile) -> Vec<String> {
    Catalog::new(&Encoder::new(), profile, false).short_names()
}

/// Those of these names that no event has, as formulas write them (`page_faults`), each with what may have been meant.
pub fn unknown<'a>(
    profile: &Profile,
    names: impl Iterator<Item = &'a str>,
) -> Vec<(&'a str, Option<String>)> {
    let encoder = Encoder::new();
    let catalog = Catalog::new(&encoder, profile, false);
    // A search through the whole catalogue takes tens of milliseconds, and comes last.
    let is_known = |name: &str| {
        let spellings = [name.to_owned(), name.replace('_', "-")];
        let encodes =
            |name: &String| catalog.code(name, None).is_ok() || encoder.encode_on_x86(name).is_ok();
        profile.events.iter().any(|event| *event.name == *name)
            || spellings.iter().any(encodes)
            || spellings.iter().any(|name| catalog.named(name).is_some())
    };
    let near = |name| did_you_mean(name, catalog.short_names().iter().map(String::as_str));
    let unknown = names.filter(|name| !is_known(name));
    unknown.map(|name| (name, near(name))).collect()
}

/// The events of this machine, or of another processor.
struct Events<'a> {
    catalog: Catalog<'a>,
    encoder: &'a Encoder,
    profile: &'a Profile,
    /// Whether the profile is another processor's: nothing of it can be counted here.
    is_foreign: bool,
}

impl Events<'_> {
    fn list(&self, all: bool, json: bool) -> Result<ExitCode> {
        let mut entries = self.catalog.of_profile();
        entries.extend(self.catalog.of_kernel());
        let more = match all {
            true => {
                entries.extend(self.catalog.of_tables());
                entries.extend(self.catalog.tracepoints());
                None
            }
            false => Some(self.catalog.tables()),
        };
        self.print(&entries, more.as_deref(), json)
    }

    fn search(&self, words: &[String], json: bool) -> Result<ExitCode> {
        let found = self.catalog.matching(words);
        if found.is_empty() {
            bail!(
                "no event has `{}` in its name or description",
                words.join("` and `")
            );
        }
        self.print(&found, None, json)
    }

    fn print(&self, entries: &[Entry], more: Option<&str>, json: bool) -> Result<ExitCode> {
        match json {
            true => crate::command::print_json(&entries)?,
            false => {
                crate::command::print(&render::list(entries, more))?;
                self.say_what_cannot_be_counted(entries);
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// That a machine without a PMU counts few of the events in a list.
    fn say_what_cannot_be_counted(&self, entries: &[Entry]) {
        let of_core = |entry: &Entry| entry.code.as_ref().is_none_or(Code::is_of_core);
        if self.is_foreign || !entries.iter().any(of_core) {
            return;
        }
        let probe = probe();
        if !probe.pmu_usable {
            crate::exit::note(&format!(
                "{}; of these events, only the kernel's own, such as task-clock and page-faults, can be counted here",
                probe.why
            ));
        }
    }

    /// An event by name, those that have a code, or those that have a word.
    fn one(&self, text: &str, json: bool) -> Result<ExitCode> {
        if let Some(entry) = self.catalog.named(text) {
            let explained = self.explain(&entry);
            match json {
                true => crate::command::print_json(&explained)?,
                false => crate::command::print(&render::explained(&explained))?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        if is_code(text) {
            return self.with_code(text, json);
        }
        let found = self.catalog.matching(&[text.to_owned()]);
        if !found.is_empty() {
            return self.print(&found, None, json);
        }
        let near = did_you_mean(text, self.catalog.short_names().iter().map(String::as_str));
        bail!(
            "no event is called `{text}`, and none has it in its name or description{}{}",
            near.map_or(String::new(), |near| format!("; {near}")),
            match self.catalog.why_no_tracepoints() {
                Some(why) => format!(" (tracepoints are not searched: {why})"),
                None => String::new(),
            }
        );
    }

    /// The events whose code a text writes.
    fn with_code(&self, text: &str, json: bool) -> Result<ExitCode> {
        let codes = self.codes_of(text)?;
        let mut found = Vec::new();
        for (_, code) in &codes {
            found.extend(self.catalog.with_code(code));
        }
        if found.is_empty() {
            let what: Vec<String> = codes
                .iter()
                .map(|(_, code)| format!("{:#x}", code.config[0]))
                .collect();
            let answer = format!(
                "no event with a name has the code {}; {}: perch stat -e '{text}'",
                what.join(", "),
                match self.has_no_pmu() {
                    true => "a machine with counters counts it all the same",
                    false => "it can be counted all the same",
                }
            );
            match json {
                true => crate::exit::note(&answer),
                false => {
                    return crate::command::print(&wrapped("", &answer))
                        .map(|()| ExitCode::SUCCESS);
                }
            }
        }
        self.print(&found, None, json)
    }

    /// The codes of a set that is written as codes.
    fn codes_of(&self, text: &str) -> Result<Vec<(String, Code)>> {
        let request = Request::parse(&[text.to_owned()], self.profile, Space::All)?;
        let mut codes = Vec::new();
        for event in &request.sets[0].events {
            let code = self.code(&event.choices);
            codes.push((event.name.to_string(), code.map_err(|why| anyhow!(why))?));
        }
        Ok(codes)
    }

    /// The code of the first spelling that means something.
    fn code(&self, choices: &[EventChoice]) -> Result<Code, String> {
        let mut why = String::new();
        for choice in choices {
            for spelling in &choice.spellings {
                let code = self.catalog.code(spelling, choice.pmu.as_deref());
                // Without a PMU of the cores, codes can be looked up all the same.
                let without_pmu = |why: String| match self.has_no_pmu() {
                    true => self.encoder.encode_on_x86(spelling).map_err(|_| why),
                    false => Err(why),
                };
                match code.or_else(without_pmu) {
                    Ok(code) => return Ok(code),
                    Err(error) => why = error,
                }
            }
        }
        Err(why)
    }

    /// Whether the events are of no PMU of this machine: another processor's, or of a machine that hides its counters.
    fn has_no_pmu(&self) -> bool {
        self.is_foreign || self.encoder.pmus().of_cores().is_empty()
    }

    fn explain(&self, entry: &Entry) -> Explained {
        let device = entry.code.and_then(|code| self.encoder.spelled(code));
        let counted = match (
            self.is_foreign && entry.source != Source::Kernel,
            &entry.code,
        ) {
            (true, _) => Err(format!(
                "profile {} is another processor's",
                self.profile.name
            )),
            (false, Some(code)) => try_count(*code),
            (false, None) => Err(entry.problem.clone().unwrap_or_default()),
        };
        Explained {
            name: entry.name.clone(),
            source: entry.origin(),
            description: entry.description.clone(),
            spellings: entry.spellings.clone(),
            pmctrack: device
                .as_deref()
                .and_then(|device| perch_stat::raw::write(0, device)),
            raw: entry.code.filter(|_| device.is_some()).and_then(raw),
            device,
            code: entry.code.map(|code| (code.kind, code.config)),
            counted: counted.err(),
        }
    }

    /// Sets as raw codes.
    fn translate(&self, sets: &[String], json: bool) -> Result<ExitCode> {
        let request = Request::parse(sets, self.profile, Space::All)?;
        let mut translated = Vec::new();
        for set in &request.sets {
            let mut events = Vec::new();
            for (number, event) in (0u32..).zip(&set.events) {
                let code = self.code(&event.choices);
                let device = code
                    .as_ref()
                    .ok()
                    .and_then(|code| self.encoder.spelled(*code));
                let pmctrack = device
                    .as_deref()
                    .and_then(|device| perch_stat::raw::write(number, device));
                let raw = code
                    .as_ref()
                    .ok()
                    .filter(|_| device.is_some())
                    .and_then(|code| raw(*code));
                // The kernel's own events have no code of a PMU; perf(1) knows them by the same names.
                let spelling = || event.choices.first()?.spellings.first().cloned();
                let name = code.is_ok().then(spelling).flatten();
                events.push(Translated {
                    name: event.name.to_string(),
                    pmctrack,
                    raw,
                    device: device.or(name),
                    problem: code.err().map(|why| self.problem(&event.name, why)),
                });
            }
            translated.push(events);
        }
        match json {
            true => crate::command::print_json(&translated)?,
            false => crate::command::print(&render::translated(&translated))?,
        }
        let failed = translated
            .iter()
            .flatten()
            .any(|event| event.problem.is_some());
        Ok(ExitCode::from(u8::from(failed)))
    }

    /// Why an event has no code: a name that means nothing is said to be that.
    fn problem(&self, name: &str, why: String) -> String {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let plain = perch_stat::without_modifier(name);
        if !plain.chars().all(is_name) || is_code(plain) || self.catalog.named(plain).is_some() {
            return why;
        }
        let names = self.catalog.short_names();
        let near = did_you_mean(plain, names.iter().map(String::as_str));
        let near = near.map_or(String::new(), |near| format!("; {near}"));
        format!("no event is called so{near}")
    }

    fn pmus(&self, json: bool) -> Result<ExitCode> {
        let pmus = self.catalog.pmus();
        let tables = self.encoder.pfm().map(|pfm| pfm.tables());
        match json {
            true => crate::command::print_json(&render::pmus_json(&pmus, tables.as_ref().ok()))?,
            false => crate::command::print(&render::pmus(&pmus, &tables))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether a text writes a code rather than a name.
fn is_code(text: &str) -> bool {
    let hexadecimal =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    text.contains('/')
        || text.strip_prefix('r').is_some_and(hexadecimal)
        || perch_stat::raw::is_raw(text)
}

/// `r412e`, where `config` says all.
fn raw(code: Code) -> Option<String> {
    (code.config[1..] == [0; 3]).then(|| format!("r{:x}", code.config[0]))
}
