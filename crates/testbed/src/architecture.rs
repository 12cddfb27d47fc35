//! The processors that a guest can have, and all that differs with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::apt::Apt;
use crate::host::{cache_dir, lock, shared_libraries, tool_text};

/// The instruction set of a guest's processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// That of the host.
    #[default]
    X86_64,
    /// 64-bit Arm, on the host's own instructions: a PMU counts the instructions that are emulated, and one cycle for
    /// each of them.
    Aarch64,
}

/// Nehalem is the newest model of which emulation gets the cache and thread numbering right without
/// claiming features that software emulation lacks.
const X86_MODEL: &str = "Nehalem-v1";

/// The newest of Arm's models that QEMU 7.2 emulates and perch has a profile of.
const ARM_MODEL: &str = "cortex-a76";

/// What a guest with processors that are not the host's has besides its kernel.
const FOREIGN_PACKAGES: [&str; 7] = [
    "busybox-static",
    "libc6",
    "libgcc-s1",
    "libhwloc-dev",
    "libhwloc15",
    "libudev-dev",
    "libudev1",
];

impl Architecture {
    /// The package that depends on the current cloud kernel.
    pub(crate) fn kernel_package(self) -> &'static str {
        match self {
            Self::X86_64 => "linux-image-cloud-amd64",
            Self::Aarch64 => "linux-image-cloud-arm64",
        }
    }

    /// The emulator, and the package that has it.
    pub(crate) fn emulator(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => ("qemu-system-x86_64", "qemu-system-x86"),
            Self::Aarch64 => ("qemu-system-aarch64", "qemu-system-arm"),
        }
    }

    /// The emulator's arguments for the machine; `properties` are those of the processor, besides its model.
    pub(crate) fn machine(self, properties: Option<&str>) -> Vec<String> {
        let (machine, model) = match self {
            Self::X86_64 => ("q35", X86_MODEL),
            Self::Aarch64 => ("virt", ARM_MODEL),
        };
        let processor = match properties {
            Some(properties) => format!("{model},{properties}"),
            None => model.to_owned(),
        };
        // Several emulation threads race with the kernel while it patches its own text at boot.
        let mut arguments = vec![
            "-M",
            machine,
            "-cpu",
            &processor,
            "-accel",
            "tcg,thread=single",
        ];
        if self == Self::Aarch64 {
            // Time goes on by a nanosecond for each instruction, and idle time passes at once; the PMU counts
            // instructions only so.
            arguments.extend(["-icount", "shift=0,sleep=off"]);
        }
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// Arguments of the kernel. `nokaslr` and `mitigations=off` save seconds of boot; `panic=-1` with QEMU's `-no-reboot`
    /// ends QEMU at a panic.
    pub(crate) fn kernel_arguments(self) -> &'static str {
        match self {
            Self::X86_64 => {
                "console=ttyS0 quiet loglevel=4 panic=-1 rdinit=/init no_timer_check tsc=reliable nokaslr \
                 mitigations=off"
            }
            Self::Aarch64 => {
                "console=ttyAMA0 quiet loglevel=4 panic=-1 rdinit=/init nokaslr mitigations=off"
            }
        }
    }

    /// The program that takes symbols out of executables, and the package that has it.
    pub(crate) fn strip(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => ("strip", "binutils"),
            Self::Aarch64 => ("aarch64-linux-gnu-strip", "binutils-aarch64-linux-gnu"),
        }
    }

    /// Where packages for it come from, with lists of their own below this folder if they are not the host's.
    pub(crate) fn packages(self, dir: &Path) -> Result<Apt> {
        match self {
            Self::X86_64 => Ok(Apt::of_host()),
            Self::Aarch64 => Apt::foreign(dir, "arm64"),
        }
    }

    /// The folder below the cache in which its kernels are kept.
    pub(crate) fn cache(self) -> Result<PathBuf> {
        let dir = match self {
            Self::X86_64 => return cache_dir(),
            Self::Aarch64 => cache_dir()?.join("aarch64"),
        };
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// A static busybox that runs on it, fetched if it is not the host's own.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub(crate) fn busybox(self) -> Result<PathBuf> {
        let root = match self {
            Self::X86_64 => PathBuf::from("/"),
            Self::Aarch64 => self.root()?,
        };
        let places = ["usr/bin/busybox", "bin/busybox"].map(|place| root.join(place));
        let found = places.into_iter().find(|place| place.is_file());
        found.context("no busybox is installed; get it with `apt-get install busybox-static`")
    }

    /// The shared libraries (and the loader) that an executable needs: where they are on the host, and in the guest.
    ///
    /// # Errors
    /// When one is missing.
    pub(crate) fn libraries(self, program: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
        match self {
            Self::X86_64 => {
                let libraries = shared_libraries(program)?.into_iter();
                Ok(libraries.map(|path| (path.clone(), path)).collect())
            }
            Self::Aarch64 => foreign_libraries(program, &self.root()?),
        }
    }

    /// A folder with Debian's packages for an architecture that is not the host's: busybox, and the libraries that perch
    /// is linked with.
    ///
    /// # Errors
    /// When they cannot be fetched.
    pub(crate) fn root(self) -> Result<PathBuf> {
        let cache = self.cache()?;
        let _lock = lock(&cache, "root")?;
        let root = cache.join("root");
        let done = cache.join("root-is-complete");
        if !done.is_file() {
            if root.exists() {
                fs::remove_dir_all(&root)?;
            }
            let packages = self.packages(&cache.join("apt"))?;
            packages.download(&FOREIGN_PACKAGES.map(str::to_owned), &root)?;
            fs::write(done, "")?;
        }
        Ok(root)
    }
}

/// Where Debian has libraries of 64-bit Arm.
pub(crate) const FOREIGN_LIBRARIES: [&str; 2] =
    ["usr/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu"];

/// As [`shared_libraries`], for what the host cannot run: from the programs' own tables.
fn foreign_libraries(program: &Path, root: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let mut libraries: Vec<(PathBuf, PathBuf)> = Vec::new();
    let mut unread = vec![program.to_owned()];
    while let Some(file) = unread.pop() {
        if !fs::read(&file)?.starts_with(b"\x7fELF") {
            continue;
        }
        let mut readelf = Command::new("aarch64-linux-gnu-readelf");
        let text = tool_text(readelf.arg("-d").arg(&file), "binutils-aarch64-linux-gnu")?;
        // " 0x0000000000000001 (NEEDED)             Shared library: [libm.so.6]"
        let needed = text.lines().filter_map(|line| {
            let (_, name) = line.split_once("(NEEDED)")?.1.split_once('[')?;
            name.strip_suffix(']')
        });
        for name in needed {
            let places = FOREIGN_LIBRARIES.map(|folder| Path::new(folder).join(name));
            let place = places.iter().find(|place| root.join(place).is_file());
            let place = place.with_context(|| {
                format!(
                    "{} needs {name}, which is not in {}",
                    file.display(),
                    root.display()
                )
            })?;
            let host = root.join(place);
            if !libraries.iter().any(|(known, _)| *known == host) {
                unread.push(host.clone());
                libraries.push((host, Path::new("/").join(place)));
            }
        }
    }
    // The loader is found by its full name.
    if !libraries.is_empty() {
        let loader = Path::new("lib/ld-linux-aarch64.so.1");
        libraries.push((root.join(loader), Path::new("/").join(loader)));
    }
    Ok(libraries)
}
