//! Where a process's code bytes come from: its memory, or the files that it has mapped.

use super::{
    mapped_file::{self, MappedFile},
    reported::Reported,
};
use crate::{
    limits::{Budget, Kept, Purpose},
    perf::record::FileId,
};
use perch_sampling::{Arch, CodeSource};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, ErrorKind},
    ops::Range,
    os::unix::fs::FileExt,
    path::PathBuf,
};

/// Pieces of changeable code that are compared in each drain; beyond, all of it is forgotten each time.
const MOST_SERVED: usize = 2048;

/// One executable mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    range: Range<u64>,
    file: Option<MappedFile>,
    /// Whether its bytes may change without a new mapping: made at run time, writable or shared.
    changeable: bool,
}

/// Files by what the process calls them; `None` for one that is not under that name any more.
type Files = HashMap<(PathBuf, FileId), Option<Kept<File>>>;

/// `/proc/PID/mem`.
enum Memory {
    /// Kept open.
    Open(Kept<File>),
    /// Opened for each reading, for want of descriptors.
    Reopened,
    /// Reading it is not permitted (ptrace(2), "access mode checking"), or the process has ended.
    Closed,
}

/// The code of one process.
pub(super) struct Code {
    pid: i32,
    arch: Arch,
    memory: Memory,
    /// Whether that may not be read.
    refused: bool,
    budget: Budget,
    /// By rising address.
    mappings: Vec<Mapping>,
    files: RefCell<Files>,
    /// Bytes of changeable code that were decoded: address and length, and their hash.
    served: RefCell<BTreeMap<(u64, usize), u64>>,
}

impl Code {
    /// The code of the program that the process executes now.
    pub(super) fn open(pid: i32, arch: Arch, reported: &[Reported]) -> Self {
        let mut code = Self {
            pid,
            arch,
            memory: Memory::Closed,
            refused: false,
            budget: Budget::of_process(),
            mappings: mappings(pid, reported, &[]),
            files: RefCell::default(),
            served: RefCell::default(),
        };
        code.open_memory();
        code
    }

    /// Opens the memory anew; what is open stays so where that fails, since it can still be read.
    fn open_memory(&mut self) {
        match self.memory_file() {
            Ok(file) => {
                // Returns its place before another one is asked for.
                self.memory = Memory::Closed;
                let place = self.budget.reserve(Purpose::Code, 1);
                self.memory =
                    place.map_or(Memory::Reopened, |place| Memory::Open(place.keep(file)));
                self.refused = false;
            }
            Err(_) if matches!(self.memory, Memory::Open(_)) => {}
            Err(error) => {
                self.memory = Memory::Closed;
                self.refused = error.kind() == ErrorKind::PermissionDenied;
            }
        }
    }

    fn memory_file(&self) -> io::Result<File> {
        File::open(format!("/proc/{}/mem", self.pid))
    }

    /// Whether the address lies in a known executable mapping.
    pub(super) fn covers(&self, address: u64) -> bool {
        self.mapping(address).is_some()
    }

    /// Whether the process's memory may not be read. That of a process that has ended is merely not there.
    pub(super) fn memory_refused(&self) -> bool {
        self.refused
    }

    /// Reads the mappings again and returns the addresses whose code is no longer what it was.
    pub(super) fn remap(&mut self, pid: i32, reported: &[Reported]) -> Vec<Range<u64>> {
        let new = mappings(pid, reported, &self.mappings);
        // The descriptor belongs to an address space, not to a process: execve(2) leaves it with the old one.
        self.open_memory();
        let gone = self.mappings.iter().filter(|old| !new.contains(old));
        let gone: Vec<_> = gone.map(|old| old.range.clone()).collect();
        self.mappings = new;
        let mapped = self.mappings.iter().filter_map(|m| m.file.as_ref());
        let mapped: HashSet<_> = mapped.map(|file| (&file.path, file.id)).collect();
        let known = |(path, id): &(PathBuf, FileId)| mapped.contains(&(path, *id));
        self.files.get_mut().retain(|key, _| known(key));
        gone
    }

