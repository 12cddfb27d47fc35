//! Removing the control groups by which threads had CPU weights.

use super::recover::differs;
use super::report::{Refusals, RestoreCounts};
use crate::journal::{Journal, state_dir::namespaces};
use perch_core::{Affinity, Outcome};

const REFUSALS: Refusals = Refusals {
    not_permitted: "its control group cannot be removed: run `perch restore` as the user who started perch, or as root",
    failed: "its control group cannot be emptied",
    no_usable_pu: "its control group cannot be emptied",
    not_applied: "this machine has no control groups",
};

/// Moves the threads in each group of a journal back to the group above it, and removes the group. `owner` is as in
/// [`super::restore`].
pub(super) fn restore_groups(
    affinity: &mut dyn Affinity,
    journal: &Journal,
    owner: Option<u32>,
) -> RestoreCounts {
    let mut report = RestoreCounts::default();
    let hidden = differs(namespaces().cgroup, journal.header.namespaces.cgroup);
    for (group, thread) in journal.groups() {
        if hidden {
            // The same path would name another group here, or none.
            report.fail(
                thread,
                "its control group lies in another cgroup namespace: run `perch restore` in the container where perch ran",
            );
            continue;
        }
        let groups = affinity.weights().and_then(|weights| weights.groups());
        let outcome = groups.map_or(Outcome::NotApplied, |groups| groups.dissolve(group, owner));
        report.count(thread, outcome, &REFUSALS);
    }
    report
}
