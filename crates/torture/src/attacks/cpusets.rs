//! cpusets that shrink and widen, and processes that are moved between them. A twin of each victim, which perch is not
//! given, lives through the same: in the end each thread must have its twin's mask.

use super::Context;
use crate::{
    cgroup::{self, Cpuset},
    masks::{await_mask, mask, pus},
    orders::Order,
    perch::Perch,
    puppet::Puppet,
    world::World,
};
use anyhow::Result;
use std::{thread::sleep, time::Duration};

/// When the cpuset changes.
#[derive(Debug, Clone, Copy)]
enum When {
    /// While perch is at work; it has time to settle before it is stopped.
    Alive,
    /// While perch is at work; it is killed in the end.
    Killed,
    /// While perch puts masks back.
    AtEnd,
    /// After perch was killed, before the restore.
    AfterKill,
    /// During the restore.
    Restoring,
}

/// What it goes through.
#[derive(Debug)]
enum Change {
    Set(String),
    /// The processes move to the other cpuset, or back.
    Move(bool),
}

/// A thread and its twin.
struct Pair {
    what: String,
    tid: i32,
    twin: i32,
}

pub fn attack(context: &mut Context) -> Result<()> {
    if cgroup::root().is_none() {
        context.tally.skipped = Some("this system has no cpusets".to_owned());
        return Ok(());
    }
    let whens = [
        When::Alive,
        When::Killed,
        When::AtEnd,
        When::AfterKill,
        When::Restoring,
    ];
    let tries = context.tries(10, 1_000);
    for number in 0..tries {
        if !context.begin()? {
            break;
        }
        let when = whens[number as usize % whens.len()];
        one(context, when, number)?;
        context.end();
    }
    Ok(())
}

fn one(context: &mut Context, when: When, number: u64) -> Result<()> {
    let sandbox = context.sandbox;
    let (mut world, mut perch) = (World::new(sandbox), Perch::new(sandbox));
    let all = sandbox.all.to_string();
    let set = Cpuset::new(&format!("a{number}"), &all)?;
    let other = Cpuset::new(&format!("b{number}"), &sandbox.halves().1.to_string())?;
    let inside = context.rng.bool();
    if inside {
        perch = perch.behind(set.prefix());
    }
    let (mut victim, mut twin) = (world.puppet(sandbox)?, world.puppet(sandbox)?);
    set.add(victim.pid)?;
    set.add(twin.pid)?;
    let mut pairs = vec![Pair {
        what: "main thread".to_owned(),
        tid: victim.pid,
        twin: twin.pid,
    }];
    for name in ["w0", "w1", "plain", "own"] {
        both(
            &mut pairs,
            &mut victim,
            &mut twin,
            "",
            Order::Thread(name.to_owned()),
        )?;
    }
    for puppet in [&mut victim, &mut twin] {
        puppet.tell("own", Order::Pin(sandbox.last().to_string()))?;
    }
    let session = perch.attach(&[victim.pid], &[])?;
    let bound = pairs[1].tid;
    if !context.await_bound(bound, &pus("0"), "cpusets") {
        return Ok(());
    }
    both(
        &mut pairs,
        &mut victim,
        &mut twin,
        "w0",
        Order::Thread("k".to_owned()),
    )?;
    let changes = changes(context);
    let pause = if context.rng.bool() { 1_500 } else { 50_000 };
    let what = format!(
        "{when:?}, perch {}, {changes:?}, up to {pause} us between",
        if inside { "inside" } else { "outside" }
    );
    let pids = [victim.pid, twin.pid];
    let change = |context: &mut Context| -> Result<()> {
        for change in &changes {
            match change {
                Change::Set(cpus) => set.set(cpus)?,
                Change::Move(away) => {
                    let to = if *away { &other } else { &set };
                    pids.iter().try_for_each(|pid| to.add(*pid))?;
                }
            }
            context.nap(pause);
        }
        set.set(&all)?;
        pids.iter().try_for_each(|pid| set.add(*pid))
    };
    match when {
        When::Alive => {
            change(context)?;
            // Bound anew, most of the time; the try is worth as much if not.
            await_mask(bound, &pus("0"), Duration::from_millis(100));
            sleep(Duration::from_millis(30));
            context.finish(&perch, session, false)?;
        }
        When::Killed => {
            change(context)?;
            context.nap(pause);
            context.finish(&perch, session, true)?;
        }
        When::AtEnd => {
            session.signal(libc::SIGTERM);
            change(context)?;
            context.finish(&perch, session, false)?;
        }
        When::AfterKill => {
            session.kill()?;
            change(context)?;
            context.restore(&perch)?;
        }
        When::Restoring => {
            session.kill()?;
            let restoring = perch.start(["restore"])?;
            change(context)?;
            let done = restoring.wait(crate::perch::PATIENCE)?;
            context.tally.judge(&done, "restore");
            context.restore(&perch)?;
        }
    }
    compare(context, &pairs, "not its twin's mask", &what);
    // A mask that perch has asked the kernel for must not come back with the PUs either.
    let (low, high) = sandbox.halves();
    for cpus in [&low, &high, &sandbox.all] {
        set.set(&cpus.to_string())?;
        compare(
            context,
            &pairs,
            "not its twin's mask later on",
            &format!("{what}; then {cpus}"),
        );
    }
    Ok(())
}

/// Has both do the same.
fn both(
    pairs: &mut Vec<Pair>,
    victim: &mut Puppet,
    twin: &mut Puppet,
    to: &str,
    order: Order,
) -> Result<()> {
    pairs.push(Pair {
        what: format!("{order:?} of {to:?}"),
        tid: victim.tell(to, order.clone())?,
        twin: twin.tell(to, order)?,
    });
    Ok(())
}

fn changes(context: &mut Context) -> Vec<Change> {
    let (low, high) = context.sandbox.halves();
    let choices = [low, high, context.sandbox.all.clone()];
    (0..context.rng.u32(1..5))
        .map(|_| match context.rng.u32(0..8) {
            0 => Change::Move(true),
            1 => Change::Move(false),
            _ => Change::Set(choices[context.rng.usize(0..3)].to_string()),
        })
        .collect()
}

fn compare(context: &mut Context, pairs: &[Pair], kind: &str, what: &str) {
    for pair in pairs {
        let (own, twin) = (mask(pair.tid), mask(pair.twin));
        context.tally.hold(own == twin, kind, || {
            format!(
                "{} (thread {}): {own:?} for {twin:?}: {what}",
                pair.what, pair.tid
            )
        });
    }
}
