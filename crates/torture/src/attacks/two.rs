//! Two processes in different cpusets, attached to at once: each is placed, and each gets its own mask back.

use super::Context;
use crate::{
    cgroup::{self, Cpuset},
    masks::{await_that, mask, pus},
    orders::Order,
    perch::Perch,
    world::World,
};
use anyhow::Result;
use std::{thread::sleep, time::Duration};

pub fn attack(context: &mut Context) -> Result<()> {
    if cgroup::root().is_none() {
        context.tally.skipped = Some("this system has no cpusets".to_owned());
        return Ok(());
    }
    for _ in 0..context.rounds(4, 1, 40) {
        for (narrow_first, kill) in [(true, false), (false, true), (true, true), (false, false)] {
            if !context.begin()? {
                return Ok(());
            }
            one(context, narrow_first, kill)?;
            context.end();
        }
    }
    Ok(())
}

fn one(context: &mut Context, narrow_first: bool, kill: bool) -> Result<()> {
    let sandbox = context.sandbox;
    let perch = Perch::new(sandbox);
    let upper = sandbox.halves().1;
    let wide = Cpuset::new("wide", &sandbox.all.to_string())?;
    let narrow = Cpuset::new("narrow", &upper.to_string())?;
    let (mut world, mut narrow_world) = (World::new(sandbox), World::with_default(&upper));
    let mut first = world.puppet(sandbox)?;
    wide.add(first.pid)?;
    let mut second = narrow_world.puppet(sandbox)?;
    narrow.add(second.pid)?;
    let bound = world.thread(&mut first, "", "w0")?;
    world.thread(&mut first, "", "plain")?;
    let other = narrow_world.thread(&mut second, "", "v0")?;
    narrow_world.thread(&mut second, "", "plain")?;
    let perch = perch.rules(&["w*=0", &format!("v*={}", sandbox.last())]);
    let mut pids = [first.pid, second.pid];
    if narrow_first {
        pids.reverse();
    }
    let session = perch.attach(&pids, &[])?;
    let what = format!("narrow first: {narrow_first}");
    context.await_bound(bound, &pus("0"), &what);
    context.await_bound(other, &sandbox.last(), &what);
    world.child(&mut first, "w0", Order::Fork("k".to_owned()))?;
    narrow_world.child(&mut second, "v0", Order::Fork("k".to_owned()))?;
    sleep(Duration::from_millis(50));
    // One of them ends: nothing changes for the other.
    let before = mask(bound);
    let ended = if narrow_first {
        &mut second
    } else {
        &mut first
    };
    let pid = ended.pid;
    ended.send("", Order::End)?;
    await_that(super::BINDING, || mask(pid).is_none());
    sleep(Duration::from_millis(60));
    if narrow_first {
        let now = mask(bound);
        context
            .tally
            .hold(now == before, "changed by the other's end", || {
                format!("{now:?} for {before:?}")
            });
    }
    context.finish(&perch, session, kill)?;
    world.check(&mut context.tally);
    narrow_world.check(&mut context.tally);
    // What was asked of the kernel shows when the PUs come back.
    narrow.set(&sandbox.all.to_string())?;
    narrow_world.set_default(&sandbox.all);
    narrow_world.check(&mut context.tally);
    Ok(())
}
