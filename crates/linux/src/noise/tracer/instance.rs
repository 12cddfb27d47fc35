//! An instance of the kernel's tracing of perch's own (`Documentation/trace/ftrace.rst`, "Instances"): what others trace
//! is left alone.
//!
//! The folder is locked (flock(2)) as long as its perch lives, so that a later one can tell what a killed one has left.

use crate::noise::tracefs::Tracefs;
use perch_core::MachineError;
use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, open},
    io::Errno,
};
use std::{
    fs,
    io::{self, Read},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// What the names of perch's instances begin with.
const PREFIX: &str = "perch-noise-";

/// An instance; dropped, it is removed, and with it the tracer's threads.
#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
    _alive: OwnedFd,
}

impl Instance {
    /// Makes one.
    ///
    /// # Errors
    /// Not root, or tracefs is not writable.
    pub fn create(tracefs: &Tracefs) -> Result<Self, MachineError> {
        let instances = tracefs.root().join("instances");
        let path = instances.join(format!("{PREFIX}{}", std::process::id()));
        let failed = |error: io::Error| MachineError::Io {
            what: format!(
                "making an instance of the kernel's tracing, {PREFIX}{}",
                std::process::id()
            ),
            error,
        };
        fs::create_dir(&path).map_err(failed)?;
        let locked = open_folder(&path).and_then(|folder| {
            flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
            Ok(folder)
        });
        match locked {
            Ok(alive) => Ok(Self {
                path,
                _alive: alive,
            }),
            Err(error) => {
                let _ = fs::remove_dir(&path);
                Err(failed(error))
            }
        }
    }

    /// Writes a setting of the instance.
    ///
    /// # Errors
    /// What the kernel says, with the name of the file.
    pub fn write(&self, file: &str, text: &str) -> Result<(), MachineError> {
        fs::write(self.path.join(file), text).map_err(|error| MachineError::Io {
            what: format!("writing `{text}` to {file} of the kernel's tracing"),
            error,
        })
    }

    /// The lines that are traced, each read once; reading does not wait for more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pipe(&self) -> Result<Pipe, MachineError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let pipe = open(self.path.join("trace_pipe"), flags, Mode::empty());
        let pipe = pipe.map_err(|error| MachineError::Io {
            what: "reading trace_pipe of the kernel's tracing".to_owned(),
            error: error.into(),
        })?;
        Ok(Pipe {
            file: pipe.into(),
            rest: Vec::new(),
        })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It is this perch's own. What holds it for a moment longer is a reader that closes.
        let _ = fs::remove_dir(&self.path);
    }
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// The end of a trace at which lines come out.
#[derive(Debug)]
pub(super) struct Pipe {
    file: fs::File,
    /// A line that has not ended yet.
    rest: Vec<u8>,
}

impl Pipe {
    /// Hands over the lines that are there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn drain(&mut self, mut each: impl FnMut(&str)) -> io::Result<()> {
        let mut bytes = [0; 1 << 16];
        loop {
            match self.file.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(length) => self.rest.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            let end = self.rest.iter().rposition(|byte| *byte == b'\n');
            let Some(end) = end else {
                // No line of the kernel's is so long.
                if self.rest.len() > 1 << 20 {
                    self.rest.clear();
                }
                continue;
            };
            for line in self.rest[..end].split(|byte| *byte == b'\n') {
                each(&String::from_utf8_lossy(line));
            }
            self.rest.drain(..=end);
        }
    }
}

/// Removes instances that killed perches have left, and with them the tracers' threads; how many.
pub(in crate::noise) fn remove_leftovers(tracefs: &Tracefs) -> usize {
    let entries = fs::read_dir(tracefs.root().join("instances"));
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let is_ours = |name: &String| {
        let number = name.strip_prefix(PREFIX);
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let mut removed = 0;
    for name in names.filter(is_ours) {
        let path = tracefs.root().join("instances").join(name);
        let Ok(folder) = open_folder(&path) else {
            continue;
        };
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            // Its perch lives.
            Err(Errno::WOULDBLOCK) => {}
            _ => removed += usize::from(fs::remove_dir(&path).is_ok()),
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_instances_of_dead_perches_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let instances = root.path().join("instances");
        fs::create_dir(&instances).unwrap();
        let tracefs = Tracefs::at(root.path());
        let alive = Instance::create(&tracefs).unwrap();
        for name in ["perch-noise-999999999", "perch-noise-x", "mine"] {
            fs::create_dir(instances.join(name)).unwrap();
        }
        assert_eq!(remove_leftovers(&tracefs), 1);
        let mut left: Vec<String> = fs::read_dir(&instances)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let own = format!("perch-noise-{}", std::process::id());
        let mut expected = vec!["mine".to_owned(), own.clone(), "perch-noise-x".to_owned()];
        expected.sort();
        assert_eq!(left, expected);
        drop(alive);
        assert!(!instances.join(own).exists());
    }

    #[test]
    fn lines_are_handed_over_when_they_are_whole() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("pipe");
        fs::write(&path, "one\ntwo\nthr").unwrap();
        let mut pipe = Pipe {
            file: fs::File::open(&path).unwrap(),
            rest: Vec::new(),
        };
        let mut lines = Vec::new();
        pipe.drain(|line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["one", "two"]);
        use std::io::Write;
        let mut more = fs::OpenOptions::new().append(true).open(&path).unwrap();
        more.write_all(b"ee\n").unwrap();
        pipe.drain(|line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["one", "two", "three"]);
    }
}
