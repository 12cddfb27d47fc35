//! Threads' names, each distinct one kept once: programs with thousands of threads use few.

use std::{collections::HashSet, sync::Arc};

/// Names in use are at most this many times fewer than those kept before the others are dropped.
const SPARE: usize = 2;

/// All names of followed threads, and some that were in use lately.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: HashSet<Arc<str>>,
    /// The size at which names that nobody uses are dropped.
    full: usize,
}

impl Names {
    /// The one copy of this name.
    pub fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.full {
            self.known.retain(|name| Arc::strong_count(name) > 1);
            self.full = SPARE * self.known.len().max(64);
        }
        let name: Arc<str> = name.into();
        self.known.insert(Arc::clone(&name));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_one_and_unused_ones_are_dropped() {
        let mut names = Names::default();
        let kept: Vec<Arc<str>> = (0..100)
            .map(|n| names.get(&format!("worker-{n}")))
            .collect();
        assert!(Arc::ptr_eq(&kept[7], &names.get("worker-7")));
        for n in 0..100_000 {
            names.get(&format!("short-{n}"));
        }
        assert!(
            names.known.len() <= 1 + SPARE * (kept.len() + 1),
            "{}",
            names.known.len()
        );
        assert!(Arc::ptr_eq(&kept[7], &names.get("worker-7")));
    }
}
