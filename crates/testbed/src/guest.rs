//! The builder that tests use: say what the guest is and has, then run a script in it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::architecture::Architecture;
use crate::clocks;
use crate::host::cache_dir;
use crate::initramfs::Initramfs;
use crate::kernel::{Kernel, Which};
use crate::module::{self, StandIn};
use crate::qemu::{End, Machine, Qemu};
use crate::topology::Topology;

/// How long a boot may take; seen are 4 to 12 s, more on a loaded host.
const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// How often a boot that dies before the command starts is tried.
const BOOT_TRIES: usize = 3;

/// How much of the console an error shows, in bytes.
const CONSOLE_TAIL: usize = 12_000;

/// What every guest needs to talk to the host.
const PORT_MODULES: [&str; 2] = ["virtio_pci", "virtio_console"];

/// A guest to be.
#[derive(Clone, Debug)]
pub struct Guest {
    topology: Topology,
    architecture: Architecture,
    mebibytes: usize,
    limit: Duration,
    content: Vec<Content>,
    modules: Vec<String>,
    devices: Vec<String>,
    arguments: Vec<String>,
    processor: Option<String>,
    clocks: bool,
    kernel: Which,
}

#[derive(Clone, Debug)]
enum Content {
    File { host: PathBuf, guest: String },
    Program { host: PathBuf, guest: String },
    Text { guest: String, text: String },
    StandIn(StandIn),
}

/// What a script in a guest left behind.
#[derive(Clone, Debug)]
pub struct Output {
    /// The script's exit status, as the guest's shell gives it (128 + signal when killed).
    pub status: i32,
    /// All that was written to standard output.
    pub stdout: String,
    /// All that was written to standard error.
    pub stderr: String,
    /// The kernel's console.
    pub console: String,
}

impl Output {
    /// The output itself if the script ended well.
    ///
    /// # Errors
    /// When its status is not 0; the message holds everything it wrote.
    pub fn ok(self) -> Result<Self> {
        if self.status != 0 {
            bail!(
                "the script in the guest ended with status {}\n--- stdout\n{}\n--- stderr\n{}\n--- console\n{}",
                self.status,
                self.stdout,
                self.stderr,
                tail(&self.console)
            );
        }
        Ok(self)
    }
}

