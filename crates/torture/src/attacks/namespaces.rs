//! perches that see other processes, or another clock, than the one whose journal they find.

use super::Context;
use crate::{
    masks::{await_that, mask, pus, threads},
    orders::Order,
    perch::{Done, PATIENCE, Perch},
    world::World,
};
use anyhow::{Context as _, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::fs;

/// An ordinary user.
const USER: u32 = 65_533;

/// Ways into another view of the machine.
const VIEWS: [(&str, &[&str]); 2] = [
    (
        "pid",
        &["unshare", "-p", "--fork", "--mount-proc", "--kill-child"],
    ),
    (
        "time",
        &[
            "unshare",
            "-T",
            "--boottime",
            "100000",
            "--fork",
            "--kill-child",
        ],
    ),
];

pub fn attack(context: &mut Context) -> Result<()> {
    for _ in 0..context.rounds(5, 1, 40) {
        for (name, view) in VIEWS {
            if !context.begin()? {
                return Ok(());
            }
            from_inside(context, name, view)?;
            context.end();
            if !context.begin()? {
                return Ok(());
            }
            from_outside(context, name, view)?;
            context.end();
        }
        if !context.begin()? {
            return Ok(());
        }
        hidden(context)?;
        context.end();
    }
    Ok(())
}

/// A perch at work outside, then killed; others look from inside.
fn from_inside(context: &mut Context, name: &str, view: &[&str]) -> Result<()> {
    let sandbox = context.sandbox;
    let (perch, mut world) = (Perch::new(sandbox), World::new(sandbox));
    let inside = perch.clone().behind(view.iter().copied());
    let mut puppet = world.puppet(sandbox)?;
    let bound = world.thread(&mut puppet, "", "w0")?;
    let session = perch.attach(&[puppet.pid], &[])?;
    if !context.await_bound(bound, &pus("0"), name) {
        return Ok(());
    }
    let calls: [&[&str]; 2] = [&["restore"], &["run", "-q", "-p", "observe", "--", "true"]];
    for alive in [true, false] {
        if !alive {
            session.signal(libc::SIGKILL);
            await_that(PATIENCE, || !session.is_alive());
        }
        for call in calls {
            let done = inside.start(call.iter().copied())?.wait(PATIENCE)?;
            let what = format!("{name} namespace, alive: {alive}, {call:?}");
            context.tally.judge(&done, &what);
            if alive {
                spared(context, &perch, bound, &done, &what);
            } else {
                context.kept(&perch, &world, &what);
            }
        }
    }
    context.restore(&perch)?;
    world.check(&mut context.tally);
    Ok(())
}

/// A perch at work inside, then killed; `perch restore` outside, and then inside.
fn from_outside(context: &mut Context, name: &str, view: &[&str]) -> Result<()> {
    let sandbox = context.sandbox;
    let (perch, mut world) = (Perch::new(sandbox), World::new(sandbox));
    // The first process of the namespace has to outlive perch.
    let shell = ["sh", "-c", "\"$@\"; sleep 1000", "sh"];
    let inside = perch.clone().behind(view.iter().copied().chain(shell));
    let (session, meeting) = inside.run(&[], &sandbox.victim())?;
    let mut puppet = meeting.meet()?.context("perch did not start the program")?;
    puppet.tell("", Order::Thread("w0".to_owned()))?;
    let family = descendants(session.pid());
    let find = |comm: &str| family.iter().copied().find(|tid| name_of(*tid) == comm);
    let init = find("sh").context("no shell")?;
    let inner = find("perch").context("no perch")?;
    world.process(find("victim").context("no victim")?, "main thread");
    let bound = find("w0").context("no thread")?;
    world.expect(bound, "thread w0", None);
    world.process(init, "the namespace's first process");
    let what = format!("perch in a {name} namespace");
    if !context.await_bound(bound, &pus("0"), &what) {
        return Ok(());
    }
    let done = perch.restore()?;
    context.tally.judge(&done, &what);
    spared(context, &perch, bound, &done, &what);
    kill(Pid::from_raw(inner), Signal::SIGKILL)?;
    await_that(PATIENCE, || mask(inner).is_none());
    let done = perch.restore()?;
    context.tally.judge(&done, &what);
    context.kept(&perch, &world, &what);
    let target = init.to_string();
    let again = perch
        .clone()
        .behind(["nsenter", "-t", &target, "-p", "-m", "-T"]);
    context.restore(&again)?;
    world.check(&mut context.tally);
    // What holds the namespace goes with it.
    session.kill()?;
    Ok(())
}

/// Counts a live perch whose journal was removed, or whose thread was changed, by what has just run.
fn spared(context: &mut Context, perch: &Perch, bound: i32, done: &Done, what: &str) {
    let (now, left) = (mask(bound), perch.left());
    let tally = &mut context.tally;
    tally.hold(!left.is_empty(), "live journal removed", || {
        format!("{what}: {}", done.text())
    });
    tally.hold(now == Some(pus("0")), "live perch's thread changed", || {
        format!("{what}: {now:?}")
    });
}

/// Threads of all descendants of a process.
fn descendants(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    for tid in threads(pid) {
        found.push(tid);
        let children = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
        let children = children.unwrap_or_default();
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        found.extend(children.flat_map(descendants));
    }
    found
}

fn name_of(tid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// An ordinary user whose /proc hides a thread that has become non-dumpable: it has not ended.
fn hidden(context: &mut Context) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let sandbox = context.sandbox;
    sandbox.empty(&sandbox.state, USER)?;
    let (mut world, perch) = (World::new(sandbox), Perch::new(sandbox).user(USER));
    let mut command = sandbox.victim();
    command.uid(USER).gid(USER);
    let mut puppet = crate::puppet::Puppet::start(command)?;
    world.process(puppet.pid, "main thread");
    let bound = world.thread(&mut puppet, "", "w0")?;
    let session = perch.attach(&[puppet.pid], &[])?;
    if !context.await_bound(bound, &pus("0"), "hidepid") {
        context.tally.notes.push(session.said());
        return Ok(());
    }
    session.kill()?;
    puppet.tell("", Order::Dumpable(false))?;
    let user = USER.to_string();
    let private = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid \"$0\" --regid \"$0\" --clear-groups \"$@\"";
    // The program is started by root, who may mount, and becomes the user then.
    let hiding = Perch::new(sandbox).behind(["unshare", "-m", "sh", "-c", private, &user]);
    let done = hiding.restore()?;
    context.tally.judge(&done, "hidepid=2");
    context.kept(
        &perch,
        &world,
        &format!("hidepid=2: {}", done.text().trim()),
    );
    puppet.tell("", Order::Dumpable(true))?;
    context.restore(&perch)?;
    world.check(&mut context.tally);
    Ok(())
}
