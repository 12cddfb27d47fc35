//! Threads that execute another program: the new one's only thread has the process's number and the caller's mask.

use super::Context;
use crate::{
    masks::{await_mask, pus},
    orders::Order,
    perch::{Perch, Session},
    puppet::Puppet,
    world::World,
};
use anyhow::Result;
use std::{thread::sleep, time::Duration};

/// Who executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// A bound thread that is not the main one.
    Worker,
    /// The bound main thread.
    Main,
    /// A thread that has placed itself, of a process of which another thread is bound.
    Own,
}

/// When perch ends, relative to the call of execve(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Long enough for perch to see it; then perch is stopped.
    Alive,
    /// Perch is stopped at once.
    BeforeStop,
    /// Perch is killed at once.
    BeforeKill,
    /// After perch was killed.
    AfterKill,
}

pub fn attack(context: &mut Context) -> Result<()> {
    let whos = [Who::Worker, Who::Main, Who::Own];
    let whens = [
        When::Alive,
        When::BeforeStop,
        When::BeforeKill,
        When::AfterKill,
    ];
    let rounds = context.rounds(if context.quick { 12 } else { 24 }, 1, 20);
    for round in 0..rounds {
        for who in whos {
            for when in whens {
                for run in [false, true] {
                    // The short form makes every pair of the first two once.
                    if context.quick && run != (who as u64 + when as u64 + round).is_multiple_of(2)
                    {
                        continue;
                    }
                    if !context.begin()? {
                        return Ok(());
                    }
                    one(context, who, when, run)?;
                    context.end();
                }
            }
        }
    }
    Ok(())
}

fn one(context: &mut Context, who: Who, when: When, run: bool) -> Result<()> {
    let sandbox = context.sandbox;
    let perch = Perch::new(sandbox);
    let mut world = World::new(sandbox);
    let what = format!("{who:?} {when:?} {}", if run { "run" } else { "attach" });
    let (mut puppet, session) = start(&perch, &mut world, context, run)?;
    let bound = puppet.tell("w0", Order::Rename("w0".to_owned()))?;
    if !context.await_bound(bound, &pus("0"), &what) {
        return Ok(());
    }
    let mut session = Some(session);
    if when == When::AfterKill
        && let Some(session) = session.take()
    {
        session.kill()?;
    }
    let (to, mask) = match who {
        Who::Worker => ("w0", None),
        Who::Main => ("", None),
        Who::Own => ("own", Some(pus("1"))),
    };
    if who == Who::Main && session.is_some() {
        puppet.tell("", Order::Rename("wmain".to_owned()))?;
        if !context.await_bound(puppet.pid, &pus("0"), &what) {
            return Ok(());
        }
    }
    // The other threads end with it; the process keeps its number.
    puppet.tell(to, Order::Exec(sandbox.victim_words()))?;
    world.expect(puppet.pid, &what, mask.as_ref());
    match (session, when) {
        (Some(session), When::Alive) => {
            // Perch must not only undo it in the end: a program that nothing binds is not to run bound meanwhile.
            let free = mask.unwrap_or_else(|| sandbox.all.clone());
            await_mask(puppet.pid, &free, Duration::from_millis(500));
            sleep(Duration::from_millis(50));
            end(context, &perch, session, run, false, world)
        }
        (Some(session), _) => end(
            context,
            &perch,
            session,
            run,
            when == When::BeforeKill,
            world,
        ),
        (None, _) => {
            context.restore(&perch)?;
            world.check(&mut context.tally);
            Ok(())
        }
    }
}

fn end(
    context: &mut Context,
    perch: &Perch,
    session: Session,
    run: bool,
    kill: bool,
    world: World,
) -> Result<()> {
    if run {
        return context.finish_run(perch, session, kill, world);
    }
    context.finish(perch, session, kill)?;
    world.check(&mut context.tally);
    Ok(())
}

/// A victim with a thread to be bound, and one that has placed itself.
fn start(
    perch: &Perch,
    world: &mut World,
    context: &Context,
    run: bool,
) -> Result<(Puppet, Session)> {
    let sandbox = context.sandbox;
    if run {
        let (session, meeting) = perch.run(&[], &sandbox.victim())?;
        let Some(mut puppet) = meeting.meet()? else {
            anyhow::bail!("perch did not start the program: {}", session.said());
        };
        world.process(puppet.pid, "main thread");
        furnish(world, &mut puppet)?;
        return Ok((puppet, session));
    }
    let mut puppet = world.puppet(sandbox)?;
    furnish(world, &mut puppet)?;
    let session = perch.attach(&[puppet.pid], &[])?;
    Ok((puppet, session))
}

fn furnish(world: &mut World, puppet: &mut Puppet) -> Result<()> {
    world.thread(puppet, "", "own")?;
    world.pin(puppet, "own", &pus("1"))?;
    world.thread(puppet, "", "w0")?;
    Ok(())
}
