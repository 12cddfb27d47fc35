//! Damaged journals: whatever they contain, no other thread is changed, and nothing is lost silently.

use super::Context;
use crate::{
    masks::{mask, pus, set_mask},
    orders::Order,
    perch::Perch,
    puppet::Puppet,
    world::World,
};
use anyhow::{Context as _, Result};
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

/// A journal, the threads that it is about, and who must not be touched.
struct Scene {
    world: World,
    _puppet: Puppet,
    bound: Vec<i32>,
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Tries with one killed perch's journal.
const OF_ONE: u64 = 500;

pub fn attack(context: &mut Context) -> Result<()> {
    let tries = context.tries(100, 10_000);
    let mut scene = None;
    let mut whole = 0;
    for number in 0..tries {
        if !context.begin()? {
            break;
        }
        if number % OF_ONE == 0 {
            scene = Some(Scene::make(context)?);
        }
        let scene = scene.as_ref().context("no scene")?;
        whole += u64::from(one(context, scene)?);
        context.end();
    }
    context.tally.notes.push(format!(
        "{whole} journals, cut at the end of a line, are what an earlier kill leaves: not counted"
    ));
    Ok(())
}

impl Scene {
    fn make(context: &mut Context) -> Result<Self> {
        let sandbox = context.sandbox;
        let perch = Perch::new(sandbox);
        let mut world = World::new(sandbox);
        let mut puppet = world.puppet(sandbox)?;
        let mut bound = Vec::new();
        for name in ["w0", "w1", "w2"] {
            bound.push(world.thread(&mut puppet, "", name)?);
        }
        world.thread(&mut puppet, "", "plain")?;
        world.thread(&mut puppet, "", "own")?;
        world.pin(&mut puppet, "own", &pus("1"))?;
        let session = perch.attach(&[puppet.pid], &[])?;
        for tid in &bound {
            context.await_bound(*tid, &pus("0"), "journals");
        }
        bound.push(world.thread(&mut puppet, "", "w3")?);
        context.await_bound(bound[3], &pus("0"), "journals");
        session.kill()?;
        // One more that stands in no journal.
        bound.push(world.child(&mut puppet, "w0", Order::Fork("k".to_owned()))?);
        let path = perch.left().into_iter().next().context("no journal")?;
        let bytes = fs::read(&path)?;
        Ok(Self {
            world,
            _puppet: puppet,
            bound,
            path,
            bytes,
        })
    }
}

/// One mutation; returns whether it is one that cannot be detected.
fn one(context: &mut Context, scene: &Scene) -> Result<bool> {
    let (what, mutated) = mutate(&mut context.rng, &scene.bytes);
    let undamaged = is_whole(&scene.bytes, &mutated);
    for tid in &scene.bound {
        set_mask(*tid, &pus("0"))?;
    }
    let perch = Perch::new(context.sandbox);
    let _ = fs::remove_file(&scene.path);
    fs::write(&scene.path, &mutated)?;
    // As perch makes them.
    fs::set_permissions(&scene.path, fs::Permissions::from_mode(0o600))?;
    let done = perch.restore()?;
    context.tally.judge(&done, &what);
    // The two that perch never changed.
    let before = context.tally.violations();
    scene.world.check_others(&scene.bound, &mut context.tally);
    if context.tally.violations() > before {
        // Each counts once: the next try finds things as they were.
        scene.world.repair(&scene.bound);
        if before == 0 {
            let journal = String::from_utf8_lossy(&mutated);
            context
                .tally
                .notes
                .push(format!("{what}: {}\n{journal}", done.text().trim()));
        }
    }
    let all = &context.sandbox.all;
    let masks: Vec<_> = scene.bound.iter().map(|tid| mask(*tid)).collect();
    let wrong = masks
        .iter()
        .flatten()
        .filter(|mask| *mask != all && **mask != pus("0"))
        .count();
    context.tally.hold(wrong == 0, "wrong mask given", || {
        format!("{what}: {masks:?}")
    });
    let bound = masks.iter().filter(|mask| **mask == Some(pus("0"))).count();
    let gone = fs::read_dir(&context.sandbox.state)?.next().is_none();
    if bound > 0 && gone && !undamaged {
        let text = done.text();
        let warned = ["damage", "cannot be read", "unreadable", "corrupt"]
            .iter()
            .any(|word| text.to_lowercase().contains(word));
        let kind = match (done.code() == Some(0), warned) {
            (true, false) => "journal removed as a success, threads still bound",
            _ => "journal removed with a warning, threads still bound",
        };
        context
            .tally
            .fault(kind, format!("{what}: {bound} bound; {}", text.trim()));
    }
    context.tally.checked += scene.bound.len() as u64;
    Ok(undamaged)
}

/// Whether a journal is one that a perch which was killed earlier would have left, or the whole one.
fn is_whole(original: &[u8], mutated: &[u8]) -> bool {
    !mutated.is_empty() && original.starts_with(mutated) && mutated.ends_with(b"\n")
}

/// A random change of a journal, and what it is.
fn mutate(rng: &mut fastrand::Rng, bytes: &[u8]) -> (String, Vec<u8>) {
    let mut bytes = bytes.to_vec();
    let mut lines: Vec<Vec<u8>> = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    match rng.u32(0..20) {
        0..7 => {
            let flips = 1 << rng.u32(0..5);
            for _ in 0..flips {
                let at = rng.usize(0..bytes.len());
                bytes[at] ^= 1 << rng.u32(0..8);
            }
            (format!("{flips} bits flipped"), bytes)
        }
        7..11 => {
            let at = rng.usize(0..bytes.len());
            bytes.truncate(at);
            (format!("cut at {at}"), bytes)
        }
        11..13 => {
            let at = rng.usize(0..lines.len());
            lines.remove(at);
            (format!("line {} deleted", at + 1), lines.concat())
        }
        13..15 => {
            let at = rng.usize(0..lines.len());
            let to = rng.usize(0..=lines.len());
            lines.insert(to, lines[at].clone());
            (
                format!("line {} again before line {}", at + 1, to + 1),
                lines.concat(),
            )
        }
        15..17 => {
            let (a, b) = (rng.usize(0..lines.len()), rng.usize(0..lines.len()));
            lines.swap(a, b);
            (
                format!("lines {} and {} swapped", a + 1, b + 1),
                lines.concat(),
            )
        }
        17..19 => {
            let length = rng.usize(1..2_000);
            bytes.extend((0..length).map(|_| rng.u8(..)));
            (format!("{length} random bytes appended"), bytes)
        }
        _ => ("empty".to_owned(), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_whole, mutate};

    const JOURNAL: &[u8] = b"{\"a\":1}\n{\"b\":2}\n{\"c\":3}\n";

    #[test]
    fn only_what_an_earlier_kill_leaves_is_not_counted() {
        assert!(is_whole(JOURNAL, JOURNAL));
        assert!(is_whole(JOURNAL, b"{\"a\":1}\n"));
        assert!(!is_whole(JOURNAL, b""));
        assert!(!is_whole(JOURNAL, b"{\"a\":1}\n{\"b\""));
        assert!(!is_whole(JOURNAL, b"{\"a\":1}\n{\"c\":3}\n"));
    }

    #[test]
    fn the_same_seed_makes_the_same_damage_and_most_of_it_shows() {
        let all = |seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            (0..500)
                .map(|_| mutate(&mut rng, JOURNAL))
                .collect::<Vec<_>>()
        };
        let mutations = all(7);
        assert_eq!(mutations, all(7));
        let shows = mutations
            .iter()
            .filter(|(_, bytes)| !is_whole(JOURNAL, bytes));
        assert!(shows.count() > 400);
    }
}
