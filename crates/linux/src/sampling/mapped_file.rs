//! The file behind a mapping, opened without trusting its name.
//!
//! The name is the watched process's own. By now it may be that of a FIFO, at which an ordinary open would wait for
//! ever, of a device, of a symbolic link that leads out of the process's root, or of another file. So the name is only
//! looked up; what is found there is opened if it is the very file that was mapped.

use crate::perf::record::FileId;
use procfs::process::Process;
use rustix::{
    fd::OwnedFd,
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, major, minor, open, openat, openat2},
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
};

/// Which file is mapped, and from where on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MappedFile {
    /// The name that the process knows it by.
    pub path: PathBuf,
    /// Which file that was when it was mapped.
    pub id: FileId,
    /// Where in the file the mapping starts, in bytes.
    pub offset: u64,
}

/// The identity from device and inode as procfs reports them.
pub(super) fn id_of(device: (i32, i32), inode: u64) -> FileId {
    FileId {
        major: device.0 as u32,
        minor: device.1 as u32,
        inode,
    }
}

/// Opens the file by its name in the process's root, or in perch's own where that may not be looked at. `None` unless
/// it is the file that was mapped.
///
/// # Errors
/// No more descriptors for now.
pub(super) fn open_mapped(pid: i32, mapped: &MappedFile) -> io::Result<Option<File>> {
    let found = look_up_in_root_of(pid, &mapped.path)
        .or_else(|_| openat(CWD, &mapped.path, LOOK_UP, Mode::empty()));
    match found.and_then(|found| read_if_same(&found, mapped.id)) {
        Err(errno @ (Errno::MFILE | Errno::NFILE)) => Err(errno.into()),
        file => Ok(file.ok().flatten()),
    }
}

/// A lookup has no effect on what is found: it wakes no device and does not block.
const LOOK_UP: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

fn look_up_in_root_of(pid: i32, path: &Path) -> Result<OwnedFd, Errno> {
    let root = openat(
        CWD,
        format!("/proc/{pid}/root"),
        LOOK_UP.union(OFlags::DIRECTORY),
        Mode::empty(),
    )?;
    match openat2(&root, path, LOOK_UP, Mode::empty(), ResolveFlags::IN_ROOT) {
        // Kernels before 5.6, and sandboxes that do not know the call. Links may lead out of that root here; then they
        // lead to another file, which is not used.
        Err(Errno::NOSYS | Errno::PERM) => {
            let inside = path.strip_prefix("/").map_err(|_| Errno::INVAL)?;
            openat(&root, inside, LOOK_UP, Mode::empty())
        }
        found => found,
    }
}

/// Opens what was looked up for reading, if it is that file.
fn read_if_same(found: &OwnedFd, id: FileId) -> Result<Option<File>, Errno> {
    let stat = fstat(found)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let shown = FileId {
        major: major(stat.st_dev),
        minor: minor(stat.st_dev),
        inode: stat.st_ino,
    };
    // Through the descriptor, so that it cannot be exchanged any more. O_NONBLOCK: not for a lease to be broken either.
    let again = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let reopen = || open(again, flags, Mode::empty());
    if shown == id {
        return reopen().map(|file| Some(File::from(file)));
    }
    // Some file systems without a device of their own (btrfs, overlayfs) show stat(2) another one than they show of
    // mappings.
    if shown.major != 0 && id.major != 0 {
        return Ok(None);
    }
    let file = reopen()?;
    Ok((id_when_mapped(&file) == Some(id)).then(|| File::from(file)))
}

