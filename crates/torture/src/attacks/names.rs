//! Threads and programs whose names would command a terminal: perch shows nothing of that raw.

use super::Context;
use crate::{
    masks::{mask, pus},
    orders::Order,
    perch::{Done, PATIENCE, Perch},
    world::World,
};
use anyhow::Result;
use std::{fs, thread::sleep, time::Duration};

/// Names of threads, at most 15 bytes: colours, a window's title, C1 controls as UTF-8, backspaces, line ends, an
/// override of the direction of writing.
const NAMES: [&str; 7] = [
    "w\x1b[31mred",
    "w\x1b]0;evil\x07",
    "w\u{9b}31mred",
    "w\x08\x08\x08ok",
    "w\r\nnote: fine",
    "w\u{202e}live",
    "w\x1bc\x7f",
];

/// What perch is asked to tell.
const CALLS: [&[&str]; 4] = [
    &["--explain"],
    &["--live"],
    &["--json"],
    &["--explain", "--log"],
];

pub fn attack(context: &mut Context) -> Result<()> {
    for _ in 0..context.rounds(5, 1, 20) {
        for call in CALLS {
            if !context.begin()? {
                return Ok(());
            }
            one(context, call)?;
            context.end();
        }
        if !context.begin()? {
            return Ok(());
        }
        refused(context)?;
        context.end();
    }
    Ok(())
}

fn one(context: &mut Context, call: &[&str]) -> Result<()> {
    let sandbox = context.sandbox;
    let (perch, mut world) = (Perch::new(sandbox), World::new(sandbox));
    let mut puppet = world.puppet(sandbox)?;
    let mut last = puppet.pid;
    for name in NAMES {
        last = world.thread(&mut puppet, "", name)?;
    }
    let program = sandbox
        .program_named(NAMES[0])?
        .to_string_lossy()
        .into_owned();
    world.child(
        &mut puppet,
        "",
        Order::Spawn(vec![program, "idle".to_owned()]),
    )?;
    let log = sandbox.room().join("names.log");
    let log_path = log.to_string_lossy().into_owned();
    let mut args = vec!["attach", "-p", "fixed", "--pin", "w*=0", "--period", "50ms"];
    args.extend(call);
    let logged = call.contains(&"--log");
    if logged {
        args.push(&log_path);
    }
    let pid = puppet.pid.to_string();
    args.push(&pid);
    let session = perch.start(args.iter().copied())?;
    context.await_bound(last, &pus("0"), "names");
    sleep(Duration::from_millis(120));
    let done = session.stop()?;
    clean(context, &done, &format!("{call:?}"));
    world.check(&mut context.tally);
    context.nothing_left(&perch);
    if logged {
        let replays: [&[&str]; 2] = [&["replay", &log_path], &["replay", "--explain", &log_path]];
        for replay in replays {
            let done = perch.start(replay.iter().copied())?.wait(PATIENCE)?;
            clean(
                context,
                &done,
                &format!("{:?}", &replay[..replay.len() - 1]),
            );
        }
        fs::remove_file(&log)?;
    }
    Ok(())
}

/// Calls that perch refuses, and names in its answer; and a program that cannot be found.
fn refused(context: &mut Context) -> Result<()> {
    let sandbox = context.sandbox;
    let (perch, mut world) = (Perch::new(sandbox), World::new(sandbox));
    let mut puppet = world.puppet(sandbox)?;
    puppet.tell("", Order::Rename(NAMES[1].to_owned()))?;
    let session = perch.attach(&[puppet.pid], &[])?;
    context.await_bound(puppet.pid, &pus("0"), "names");
    let pid = puppet.pid.to_string();
    let calls: [&[&str]; 4] = [
        &["attach", "--json", "--explain", &pid],
        &["attach", "-p", NAMES[0], &pid],
        &["attach", "-p", "fixed", "--pin", "\x1b[31m=99", &pid],
        &["run", "--", "/nowhere/\x1b[31mred"],
    ];
    for call in calls {
        // A second perch finds the PUs taken: it is refused, or observes for as long as it likes.
        let second = perch.start(call.iter().copied())?;
        sleep(Duration::from_millis(150));
        let done = second.stop()?;
        clean(context, &done, &format!("refused: {call:?}"));
    }
    // What belongs to another user is named when it is refused.
    let other = perch.clone().user(65_534).state(None);
    let other = other.attach(&[puppet.pid], &[])?;
    sleep(Duration::from_millis(150));
    let done = other.stop()?;
    clean(context, &done, "another user's");
    context.finish(&perch, session, false)?;
    world.check(&mut context.tally);
    context
        .tally
        .hold(mask(puppet.pid).is_some(), "victim ended", String::new);
    Ok(())
}

/// A pipe is no terminal: no colour of perch's own is in it either.
fn clean(context: &mut Context, done: &Done, what: &str) {
    context.tally.judge(done, what);
    let text = done.text();
    let raw = |letter: &char| {
        letter.is_control() && !['\n', '\t'].contains(letter) || *letter == '\u{202e}'
    };
    let line = text
        .lines()
        .find(|line| line.chars().any(|letter| raw(&letter)));
    context
        .tally
        .hold(line.is_none(), "raw control characters", || {
            format!("{what}: {}", line.unwrap_or_default())
        });
    let forged = text.lines().any(|line| line.starts_with("note: fine"));
    context
        .tally
        .hold(!forged, "a line of its own", || what.to_owned());
}
