//! Limits that perf events run into: locked memory, and which CPUs there are.

use perch_core::PuSet;
use rustix::process::{Resource, getrlimit};
use std::fs;

/// What a user does about too few file descriptors.
pub const NOFILE_REMEDY: &str = crate::limits::REMEDY;

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
    online_cpus_or(PuSet::new())
}

/// The same; where they cannot be read, for instance for want of descriptors, those that were known.
pub fn online_cpus_or(known: PuSet) -> PuSet {
    let known = match known.is_empty() {
        true => PuSet::single(0),
        false => known,
    };
    fs::read_to_string("/sys/devices/system/cpu/online")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_usable() {
        assert!(ring_bytes() >= 4096);
        assert!(!online_cpus().is_empty());
    }
}
