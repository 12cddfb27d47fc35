//! Reading a recording of any format.

use crate::{Recording, TraceError, champsim, compress, file};
use std::{
    fs::{self, File},
    io::Read,
    path::Path,
};

/// How much a recording may be, so that a wrong or huge file is refused rather than filling the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in memory, about.
    pub bytes: u64,
}

/// What an instruction of a table takes in memory, about, in bytes.
pub(crate) const CODE_BYTES: u64 = 256;

impl Default for Limits {
    /// 2 GiB: about a thousand million instructions.
    fn default() -> Self {
        Self { bytes: 1 << 31 }
    }
}

impl Limits {
    pub(crate) fn exceeded(&self) -> String {
        format!(
            "too large: more than {} MiB of instructions; record fewer (`--instructions`), or cut it",
            self.bytes >> 20
        )
    }
}

/// Reads a recording: perch's own format, or ChampSim's, packed by gzip or xz or plain. What it is, its content tells.
///
/// # Errors
/// A file that cannot be read; one that is no recording, is damaged, was cut off, or is too large.
pub fn read(path: &Path, limits: &Limits) -> Result<Recording, TraceError> {
    let failed = |error| TraceError::Io {
        path: path.to_owned(),
        what: "cannot be read",
        error,
    };
    // Not a pipe or device, which may never end.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(TraceError::Content {
            path: path.to_owned(),
            why: "not a file with a recording".into(),
        });
    }
    let file = File::open(path).map_err(failed)?;
    read_from(file, limits).map_err(|why| TraceError::Content {
        path: path.to_owned(),
        why,
    })
}

/// Reads a recording as [`read`] does, from anything.
///
/// # Errors
/// What is wrong with it, in words.
pub fn read_from(input: impl Read, limits: &Limits) -> Result<Recording, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    let mut input = compress::unpacked(input).map_err(failed)?;
    let mut head = Vec::new();
    input
        .by_ref()
        .take(file::MAGIC.len() as u64)
        .read_to_end(&mut head)
        .map_err(failed)?;
    if head == file::MAGIC {
        return file::read(&mut input, limits);
    }
    if head.is_empty() {
        return Err("it is empty".into());
    }
    if head.starts_with(b"{\"") && head.is_ascii() {
        return Err(
            "not an instruction trace, but JSON: what `perch run --log` has recorded is for `perch replay`"
                .into(),
        );
    }
    champsim::read(&mut head.chain(&mut input), limits)
}
