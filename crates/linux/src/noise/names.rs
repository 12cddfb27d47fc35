//! Who the threads and functions are that were seen.

use super::{
    event::{Kind, Source},
    points::Raw,
};
use crate::proc;
use nix::unistd::{Uid, User};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
};

/// The flag of kernel threads in `/proc/PID/stat` (`PF_KTHREAD`, `include/linux/sched.h`).
const PF_KTHREAD: u64 = 0x0020_0000;

/// At most so much of /proc/kallsyms is read, in bytes: usually it has some 10 MB.
const SYMBOLS: u64 = 256 << 20;

/// Names what was seen on all PUs: threads are asked for while they live, functions are looked up together.
pub(super) struct Names {
    own: FxHashSet<i32>,
    functions: FxHashMap<u64, String>,
    uid: u32,
}

impl Names {
    /// For these sources; `own` are the threads that measured.
    pub fn of<'a>(seen: impl Iterator<Item = &'a Raw>, own: impl Iterator<Item = i32>) -> Self {
        let wanted: FxHashSet<u64> = seen
            .filter_map(|raw| match raw {
                Raw::Function(address) => Some(*address),
                _ => None,
            })
            .collect();
        let tasks = proc::task_numbers(std::process::id() as i32);
        Self {
            own: own.chain(tasks).collect(),
            functions: match wanted.is_empty() {
                true => FxHashMap::default(),
                false => symbols(&wanted),
            },
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// Who that is.
    pub fn source(&self, raw: &Raw) -> Source {
        match raw {
            Raw::Named(source) => source.clone(),
            Raw::Function(address) => Source {
                kind: Kind::Work,
                name: match self.functions.get(address) {
                    Some(name) => name.clone(),
                    None => "(function without a name)".to_owned(),
                },
                user: None,
            },
            Raw::Task(tid, name) => self.task(*tid, name),
        }
    }

    fn task(&self, tid: i32, name: &str) -> Source {
        let kind = match is_of_kernel(tid) {
            _ if self.own.contains(&tid) => Kind::Perch,
            Some(true) => Kind::KernelThread,
            // Worker threads come and go.
            None if name.starts_with("kworker/") => Kind::KernelThread,
            Some(false) | None => Kind::Task,
        };
        let name = match kind {
            // Each PU has its own: `ksoftirqd/3`, `kworker/3:1`.
            Kind::KernelThread => name.split('/').next().unwrap_or(name),
            Kind::Perch => "perch",
            _ => name,
        };
        Source {
            kind,
            name: name.to_owned(),
            user: match kind {
                Kind::Task => self.owner(tid),
                _ => None,
            },
        }
    }

    /// The owner of a thread, unless that is who runs perch.
    fn owner(&self, tid: i32) -> Option<String> {
        let uid = fs::metadata(format!("/proc/{tid}")).ok()?.uid();
        if uid == self.uid {
            return None;
        }
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let name = user.map_or_else(|| uid.to_string(), |user| user.name);
        Some(perch_core::text::printable(&name).into_owned())
    }
}

/// Whether a thread is one of the kernel's; `None` if it has ended. `/proc/TID/stat` would sum up all threads of its process.
fn is_of_kernel(tid: i32) -> Option<bool> {
    let text = fs::read(format!("/proc/{tid}/task/{tid}/stat")).ok()?;
    flags(&text).map(|flags| flags & PF_KTHREAD != 0)
}

/// The flags in `stat`, the seventh field behind the name (proc(5)).
fn flags(stat: &[u8]) -> Option<u64> {
    let behind = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[behind + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(6)?.parse().ok()
}

/// The functions at these addresses, by /proc/kallsyms, which shows addresses to root.
fn symbols(wanted: &FxHashSet<u64>) -> FxHashMap<u64, String> {
    match fs::File::open("/proc/kallsyms") {
        Ok(file) => find(BufReader::new(file.take(SYMBOLS)), wanted),
        Err(_) => FxHashMap::default(),
    }
}

/// `ffffffff81114f30 t vmstat_update [module]`
fn find(symbols: impl BufRead, wanted: &FxHashSet<u64>) -> FxHashMap<u64, String> {
    let mut found = FxHashMap::default();
    for line in symbols.lines().map_while(Result::ok) {
        let mut words = line.split_ascii_whitespace();
        let address = words
            .next()
            .and_then(|word| u64::from_str_radix(word, 16).ok());
        let Some(address) = address.filter(|address| wanted.contains(address)) else {
            continue;
        };
        if let Some(name) = words.nth(1) {
            let name = perch_core::text::printable(name).into_owned();
            found.entry(address).or_insert(name);
        }
        if found.len() == wanted.len() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_their_address() {
        let text = "0000000000001000 T first\n0000000000002000 t second\t[module]\nx\n";
        let wanted = FxHashSet::from_iter([0x2000, 0x3000]);
        let found = find(text.as_bytes(), &wanted);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&0x2000], "second");
    }

    #[test]
    fn threads_are_told_apart() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let names = Names::of(std::iter::empty(), [own].into_iter());
        assert_eq!(names.task(own, "x").kind, Kind::Perch);
        let gone = names.task(i32::MAX, "kworker/3:1");
        assert_eq!((gone.kind, &*gone.name), (Kind::KernelThread, "kworker"));
        assert_eq!(names.task(i32::MAX, "a/b").name, "a/b");
        let stat = b"2 (kthr) d) S 0 0 0 0 -1 2129984 0 0";
        assert_eq!(flags(stat), Some(2_129_984));
        assert!(flags(stat).unwrap() & PF_KTHREAD != 0);
        assert_eq!(is_of_kernel(own), Some(false));
    }
}
