//! The shipped profiles as a whole, and the one in the documentation.

use perch_core::{MetricSource, ShareLevel, metric::names};
use perch_profile::{Library, Profile, Rule, UnitClass};

#[test]
fn every_promised_profile_is_there() {
    let library = Library::embedded();
    for name in [
        "alder-lake",
        "bulldozer",
        "cortex-a53",
        "cortex-a57",
        "cortex-a72",
        "cortex-a76",
        "generic",
        "ice-lake-sp",
        "neoverse-n1",
        "neoverse-v1",
        "neoverse-v2",
        "power10",
        "power7",
        "power8",
        "power9",
        "sapphire-rapids",
        "skylake-sp",
        "zen1",
        "zen2",
        "zen3",
        "zen4",
        "zen5",
    ] {
        assert!(library.find(name).is_ok(), "{name}");
    }
}

#[test]
fn each_counts_cycles_and_instructions_first_and_gives_ipc() {
    for profile in Library::embedded().list() {
        let plan = profile.event_plan();
        assert!(!plan.sets.is_empty(), "{}", profile.name);
        for set in &plan.sets {
            let first: Vec<&str> = set
                .events
                .iter()
                .take(2)
                .map(|event| &*event.alias)
                .collect();
            let bare: Vec<&str> = first
                .iter()
                .map(|alias| alias.split('@').next().unwrap())
                .collect();
            assert_eq!(bare, ["cycles", "instructions"], "{}", profile.name);
            assert!(
                set.events.len() <= 5,
                "{}: {} needs too many counters",
                profile.name,
                set.name
            );
        }
        for name in [names::CYCLES, names::INSTRUCTIONS, names::IPC] {
            assert!(profile.counts(name), "{}: {name}", profile.name);
        }
    }
}

#[test]
fn each_counts_the_fp_share_except_where_no_event_exists() {
    for profile in Library::embedded().list() {
        let without = ["generic", "cortex-a53"].contains(&profile.name.as_str());
        assert_eq!(
            profile.counts(names::FP_SHARE),
            !without,
            "{}",
            profile.name
        );
        assert_eq!(
            profile.fp_threshold(MetricSource::Sampling),
            0.05,
            "{}",
            profile.name
        );
        assert!(
            profile.fp_threshold(MetricSource::Counters) > 0.0,
            "{}",
            profile.name
        );
    }
}

#[test]
fn floating_point_units_are_shared_in_a_core_except_on_bulldozer() {
    for profile in Library::embedded().list() {
        let level = if profile.name == "bulldozer" {
            ShareLevel::L2
        } else {
            ShareLevel::Core
        };
        assert_eq!(profile.fp_share_level(), level, "{}", profile.name);
        let fp = profile.units.iter().any(|unit| unit.class == UnitClass::Fp);
        assert_eq!(fp, profile.name != "generic", "{}", profile.name);
    }
}

#[test]
fn no_two_profiles_claim_the_same_processor() {
    let library = Library::embedded();
    let mut claims: Vec<(String, String, u32, u32)> = Vec::new();
    for profile in library.list() {
        for rule in &profile.rules {
            let mut claim = |class: String, first: u32, last: u32| {
                for (name, other, from, to) in &claims {
                    let apart = *other != class || last < *from || *to < first;
                    assert!(
                        apart,
                        "{name} and {} both claim {class} {first:#x}-{last:#x}",
                        profile.name
                    );
                }
                claims.push((profile.name.clone(), class, first, last));
            };
            match rule {
                Rule::Any => claim("any".to_owned(), 0, 0),
                Rule::X86 {
                    vendor,
                    family,
                    models,
                } => {
                    let all = [(0, u32::MAX)];
                    for (first, last) in if models.is_empty() { &all[..] } else { models } {
                        claim(format!("{vendor} {family}"), *first, *last);
                    }
                }
                Rule::Arm { implementer, parts } => {
                    for part in parts {
                        claim(format!("arm {implementer}"), *part, *part);
                    }
                }
                Rule::Power { pvr, .. } => {
                    for pvr in pvr {
                        claim("pvr".to_owned(), *pvr, *pvr);
                    }
                }
            }
        }
    }
}

#[test]
fn the_documented_example_is_a_profile() {
    let document = include_str!("../../../docs/profiles.md");
    let example = document
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let profile = Profile::parse(example, "docs/profiles.md").unwrap();
    assert_eq!(profile.name, "example");
    assert_eq!(profile.event_plan().sets.len(), 1);
    assert_eq!(profile.event_plan_for(&["llc_mpki"]).sets.len(), 2);
    assert_eq!(profile.text, example);
}
