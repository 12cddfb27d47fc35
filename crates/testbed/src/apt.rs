//! Packages from Debian: found and unpacked, never installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::host::{tool, tool_text};

/// Debian's backports for the release after the one whose stable kernel the guests usually run.
const BACKPORTS: &str = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
    http://deb.debian.org/debian trixie-backports main\n";

/// Where packages come from.
pub(crate) struct Apt {
    options: Vec<String>,
}

/// An option of apt that is a path.
fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

impl Apt {
    /// The host's own package sources.
    pub(crate) fn of_host() -> Self {
        Self {
            options: Vec::new(),
        }
    }

    /// Debian's backports, with lists of their own below this folder; fetched if they are not here yet.
    ///
    /// # Errors
    /// When they cannot be fetched.
    pub(crate) fn backports(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let sources = dir.join("sources.list");
        fs::write(&sources, BACKPORTS)?;
        let options = vec![
            option("Dir::Etc::sourcelist", &sources),
            option("Dir::Etc::sourceparts", Path::new("/dev/null")),
        ];
        Self::with_lists(dir, options)
    }

    /// The host's own package sources for another architecture, by Debian's name; with lists of their own as above.
    ///
    /// # Errors
    /// When they cannot be fetched.
    pub(crate) fn foreign(dir: &Path, architecture: &str) -> Result<Self> {
        fs::create_dir_all(dir)?;
        // The host has none of these packages.
        let status = dir.join("status");
        fs::write(&status, "")?;
        let options = vec![
            format!("APT::Architecture={architecture}"),
            format!("APT::Architectures={architecture}"),
            option("Dir::State::status", &status),
        ];
        Self::with_lists(dir, options)
    }

    fn with_lists(dir: &Path, mut options: Vec<String>) -> Result<Self> {
        let lists = dir.join("lists");
        fs::create_dir_all(lists.join("partial"))?;
        fs::create_dir_all(dir.join("cache/archives/partial"))?;
        options.push(option("Dir::State::Lists", &lists));
        options.push(option("Dir::Cache", &dir.join("cache")));
        let apt = Self { options };
        let is_list = |name: &str| name.ends_with("_Packages") || name.contains("_Packages.");
        let fetched = fs::read_dir(&lists)?
            .filter_map(Result::ok)
            .any(|entry| is_list(&entry.file_name().to_string_lossy()));
        if !fetched {
            tool(apt.command("apt-get").arg("-qq").arg("update"), "apt")?;
        }
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        // As root apt would change to its own user, which may not write where packages go.
        command.args(["-o", "APT::Sandbox::User=root"]);
        command
    }

    /// The versioned package that a meta package needs first: its name and version. `None` if it is not known.
    ///
    /// # Errors
    /// When apt is not installed.
    pub(crate) fn behind(&self, meta: &str, prefix: &str) -> Result<Option<(String, String)>> {
        let show = self
            .command("apt-cache")
            .args(["--no-all-versions", "show", meta])
            .output()
            .context(
                "`apt-cache` is not installed; the testbed needs Debian 12 or a system with apt",
            )?;
        let text = String::from_utf8_lossy(&show.stdout);
        let depends = text.lines().find_map(|line| line.strip_prefix("Depends: "));
        // "linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)"
        let found = depends.into_iter().flat_map(|line| line.split(", "));
        Ok(found
            .filter_map(|package| {
                let (name, version) = package.split_once(" (= ")?;
                let version = version.strip_suffix(')')?;
                Some((name.strip_prefix(prefix)?.to_owned(), version.to_owned()))
            })
            .next())
    }

    /// What a package depends on.
    ///
    /// # Errors
    /// When there is no such package.
    pub(crate) fn depends(&self, package: &str) -> Result<Vec<String>> {
        let text = tool_text(self.command("apt-cache").args(["depends", package]), "apt")?;
        Ok(text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .map(str::to_owned)
            .collect())
    }

    /// Downloads packages, each `NAME=VERSION` or the `NAME` of the one that apt would install, and unpacks them side by
    /// side into `into`.
    ///
    /// # Errors
    /// When one of them cannot be had.
    pub(crate) fn download(&self, packages: &[String], into: &Path) -> Result<()> {
        fs::create_dir_all(into)?;
        let debs = tempfile::tempdir_in(into)?;
        eprintln!("testbed: downloading {}", packages.join(" "));
        tool(
            self.command("apt-get")
                .args(["-qq", "download"])
                .args(packages)
                .current_dir(debs.path()),
            "apt",
        )
        .context(
            "cannot download the guest's kernel; `apt-get update` refreshes the package lists",
        )?;
        for deb in fs::read_dir(debs.path())? {
            let deb = deb?.path();
            tool(
                Command::new("dpkg-deb").arg("-x").arg(deb).arg(into),
                "dpkg",
            )?;
        }
        Ok(())
    }
}
