//! What the kernel makes of a mask when PUs or CPU sets change.
//!
//! Linux 6.2 and later remember the mask that was last asked for (`user_cpus_ptr`, kernel/sched/core.c): a thread may
//! use what is left of it, or its whole CPU set if nothing is left, and gets it back when the PUs are back. Before, a
//! changed CPU set gave every thread the whole of it, and PUs that go offline were struck from masks that are set.

use perch_core::PuSet;

/// Whether the kernel alone can have turned `asked` into `mask`, with `allowed` online and in the CPU set.
pub(crate) fn explains(asked: &PuSet, mask: &PuSet, allowed: &PuSet) -> bool {
    if mask == asked {
        return true;
    }
    let rest = asked.and(allowed);
    if rest.is_empty() {
        // `cpuset_cpus_allowed_fallback` (kernel/cgroup/cpuset.c) may keep offline PUs in.
        !allowed.is_empty() && allowed.is_subset(mask)
    } else {
        *mask == rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(asked: &str, mask: &str, allowed: &str) -> bool {
        let set = |text: &str| -> PuSet { text.parse().unwrap() };
        explains(&set(asked), &set(mask), &set(allowed))
    }

    #[test]
    fn the_rest_of_a_mask_or_the_whole_set() {
        assert!(explained("2-3", "2-3", "0-7"));
        assert!(explained("2-3", "3", "0-1,3-7"));
        assert!(explained("3", "0-2", "0-2"));
        // PU 3 is offline and not struck.
        assert!(explained("3", "0-7", "0-2,4-7"));
        assert!(!explained("2-3", "2", "0-7"));
        assert!(!explained("3", "0-7", "0-7"));
        assert!(!explained("3", "1", "0-2"));
    }
}