    /// A mapping at this address is new: what was there before is read again when it is needed.
    pub(super) fn forget_mapping(&mut self, address: u64) {
        self.mappings.retain(|m| !m.range.contains(&address));
    }

    /// Addresses of changeable code that differs from what was decoded.
    pub(super) fn rewritten(&self) -> Vec<Range<u64>> {
        let mut served = self.served.borrow_mut();
        if served.len() > MOST_SERVED {
            served.clear();
            let changeable = self.mappings.iter().filter(|m| m.changeable);
            return changeable.map(|m| m.range.clone()).collect();
        }
        let mut changed = Vec::new();
        let mut buffer = Vec::new();
        served.retain(|(address, length), hash| {
            buffer.resize(*length, 0);
            let read = self.read_memory(*address, &mut buffer);
            let same = hash_of(&buffer[..read]) == *hash;
            if !same {
                changed.push(*address..address.saturating_add(*length as u64));
            }
            same
        });
        changed
    }

    fn mapping(&self, address: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|m| m.range.start <= address);
        let mapping = self.mappings.get(after.checked_sub(1)?)?;
        mapping.range.contains(&address).then_some(mapping)
    }

    fn read_memory(&self, address: u64, buffer: &mut [u8]) -> usize {
        let read = match &self.memory {
            Memory::Open(file) => file.read_at(buffer, address),
            Memory::Reopened => self
                .memory_file()
                .and_then(|file| file.read_at(buffer, address)),
            Memory::Closed => return 0,
        };
        read.unwrap_or(0)
    }

    /// Bytes from the file behind an executable mapping. What the program itself has changed in memory, such as the
    /// pointers of linkage tables, is not there.
    fn read_file(&self, mapping: &Mapping, address: u64, buffer: &mut [u8]) -> usize {
        let Some(mapped) = &mapping.file else {
            return 0;
        };
        let left = usize::try_from(mapping.range.end - address).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let at = mapped.offset + (address - mapping.range.start);
        let mut read = |file: &File| file.read_at(&mut buffer[..wanted], at).unwrap_or(0);
        let mut files = self.files.borrow_mut();
        let key = (mapped.path.clone(), mapped.id);
        if let Some(known) = files.get(&key) {
            return known.as_ref().map_or(0, |file| read(file));
        }
        match mapped_file::open_mapped(self.pid, mapped) {
            Ok(Some(file)) => {
                let got = read(&file);
                if let Some(place) = self.budget.reserve(Purpose::Code, 1) {
                    files.insert(key, Some(place.keep(file)));
                }
                got
            }
            Ok(None) => {
                files.insert(key, None);
                0
            }
            // Perhaps the next time.
            Err(_) => 0,
        }
    }
}

impl CodeSource for Code {
    fn arch(&self) -> Arch {
        self.arch
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mapping = self.mapping(address);
        if !matches!(self.memory, Memory::Closed) {
            let read = self.read_memory(address, buffer);
            // Code that no mapping is known for may be anything.
            if mapping.is_none_or(|m| m.changeable) && buffer.len() > self.arch.pointer_size() {
                let mut served = self.served.borrow_mut();
                served.insert((address, buffer.len()), hash_of(&buffer[..read]));
            }
            return read;
        }
        mapping.map_or(0, |mapping| self.read_file(mapping, address, buffer))
    }
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The executable mappings: from `/proc/PID/maps`, or, where that cannot be read now, what perf reported and what of the
/// mappings known so far (`old`) was not mapped over since.
fn mappings(pid: i32, reported: &[Reported], old: &[Mapping]) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = match Process::new(pid).and_then(|process| process.maps()) {
        Ok(maps) => maps.into_iter().filter_map(from_maps).collect(),
        Err(_) => {
            let mut known: Vec<Mapping> = reported.iter().map(from_report).collect();
            let news = known.len();
            for mapping in old {
                let range = &mapping.range;
                let over =
                    |new: &Mapping| new.range.start < range.end && range.start < new.range.end;
                if !known[..news].iter().any(over) {
                    known.push(mapping.clone());
                }
            }
            known
        }
    };
    mappings.sort_by_key(|mapping| mapping.range.start);
    mappings
}

