//! One run of QEMU: start it, follow what the guest says on its ports, end it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::architecture::Architecture;
use crate::topology::Topology;

/// About nine times the share of a program that asked for nothing.
const NICENESS: &str = "-10";

/// How often the host looks at what the guest wrote.
const POLL: Duration = Duration::from_millis(25);

/// How a run of QEMU ended.
pub(crate) enum End {
    /// The command ran and ended with this status.
    Exit(i32),
    /// The guest died or hung before the command had started.
    NeverStarted,
    /// The guest died while the command ran.
    Died,
    /// The command ran longer than it may.
    TimeLimit,
}

/// What to emulate.
pub(crate) struct Machine<'a> {
    pub architecture: Architecture,
    pub topology: Topology,
    /// Memory.
    pub mebibytes: usize,
    /// Devices, as `-device` takes them.
    pub devices: &'a [String],
    /// Further arguments of the kernel.
    pub arguments: &'a [String],
    /// Further arguments of the emulator.
    pub emulator: &'a [String],
    /// Properties of the processor, besides its model.
    pub processor: Option<&'a str>,
}

/// A running emulator, killed when dropped.
pub(crate) struct Qemu {
    child: Child,
    dir: PathBuf,
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Qemu {
    /// Boots `kernel` with `initrd`; what the guest writes goes to files in `dir`.
    ///
    /// # Errors
    /// When QEMU is not installed or cannot be started.
    pub(crate) fn start(
        machine: &Machine<'_>,
        kernel: &Path,
        initrd: &Path,
        dir: &Path,
    ) -> Result<Self> {
        // A guest lives on the host's clock, so other work on the host should not take its time: root may ask for more
        // than its share; for other users `nice` prints a warning and continues. By `setpriv` QEMU does not outlive a
        // test that is killed.
        let (emulator, package) = machine.architecture.emulator();
        let mut command = Command::new("nice");
        command
            .args(["-n", NICENESS, "setpriv", "--pdeathsig", "KILL", emulator])
            .args(machine.architecture.machine(machine.processor))
            .args(machine.topology.qemu_arguments(machine.mebibytes))
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
            ])
            .arg("-serial")
            .arg(format!("file:{}", dir.join("console").display()))
            .args(["-device", "virtio-serial-pci"]);
        for (number, name) in [(1, "stdout"), (2, "stderr"), (3, "status")] {
            let path = dir.join(name);
            File::create(&path)?;
            command
                .arg("-chardev")
                .arg(format!("file,id=port{number},path={}", path.display()))
                .arg("-device")
                .arg(format!(
                    "virtserialport,chardev=port{number},nr={number},name={name}"
                ));
        }
        for device in machine.devices {
            command.arg("-device").arg(device);
        }
        command
            .args(machine.emulator)
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(initrd)
            .arg("-append")
            .arg(format!(
                "{} {}",
                machine.architecture.kernel_arguments(),
                machine.arguments.join(" ")
            ));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(dir.join("emulator"))?);
        if !std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|dir| dir.join(emulator).is_file())
        {
            bail!("`{emulator}` is not installed; get it with `apt-get install {package}`");
        }
        let child = command
            .spawn()
            .context("`nice` is not installed; get it with `apt-get install coreutils`")?;
        Ok(Self {
            child,
            dir: dir.to_owned(),
        })
    }

    /// Waits until the command has ended; a guest that has not started it within `boot` has died.
    pub(crate) fn wait(&mut self, boot: Duration, limit: Duration) -> Result<End> {
        let booted = Instant::now();
        let mut started = None;
        loop {
            let ended = self.child.try_wait()?.is_some();
            let status = self.read("status");
            if let Some(code) = status
                .lines()
                .find_map(|l| l.strip_prefix("exit "))
                .filter(|_| status.ends_with('\n'))
            {
                return Ok(End::Exit(
                    code.trim()
                        .parse()
                        .context("the guest's exit status is no number")?,
                ));
            }
            if started.is_none() && status.contains("started") {
                started = Some(Instant::now());
            }
            match started {
                None if ended || booted.elapsed() > boot => return Ok(End::NeverStarted),
                Some(_) if ended => return Ok(End::Died),
                Some(begin) if begin.elapsed() > limit => return Ok(End::TimeLimit),
                _ => std::thread::sleep(POLL),
            }
        }
    }

    /// What came over the port (or `console`, or `emulator`) so far.
    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.join(name)).unwrap_or_default()).into_owned()
    }
}
