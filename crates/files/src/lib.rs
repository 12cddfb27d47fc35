//! Opening files that a user has named: whatever the name stands for, perch neither hangs nor reads without end.
//!
//! A plain `open(2)` of a FIFO waits for its other end, perhaps for ever, and a device such as `/dev/zero` has no end.
//! Pipes work if another process writes to them, so that `--config <(generate)` and `… | perch replay /dev/stdin` work.
#![forbid(unsafe_code)]

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, major, minor, open},
    io::Errno,
};
use std::{
    fs::{self, File, Metadata, Permissions},
    io::{self, Cursor, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

/// How long another process may take to open the other end of a FIFO.
const OTHER_END: Duration = Duration::from_secs(2);

/// How long the writer of a pipe may write nothing at all.
const FIRST_BYTE: Duration = Duration::from_secs(60);

const NO_WRITER: &str = "it is a FIFO with no writer";
const NO_READER: &str = "it is a FIFO with no reader";

fn refused(why: &str) -> io::Error {
    io::Error::other(why)
}

/// A file to read from: a regular one, or a pipe with what was read of it already.
pub type Input = io::Chain<Cursor<Vec<u8>>, File>;

/// Opens a file to read from.
///
/// # Errors
/// The system's; a directory, a FIFO with no writer, a terminal or device. `/dev/null` is an empty file.
pub fn input(path: &Path) -> io::Result<Input> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    let stat = fstat(&file)?;
    let first = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Vec::new(),
        FileType::Fifo => first_of(&file)?,
        FileType::CharacterDevice if (major(stat.st_rdev), minor(stat.st_rdev)) == (1, 3) => {
            Vec::new()
        }
        FileType::Directory => return Err(refused("it is a directory")),
        FileType::CharacterDevice if rustix::termios::isatty(&file) => {
            return Err(refused("it is a terminal"));
        }
        _ => return Err(refused("it is a device, not a file")),
    };
    block(&file)?;
    Ok(Cursor::new(first).chain(file))
}

/// The first bytes from a pipe; nothing if its writer closed it without writing.
fn first_of(pipe: &File) -> io::Result<Vec<u8>> {
    let start = Instant::now();
    let mut bytes = vec![0; 1 << 16];
    loop {
        match rustix::io::read(pipe, &mut bytes) {
            // No writer, or none yet.
            Ok(0) if start.elapsed() < OTHER_END => sleep(Duration::from_millis(20)),
            Ok(0) => return Err(refused(NO_WRITER)),
            Ok(length) => {
                bytes.truncate(length);
                return Ok(bytes);
            }
            Err(Errno::AGAIN) if start.elapsed() < FIRST_BYTE => {
                let moment = Timespec {
                    tv_sec: 0,
                    tv_nsec: 100_000_000,
                };
                let _ = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&moment));
            }
            Err(Errno::AGAIN) => {
                return Err(refused("it is a pipe to which nothing was written in 60 s"));
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Reading and writing wait again, as everybody expects.
fn block(file: &File) -> io::Result<()> {
    Ok(fcntl_setfl(file, fcntl_getfl(file)? - OFlags::NONBLOCK)?)
}

/// The text of a file that is opened as [`input`] does it.
///
/// # Errors
/// [`input`]'s; what is no UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    input(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Makes a file, or empties the one that is there, to write to it. Devices and pipes are taken as they are.
///
/// # Errors
/// The system's; a directory, a FIFO with no reader.
pub fn output(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::TRUNC
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let start = Instant::now();
    let file = loop {
        match open(path, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => break File::from(file),
            Err(Errno::NXIO) if start.elapsed() < OTHER_END => sleep(Duration::from_millis(20)),
            Err(Errno::NXIO) => return Err(refused(NO_READER)),
            Err(errno) => return Err(errno.into()),
        }
    };
    block(&file)?;
    Ok(file)
}

/// Writes a whole file atomically: a reader sees the old content or the new one, also after an error. A device, a pipe,
/// another user's file, and a file in a folder that cannot be written are written in place.
///
/// # Errors
/// The system's, as those of [`output`].
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    // The file behind a link, not the link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&path).ok();
    let own = rustix::process::geteuid().as_raw();
    let is_ours = |old: &Metadata| old.is_file() && old.uid() == own;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mode = old.as_ref().map_or(0o666, |old| old.mode() & 0o7777);
    let new = tempfile::Builder::new()
        .prefix(".perch-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder);
    match new {
        Ok(mut new) if old.as_ref().is_none_or(is_ours) => {
            new.write_all(content)?;
            if old.is_some() {
                new.as_file()
                    .set_permissions(Permissions::from_mode(mode))?;
            }
            new.persist(&path)?;
            Ok(())
        }
        _ => output(&path)?.write_all(content),
    }
}

/// The file `NAME.toml` in the current folder, or `./NAME`, if there is one: what a user may mean who gives a name where
/// names and files may be given.
pub fn toml_of(name: &str) -> Option<String> {
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let files = [format!("{name}.toml"), format!("./{name}")];
    files.into_iter().find(|file| Path::new(file).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn fifo(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        path
    }

    #[test]
    fn a_file_that_may_be_meant_is_in_this_folder() {
        // Tests run in the folder of their crate.
        assert_eq!(toml_of("Cargo").as_deref(), Some("Cargo.toml"));
        assert_eq!(toml_of("Cargo.toml").as_deref(), Some("./Cargo.toml"));
        for other in ["", "src", "gone", "src/lib.rs"] {
            assert_eq!(toml_of(other), None, "{other}");
        }
    }

    #[test]
    fn files_are_read_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        output(&path).unwrap().write_all(b"hello").unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "hello");
        output(&path).unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "");
        assert_eq!(read_to_string(Path::new("/dev/null")).unwrap(), "");
        assert!(output(Path::new("/dev/full")).is_ok());
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, b"old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mut reader = File::open(&path).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let mut old = String::new();
        reader.read_to_string(&mut old).unwrap();
        assert_eq!(old, "old");
        // Nothing else is left, and devices stay what they are.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(replace(Path::new("/dev/full"), b"text").is_err());
        replace(Path::new("/dev/null"), b"text").unwrap();
        assert!(replace(&folder.path().join("none/x"), b"text").is_err());
    }

    #[test]
    fn what_is_no_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for (path, why) in [
            (folder.path(), "directory"),
            (Path::new("/dev/zero"), "device"),
            (&fifo(folder.path()), "no writer"),
        ] {
            let error = input(path).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = output(&folder.path().join("fifo")).unwrap_err().to_string();
        assert!(error.contains("no reader"), "{error}");
        assert_eq!(
            input(&folder.path().join("none")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(output(&folder.path().join("none/x")).is_err());
    }

    #[test]
    fn a_fifo_with_a_writer_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(folder.path());
        let text = "line\n".repeat(40_000);
        let writer = thread::spawn({
            let (path, text) = (path.clone(), text.clone());
            move || {
                thread::sleep(Duration::from_millis(200));
                let mut fifo = fs::OpenOptions::new().write(true).open(path).unwrap();
                let (first, rest) = text.split_at(7);
                fifo.write_all(first.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(200));
                fifo.write_all(rest.as_bytes()).unwrap();
            }
        });
        assert_eq!(read_to_string(&path).unwrap(), text);
        writer.join().unwrap();
    }
}
