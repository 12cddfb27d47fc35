//! Names of regions as numbers, the same in all threads.

use crate::Error;
use perch_core::text::printable;
use perch_regions::LONGEST_NAME;
use std::{
    cell::UnsafeCell,
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

/// Most names.
const MOST: usize = 10_000;

#[derive(Default)]
struct Names {
    by_text: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);

fn lock() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name as reports have it.
pub(crate) fn shown(name: &str) -> Arc<str> {
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    printable(&name[..end]).into()
}

/// The number of a name.
pub(crate) fn number(name: &str) -> Result<u32, Error> {
    let mut names = lock();
    if let Some(number) = names.by_text.get(name) {
        return Ok(*number);
    }
    if names.texts.len() >= MOST {
        return Err(Error::TooMany(format!(
            "more than {MOST} names of regions: give regions names that do not change"
        )));
    }
    let number = names.texts.len() as u32;
    names.texts.push(shown(name));
    names.by_text.insert(name.into(), number);
    Ok(number)
}

/// All names, by number.
pub(crate) fn all() -> Vec<Arc<str>> {
    lock().texts.clone()
}

/// Where a fork keeps the lock, so that no other thread holds it in the child.
struct Held(UnsafeCell<Option<MutexGuard<'static, Names>>>);

// SAFETY: only who holds the lock uses the cell.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Before a fork.
pub(crate) fn hold() {
    let guard = lock();
    // SAFETY: the lock is held.
    unsafe { *HELD.0.get() = Some(guard) };
}

/// After a fork, in both processes.
pub(crate) fn release() {
    // SAFETY: `hold` was called by this thread, and the lock is held since.
    drop(unsafe { (*HELD.0.get()).take() });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers_and_are_shown_without_what_acts() {
        let first = number("names: first").unwrap();
        assert_eq!(number("names: first"), Ok(first));
        let other = number("names: \x1b[2J").unwrap();
        assert_ne!(first, other);
        assert_eq!(&*all()[other as usize], "names: \\x1b[2J");
        assert_eq!(shown(&"ä".repeat(200)).len(), 254);
        hold();
        release();
        assert_eq!(number("names: first"), Ok(first));
    }
}
