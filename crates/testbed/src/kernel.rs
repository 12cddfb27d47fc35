//! The guest's kernel: the distribution's own stable cloud kernel, fetched with apt and never installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::host::{cache_dir, lock, tool, tool_text};

/// The package that depends on the current cloud kernel.
const META: &str = "linux-image-cloud-amd64";

/// A kernel unpacked in the cache folder.
#[derive(Clone, Debug)]
pub struct Kernel {
    release: String,
    version: String,
    dir: PathBuf,
}

impl Kernel {
    /// The newest cloud kernel that this host's package sources offer, downloaded if it is not here yet.
    ///
    /// Without package lists a kernel fetched before is used. Which one is printed on standard error.
    ///
    /// # Errors
    /// When apt knows no such package and none is in the cache, or the download fails.
    pub fn fetch() -> Result<Self> {
        static KERNEL: OnceLock<Kernel> = OnceLock::new();
        if let Some(kernel) = KERNEL.get() {
            return Ok(kernel.clone());
        }
        let cache = cache_dir()?;
        let _lock = lock(&cache, "kernel")?;
        let kernel = match resolve()? {
            Some((release, version)) => {
                let dir = cache.join(format!("linux-{release}"));
                let kernel = Self {
                    release,
                    version,
                    dir,
                };
                kernel.unpack()?;
                kernel
            }
            None => newest_cached(&cache)?,
        };
        eprintln!(
            "testbed: guest kernel {} (package version {})",
            kernel.release, kernel.version
        );
        Ok(KERNEL.get_or_init(|| kernel).clone())
    }

    /// The kernel's release, as `uname -r` prints it in the guest.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The bootable image.
    pub(crate) fn image(&self) -> PathBuf {
        self.dir
            .join("image/boot")
            .join(format!("vmlinuz-{}", self.release))
    }

    /// The folder with `modules.dep` and the modules.
    pub(crate) fn modules(&self) -> PathBuf {
        self.dir.join("image/lib/modules").join(&self.release)
    }

    /// Where modules built for this kernel are kept.
    pub(crate) fn build_dir(&self) -> PathBuf {
        self.dir.join("build")
    }

    fn unpack(&self) -> Result<()> {
        let done = self.dir.join("version");
        if fs::read_to_string(&done).is_ok_and(|v| v == self.version) {
            return Ok(());
        }
        if self.dir.exists() {
            fs::remove_dir_all(&self.dir)?;
        }
        let image = self.dir.join("image");
        download(
            &[format!("linux-image-{}={}", self.release, self.version)],
            &image,
        )?;
        if !self.image().is_file() {
            bail!(
                "the package linux-image-{} holds no {}",
                self.release,
                self.image().display()
            );
        }
        tool(
            Command::new("depmod")
                .arg("-b")
                .arg(&image)
                .arg(&self.release),
            "kmod",
        )?;
        fs::write(done, &self.version)?;
        Ok(())
    }

    /// The kernel's headers, ready to build modules with, downloaded if they are not here yet.
    ///
    /// # Errors
    /// When apt does not have them any more, or the download fails.
    pub(crate) fn headers(&self) -> Result<PathBuf> {
        let root = self.dir.join("headers");
        let tree = root
            .join("usr/src")
            .join(format!("linux-headers-{}", self.release));
        let done = root.join("done");
        if done.is_file() {
            return Ok(tree);
        }
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        let package = format!("linux-headers-{}", self.release);
        let mut wanted = vec![format!("{package}={}", self.version)];
        for name in depends(&package)? {
            // The compiler's package only pulls in gcc, which the host has.
            if name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-") {
                wanted.push(format!("{name}={}", self.version));
            }
        }
        download(&wanted, &root)?;
        // The packages expect to stand in /usr/src; ours do not.
        let makefile = tree.join("Makefile");
        let text = fs::read_to_string(&makefile)
            .with_context(|| format!("{package} holds no Makefile"))?;
        let here = format!("{}/usr/src/", root.display());
        fs::write(&makefile, text.replace("/usr/src/", &here))?;
        fs::write(done, "")?;
        Ok(tree)
    }
}

/// The versioned package behind the meta package: (release, package version). `None` without package lists.
fn resolve() -> Result<Option<(String, String)>> {
    let show = Command::new("apt-cache")
        .args(["--no-all-versions", "show", META])
        .output()
        .context(
            "`apt-cache` is not installed; the testbed needs Debian 12 or a system with apt",
        )?;
    let text = String::from_utf8_lossy(&show.stdout);
    let Some(depends) = text.lines().find_map(|l| l.strip_prefix("Depends: ")) else {
        return Ok(None);
    };
    // "linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)"
    let mut words = depends
        .split([' ', ',', '(', ')', '='])
        .filter(|w| !w.is_empty());
    match (
        words.next().and_then(|p| p.strip_prefix("linux-image-")),
        words.next(),
    ) {
        (Some(release), Some(version)) => Ok(Some((release.to_owned(), version.to_owned()))),
        _ => bail!("cannot read the kernel's version from {META}'s dependencies: {depends}"),
    }
}

fn depends(package: &str) -> Result<Vec<String>> {
    let text = tool_text(Command::new("apt-cache").args(["depends", package]), "apt")?;
    Ok(text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("Depends: "))
        .map(str::to_owned)
        .collect())
}

fn newest_cached(cache: &Path) -> Result<Kernel> {
    let newest = fs::read_dir(cache)?
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let dir = entry.path();
            let version = fs::read_to_string(dir.join("version")).ok()?;
            let release = entry
                .file_name()
                .to_str()?
                .strip_prefix("linux-")?
                .to_owned();
            let when = entry.metadata().and_then(|m| m.modified()).ok()?;
            Some((
                when,
                Kernel {
                    release,
                    version,
                    dir,
                },
            ))
        })
        .max_by_key(|(when, _)| *when);
    match newest {
        Some((_, kernel)) => Ok(kernel),
        None => bail!(
            "apt knows no package {META}; run `apt-get update` (Debian 12's own sources have it), \
             or set PERCH_TESTBED_DIR to a folder with a kernel fetched before"
        ),
    }
}

/// Downloads packages from the host's own sources and unpacks them side by side into `into`.
fn download(packages: &[String], into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    let debs = tempfile::tempdir_in(into)?;
    eprintln!("testbed: downloading {}", packages.join(" "));
    // As root apt would change to its own user, which may not write here.
    tool(
        Command::new("apt-get")
            .args(["-o", "APT::Sandbox::User=root", "-qq", "download"])
            .args(packages)
            .current_dir(debs.path()),
        "apt",
    )
    .context("cannot download the guest's kernel; `apt-get update` refreshes the package lists")?;
    for deb in fs::read_dir(debs.path())? {
        tool(
            Command::new("dpkg-deb")
                .arg("-x")
                .arg(deb?.path())
                .arg(into),
            "dpkg",
        )?;
    }
    Ok(())
}
