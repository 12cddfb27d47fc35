//! Another process sets the same mask that perch has set on another thread: perch must still leave it alone.

use super::Context;
use crate::{
    masks::{await_mask, await_that, mask, pus, threads},
    orders::Order,
    perch::Perch,
    world::World,
};
use anyhow::{Context as _, Result};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    thread::sleep,
    time::Duration,
};

/// How a thread comes to have perch's mask.
#[derive(Debug, Clone, Copy)]
enum How {
    /// A new thread of an unbound one pins itself before perch has seen it.
    New,
    /// A thread that perch has seen unbound pins itself.
    Seen,
    /// `taskset -c 0` by an unbound shell.
    Taskset,
    /// A thread that was bound and let go pins itself.
    Released,
    /// The bound thread's child is unbound again, and then pins itself.
    Child,
}

pub fn attack(context: &mut Context) -> Result<()> {
    let rounds = context.rounds(10, 1, 40);
    for _ in 0..rounds {
        for how in [How::New, How::Seen, How::Taskset, How::Released, How::Child] {
            for kill in [false, true] {
                if !context.begin()? {
                    return Ok(());
                }
                match how {
                    How::Taskset => taskset(context, kill)?,
                    _ => threads_of_one(context, how, kill)?,
                }
                context.end();
            }
        }
    }
    Ok(())
}

fn threads_of_one(context: &mut Context, how: How, kill: bool) -> Result<()> {
    let sandbox = context.sandbox;
    let (perch, mut world) = (Perch::new(sandbox), World::new(sandbox));
    let mut puppet = world.puppet(sandbox)?;
    let bound = world.thread(&mut puppet, "", "w0")?;
    let session = perch.attach(&[puppet.pid], &[])?;
    let what = format!("{how:?}");
    if !context.await_bound(bound, &pus("0"), &what) {
        return Ok(());
    }
    let parent = match how {
        How::Child => "w0",
        _ => "",
    };
    let name = match how {
        How::Released => "wx",
        _ => "x",
    };
    let tid = world.thread(&mut puppet, parent, name)?;
    match how {
        How::Seen => sleep(Duration::from_millis(60)),
        How::Released => {
            context.await_bound(tid, &pus("0"), &what);
            puppet.tell(name, Order::Rename("x".to_owned()))?;
            let free = await_mask(tid, &sandbox.all, super::BINDING);
            context.tally.hold(free, "not let go", || what.clone());
        }
        How::Child => {
            let free = await_mask(tid, &sandbox.all, super::BINDING);
            context.tally.hold(free, "not let go", || what.clone());
        }
        How::New | How::Taskset => {}
    }
    world.pin(&mut puppet, name, &pus("0"))?;
    sleep(Duration::from_millis(60));
    if matches!(how, How::New) {
        // One more, at the very end.
        world.thread(&mut puppet, "", "y")?;
        world.pin(&mut puppet, "y", &pus("0"))?;
    }
    context.finish(&perch, session, kill)?;
    world.check(&mut context.tally);
    Ok(())
}

/// An unbound shell under `perch run`, which starts one program that perch binds, and one with taskset(1).
fn taskset(context: &mut Context, kill: bool) -> Result<()> {
    let sandbox = context.sandbox;
    let (perch, mut world) = (Perch::new(sandbox), World::new(sandbox));
    let bound = sandbox.program_named("wbound")?;
    let (session, meeting) = perch.run(&[], &std::process::Command::new("sh"))?;
    let (mut orders, replies) = meeting.pipes();
    let mut replies = BufReader::new(replies);
    let mut started = |command: &str| -> Result<i32> {
        writeln!(orders, "{command} </dev/null >/dev/null 2>&1 & echo $!")?;
        let mut line = String::new();
        replies.read_line(&mut line)?;
        line.trim().parse().with_context(|| format!("sh: {line:?}"))
    };
    let program = sandbox.program.display();
    let worker = started(&format!("{} idle", bound.display()))?;
    world.process(worker, "bound program");
    if !context.await_bound(worker, &pus("0"), "taskset") {
        return Ok(());
    }
    let shell = fs::read_to_string(format!("/proc/{worker}/stat"))?;
    let parent = shell
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(1));
    world.process(parent.context("no parent")?.parse()?, "the shell");
    let placed = started(&format!("taskset -c 0 {program} idle"))?;
    world.process(placed, "started by taskset");
    // taskset(1) has become the program when it has the mask and more than its own.
    await_that(super::BINDING, || {
        let name = fs::read_to_string(format!("/proc/{placed}/comm"));
        name.is_ok_and(|name| name.trim() == "victim")
    });
    let as_asked = threads(placed)
        .iter()
        .all(|tid| mask(*tid) == Some(pus("0")));
    context.tally.hold(as_asked, "own mask overwritten", || {
        "right after taskset".to_owned()
    });
    world.expect(placed, "started by taskset", Some(&pus("0")));
    sleep(Duration::from_millis(60));
    context.finish_run(&perch, session, kill, world)
}
