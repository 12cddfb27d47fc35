//! The guest's kernel: the distribution's own stable cloud kernel, or a newer one; fetched with apt and never installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::apt::Apt;
use crate::architecture::Architecture;
use crate::host::{cache_dir, lock, tool};

/// Which kernel a guest runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Which {
    /// The host's own stable one.
    #[default]
    Stable,
    /// The one of Debian's backports, for what the stable one cannot do yet.
    Newer,
}

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
    pub fn fetch(architecture: Architecture) -> Result<Self> {
        static KERNELS: [OnceLock<Kernel>; 2] = [const { OnceLock::new() }; 2];
        let once = &KERNELS[architecture as usize];
        Self::fetch_once(once, architecture, &architecture.cache()?, |cache| {
            architecture.packages(&cache.join("apt"))
        })
    }

    /// The same from Debian's backports.
    ///
    /// # Errors
    /// As [`Kernel::fetch`].
    fn fetch_newer() -> Result<Self> {
        static KERNEL: OnceLock<Kernel> = OnceLock::new();
        let cache = cache_dir()?.join("newer");
        fs::create_dir_all(&cache)?;
        Self::fetch_once(&KERNEL, Architecture::X86_64, &cache, |cache| {
            Apt::backports(&cache.join("apt"))
        })
    }

    pub(crate) fn fetch_which(which: Which, architecture: Architecture) -> Result<Self> {
        match (which, architecture) {
            (Which::Stable, _) => Self::fetch(architecture),
            (Which::Newer, Architecture::X86_64) => Self::fetch_newer(),
            (Which::Newer, Architecture::Aarch64) => {
                bail!("only x86-64 guests have a newer kernel")
            }
        }
    }

    fn fetch_once(
        once: &OnceLock<Self>,
        architecture: Architecture,
        cache: &Path,
        sources: impl Fn(&Path) -> Result<Apt>,
    ) -> Result<Self> {
        if let Some(kernel) = once.get() {
            return Ok(kernel.clone());
        }
        let _lock = lock(cache, "kernel")?;
        let apt = sources(cache);
        let found = match &apt {
            Ok(apt) => apt.behind(architecture.kernel_package(), "linux-image-")?,
            Err(_) => None,
        };
        let kernel = match (found, apt) {
            (Some((release, version)), Ok(apt)) => {
                let dir = cache.join(format!("linux-{release}"));
                let kernel = Self {
                    release,
                    version,
                    dir,
                };
                kernel.unpack(&apt)?;
                kernel
            }
            (_, apt) => {
                newest_cached(cache, architecture).map_err(|none| apt.err().unwrap_or(none))?
            }
        };
        eprintln!(
            "testbed: guest kernel {} (package version {})",
            kernel.release, kernel.version
        );
        Ok(once.get_or_init(|| kernel).clone())
    }

    /// The kernel's release, as `uname -r` prints it in the guest.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The bootable image.
    pub(crate) fn image(&self) -> PathBuf {
        let image = self.dir.join("image");
        let boot = image.join("boot").join(format!("vmlinuz-{}", self.release));
        // Since Linux 7 the package has it beside the modules.
        match boot.is_file() {
            true => boot,
            false => self.modules().join("vmlinuz"),
        }
    }

    /// The folder with `modules.dep` and the modules.
    pub(crate) fn modules(&self) -> PathBuf {
        self.modules_base().join("lib/modules").join(&self.release)
    }

    /// The folder below which the modules are.
    fn modules_base(&self) -> PathBuf {
        let image = self.dir.join("image");
        let usr = image.join("usr");
        match usr.join("lib/modules").is_dir() {
            true => usr,
            false => image,
        }
    }

    /// Where modules built for this kernel are kept.
    pub(crate) fn build_dir(&self) -> PathBuf {
        self.dir.join("build")
    }

    fn unpack(&self, apt: &Apt) -> Result<()> {
        let done = self.dir.join("version");
        if fs::read_to_string(&done).is_ok_and(|v| v == self.version) {
            return Ok(());
        }
        if self.dir.exists() {
            fs::remove_dir_all(&self.dir)?;
        }
        let image = self.dir.join("image");
        let package = format!("linux-image-{}", self.release);
        let mut wanted = vec![format!("{package}={}", self.version)];
        for name in apt.depends(&package)? {
            // Since Linux 7 the kernel, its modules and their lists are in packages of their own.
            if name.starts_with("linux-") && name.ends_with(&self.release) {
                wanted.push(format!("{name}={}", self.version));
            }
        }
        apt.download(&wanted, &image)?;
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
                .arg(self.modules_base())
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
        // Two modules may be built at once, each under a lock of its own.
        let _lock = lock(&self.dir, "headers")?;
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
        // Stand-ins are built by the host's compiler.
        let apt = Apt::of_host();
        for name in apt.depends(&package)? {
            // The compiler's package only pulls in gcc, which the host has. Debian publishes the tools of the next
            // version before its kernels, and drops those of this one: any version that is not older will do.
            if name.starts_with("linux-headers-") {
                wanted.push(format!("{name}={}", self.version));
            } else if name.starts_with("linux-kbuild-") {
                wanted.push(name);
            }
        }
        apt.download(&wanted, &root)?;
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

fn newest_cached(cache: &Path, architecture: Architecture) -> Result<Kernel> {
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
            "apt knows no package {}; run `apt-get update` (Debian 12's own sources have it), \
             or set PERCH_TESTBED_DIR to a folder with a kernel fetched before",
            architecture.kernel_package()
        ),
    }
}
