//! Which profile a processor gets, and why.

use crate::{cpu::CpuIdentity, library::Library, profile::Profile};

/// The profile for a processor.
#[derive(Debug, Clone)]
pub struct Detected<'a> {
    /// The best matching profile of the library.
    pub profile: &'a Profile,
    /// The reason for this choice, as a sentence for the user.
    pub why: String,
}

/// The profile whose rules fit a processor best; among equals the user's own, which stand last in the library.
///
/// Where nothing fits, it is the profile for any processor.
pub fn detect<'a>(library: &'a Library, identity: &CpuIdentity) -> Detected<'a> {
    let best = library
        .list()
        .iter()
        .flat_map(|profile| profile.rules.iter().map(move |rule| (profile, rule)))
        .map(|(profile, rule)| (rule.fits(identity), profile, rule))
        .filter(|(fit, ..)| *fit > 0)
        .max_by_key(|(fit, ..)| *fit);
    let (fit, profile, rule) = match best {
        Some(best) => best,
        None => {
            return Detected {
                profile: library.fallback(),
                why: format!("no profile is for this processor, {identity}"),
            };
        }
    };
    let why = match fit {
        1 if identity.is_unknown() => "the processor does not say what it is".to_owned(),
        1 if identity.arm.len() > 1 => format!(
            "the cores are of several kinds, {identity}, and no profile is for all of them; write one with a \
             `[[kind]]` for each (docs/profiles.md)"
        ),
        1 => format!(
            "no profile is for this processor, {identity}; `--profile` chooses another, docs/profiles.md says how \
             to write one"
        ),
        _ => format!("the processor is {identity}; the profile is for {rule}"),
    };
    Detected { profile, why }
}
