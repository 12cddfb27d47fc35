//! A user's mask that happens to equal what perch may use: perch must not treat it as no mask at all.

use super::Context;
use crate::{
    cgroup::{self, Cpuset},
    masks::{await_mask, await_that, mask, pus, set_mask},
    perch::Perch,
    puppet::Puppet,
    world::World,
};
use anyhow::Result;
use perch_core::PuSet;
use std::{fs, path::PathBuf, thread::sleep, time::Duration};

/// How perch comes to have the user's mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// `--pus` with the same PUs.
    Pus,
    /// A cpuset with the same PUs, for perch alone, which later gets all of them.
    Cpuset,
    /// All other PUs are offline, and come back later.
    Offline,
    /// `perch run` started by taskset(1).
    Taskset,
    /// A user sets another mask after the kill; the restorer's cpuset has not the one that perch had set.
    Restorer,
}

/// How long perch may take to notice that there is more to use; if it never does, the try is worth less.
const NOTICING: Duration = Duration::from_secs(2);

pub fn attack(context: &mut Context) -> Result<()> {
    let mut hows = vec![How::Pus, How::Taskset];
    if cgroup::root().is_some() {
        hows.extend([How::Cpuset, How::Restorer]);
    }
    if !context.quick {
        if online(context).exists() {
            hows.push(How::Offline);
        } else {
            let note = "the last PU cannot be taken offline: left out".to_owned();
            context.tally.notes.push(note);
        }
    }
    for _ in 0..context.rounds(2 * hows.len() as u64, 1, 20) {
        for how in &hows {
            for kill in [false, true] {
                if !context.begin()? {
                    return Ok(());
                }
                match how {
                    How::Restorer => restorer(context)?,
                    _ => one(context, *how, kill)?,
                }
                context.end();
            }
        }
    }
    Ok(())
}

/// The file that takes the last PU offline.
fn online(context: &Context) -> PathBuf {
    let last = context.sandbox.last();
    PathBuf::from(format!("/sys/devices/system/cpu/cpu{last}/online"))
}

/// A PU that is offline until this goes.
struct Offline(PathBuf);

impl Offline {
    fn take(path: PathBuf) -> Result<Self> {
        fs::write(&path, "0")?;
        Ok(Self(path))
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.0, "1") {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

fn furnish(world: &mut World, puppet: &mut Puppet, own: &PuSet) -> Result<()> {
    set_mask(puppet.pid, own)?;
    world.expect(puppet.pid, "main thread, placed by its user", Some(own));
    for name in ["w0", "plain"] {
        let tid = world.thread(puppet, "", name)?;
        world.expect(
            tid,
            &format!("thread {name} of a process that its user has placed"),
            Some(own),
        );
    }
    Ok(())
}

fn one(context: &mut Context, how: How, kill: bool) -> Result<()> {
    let sandbox = context.sandbox;
    let last = sandbox.last();
    let own = sandbox.all.minus(&last);
    let mut world = World::new(sandbox);
    // Where perch wrongly thinks that it may, it does this.
    let anywhere = format!("w*={last}");
    let perch = Perch::new(sandbox);
    if how == How::Taskset {
        let behind = perch.behind(["taskset", "-c", &own.to_string()]);
        let (session, meeting) = behind.run(&[], &sandbox.victim())?;
        let Some(mut puppet) = meeting.meet()? else {
            anyhow::bail!("perch did not start the program: {}", session.said());
        };
        world.process(puppet.pid, "main thread");
        furnish(&mut world, &mut puppet, &own)?;
        sleep(Duration::from_millis(60));
        // The restore is run by another process, with all PUs.
        return context.finish_run(&Perch::new(sandbox), session, kill, world);
    }
    // Two threads that have not been placed show when perch is at work, and when it has noticed that more PUs are
    // usable.
    let mut puppet = world.puppet(sandbox)?;
    let canary = world.thread(&mut puppet, "", "canary")?;
    let late = world.thread(&mut puppet, "", "late")?;
    furnish(&mut world, &mut puppet, &own)?;
    let late_rule = format!("late={last}");
    let careless = perch.clone().rules(&["canary=0", &late_rule, &anywhere]);
    let noticed = || {
        await_mask(late, &last, NOTICING);
        sleep(Duration::from_millis(30));
    };
    let session = match how {
        How::Cpuset => {
            let set = Cpuset::new("perch", &own.to_string())?;
            let session = careless.behind(set.prefix()).attach(&[puppet.pid], &[])?;
            context.await_bound(canary, &pus("0"), "perch in a cpuset");
            set.set(&sandbox.all.to_string())?;
            noticed();
            session
        }
        How::Offline => {
            let offline = Offline::take(online(context))?;
            let session = careless.attach(&[puppet.pid], &[])?;
            await_mask(canary, &pus("0"), NOTICING);
            sleep(Duration::from_millis(30));
            drop(offline);
            noticed();
            session
        }
        _ => {
            let rules = ["canary=0", "w*=0"];
            let session = perch
                .clone()
                .rules(&rules)
                .attach(&[puppet.pid], &["--pus", &own.to_string()])?;
            context.await_bound(canary, &pus("0"), "--pus");
            sleep(Duration::from_millis(30));
            session
        }
    };
    context.finish(&perch, session, kill)?;
    world.check(&mut context.tally);
    Ok(())
}

/// perch bound a thread to PU 0 and was killed; its user places it; `perch restore` runs where there is no PU 0.
fn restorer(context: &mut Context) -> Result<()> {
    let sandbox = context.sandbox;
    let mut world = World::new(sandbox);
    let mut puppet = world.puppet(sandbox)?;
    let bound = world.thread(&mut puppet, "", "w0")?;
    let perch = Perch::new(sandbox);
    let session = perch.attach(&[puppet.pid], &[])?;
    if !context.await_bound(bound, &pus("0"), "restorer") {
        return Ok(());
    }
    session.kill()?;
    world.pin(&mut puppet, "w0", &sandbox.last())?;
    await_that(super::BINDING, || mask(bound) == Some(sandbox.last()));
    let set = Cpuset::new("restorer", &sandbox.last().to_string())?;
    context.restore(&perch.behind(set.prefix()))?;
    world.check(&mut context.tally);
    Ok(())
}
