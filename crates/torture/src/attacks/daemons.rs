//! Daemons: processes that leave the family of the one that perch was attached to, at random instants around perch's end.

use super::Context;
use crate::{
    masks::{await_that, mask, pus},
    orders::Order,
    perch::Perch,
    world::World,
};
use anyhow::Result;
use std::time::{Duration, Instant};

/// Within this many microseconds of the signal daemons are started.
const AROUND: u64 = 40_000;

/// How many are started in each try.
const DAEMONS: usize = 12;

pub fn attack(context: &mut Context) -> Result<()> {
    for _ in 0..context.tries(10, 300) {
        if !context.begin()? {
            break;
        }
        one(context)?;
        context.end();
    }
    Ok(())
}

/// Without a mark in the environment, only the kernel's records say from which process a daemon descends. So perch must be
/// alive when one is started, and be asked to end rather than be killed.
fn one(context: &mut Context) -> Result<()> {
    let sandbox = context.sandbox;
    let perch = Perch::new(sandbox);
    let mut world = World::new(sandbox);
    let mut puppet = world.puppet(sandbox)?;
    for name in ["w0", "w1"] {
        world.thread(&mut puppet, "", name)?;
    }
    let session = perch.attach(&[puppet.pid], &[])?;
    let worker = puppet.tell("w1", Order::Rename("w1".to_owned()))?;
    await_that(super::BINDING, || mask(worker) == Some(pus("0")));
    let signal = Instant::now() + Duration::from_micros(context.rng.u64(AROUND / 2..AROUND));
    let pid = session.pid();
    let sent = std::thread::spawn(move || {
        std::thread::sleep(signal.saturating_duration_since(Instant::now()));
        // SAFETY: perch is reaped only after this thread was joined.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    });
    for _ in 0..DAEMONS {
        context.nap(2 * AROUND / DAEMONS as u64);
        if !session.is_alive() {
            break;
        }
        let parent = if context.rng.bool() { "w0" } else { "w1" };
        world.child(&mut puppet, parent, Order::Daemon("k".to_owned()))?;
    }
    let _ = sent.join();
    let done = session.wait(crate::perch::PATIENCE)?;
    context.tally.judge(&done, "stopped");
    context.nothing_left(&perch);
    world.check(&mut context.tally);
    Ok(())
}
