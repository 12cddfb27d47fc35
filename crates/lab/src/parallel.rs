//! Independent work on several threads of the host; what comes of it does not depend on how many there are.

use std::{
    num::NonZeroUsize,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

/// How many threads the host runs at once.
pub fn host_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Does the work of each number below `count` on up to `threads` threads, and tells `done` how many are done. The
/// results are in the order of their numbers.
///
/// # Errors
/// The least number that failed, with its error; work that was not begun by then is left out.
pub fn each<T: Send, E: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
    mut done: impl FnMut(usize),
) -> Result<Vec<T>, (usize, E)> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut results: Vec<Option<Result<T, E>>> = (0..count).map(|_| None).collect();
    thread::scope(|scope| {
        for _ in 0..threads.max(1).min(count) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count || sender.send((at, work(at))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (finished, (at, result)) in receiver.iter().enumerate() {
            // Work is begun in order and what is begun is finished, so that always the same failure is the first.
            if result.is_err() {
                next.store(count, Ordering::Relaxed);
            }
            results[at] = Some(result);
            done(finished + 1);
        }
    });
    let mut all = Vec::with_capacity(count);
    // Whatever was not begun comes after a failure.
    for (at, result) in results.into_iter().flatten().enumerate() {
        all.push(result.map_err(|error| (at, error))?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_number_of_threads_changes_nothing(
            count in 0usize..40,
            threads in 0usize..6,
            bad in proptest::collection::vec(0usize..60, 0..3),
        ) {
            let work = |at: usize| if bad.contains(&at) { Err(at) } else { Ok(at * at) };
            let alone = each(count, 1, work, |_| {});
            prop_assert_eq!(&each(count, threads, work, |_| {}), &alone);
            match bad.iter().filter(|at| **at < count).min() {
                Some(first) => prop_assert_eq!(alone, Err((*first, *first))),
                None => prop_assert_eq!(alone, Ok((0..count).map(|at| at * at).collect())),
            }
        }
    }

    #[test]
    fn each_step_is_told_once() {
        let mut told = Vec::new();
        each(5, 3, Ok::<_, ()>, |done| told.push(done)).unwrap();
        assert_eq!(told, [1, 2, 3, 4, 5]);
    }
}
