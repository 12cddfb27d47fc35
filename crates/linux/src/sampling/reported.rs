//! The executable file mappings that the kernel has reported of a process.

use super::mapped_file::MappedFile;
use std::ops::Range;

/// Most mappings that are remembered: more than all but a few programs have. The kernel does not report when one is
/// removed, so a program that loads and unloads libraries leaves ever more behind.
const MOST: usize = 4096;

/// A file mapping as perf reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reported {
    pub address: u64,
    pub length: u64,
    pub file: MappedFile,
}

impl Reported {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.length)
    }

    /// What is left of it in a range, if anything is.
    fn within(&self, range: Range<u64>) -> Option<Self> {
        let (start, end) = (self.address.max(range.start), self.end().min(range.end));
        (start < end).then(|| Self {
            address: start,
            length: end - start,
            file: MappedFile {
                offset: self.file.offset + (start - self.address),
                ..self.file.clone()
            },
        })
    }
}

/// The latest mapping of each address, as far as they are remembered.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    /// In the order in which they were reported.
    all: Vec<Reported>,
}

impl Mappings {
    /// A range was mapped: a file's, or anonymous memory. What was there before is no more.
    pub(super) fn map(&mut self, range: Range<u64>, file: Option<Reported>) {
        let overlaps = |old: &Reported| old.address < range.end && range.start < old.end();
        let mut from = 0;
        while let Some(found) = self.all[from..].iter().position(overlaps) {
            let at = from + found;
            let old = self.all.remove(at);
            let left = [old.within(0..range.start), old.within(range.end..u64::MAX)];
            let left = left.into_iter().flatten();
            from = at + left.clone().count();
            self.all.splice(at..at, left);
        }
        self.all.extend(file);
        if self.all.len() > MOST {
            // Many at once, so that it is done seldom.
            self.all.drain(..self.all.len() - MOST / 4 * 3);
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> &[Reported] {
        &self.all
    }

    /// Forgets them.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::FileId;
    use proptest::prelude::*;
    use std::path::PathBuf;

    fn file(inode: u64, address: u64, length: u64) -> Reported {
        Reported {
            address,
            length,
            file: MappedFile {
                path: PathBuf::from("/lib"),
                id: FileId {
                    major: 1,
                    minor: 2,
                    inode,
                },
                offset: inode * 1000,
            },
        }
    }

    /// The file that is mapped at an address, and where in it that is.
    fn at(mappings: &Mappings, address: u64) -> Option<(u64, u64)> {
        let covers = |m: &&Reported| (m.address..m.end()).contains(&address);
        let mut found = mappings.all().iter().filter(covers);
        let first = found.next()?;
        assert!(found.next().is_none(), "mapped twice");
        let offset = first.file.offset + (address - first.address);
        Some((first.file.id.inode, offset))
    }

    proptest! {
        #[test]
        fn each_address_has_what_was_mapped_there_last(
            made in proptest::collection::vec((0u64..100, 1u64..30, any::<bool>()), 0..40),
        ) {
            let mut mappings = Mappings::default();
            let mut truth = [None; 130];
            for (number, (address, length, of_file)) in made.into_iter().enumerate() {
                let new = of_file.then(|| file(number as u64, address, length));
                mappings.map(address..address + length, new);
                for (byte, truth) in truth.iter_mut().enumerate() {
                    let byte = byte as u64;
                    if (address..address + length).contains(&byte) {
                        let offset = number as u64 * 1000 + (byte - address);
                        *truth = of_file.then_some((number as u64, offset));
                    }
                }
            }
            for (byte, truth) in truth.iter().enumerate() {
                prop_assert_eq!(at(&mappings, byte as u64), *truth);
            }
        }
    }

    #[test]
    fn libraries_that_come_and_go_take_no_more_room() {
        let mut mappings = Mappings::default();
        for round in 0..100_000u64 {
            // The same place again and again, and one that is new each time.
            mappings.map(0..4096, Some(file(round, 0, 4096)));
            let address = (round + 1) * 8192;
            mappings.map(address..address + 4096, Some(file(round, address, 4096)));
        }
        assert!(mappings.all().len() <= MOST);
        assert_eq!(at(&mappings, 0), Some((99_999, 99_999_000)));
        let last = 100_000 * 8192;
        assert_eq!(at(&mappings, last), Some((99_999, 99_999_000)));
    }
}
