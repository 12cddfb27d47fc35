//! A state directory on a disk that is full, or becomes so: what cannot be journaled is not done, and all else undone.

use super::Context;
use crate::{masks::await_that, orders::Order, perch::Perch, sandbox::mount_tmpfs, world::World};
use anyhow::Result;
use nix::mount::{MntFlags, umount2};
use std::{fs, io::Write, path::Path, thread::sleep, time::Duration};

/// Threads whose journal does not fit.
const THREADS: usize = 250;
/// The disk, in bytes.
const SIZE: usize = 64 << 10;

/// A small disk until this goes.
struct Disk<'a>(&'a Path);

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}

pub fn attack(context: &mut Context) -> Result<()> {
    for number in 0..context.tries(4, 400) {
        if !context.begin()? {
            break;
        }
        one(context, number % 2 == 0, number % 4 < 2)?;
        context.end();
    }
    Ok(())
}

fn one(context: &mut Context, kill: bool, later: bool) -> Result<()> {
    let sandbox = context.sandbox;
    mount_tmpfs(&sandbox.state, &format!("size={SIZE},mode=700"))?;
    let disk = Disk(&sandbox.state);
    let (perch, mut world) = (Perch::new(sandbox), World::new(sandbox));
    let mut puppet = world.puppet(sandbox)?;
    world.thread(&mut puppet, "", "own")?;
    world.pin(&mut puppet, "own", &sandbox.last())?;
    let filled = context.rng.usize(0..SIZE);
    if !later {
        fill(disk.0, filled)?;
    }
    puppet.tell("", Order::Crowd("wcrowd".to_owned(), THREADS))?;
    for tid in crate::masks::threads(puppet.pid) {
        if world.knows(tid) {
            continue;
        }
        world.expect(tid, "one of many", None);
    }
    let session = perch.attach(&[puppet.pid], &[])?;
    // Where nothing fits, nothing is bound.
    await_that(Duration::from_millis(500), || world.changed() > 0);
    if later {
        context.nap(20_000);
        fill(disk.0, SIZE)?;
        puppet.tell("own", Order::Crowd("wmore".to_owned(), THREADS / 4))?;
        for tid in crate::masks::threads(puppet.pid) {
            if !world.knows(tid) {
                // They have their creator's mask, which was set explicitly.
                world.expect(tid, "one of those that came later", Some(&sandbox.last()));
            }
        }
    }
    sleep(Duration::from_millis(40));
    context.finish(&perch, session, kill)?;
    world.check(&mut context.tally);
    Ok(())
}

/// Takes `bytes` bytes, or as many as there are.
fn fill(directory: &Path, bytes: usize) -> Result<()> {
    let mut file = fs::File::create(directory.join("filler"))?;
    for _ in 0..bytes / 512 {
        if file.write_all(&[b'x'; 512]).is_err() {
            break;
        }
    }
    Ok(())
}
