//! The guest's root file system: busybox and what the test brought, as a newc cpio archive.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use cpio::newc;

use crate::architecture::Architecture;
use crate::host::{tool, tool_text};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// The first process; also the only one that knows of the serial ports.
const INIT: &str = include_str!("../../../testbed/guest/init.sh");

/// An archive being written; folders are made as files need them.
pub(crate) struct Initramfs<W: Write> {
    out: W,
    next_inode: u32,
    present: BTreeSet<String>,
    architecture: Architecture,
}

impl<W: Write> Initramfs<W> {
    /// Begins an archive with busybox, the mount points and the first process.
    pub(crate) fn new(out: W, architecture: Architecture) -> Result<Self> {
        let mut archive = Self {
            out,
            next_inode: 1,
            present: BTreeSet::new(),
            architecture,
        };
        for dir in [
            "proc",
            "sys",
            "dev",
            "tmp",
            "run",
            "root",
            "etc",
            "mnt",
            "bin",
            "var/lib",
            "testbed/modules",
        ] {
            archive.directory(dir)?;
        }
        // The host's tells the applets of others too, which it may not be able to run.
        let host = Architecture::X86_64.busybox()?;
        let applets = tool_text(Command::new(host).arg("--list"), "busybox-static")?;
        archive.host_file(&architecture.busybox()?, "bin/busybox")?;
        for applet in applets.lines().filter(|name| *name != "busybox") {
            archive.link(&format!("bin/{applet}"), "busybox")?;
        }
        for (link, target) in [
            ("sbin", "bin"),
            ("usr/bin", "../bin"),
            ("usr/sbin", "../bin"),
        ] {
            archive.link(link, target)?;
        }
        archive.entry("dev/console", CHARACTER_DEVICE | 0o600, &[], Some((5, 1)))?;
        archive.text(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
            0o644,
        )?;
        archive.text("etc/group", "root:x:0:\nnogroup:x:65534:\n", 0o644)?;
        archive.text("init", INIT, 0o755)?;
        Ok(archive)
    }

    /// Puts a host file, with the shared libraries that it needs, at a guest path.
    pub(crate) fn host_file(&mut self, host: &Path, guest: &str) -> Result<()> {
        self.copy(host, guest)?;
        for (library, place) in self.architecture.libraries(host)? {
            self.copy(&library, &place.to_string_lossy())?;
        }
        Ok(())
    }

    /// As [`Self::host_file`], without symbols and debugging information: they are most of a program's size.
    pub(crate) fn program(&mut self, host: &Path, guest: &str, scratch: &Path) -> Result<()> {
        let stripped = scratch.join("stripped");
        let (strip, package) = self.architecture.strip();
        tool(
            Command::new(strip).arg("-o").arg(&stripped).arg(host),
            package,
        )?;
        self.host_file(&stripped, guest)
    }

    /// Puts text at a guest path.
    pub(crate) fn text(&mut self, guest: &str, text: &str, mode: u32) -> Result<()> {
        self.bytes(guest, text.as_bytes(), mode)
    }

    /// Puts bytes at a guest path.
    pub(crate) fn bytes(&mut self, guest: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.parents(guest)?;
        self.entry(guest, FILE | mode, bytes, None)
    }

    /// Ends the archive.
    pub(crate) fn finish(self) -> Result<W> {
        Ok(newc::trailer(self.out)?)
    }

    fn copy(&mut self, host: &Path, guest: &str) -> Result<()> {
        if self.present.contains(guest.trim_matches('/')) {
            return Ok(());
        }
        let bytes = fs::read(host).with_context(|| format!("cannot read {}", host.display()))?;
        let mode = fs::metadata(host)?.permissions().mode() & 0o7777;
        self.bytes(guest, &bytes, mode)
    }

    fn link(&mut self, guest: &str, target: &str) -> Result<()> {
        self.parents(guest)?;
        self.entry(guest, LINK | 0o777, target.as_bytes(), None)
    }

    fn parents(&mut self, guest: &str) -> Result<()> {
        match guest.trim_matches('/').rsplit_once('/') {
            Some((dir, _)) => self.directory(dir),
            None => Ok(()),
        }
    }

    fn directory(&mut self, dir: &str) -> Result<()> {
        for (end, _) in dir.match_indices('/').chain([(dir.len(), "")]) {
            self.entry(&dir[..end], DIRECTORY | 0o755, &[], None)?;
        }
        Ok(())
    }

    /// Writes an entry, unless one of that name is there already: the first wins.
    fn entry(
        &mut self,
        name: &str,
        mode: u32,
        bytes: &[u8],
        device: Option<(u32, u32)>,
    ) -> Result<()> {
        let name = name.trim_matches('/');
        if !self.present.insert(name.to_owned()) {
            return Ok(());
        }
        let mut entry = newc::Builder::new(name)
            .ino(self.next_inode)
            .mode(mode)
            .nlink(1);
        if let Some((major, minor)) = device {
            entry = entry.rdev_major(major).rdev_minor(minor);
        }
        self.next_inode += 1;
        let size = u32::try_from(bytes.len())
            .with_context(|| format!("{name} is too large for a cpio archive"))?;
        let mut writer = entry.write(&mut self.out, size);
        writer.write_all(bytes)?;
        writer.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn an_archive_reads_back_with_parents_before_children_and_no_name_twice() {
        let mut archive = Initramfs::new(Vec::new(), Architecture::default()).unwrap();
        archive.text("/a/b/c", "hello", 0o640).unwrap();
        archive.text("a/b/c", "ignored", 0o644).unwrap();
        archive.text("a/b/d", "", 0o644).unwrap();
        let bytes = archive.finish().unwrap();
        let mut seen = BTreeSet::new();
        let mut rest: Box<dyn Read> = Box::new(bytes.as_slice());
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let name = reader.entry().name().to_owned();
            if let Some((parent, _)) = name.rsplit_once('/') {
                // usr/bin is a link to a folder, everything else a folder that came before.
                assert!(seen.contains(parent), "{name} comes before its folder");
            }
            if name == "a/b/c" {
                let mut text = String::new();
                reader.read_to_string(&mut text).unwrap();
                assert_eq!(
                    (text.as_str(), reader.entry().mode()),
                    ("hello", FILE | 0o640)
                );
            }
            assert!(seen.insert(name.clone()), "{name} is there twice");
            rest = reader.finish().unwrap();
        }
        assert!(seen.contains("bin/sh") && seen.contains("init") && seen.contains("a/b/d"));
    }
}
