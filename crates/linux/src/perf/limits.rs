//! Limits that perf events run into: file descriptors, locked memory, and which CPUs there are.

use perch_core::PuSet;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::fs;

/// What a user does about too few file descriptors.
pub const NOFILE_REMEDY: &str = "the limit of open files is reached: `ulimit -n 65536`, or raise `nofile` for the \
                                 user in /etc/security/limits.conf (`LimitNOFILE=` in a systemd unit)";

/// Descriptors left to the rest of perch: files, sockets, /proc.
const RESERVED: u64 = 256;

/// Used where the kernel states no limit.
const UNLIMITED: u64 = 1 << 20;

/// Raises the soft limit of open files to the hard one and returns how many descriptors perf events may use,
/// those that are open already included.
pub fn descriptors() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = getrlimit(Resource::Nofile);
        }
    }
    let limit = limit.current.unwrap_or(UNLIMITED);
    limit.saturating_sub(RESERVED.min(limit / 2)) as usize
}

/// Bytes of rings that an ordinary user may map: `kernel.perf_event_mlock_kb` for each online CPU, and what
/// RLIMIT_MEMLOCK allows beyond (perf_event_open(2), mmap layout).
pub fn ring_bytes() -> usize {
    let per_cpu = fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb")
        .ok()
        .and_then(|text| text.trim().parse::<usize>().ok())
        .unwrap_or(516)
        * 1024;
    let locked = getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX);
    let locked = usize::try_from(locked).unwrap_or(usize::MAX);
    (per_cpu * online_cpus().len().max(1)).saturating_add(locked)
}

/// The CPUs that are online, by the kernel's numbers.
pub fn online_cpus() -> PuSet {
    fs::read_to_string("/sys/devices/system/cpu/online")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| PuSet::single(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_usable() {
        let allowed = descriptors();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert!(allowed > 0 && allowed as u64 <= limit.current.unwrap_or(UNLIMITED));
        assert!(ring_bytes() >= 4096);
        assert!(!online_cpus().is_empty());
    }
}
