//! Which profile a machine gets.

use crate::config::user_folder;
use anyhow::{Context, Result};
use perch_linux::topology::{Loaded, Source};
use perch_profile::{CpuIdentity, Library, Profile, detect, user_dirs};

/// A profile and why it was taken.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The profile.
    pub profile: Profile,
    /// A sentence for the user.
    pub why: String,
}

/// The shipped profiles and the user's.
///
/// # Errors
/// A user's profile with a mistake; a folder that `PERCH_PROFILES` names and that cannot be read.
pub fn library() -> Result<Library> {
    let asked = std::env::var_os("PERCH_PROFILES").filter(|value| !value.is_empty());
    let mut dirs = user_dirs(asked.as_deref(), user_folder().as_deref());
    let Some(asked) = asked else {
        // Most users have no profiles of their own, and HOME may be another user's, as under sudo or setpriv.
        let unused = |error: std::io::Error| {
            use std::io::ErrorKind::{NotFound, PermissionDenied};
            matches!(error.kind(), NotFound | PermissionDenied)
        };
        dirs.retain(|dir| !std::fs::read_dir(dir).is_err_and(unused));
        return Ok(Library::load(&dirs)?);
    };
    Library::load(&dirs).with_context(|| format!("PERCH_PROFILES={}", asked.to_string_lossy()))
}

/// The profile that was asked for, else the one that fits the machine.
///
/// # Errors
/// No such profile, or one with a mistake.
pub fn choose(asked: Option<&str>, source: &Source, loaded: &Loaded) -> Result<Chosen> {
    let mut library = library()?;
    if let Some(asked) = asked {
        let profile = library.choose(asked)?.clone();
        return Ok(Chosen {
            profile,
            why: "you asked for it".to_owned(),
        });
    }
    let detected = detect(&library, &identity(source, loaded)?);
    Ok(Chosen {
        profile: detected.profile.clone(),
        why: detected.why,
    })
}

/// What the machine's processor says of itself.
///
/// # Errors
/// An unreadable /proc/cpuinfo.
pub fn identity(source: &Source, loaded: &Loaded) -> Result<CpuIdentity> {
    match source {
        Source::Native => {
            let text = std::fs::read("/proc/cpuinfo").context("/proc/cpuinfo: cannot be read")?;
            Ok(CpuIdentity::from_cpuinfo(&String::from_utf8_lossy(&text)))
        }
        Source::Synthetic(_) | Source::Xml(_) => {
            let infos = loaded
                .infos
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()));
            Ok(CpuIdentity::from_hwloc(infos))
        }
    }
}
