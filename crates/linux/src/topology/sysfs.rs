//! What hwloc does not tell: PUs that are there but offline, and whether anything changed.

use super::kinds::RawKind;
use perch_core::PuSet;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};
use std::{fs, path::PathBuf};

/// The root of the file system that is looked at: `/`, or a captured tree, as for hwloc itself.
pub fn root() -> PathBuf {
    std::env::var_os("HWLOC_FSROOT").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

fn list(path: &str) -> Option<PuSet> {
    fs::read_to_string(root().join(path)).ok()?.parse().ok()
}

fn cpu_list(name: &str) -> Option<PuSet> {
    list(&format!("sys/devices/system/cpu/{name}"))
}

/// The two kinds of cores of an Intel hybrid processor, as their counters' drivers tell them; the efficient one first.
/// hwloc asks the processor itself, which a captured tree and some virtual machines do not allow.
pub fn hybrid_kinds() -> Vec<RawKind> {
    let kind = |device: &str, name: &str| {
        Some(RawKind {
            pus: list(&format!("sys/devices/{device}/cpus"))?,
            core_type: Some(name.to_owned()),
            capacity: None,
        })
    };
    let kinds = [kind("cpu_atom", "IntelAtom"), kind("cpu_core", "IntelCore")];
    kinds.into_iter().flatten().collect()
}

/// PUs that are in the machine but switched off.
pub fn offline() -> PuSet {
    match (cpu_list("present"), cpu_list("online")) {
        (Some(present), Some(online)) => present.minus(&online),
        _ => PuSet::new(),
    }
}

/// PUs that could ever come online, hot-plugged ones included; a thread that has not been placed has them all in its
/// mask.
pub fn possible() -> PuSet {
    cpu_list("possible").unwrap_or_else(online)
}

/// PUs that are online; where the kernel does not tell, the first.
pub fn online() -> PuSet {
    cpu_list("online").unwrap_or_else(|| PuSet::single(0))
}

/// Notices that PUs went on- or offline: one read of a kept descriptor.
#[derive(Debug)]
pub struct OnlineWatch {
    file: Option<OwnedFd>,
    last: Vec<u8>,
}

impl Default for OnlineWatch {
    fn default() -> Self {
        Self::new()
    }
}

impl OnlineWatch {
    /// Starts from the present state.
    pub fn new() -> Self {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open("/sys/devices/system/cpu/online", flags, Mode::empty()).ok();
        let mut watch = Self {
            file,
            last: Vec::new(),
        };
        watch.changed();
        watch
    }

    /// Whether the set of online PUs changed since the last call.
    pub fn changed(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let Some(length) = self
            .file
            .as_ref()
            .and_then(|file| rustix::io::pread(file, &mut buffer, 0).ok())
        else {
            return false;
        };
        let changed = self.last != buffer[..length];
        if changed {
            self.last = buffer[..length].to_vec();
        }
        changed
    }
}
