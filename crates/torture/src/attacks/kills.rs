//! SIGKILL at random instants, for perch and for the restore after it.

use super::Context;
use crate::{
    masks::{await_that, mask, pus},
    orders::Order,
    perch::{Perch, Session},
    puppet::Puppet,
    world::World,
};
use anyhow::Result;
use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// perch has looked, bound and looked again after this many microseconds on an idle machine.
const LIFE: u64 = 90_000;
/// And `perch restore` has exited.
pub const RESTORING: u64 = 15_000;

pub fn attack(context: &mut Context) -> Result<()> {
    let mut bound = 0;
    for _ in 0..context.tries(60, 2_000) {
        if !context.begin()? {
            break;
        }
        bound += one(context)?;
        context.end();
    }
    let note = format!("{bound} threads were bound at the kill");
    context
        .tally
        .hold(bound > 0, "nothing was ever bound", || note.clone());
    context.tally.notes.push(note);
    Ok(())
}

/// One kill; answers how many threads had perch's mask at that instant.
fn one(context: &mut Context) -> Result<usize> {
    let sandbox = context.sandbox;
    let perch = Perch::new(sandbox);
    let mut world = World::new(sandbox);
    let run = context.rng.bool();
    let mut puppet;
    let session;
    let mut deadline = Instant::now() + Duration::from_micros(context.rng.u64(0..LIFE));
    if run {
        let (started, meeting) = perch.run(&[], &sandbox.victim())?;
        session = started;
        // Killed by itself, so that the victim may be on its way.
        let killer = killer(&session, deadline);
        puppet = meeting.meet()?;
        if let Some(puppet) = &mut puppet {
            world.process(puppet.pid, "main thread");
            furnish(puppet, &mut world)?;
            children(context, puppet, &mut world, run)?;
        }
        let _ = killer.join();
    } else {
        let mut own = world.puppet(sandbox)?;
        furnish(&mut own, &mut world)?;
        session = perch.attach(&[own.pid], &[])?;
        if context.rng.bool() {
            let worker = own.tell("w0", Order::Rename("w0".to_owned()))?;
            await_that(Duration::from_secs(1), || mask(worker) == Some(pus("0")));
            deadline = Instant::now() + Duration::from_micros(context.rng.u64(0..LIFE / 3));
        }
        let killer = killer(&session, deadline);
        children(context, &mut own, &mut world, run)?;
        let _ = killer.join();
        puppet = Some(own);
    }
    let done = session.kill()?;
    context.tally.judge(&done, "perch");
    let bound = world.changed();
    if let Some(puppet) = &mut puppet {
        children(context, puppet, &mut world, run)?;
    }
    if context.rng.u32(0..3) == 0 {
        let restoring = perch.start(["restore"])?;
        context.nap(RESTORING);
        restoring.kill()?;
        if let Some(puppet) = &mut puppet {
            children(context, puppet, &mut world, run)?;
        }
    }
    context.restore(&perch)?;
    world.check(&mut context.tally);
    Ok(bound)
}

fn killer(session: &Session, deadline: Instant) -> std::thread::JoinHandle<()> {
    let pid = session.pid();
    std::thread::spawn(move || {
        sleep(deadline.saturating_duration_since(Instant::now()));
        // SAFETY: perch is reaped only after this thread was joined.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    })
}

/// Threads that perch binds, one that it does not, and one that has placed itself.
fn furnish(puppet: &mut Puppet, world: &mut World) -> Result<()> {
    for name in ["w0", "w1", "plain", "own"] {
        world.thread(puppet, "", name)?;
    }
    world.pin(puppet, "own", &pus("1"))?;
    Ok(())
}

/// Children of threads that are bound, or are about to be.
pub fn children(
    context: &mut Context,
    puppet: &mut Puppet,
    world: &mut World,
    run: bool,
) -> Result<()> {
    for _ in 0..context.rng.u32(0..4) {
        context.nap(2_000);
        let parent = if context.rng.bool() { "w0" } else { "w1" };
        let order = match context.rng.u32(0..4) {
            0 => {
                let name = format!("k{}", context.rng.u32(..));
                world.thread(puppet, parent, &name)?;
                continue;
            }
            1 => Order::Fork("k".to_owned()),
            2 => Order::Spawn(context.sandbox.idle()),
            // Only `perch run` leaves a mark in the environment, by which such a one is known afterwards.
            _ if run => Order::Daemon("k".to_owned()),
            _ => continue,
        };
        world.child(puppet, parent, order)?;
    }
    Ok(())
}
