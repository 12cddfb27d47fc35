//! Processes that perch itself runs besides a program: they are none of the program's orphans.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
};

static HELPERS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn helpers() -> MutexGuard<'static, BTreeSet<i32>> {
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that is a helper as long as this lives.
#[derive(Debug)]
pub(crate) struct Helper(i32);

impl Helper {
    pub(crate) fn new(pid: i32) -> Self {
        helpers().insert(pid);
        Self(pid)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        helpers().remove(&self.0);
    }
}

/// Whether a child is a helper.
pub(crate) fn is_helper(pid: i32) -> bool {
    helpers().contains(&pid)
}

/// Whether there are children that are helpers, and no others; `None` if that cannot be told.
pub(crate) fn are_all_children() -> Option<bool> {
    let helpers = helpers().clone();
    if helpers.is_empty() {
        return Some(false);
    }
    let mut children = BTreeSet::new();
    for task in fs::read_dir("/proc/self/task").ok()? {
        let text = fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        let numbers = text.split_ascii_whitespace();
        children.extend(numbers.filter_map(|number| number.parse::<i32>().ok()));
    }
    Some(children.is_subset(&helpers))
}
