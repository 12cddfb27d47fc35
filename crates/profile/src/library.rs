//! The profiles that are shipped, and those of the user.

use crate::{error::LibraryError, profile::Profile};
use include_dir::{Dir, include_dir};
use perch_core::diagnostic::did_you_mean;
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// The profiles in the source tree's `profiles/`, embedded.
static SHIPPED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../profiles");

/// The name of the profile for processors that no other is for.
const FALLBACK: &str = "generic";

/// Profiles by name: the shipped ones, sorted, then the user's.
#[derive(Debug, Clone)]
pub struct Library {
    profiles: Vec<Profile>,
}

impl Library {
    /// The shipped profiles.
    ///
    /// # Panics
    /// Never with the profiles of this source tree: a test reads them all.
    pub fn embedded() -> Self {
        let mut profiles: Vec<Profile> = SHIPPED
            .files()
            .filter(|file| is_toml(file.path()))
            .map(|file| {
                let text = file.contents_utf8().expect("a shipped profile is text");
                let path = Path::new("profiles").join(file.path());
                Profile::parse(text, &path.to_string_lossy())
                    .unwrap_or_else(|error| panic!("a shipped profile is broken: {error}"))
            })
            .collect();
        profiles.sort_by(|a, b| a.name.cmp(&b.name));
        Self { profiles }
    }

    /// The shipped profiles and those of these directories (`*.toml`). A later profile takes the place of an earlier
    /// one of the same name.
    ///
    /// # Errors
    /// A directory or file that cannot be read or does not exist, a profile with an error, two of one name in one
    /// directory.
    pub fn load(user_dirs: &[PathBuf]) -> Result<Self, LibraryError> {
        let mut library = Self::embedded();
        for directory in user_dirs {
            let mut own: Vec<Profile> = Vec::new();
            for path in toml_files(directory)? {
                let profile = read(&path)?;
                if let Some(first) = own.iter().find(|other| other.name == profile.name) {
                    return Err(LibraryError::Twice {
                        name: profile.name,
                        first: first.path.clone(),
                        second: profile.path,
                    });
                }
                own.push(profile);
            }
            for profile in own {
                library.put(profile);
            }
        }
        Ok(library)
    }

    /// All profiles: the shipped ones by name, then the user's.
    pub fn list(&self) -> &[Profile] {
        &self.profiles
    }

    /// The profile of that name.
    ///
    /// # Errors
    /// No such profile; with a suggestion where one name is much like it.
    pub fn find(&self, name: &str) -> Result<&Profile, LibraryError> {
        self.profiles
            .iter()
            .find(|profile| profile.name == name)
            .ok_or_else(|| LibraryError::Unknown {
                name: name.to_owned(),
                hint: perch_files::toml_of(name)
                    .map(|file| format!("here is a file of that name: write `{file}`"))
                    .or_else(|| did_you_mean(name, self.profiles.iter().map(|p| p.name.as_str())))
                    .map(|hint| format!("; {hint}"))
                    .unwrap_or_default(),
            })
    }

    /// The profile that `--profile` names: a path to a file if it has a slash or ends in `.toml` (it is added to the
    /// library), else a name.
    ///
    /// # Errors
    /// A file that cannot be read or has an error; no such name.
    pub fn choose(&mut self, name_or_path: &str) -> Result<&Profile, LibraryError> {
        let path = Path::new(name_or_path);
        if !name_or_path.contains('/') && !is_toml(path) {
            return self.find(name_or_path);
        }
        let profile = read(path)?;
        let at = self.put(profile);
        Ok(&self.profiles[at])
    }

    /// The profile for processors that no other is for.
    pub(crate) fn fallback(&self) -> &Profile {
        self.find(FALLBACK)
            .unwrap_or_else(|_| panic!("the profile `{FALLBACK}` is shipped"))
    }

    /// Adds a profile, in place of the one of the same name; it stands last. Returns where.
    fn put(&mut self, profile: Profile) -> usize {
        self.profiles.retain(|old| old.name != profile.name);
        self.profiles.push(profile);
        self.profiles.len() - 1
    }
}

/// Where a user's profiles are: `$PERCH_PROFILES` (directories separated by colons), else `profiles` in the directory of
/// perch's settings, which need not exist. The caller brings both.
pub fn user_dirs(perch_profiles: Option<&OsStr>, settings: Option<&Path>) -> Vec<PathBuf> {
    if let Some(directories) = perch_profiles.filter(|value| !value.is_empty()) {
        return std::env::split_paths(directories)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
    }
    let profiles = settings.map(|settings| settings.join("profiles"));
    profiles.into_iter().collect()
}

fn is_toml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "toml")
}

fn toml_files(directory: &Path) -> Result<Vec<PathBuf>, LibraryError> {
    let io = |error| LibraryError::Io {
        path: directory.to_owned(),
        error,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if is_toml(&path) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<Profile, LibraryError> {
    let text = perch_files::read_to_string(path).map_err(|error| LibraryError::Io {
        path: path.to_owned(),
        error,
    })?;
    Profile::parse(&text, &path.to_string_lossy())
        .map_err(|error| LibraryError::Profile(Box::new(error)))
}
