//! Every event of every shipped profile means what it says: libpfm4's encoding of its name is the raw code that
//! stands beside it, and what libpfm4 does not know has a raw code with a source.

#[path = "support/pfm.rs"]
mod pfm;

use perch_profile::{Library, Profile, Spelling, cpu::Rule, profile::Event, spelling::number};
use pfm::Pfm;

/// The `config` of a device's terms, by the kernel's format of the core PMUs (`/sys/bus/event_source/devices/*/format`).
fn config(profile: &Profile, terms: &[(&str, Option<&str>)]) -> Option<u64> {
    let x86 = profile
        .rules
        .iter()
        .any(|rule| matches!(rule, Rule::X86 { .. }));
    let mut config = 0;
    for (term, value) in terms {
        let value = number((*value)?)?;
        config |= match (*term, x86) {
            // AMD has four more bits of event at 32.
            ("event", true) => value & 0xff | (value >> 8 & 0xf) << 32,
            ("umask", true) => value << 8,
            ("edge", true) => value << 18,
            ("inv", true) => value << 23,
            ("cmask", true) => value << 24,
            ("event", false) => value,
            _ => return None,
        };
    }
    Some(config)
}

/// The raw codes among an event's spellings.
fn raw_codes(profile: &Profile, event: &Event) -> Vec<u64> {
    event
        .choice
        .spellings
        .iter()
        .filter_map(|spelling| match Spelling::parse(spelling).ok()? {
            Spelling::Raw(code) => Some(code),
            Spelling::Device { terms, .. } => config(profile, &terms),
            Spelling::Pfm { .. } | Spelling::Generic(_) => None,
        })
        .collect()
}

#[test]
fn names_and_raw_codes_agree() {
    let libraries = Pfm::all();
    assert!(
        !libraries.is_empty(),
        "libpfm.so.4 is not installed: apt-get install libpfm4"
    );
    let mut encoded = 0;
    let mut wrong = Vec::new();
    for profile in Library::embedded().list() {
        for event in &profile.events {
            let who = format!("{}: {}", profile.name, event.choice.alias);
            let codes = raw_codes(profile, event);
            if codes.windows(2).any(|pair| pair[0] != pair[1]) {
                wrong.push(format!("{who}: the raw codes differ: {codes:x?}"));
            }
            for spelling in &event.choice.spellings {
                let Ok(Spelling::Pfm { pmu, .. }) = Spelling::parse(spelling) else {
                    continue;
                };
                if codes.is_empty() {
                    wrong.push(format!("{who}: no raw code beside {spelling}"));
                    continue;
                }
                for library in libraries.iter().filter(|pfm| pfm.pmus.contains(pmu)) {
                    match library.encode(spelling) {
                        Ok(config) if config == codes[0] => encoded += 1,
                        Ok(config) => wrong.push(format!(
                            "{who}: {spelling} is {config:#x}, the raw code {:#x}",
                            codes[0]
                        )),
                        Err(reason) => wrong.push(format!("{who}: {spelling}: {reason}")),
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // On x86 the system's library knows the AMD and Intel servers up to Zen 4 and Sapphire Rapids.
    assert!(encoded > 0, "libpfm4 knows no PMU of any profile");
    println!("{encoded} names encoded");
}

#[test]
fn raw_codes_without_a_name_have_a_documented_source() {
    for profile in Library::embedded().list() {
        for event in &profile.events {
            let named = event.choice.spellings.iter().any(|spelling| {
                matches!(
                    Spelling::parse(spelling),
                    Ok(Spelling::Pfm { .. } | Spelling::Generic(_))
                )
            });
            assert!(
                named
                    || ["perf JSON table", "Linux, "]
                        .iter()
                        .any(|s| event.source.contains(s)),
                "{}: {} has neither a libpfm4 name nor a documented raw code",
                profile.name,
                event.choice.alias
            );
        }
    }
}

#[test]
fn no_profile_uses_the_event_that_takes_two_counters() {
    for profile in Library::embedded().list() {
        if !profile.name.starts_with("zen") {
            continue;
        }
        for event in &profile.events {
            let merged = raw_codes(profile, event)
                .iter()
                .any(|code| code & 0xff == 0x03);
            assert!(!merged, "{}: {}", profile.name, event.choice.alias);
        }
    }
}
