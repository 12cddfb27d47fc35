//! Whether floating-point and integer threads are spread evenly over a machine's cores, each on a place of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::load::{Line, Role};

/// The roles that threads had last, by what they said.
pub fn last_roles<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<i32, Role> {
    lines
        .into_iter()
        .map(|line| (line.tid, line.role))
        .collect()
}

/// What is wrong with where threads may run, empty if nothing is.
///
/// Right is: every thread may use PUs of one core only, no two may use the same PU, and of each role every core has as
/// many as the others. `masks` are the PUs that threads may use, `core_of` the core of each PU.
pub fn uneven(
    roles: &BTreeMap<i32, Role>,
    masks: &BTreeMap<i32, Vec<usize>>,
    core_of: &[usize],
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut taken: BTreeMap<usize, i32> = BTreeMap::new();
    let mut on_core: BTreeMap<(usize, Role), usize> = BTreeMap::new();
    let all_cores: BTreeSet<usize> = core_of.iter().copied().collect();
    for (&tid, &role) in roles {
        let Some(pus) = masks.get(&tid) else {
            wrong.push(format!("{role:?} thread {tid} has exited"));
            continue;
        };
        let cores: BTreeSet<Option<usize>> =
            pus.iter().map(|pu| core_of.get(*pu).copied()).collect();
        let [Some(core)] = cores.into_iter().collect::<Vec<_>>()[..] else {
            wrong.push(format!(
                "{role:?} thread {tid} may use PUs {pus:?}, not of one core"
            ));
            continue;
        };
        *on_core.entry((core, role)).or_default() += 1;
        for &pu in pus {
            if let Some(other) = taken.insert(pu, tid) {
                wrong.push(format!("threads {tid} and {other} share PU {pu}"));
            }
        }
    }
    for role in [Role::Fp, Role::Int] {
        let all = roles.values().filter(|r| **r == role).count();
        for &core in &all_cores {
            let here = on_core.get(&(core, role)).copied().unwrap_or(0);
            if here != all / all_cores.len() {
                wrong.push(format!("{here} of {all} {role:?} threads on core {core}"));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE_OF: [usize; 4] = [0, 0, 1, 1];

    fn wrong(places: [(Role, &[usize]); 4]) -> usize {
        let numbered = || places.iter().zip(1..);
        let roles = numbered().map(|((role, _), tid)| (tid, *role)).collect();
        let masks = numbered().map(|((_, pus), tid)| (tid, pus.to_vec()));
        uneven(&roles, &masks.collect(), &CORE_OF).len()
    }

    #[test]
    fn one_of_each_on_a_core_is_even_and_all_else_is_not() {
        use Role::{Fp, Int};
        assert_eq!(wrong([(Fp, &[0]), (Int, &[1]), (Int, &[2]), (Fp, &[3])]), 0);
        // Like with like: both cores are wrong for both roles.
        assert_eq!(wrong([(Fp, &[0]), (Fp, &[1]), (Int, &[2]), (Int, &[3])]), 4);
        // Unbound, and bound to one PU twice.
        assert!(wrong([(Fp, &[0, 1, 2, 3]), (Int, &[1]), (Int, &[2]), (Fp, &[3])]) > 0);
        assert_eq!(wrong([(Fp, &[0]), (Int, &[0]), (Int, &[2]), (Fp, &[3])]), 1);
        // An unknown PU is on no core.
        assert!(wrong([(Fp, &[0]), (Int, &[1]), (Int, &[2]), (Fp, &[9])]) > 0);
    }

    #[test]
    fn a_thread_that_is_gone_is_said() {
        let roles = BTreeMap::from([(1, Role::Fp), (2, Role::Fp)]);
        let masks = BTreeMap::from([(1, vec![0])]);
        assert!(uneven(&roles, &masks, &CORE_OF)[0].contains("thread 2 has exited"));
    }
}
