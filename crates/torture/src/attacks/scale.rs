//! Twenty thousand threads: all masks are restored, and the cost grows in proportion.

use super::Context;
use crate::{
    masks::{await_that, mask, pus, threads},
    orders::Order,
    perch::{Perch, Session},
    world::World,
};
use anyhow::Result;
use std::{fmt, thread::sleep, time::Duration};

/// CPU seconds that perch may take for each part with the most threads.
const LIMIT: f64 = 2.0;
/// Four times as many threads cost four times as much, give or take; sixteen times would be quadratic.
const RATIO: f64 = 6.0;
/// Less than this is too short for a ratio.
const MEASURABLE: f64 = 0.05;
/// Wall-clock time that a part may take on a machine that has other work.
const PATIENCE: Duration = Duration::from_secs(150);

/// CPU seconds of the parts.
#[derive(Debug, Default, Clone, Copy)]
struct Cost {
    attach: f64,
    stop: f64,
    restore: f64,
}

impl Cost {
    fn parts(self) -> [(&'static str, f64); 3] {
        [
            ("attach", self.attach),
            ("stop", self.stop),
            ("restore", self.restore),
        ]
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            attach,
            stop,
            restore,
        } = self;
        write!(
            f,
            "attach {attach:.2} s, stop {stop:.2} s, restore {restore:.2} s of CPU time"
        )
    }
}

pub fn attack(context: &mut Context) -> Result<()> {
    if context.quick {
        context.tries(1, 1);
        if context.begin()? {
            one(context, 2_000)?;
            context.end();
        }
        return Ok(());
    }
    for _ in 0..context.tries(1, 2) {
        if !context.begin()? {
            break;
        }
        let few = one(context, 5_000)?;
        let many = one(context, 20_000)?;
        context.end();
        for (count, cost) in [(5_000, few), (20_000, many)] {
            context.tally.notes.push(format!("{count} threads: {cost}"));
        }
        for ((part, few), (_, many)) in few.parts().into_iter().zip(many.parts()) {
            context.tally.hold(many < LIMIT, "too slow", || {
                format!("{part}: {many:.2} s of CPU time for 20,000 threads")
            });
            let ratio = many / few.max(MEASURABLE);
            context.tally.hold(ratio < RATIO, "not linear", || {
                format!("{part}: {ratio:.1} times as much for 4 times as many threads")
            });
        }
    }
    Ok(())
}

/// Attach and stop, then attach, kill and restore.
fn one(context: &mut Context, count: usize) -> Result<Cost> {
    let sandbox = context.sandbox;
    // With many threads it is the work in each period that counts.
    let perch = Perch::new(sandbox).usual_period();
    let mut world = World::new(sandbox);
    let mut puppet = world.puppet(sandbox)?;
    puppet.tell("", Order::Crowd("wcrowd".to_owned(), count))?;
    for tid in threads(puppet.pid) {
        world.expect(tid, "one of many", None);
    }
    let mut cost = Cost::default();
    let session;
    (session, cost.attach) = attached(context, &perch, &world, puppet.pid, count)?;
    session.signal(libc::SIGTERM);
    let before = session.cpu();
    let done = session.wait(PATIENCE)?;
    cost.stop = done.cpu - before;
    context
        .tally
        .judge(&done, &format!("stop with {count} threads"));
    world.check(&mut context.tally);
    context.nothing_left(&perch);
    world.repair(&[]);
    let (session, _) = attached(context, &perch, &world, puppet.pid, count)?;
    session.kill()?;
    let done = perch.start(["restore"])?.wait(PATIENCE)?;
    cost.restore = done.cpu;
    context
        .tally
        .judge(&done, &format!("restore of {count} threads"));
    world.check(&mut context.tally);
    context.nothing_left(&perch);
    Ok(cost)
}

/// perch, with all threads bound, and what that has cost. It binds them in the order of their numbers.
fn attached(
    context: &mut Context,
    perch: &Perch,
    world: &World,
    pid: i32,
    count: usize,
) -> Result<(Session, f64)> {
    let session = perch.attach(&[pid], &[])?;
    let tids = threads(pid);
    let last = tids.iter().max().copied().unwrap_or(pid);
    let mut cost = 0.0;
    await_that(PATIENCE, || {
        sleep(Duration::from_millis(10));
        let done = mask(last) == Some(pus("0"));
        // Before the masks are counted, which takes longer than attaching.
        cost = session.cpu();
        done && world.changed() >= count || !session.is_alive()
    });
    let bound = world.changed();
    context.tally.hold(bound >= count, "never bound", || {
        format!("{bound} of {count} threads bound; {}", session.said())
    });
    Ok((session, cost))
}