/// What the kernel shows of a mapping of this file.
fn id_when_mapped(file: impl AsFd) -> Option<FileId> {
    let length = rustix::param::page_size();
    let (protection, flags) = (ProtFlags::READ, MapFlags::PRIVATE);
    // SAFETY: a new mapping, at an address that the kernel chooses; nothing reads from it.
    let address = unsafe { mmap(std::ptr::null_mut(), length, protection, flags, file, 0) }.ok()?;
    let maps = Process::myself().and_then(|own| own.maps());
    // SAFETY: the mapping that was just made, of that length; nothing else uses it.
    let _ = unsafe { munmap(address, length) };
    let maps = maps.ok()?;
    let own = |map: &&procfs::process::MemoryMap| map.address.0 == address as u64;
    let map = maps.0.iter().find(own)?;
    Some(id_of(map.dev, map.inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        io::{BufRead, BufReader, Read},
        os::unix::fs::{MetadataExt, symlink},
        process::{Child, Command, Stdio},
        sync::mpsc,
        time::Duration,
    };

    fn own() -> i32 {
        std::process::id() as i32
    }

    fn mapped(name: &Path, file: &Path) -> MappedFile {
        let meta = fs::metadata(file).expect("a file");
        let id = FileId {
            major: major(meta.dev()),
            minor: minor(meta.dev()),
            inode: meta.ino(),
        };
        MappedFile {
            path: name.to_owned(),
            id,
            offset: 0,
        }
    }

    fn text(file: io::Result<Option<File>>) -> Option<String> {
        let mut text = String::new();
        file.expect("a descriptor")?
            .read_to_string(&mut text)
            .expect("readable");
        Some(text)
    }

    #[test]
    fn only_the_file_that_was_mapped_is_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let (name, aside) = (folder.path().join("name"), folder.path().join("aside"));
        fs::write(&name, "mapped").expect("written");
        let wanted = mapped(&name, &name);
        assert_eq!(text(open_mapped(own(), &wanted)).as_deref(), Some("mapped"));
        fs::rename(&name, &aside).expect("renamed");
        assert!(text(open_mapped(own(), &wanted)).is_none());
        fs::write(&name, "another").expect("written");
        assert!(text(open_mapped(own(), &wanted)).is_none());
        // A hard link is the same file.
        fs::remove_file(&name).expect("removed");
        fs::hard_link(&aside, &name).expect("linked");
        assert_eq!(text(open_mapped(own(), &wanted)).as_deref(), Some("mapped"));
    }

    #[test]
    fn a_fifo_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
        assert!(made.success());
        let wanted = mapped(&fifo, &fifo);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(text(open_mapped(own(), &wanted))));
        let refused = receiver.recv_timeout(Duration::from_secs(20));
        assert_eq!(refused, Ok(None), "perch waits at a FIFO");
    }

    #[test]
    fn the_kernel_shows_the_same_of_a_mapping() {
        let file = tempfile::NamedTempFile::new_in(".").expect("a file");
        let seen = id_when_mapped(file.as_file()).expect("mapped");
        assert_eq!(seen.inode, file.as_file().metadata().expect("stat").ino());
    }

    #[test]
    #[ignore = "the process of the next test"]
    fn lives_in_another_root() {
        let root = std::env::var_os("PERCH_TEST_ROOT").expect("the test's");
        rustix::process::chroot(root).expect("root's right");
        println!("ready");
        std::thread::sleep(Duration::from_secs(600));
    }

    struct Other(Child);

    impl Drop for Other {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn links_stay_in_the_root_of_the_process() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: chroot(2) needs root");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        fs::create_dir(root.join("lib-1")).expect("made");
        fs::write(root.join("lib-1/code"), "inside").expect("written");
        symlink("/lib-1", root.join("lib")).expect("linked");
        let program = std::env::current_exe().expect("this test");
        let role = "sampling::mapped_file::tests::lives_in_another_root";
        let mut child = Command::new(program)
            .args(["--exact", role, "--ignored", "--nocapture"])
            .env("PERCH_TEST_ROOT", root)
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let other = Other(child);
        let ready = |line: std::io::Result<String>| line.expect("a line").ends_with("ready");
        assert!(output.lines().any(ready));
        let inside = mapped(Path::new("/lib/code"), &root.join("lib-1/code"));
        let file = open_mapped(other.0.id() as i32, &inside);
        assert_eq!(text(file).as_deref(), Some("inside"));
    }
}