impl Guest {
    /// A guest of this topology with 1 GiB of memory, 2 minutes for its script, and nothing but busybox.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            architecture: Architecture::default(),
            mebibytes: 1024,
            limit: Duration::from_secs(120),
            content: Vec::new(),
            modules: PORT_MODULES.map(str::to_owned).to_vec(),
            devices: Vec::new(),
            arguments: Vec::new(),
            processor: None,
            clocks: false,
            kernel: Which::default(),
        }
    }

    /// Emulates processors of this kind. Programs must be built for it (see [`programs_for_aarch64`](crate::programs_for_aarch64)).
    #[must_use]
    pub fn architecture(mut self, architecture: Architecture) -> Self {
        self.architecture = architecture;
        self
    }

    /// Puts a host file, with the shared libraries it needs, at a path in the guest.
    #[must_use]
    pub fn file(mut self, host: impl AsRef<Path>, guest: &str) -> Self {
        self.content.push(Content::File {
            host: host.as_ref().to_owned(),
            guest: guest.to_owned(),
        });
        self
    }

    /// Puts a host program, stripped and with its shared libraries, into the guest's search path under its own name.
    #[must_use]
    pub fn program(mut self, host: impl AsRef<Path>) -> Self {
        let host = host.as_ref().to_owned();
        let guest = format!(
            "bin/{}",
            host.file_name().unwrap_or_default().to_string_lossy()
        );
        self.content.push(Content::Program { host, guest });
        self
    }

    /// Puts text at a path in the guest.
    #[must_use]
    pub fn text(mut self, guest: &str, text: impl Into<String>) -> Self {
        self.content.push(Content::Text {
            guest: guest.to_owned(),
            text: text.into(),
        });
        self
    }

    /// Loads one of the kernel's own modules (and what it needs) before the script runs.
    #[must_use]
    pub fn module(mut self, name: &str) -> Self {
        self.modules.push(name.to_owned());
        self
    }

    /// Plugs in a device, as `qemu-system-x86_64 -device help` names it, with its properties.
    #[must_use]
    pub fn device(mut self, device: &str) -> Self {
        self.devices.push(device.to_owned());
        self
    }

    /// Boots the kernel with one more argument.
    #[must_use]
    pub fn kernel_argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Puts the stand-in PMU at its [`StandIn::guest_path`]; the script loads it with the parameters it wants.
    #[must_use]
    pub fn fake_pmu(self) -> Self {
        self.stand_in(StandIn::Pmu)
    }

    /// Puts a stand-in for hardware at its [`StandIn::guest_path`].
    #[must_use]
    pub fn stand_in(mut self, module: StandIn) -> Self {
        self.content.push(Content::StandIn(module));
        self
    }

    /// Boots the kernel of Debian's backports, for what the stable one cannot do yet.
    #[must_use]
    pub fn newer_kernel(mut self) -> Self {
        self.kernel = Which::Newer;
        self
    }

    /// Adds properties to the emulated processor, as QEMU's `-cpu MODEL,PROPERTIES` takes them.
    #[must_use]
    pub fn processor(mut self, properties: &str) -> Self {
        self.processor = Some(properties.to_owned());
        self
    }

    /// Gives the processors clocks that the kernel can set (cpufreq, `acpi-cpufreq`): those of `testbed/clocks.json`, in
    /// one policy for each package.
    #[must_use]
    pub fn clocks(mut self) -> Self {
        self.clocks = true;
        self.module("acpi-cpufreq")
    }

    /// Lets the script run so long at most, counted from its start.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Boots the guest and runs a shell script in it as root, from `/root`.
    ///
    /// A boot that dies before the script starts is tried again, since emulated machines do die at
    /// times while the kernel patches itself; a script that has started never is.
    ///
    /// # Errors
    /// When something is missing on the host, the guest does not boot, dies, or exceeds the time
    /// limit; the end of its console is in the message. A script that fails is no error (see
    /// [`Output::ok`]).
    pub fn run(&self, script: &str) -> Result<Output> {
        let stand_in = |content: &Content| matches!(content, Content::StandIn(_));
        if self.architecture != Architecture::X86_64
            && (self.clocks || self.content.iter().any(stand_in))
        {
            bail!("only x86-64 guests have clocks and stand-ins for hardware");
        }
        let kernel = Kernel::fetch_which(self.kernel, self.architecture)?;
        let dir = tempfile::Builder::new()
            .prefix("guest-")
            .tempdir_in(cache_dir()?)?;
        let initrd = dir.path().join("initrd");
        self.write_initrd(&kernel, &initrd, script, dir.path())
            .context("cannot build the guest's file system")?;
        let mut emulator = Vec::new();
        if self.clocks {
            let table = dir.path().join("clocks.aml");
            std::fs::write(&table, clocks::table(self.topology)?)?;
            emulator.extend(clocks::ARGUMENTS.map(str::to_owned));
            emulator.push("-acpitable".to_owned());
            emulator.push(format!("file={}", table.display()));
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let machine = Machine {
                architecture: self.architecture,
                topology: self.topology,
                mebibytes: self.mebibytes,
                devices: &self.devices,
                arguments: &self.arguments,
                emulator: &emulator,
                processor: self.processor.as_deref(),
            };
            let mut qemu = Qemu::start(&machine, &kernel.image(), &initrd, dir.path())?;
            let end = qemu.wait(BOOT_LIMIT, self.limit)?;
            let why = match end {
                End::Exit(status) => {
                    return Ok(Output {
                        status,
                        stdout: qemu.read("stdout"),
                        stderr: qemu.read("stderr"),
                        console: qemu.read("console"),
                    });
                }
                End::NeverStarted if tries < BOOT_TRIES => {
                    eprintln!(
                        "testbed: the guest died at boot (try {tries} of {BOOT_TRIES}):\n{}",
                        told(&qemu)
                    );
                    continue;
                }
                End::NeverStarted => format!("did not boot in {BOOT_TRIES} tries"),
                End::Died => "died while the script ran".to_owned(),
                End::TimeLimit => format!(
                    "was still running its script after {} s",
                    self.limit.as_secs()
                ),
            };
            bail!("the {:?} guest {why}\n{}", self.topology, told(&qemu));
        }
    }

    fn write_initrd(
        &self,
        kernel: &Kernel,
        path: &Path,
        script: &str,
        scratch: &Path,
    ) -> Result<()> {
        let mut archive = Initramfs::new(BufWriter::new(File::create(path)?), self.architecture)?;
        let mut loaded = String::new();
        for file in module::closure(kernel, &self.modules)? {
            let name = format!("{}.ko", module::module_name(&file.to_string_lossy()));
            archive.bytes(
                &format!("testbed/modules/{name}"),
                &module::read(&file)?,
                0o644,
            )?;
            loaded += &format!("{name}\n");
        }
        archive.text("testbed/modules.list", &loaded, 0o644)?;
        archive.text("testbed/command", script, 0o755)?;
        for content in &self.content {
            match content {
                Content::File { host, guest } => archive.host_file(host, guest)?,
                Content::Program { host, guest } => archive.program(host, guest, scratch)?,
                Content::Text { guest, text } => archive.text(guest, text, 0o755)?,
                Content::StandIn(module) => {
                    archive.host_file(&module.build(kernel)?, &module.guest_path())?
                }
            }
        }
        archive.finish()?.flush()?;
        Ok(())
    }
}

/// All that a guest which failed had to say.
fn told(qemu: &Qemu) -> String {
    format!(
        "--- stdout\n{}\n--- stderr\n{}\n--- console\n{}\n--- emulator\n{}",
        tail(&qemu.read("stdout")),
        tail(&qemu.read("stderr")),
        tail(&qemu.read("console")),
        tail(&qemu.read("emulator"))
    )
}

fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(CONSOLE_TAIL);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CONSOLE_TAIL, tail};

    proptest! {
        #[test]
        fn a_tail_is_the_end_of_the_text_and_no_longer_than_allowed(text in "\\PC{0,16000}") {
            let end = tail(&text);
            prop_assert!(text.ends_with(end));
            prop_assert!(end.len() <= CONSOLE_TAIL);
            prop_assert!(end.len() + 4 > CONSOLE_TAIL.min(text.len()));
        }
    }
}
