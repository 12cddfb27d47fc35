//! Another user holds the names with which perch processes once announced which PUs they use.

use super::Context;
use crate::{masks::pus, orders::Order, perch::Perch, puppet::Puppet, world::World};
use anyhow::Result;
use std::os::unix::process::CommandExt;

/// The other user.
const USER: u32 = 65_534;

pub fn attack(context: &mut Context) -> Result<()> {
    for _ in 0..context.rounds(2, 1, 20) {
        for run in [false, true] {
            if !context.begin()? {
                return Ok(());
            }
            one(context, run)?;
            context.end();
        }
    }
    Ok(())
}

fn one(context: &mut Context, run: bool) -> Result<()> {
    let sandbox = context.sandbox;
    let (perch, mut world) = (Perch::new(sandbox), World::new(sandbox));
    let mut squat = std::process::Command::new(&sandbox.program);
    squat
        .arg("squat")
        .args(sandbox.all.iter().map(|pu| pu.to_string()));
    squat.uid(USER).gid(USER);
    let squatter = Puppet::start(squat)?;
    world.process(squatter.pid, "squatter");
    let (session, mut puppet) = if run {
        let (session, meeting) = perch.run(&[], &sandbox.victim())?;
        let Some(puppet) = meeting.meet()? else {
            context.tally.fault("perch stopped", session.said());
            return Ok(());
        };
        world.process(puppet.pid, "main thread");
        (session, puppet)
    } else {
        let puppet = world.puppet(sandbox)?;
        (perch.attach(&[puppet.pid], &[])?, puppet)
    };
    let bound = puppet.tell("", Order::Thread("w0".to_owned()))?;
    world.expect(bound, "thread w0", None);
    context.await_bound(bound, &pus("0"), &session.said());
    if run {
        return context.finish_run(&perch, session, false, world);
    }
    context.finish(&perch, session, false)?;
    world.check(&mut context.tally);
    Ok(())
}
