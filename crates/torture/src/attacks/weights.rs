//! CPU weights: nice values that perch sets, with kills, children, and other processes that set nice values too.

use super::{Context, kills};
use crate::{masks::await_that, nices::nice, perch::Perch, world::World};
use anyhow::Result;
use std::time::{Duration, Instant};

/// The weight 10 is this nice value.
const RULE: &str = "w*=10";
const GIVEN: i32 = 10;

/// How long perch may take to set a nice value; the try is worth less if it takes longer.
const SETTING: Duration = Duration::from_secs(1);

/// perch has looked, set and looked again after this many microseconds on an idle machine.
const LIFE: u64 = 60_000;

pub fn attack(context: &mut Context) -> Result<()> {
    let mut set = 0;
    for _ in 0..context.tries(30, 1_000) {
        if !context.begin()? {
            break;
        }
        set += one(context)?;
        context.end();
    }
    let note = format!("{set} threads had perch's nice value at the end of a session");
    context
        .tally
        .hold(set > 0, "no nice value was ever set", || note.clone());
    context.tally.notes.push(note);
    Ok(())
}

/// One session; answers how many threads had perch's nice value at its end.
fn one(context: &mut Context) -> Result<usize> {
    let sandbox = context.sandbox;
    let perch = Perch::new(sandbox).rules(&[]).weights(&[RULE]);
    let perch = if context.rng.bool() {
        perch.rules(&["w*=0"])
    } else {
        perch
    };
    let mut world = World::new(sandbox);
    let mut puppet = world.puppet(sandbox)?;
    for name in ["w0", "w1", "plain"] {
        world.thread(&mut puppet, "", name)?;
    }
    // Values of the user's own: of a thread that perch does not touch, and perch's very value, in the same process or in
    // another one.
    let own = world.thread(&mut puppet, "", "own")?;
    world.renice(own, 5)?;
    let shared = context.rng.bool();
    let mut other = world.puppet(sandbox)?;
    let home = if shared { &mut puppet } else { &mut other };
    let same = world.thread(home, "", "wsame")?;
    world.renice(same, GIVEN)?;
    let overruled = world.thread(&mut puppet, "", "wlate")?;
    if shared {
        world.share_nice(GIVEN);
    }
    let session = perch.attach(&[puppet.pid, other.pid], &[])?;
    let mut deadline = Instant::now() + Duration::from_micros(context.rng.u64(0..LIFE));
    if context.rng.bool() {
        await_that(SETTING, || nice(overruled) == Some(GIVEN));
        world.renice(overruled, 3)?;
        deadline = Instant::now() + Duration::from_micros(context.rng.u64(0..LIFE / 3));
    }
    kills::children(context, &mut puppet, &mut world, false)?;
    std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
    let set = world.reniced();
    if context.rng.bool() {
        let done = session.stop()?;
        context.tally.judge(&done, "stopped");
        context.nothing_left(&perch);
    } else {
        session.kill()?;
        kills::children(context, &mut puppet, &mut world, false)?;
        if context.rng.u32(0..3) == 0 {
            let restoring = perch.start(["restore"])?;
            context.nap(kills::RESTORING);
            restoring.kill()?;
            kills::children(context, &mut puppet, &mut world, false)?;
        }
        context.restore(&perch)?;
    }
    world.check(&mut context.tally);
    Ok(set)
}
