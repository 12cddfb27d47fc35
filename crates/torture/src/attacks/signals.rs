//! Every signal that can be caught: what perch does with it is its affair, but in the end all masks are back.

use super::{Context, LETTING_GO};
use crate::{
    masks::{await_that, pus},
    orders::Order,
    perch::{PATIENCE, Perch},
    world::World,
};
use anyhow::Result;
use nix::sys::signal::Signal;
use std::{collections::BTreeSet, thread::sleep, time::Duration};

/// perch decides within this time what a signal means to it.
const REACTION: Duration = Duration::from_millis(150);

pub fn attack(context: &mut Context) -> Result<()> {
    let mut signals: Vec<i32> = Signal::iterator().map(|signal| signal as i32).collect();
    if !context.quick {
        signals.extend(libc::SIGRTMIN()..=libc::SIGRTMAX());
    }
    signals.retain(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal));
    let mut left = BTreeSet::new();
    let rounds = if context.quick { 1 } else { 5 };
    let both = if context.quick { 1 } else { 2 };
    let tries = context.tries(signals.len() as u64, signals.len() as u64 * rounds * both);
    for number in 0..tries as usize {
        if !context.begin()? {
            break;
        }
        let signal = signals[number % signals.len()];
        // Either way in turn; the short form has one of them for each signal.
        one(
            context,
            signal,
            (number + number / signals.len()).is_multiple_of(2),
            &mut left,
        )?;
        context.end();
    }
    if !left.is_empty() {
        let names: Vec<_> = left.into_iter().collect();
        let note = format!("masks not restored after {}", names.join(", "));
        context.tally.notes.push(note);
    }
    Ok(())
}

fn one(context: &mut Context, signal: i32, run: bool, left: &mut BTreeSet<String>) -> Result<()> {
    let sandbox = context.sandbox;
    let (perch, mut world) = (Perch::new(sandbox), World::new(sandbox));
    let name =
        Signal::try_from(signal).map_or_else(|_| signal.to_string(), |name| name.to_string());
    let what = format!("{name} to {}", if run { "run" } else { "attach" });
    let (session, mut puppet) = if run {
        let (session, meeting) = perch.run(&[], &sandbox.victim())?;
        let Some(puppet) = meeting.meet()? else {
            anyhow::bail!("perch did not start the program: {}", session.said());
        };
        world.process(puppet.pid, "main thread");
        (session, puppet)
    } else {
        let puppet = world.puppet(sandbox)?;
        (perch.attach(&[puppet.pid], &[])?, puppet)
    };
    let bound = world.thread(&mut puppet, "", "w0")?;
    if !context.await_bound(bound, &pus("0"), &what) {
        return Ok(());
    }
    // The program may die of a signal that perch passes on: a child that outlives it shows what perch did.
    world.child(&mut puppet, "w0", Order::Fork("wkid".to_owned()))?;
    session.signal(signal);
    await_that(REACTION, || !session.is_alive());
    if session.is_alive() {
        // Stopped, perhaps.
        session.signal(libc::SIGCONT);
        session.signal(libc::SIGTERM);
        await_that(LETTING_GO, || !session.is_alive() || world.changed() == 0);
    } else {
        sleep(Duration::from_millis(5));
    }
    let mut found = crate::tally::Tally::default();
    world.check(&mut found);
    context.tally.checked += found.checked;
    if found.violations() > 0 {
        let examples = found.faults.values().flat_map(|fault| &fault.examples);
        let threads: Vec<&str> = examples.map(String::as_str).collect();
        let example = format!("{what}: {}; perch: {}", threads.join(", "), session.said());
        context.tally.fault("masks not restored", example);
        left.insert(name);
    }
    if session.is_alive() {
        // It waits for its program.
        let _ = puppet.send("", Order::End);
    }
    let done = session.wait(PATIENCE)?;
    if done.status.is_none() {
        context
            .tally
            .fault("perch hung", format!("{what}: {}", done.text()));
    }
    if found.violations() == 0 {
        context.nothing_left(&perch);
    }
    Ok(())
}