fn from_maps(map: MemoryMap) -> Option<Mapping> {
    if !map.perms.contains(MMPermissions::EXECUTE) {
        return None;
    }
    let fixed = !map
        .perms
        .intersects(MMPermissions::WRITE | MMPermissions::SHARED);
    let (file, changeable) = match map.pathname {
        MMapPath::Path(path) if !path.to_string_lossy().ends_with(" (deleted)") => {
            let file = MappedFile {
                path,
                id: mapped_file::id_of(map.dev, map.inode),
                offset: map.offset,
            };
            (Some(file), !fixed)
        }
        MMapPath::Path(_) => (None, !fixed),
        MMapPath::Vdso | MMapPath::Vsyscall | MMapPath::Vvar => (None, false),
        _ => (None, true),
    };
    Some(Mapping {
        range: map.address.0..map.address.1,
        file,
        changeable,
    })
}

fn from_report(report: &Reported) -> Mapping {
    Mapping {
        range: report.address..report.address.saturating_add(report.length),
        file: Some(report.file.clone()),
        changeable: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> i32 {
        std::process::id() as i32
    }

    #[test]
    fn memory_and_file_hold_the_same_code() {
        let mut code = Code::open(own(), Arch::X86_64, &[]);
        let address = memory_and_file_hold_the_same_code as fn() as usize as u64;
        assert!(code.covers(address) && !code.covers(8));
        let (mut from_memory, mut from_file) = ([0; 256], [0; 256]);
        assert_eq!(code.read(address, &mut from_memory), 256);
        code.memory = Memory::Closed;
        assert_eq!(code.read(address, &mut from_file), 256);
        assert_eq!(from_memory, from_file);
        assert_eq!(code.read(8, &mut from_file), 0);
    }

    #[test]
    fn reported_files_stand_in_for_the_mappings() {
        let code = Code::open(own(), Arch::X86_64, &[]);
        let address = reported_files_stand_in_for_the_mappings as fn() as usize as u64;
        let mapping = code.mapping(address).expect("this function is mapped");
        let reported = [Reported {
            address: mapping.range.start,
            length: mapping.range.end - mapping.range.start,
            file: mapping.file.clone().expect("from a file"),
        }];
        let mapped = super::mappings(i32::MAX, &reported, &[]);
        assert_eq!(mapped, std::slice::from_ref(mapping));
    }

    #[test]
    fn what_was_known_stays_where_the_mappings_cannot_be_read() {
        let mut code = Code::open(own(), Arch::X86_64, &[]);
        let address =
            what_was_known_stays_where_the_mappings_cannot_be_read as fn() as usize as u64;
        let known = code
            .mapping(address)
            .expect("this function is mapped")
            .clone();
        code.pid = i32::MAX;
        assert!(code.remap(i32::MAX, &[]).is_empty());
        assert_eq!(code.mapping(address), Some(&known));
        // Its memory is read through what was opened before.
        assert_eq!(code.read(address, &mut [0; 64]), 64);
        assert!(!code.memory_refused());
        // Another file was mapped there since.
        let file = MappedFile {
            path: "/nowhere".into(),
            ..known.file.clone().expect("from a file")
        };
        let reported = [Reported {
            address,
            length: 1,
            file: file.clone(),
        }];
        let gone = code.remap(i32::MAX, &reported);
        assert_eq!(gone, std::slice::from_ref(&known.range));
        assert_eq!(
            code.mapping(address).and_then(|m| m.file.as_ref()),
            Some(&file)
        );
    }

    #[test]
    fn only_bytes_that_changed_are_rewritten() {
        let text = vec![1u8; 1024];
        let code = Code {
            mappings: Vec::new(),
            ..Code::open(own(), Arch::X86_64, &[])
        };
        let address = text.as_ptr() as u64;
        let mut buffer = [0; 512];
        assert_eq!(code.read(address, &mut buffer), 512);
        assert_eq!(code.read(address + 512, &mut buffer), 512);
        assert!(code.rewritten().is_empty());
        let mut text = text;
        text[700] = 2;
        std::hint::black_box(&text);
        let changed = code.rewritten();
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0], address + 512..address + 1024);
        assert!(code.rewritten().is_empty());
    }
}
