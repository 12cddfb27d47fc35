//! Whose doing the mask of a thread is that perch has bound.

use crate::{journal::Held, ownership::explains};
use perch_core::PuSet;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// It is perch's doing.
    Ours,
    /// It is the mask that the thread had before perch.
    Before,
    /// Another process set it.
    Foreign,
}

/// Judges the mask of a thread that perch has set to one of some masks. `allowed` is what it may use now.
pub(super) fn judge(held: &Held, mask: &PuSet, allowed: Option<&PuSet>) -> Judged {
    let nothing = PuSet::new();
    let allowed = allowed.unwrap_or(&nothing);
    let foreign = |doubt: &PuSet| {
        let kernels = |asked: &PuSet| explains(asked, doubt, allowed);
        explains(doubt, mask, allowed) && !held.asked().any(kernels)
    };
    if held.doubt.as_ref().is_some_and(foreign) {
        Judged::Foreign
    } else if held.asked().any(|asked| explains(asked, mask, allowed)) {
        Judged::Ours
    } else if held.whole && mask == allowed
        || *mask == held.before && (!held.whole || allowed.is_subset(mask))
    {
        // The whole of a CPU set that has been widened since is not the whole of it now: the kernel is about to change
        // the mask, perhaps into the one that perch asked for.
        Judged::Before
    } else {
        Judged::Foreign
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_of_a_cpu_set_that_is_being_widened_is_not_what_it_was_before() {
        let set = |text: &str| -> PuSet { text.parse().unwrap() };
        // Inherited while its CPU set held PU 1 alone, so that this was its default mask.
        let held = Held {
            process: 1,
            before: set("1"),
            whole: true,
            from: Vec::new(),
            set: set("0"),
            let_go: false,
            doubt: None,
        };
        let judged = |mask: &str, allowed: &str| judge(&held, &set(mask), Some(&set(allowed)));
        assert_eq!(judged("1", "0-1"), Judged::Foreign, "not yet settled");
        assert_eq!(judged("0", "0-1"), Judged::Ours);
        assert_eq!(judged("1", "1"), Judged::Ours);
        assert_eq!(judged("0-1", "0-1"), Judged::Before);
        assert_eq!(judge(&held, &set("1"), None), Judged::Before);
    }
}
