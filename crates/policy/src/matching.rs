//! Threads to PUs, one each, as many as can be: maximum bipartite matching by augmenting paths (Kuhn), with wishes
//! granted first.

/// Gives each of `wishes.len()` threads one of `slots` slots. A wish is granted if it is allowed and no thread before
/// had the same; a granted wish is taken back only where another thread could not be placed otherwise.
///
/// Returns each thread's slot; `None` for threads that cannot be placed even by moving others.
pub(crate) fn assign(
    wishes: &[Option<usize>],
    slots: usize,
    allowed: impl Fn(usize, usize) -> bool,
) -> Vec<Option<usize>> {
    let mut holder: Vec<Option<usize>> = vec![None; slots];
    let mut given: Vec<Option<usize>> = vec![None; wishes.len()];
    for (thread, wish) in wishes.iter().enumerate() {
        if let Some(slot) = wish.filter(|&slot| holder[slot].is_none() && allowed(thread, slot)) {
            holder[slot] = Some(thread);
            given[thread] = Some(slot);
        }
    }
    for thread in 0..wishes.len() {
        if given[thread].is_some() {
            continue;
        }
        let free = (0..slots).find(|&slot| holder[slot].is_none() && allowed(thread, slot));
        match free {
            Some(slot) => {
                holder[slot] = Some(thread);
                given[thread] = Some(slot);
            }
            None => augment(thread, &mut holder, &mut given, &allowed),
        }
    }
    given
}

/// Breadth first from `start` over slots held by others to a free slot; then each on the path moves on by one.
fn augment(
    start: usize,
    holder: &mut [Option<usize>],
    given: &mut [Option<usize>],
    allowed: &impl Fn(usize, usize) -> bool,
) {
    let mut came_from: Vec<Option<usize>> = vec![None; holder.len()];
    let mut queue = std::collections::VecDeque::from([start]);
    while let Some(thread) = queue.pop_front() {
        for slot in 0..holder.len() {
            if came_from[slot].is_some() || !allowed(thread, slot) {
                continue;
            }
            came_from[slot] = Some(thread);
            if let Some(other) = holder[slot] {
                queue.push_back(other);
                continue;
            }
            let mut slot = slot;
            while let Some(thread) = came_from[slot] {
                holder[slot] = Some(thread);
                match given[thread].replace(slot) {
                    Some(left) => slot = left,
                    None => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The size of the largest matching, by trying everything.
    fn largest(edges: &[Vec<bool>], thread: usize, taken: u32) -> usize {
        let Some(row) = edges.get(thread) else {
            return 0;
        };
        let with = (0..row.len())
            .filter(|&slot| row[slot] && taken & (1 << slot) == 0)
            .map(|slot| 1 + largest(edges, thread + 1, taken | 1 << slot))
            .max();
        with.unwrap_or(0).max(largest(edges, thread + 1, taken))
    }

    proptest! {
        #[test]
        fn places_as_many_as_can_be(
            edges in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 5), 0..6),
            wishes in proptest::collection::vec(proptest::option::of(0..5usize), 6),
        ) {
            let given = assign(&wishes[..edges.len()], 5, |thread, slot| edges[thread][slot]);
            let mut seen = [false; 5];
            for (thread, slot) in given.iter().enumerate() {
                if let Some(slot) = *slot {
                    prop_assert!(edges[thread][slot]);
                    prop_assert!(!std::mem::replace(&mut seen[slot], true));
                }
            }
            prop_assert_eq!(given.iter().flatten().count(), largest(&edges, 0, 0));
        }

        #[test]
        fn distinct_wishes_are_granted(slots in Just((0..6usize).collect::<Vec<_>>()).prop_shuffle()) {
            let wishes: Vec<_> = slots.iter().map(|slot| Some(*slot)).collect();
            prop_assert_eq!(assign(&wishes, 6, |_, _| true), wishes);
        }
    }
}
