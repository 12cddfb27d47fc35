//! Which PUs really share a core: virtual machines hide it, or claim it where it is not so.

use super::live::{AGAIN, undisturbed};
use anyhow::Result;
use perch_core::{SharingDomain, Topology};
use perch_kernels::{Crew, Kernel, Seat, Window};
use perch_policy::{Share, calibration::Closest};
use std::{collections::BTreeMap, time::Duration};

/// Up to this many PUs, all pairs are tried; with more, neighbours and pairs half of all PUs apart, as hypervisors
/// place siblings.
const FEW: usize = 16;

/// From this slowdown on two PUs are siblings, below that they are none.
const SIBLINGS: f64 = 1.2;
const STRANGERS: f64 = 1.05;

/// What looks wrong is tried so often again, and the least counts: others' work only adds.
const TRIES: usize = 4;

/// Pairs that are named.
const NAMED: usize = 8;

/// The window of one try.
pub const TRY: Window = Window {
    warm: Duration::from_millis(5),
    measured: Duration::from_millis(20),
};

/// The pairs that are tried.
pub fn pairs(pus: &[u32]) -> Vec<(u32, u32)> {
    let count = pus.len();
    let mut pairs = Vec::new();
    for (at, a) in pus.iter().enumerate() {
        for (other, b) in pus.iter().enumerate().skip(at + 1) {
            let apart = other - at;
            if count <= FEW || apart == 1 || apart == count / 2 {
                pairs.push((*a, *b));
            }
        }
    }
    pairs
}

/// Runs a kernel that only siblings can slow down on all these pairs; what does not fit the topology.
///
/// # Errors
/// A PU on which nothing can run; what `done` says after each pair.
pub fn check(
    crew: &mut Crew,
    topology: &Topology,
    fp_domains: &[SharingDomain],
    pairs: &[(u32, u32)],
    kernel: &'static Kernel,
    mut done: impl FnMut() -> Result<()>,
) -> Result<Vec<String>> {
    let closest = Closest::new(topology, fp_domains);
    let mut speed = |pus: &[u32]| -> Result<f64> {
        let seats: Vec<Seat> = pus.iter().map(|pu| Seat { pu: *pu, kernel }).collect();
        Ok(undisturbed(crew, &seats, TRY, AGAIN)?[0].speed)
    };
    let mut alone: BTreeMap<u32, f64> = BTreeMap::new();
    let (mut hidden, mut claimed) = (Vec::new(), Vec::new());
    for (a, b) in pairs {
        let share = closest.share(*a, *b);
        let siblings = matches!(share, Share::Core | Share::Fp);
        let mut least = f64::INFINITY;
        for _ in 0..TRIES {
            let before = match alone.get(a) {
                Some(known) => *known,
                None => speed(&[*a])?,
            };
            alone.insert(*a, before);
            least = least.min(before / speed(&[*a, *b])?);
            if siblings || least < SIBLINGS {
                break;
            }
            // Perhaps it was the first that was wrong.
            alone.remove(a);
        }
        match siblings {
            true if share == Share::Core && least < STRANGERS => claimed.push(format!("{a}-{b}")),
            false if least >= SIBLINGS => hidden.push(format!("{a}-{b} ({least:.2})")),
            _ => {}
        }
        done()?;
    }
    let mut notes = Vec::new();
    if !hidden.is_empty() {
        notes.push(format!(
            "these PUs claim to share no core, and slow each other down ({}) as only siblings should: {}; a virtual machine \
             may hide what they share",
            kernel.name,
            some(&hidden)
        ));
    }
    if !claimed.is_empty() {
        notes.push(format!(
            "these PUs claim to share a core, and do not slow each other down ({}): {}; a virtual machine may report a topology that is not real",
            kernel.name,
            some(&claimed)
        ));
    }
    Ok(notes)
}

/// The first few of them.
fn some(pairs: &[String]) -> String {
    let named = pairs[..pairs.len().min(NAMED)].join(", ");
    match pairs.len() > NAMED {
        true => format!("{named} and {} more", pairs.len() - NAMED),
        false => named,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pus_are_tried_in_all_pairs_and_many_where_siblings_are_likely() {
        assert_eq!(pairs(&[0, 2, 5]), [(0, 2), (0, 5), (2, 5)]);
        let many: Vec<u32> = (0..64).collect();
        let tried = pairs(&many);
        assert_eq!(tried.len(), 63 + 32);
        assert!(tried.contains(&(3, 35)) && tried.contains(&(3, 4)));
        assert!(pairs(&[7]).is_empty());
    }

    #[test]
    fn a_long_list_is_cut() {
        let all: Vec<String> = (0..10).map(|at| at.to_string()).collect();
        assert_eq!(some(&all), "0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
        assert_eq!(some(&all[..2]), "0, 1");
    }
}
