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
/// A user's profile with a mistake.
pub fn library() -> Result<Library> {
    let asked = std::env::var_os("PERCH_PROFILES");
    let mut dirs = user_dirs(asked.as_deref(), user_folder().as_deref());
    if asked.is_none() {
        // The user did not ask for it: HOME may be another user's, as under sudo or setpriv.
        let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        dirs.retain(|dir| !std::fs::read_dir(dir).is_err_and(refused));
    }
    Ok(Library::load(&dirs)?)
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
