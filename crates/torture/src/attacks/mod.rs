//! The attacks, and what they share.

mod cpusets;
mod daemons;
mod disk;
mod execs;
mod journals;
mod kills;
mod names;
mod namespaces;
mod numbers;
mod same_value;
mod scale;
mod signals;
mod squatters;
mod two;
mod users;
mod weights;
mod widened;

use crate::{
    args::Args,
    masks::{await_mask, await_that, mask, pus},
    perch::{PATIENCE, Perch, Session},
    puppet::Puppet,
    sandbox::Sandbox,
    tally::Tally,
    world::World,
};
use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use perch_core::PuSet;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

/// Its name, and how it is made.
type Attack = (&'static str, fn(&mut Context) -> Result<()>);

/// All, in the order of docs/torture.md.
const ATTACKS: [Attack; 17] = [
    ("kills", kills::attack),
    ("weights", weights::attack),
    ("daemons", daemons::attack),
    ("journals", journals::attack),
    ("execs", execs::attack),
    ("same-value", same_value::attack),
    ("cpusets", cpusets::attack),
    ("widened", widened::attack),
    ("two", two::attack),
    ("namespaces", namespaces::attack),
    ("users", users::attack),
    ("signals", signals::attack),
    ("scale", scale::attack),
    ("disk", disk::attack),
    ("squatters", squatters::attack),
    ("names", names::attack),
    ("numbers", numbers::attack),
];

/// How long perch may take to bind a thread that it must bind.
pub const BINDING: Duration = Duration::from_secs(10);

/// How long a perch that was asked to stop may take to restore masks while its program lives on.
const LETTING_GO: Duration = Duration::from_secs(3);

/// What an attack works with.
pub struct Context<'a> {
    /// The directories in which it runs.
    pub sandbox: &'a Sandbox,
    /// The short form.
    pub quick: bool,
    /// Chance.
    pub rng: fastrand::Rng,
    /// What is counted.
    pub tally: Tally,
    percent: u32,
    strangers: World,
    _stranger: Puppet,
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl<'a> Context<'a> {
    fn new(
        sandbox: &'a Sandbox,
        args: &Args,
        seed: u64,
        bar: ProgressBar,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let mut strangers = World::new(sandbox);
        let mut stranger = strangers.puppet(sandbox)?;
        for (name, mask) in [("w0", Some("0")), ("w1", Some("1")), ("w2", None)] {
            strangers.thread(&mut stranger, "", name)?;
            if let Some(mask) = mask {
                strangers.pin(&mut stranger, name, &pus(mask))?;
            }
        }
        Ok(Self {
            sandbox,
            quick: args.quick,
            rng: fastrand::Rng::with_seed(seed),
            tally: Tally::default(),
            percent: args.percent,
            strangers,
            _stranger: stranger,
            bar,
            stop,
        })
    }

    /// How many tries to make.
    pub fn tries(&self, quick: u64, long: u64) -> u64 {
        let usual = if self.quick { quick } else { long };
        let tries = (usual * u64::from(self.percent) / 100).max(1);
        self.bar.inc_length(tries);
        tries
    }

    /// How many rounds of `tries` tries to make.
    pub fn rounds(&self, tries: u64, quick: u64, long: u64) -> u64 {
        let rounds = self.tries(quick, long);
        self.bar.inc_length(rounds * tries.saturating_sub(1));
        rounds
    }

    /// Begins a try with an empty state directory; false if the user wants no more.
    pub fn begin(&mut self) -> Result<bool> {
        self.bar.inc(1);
        if self.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.tally.tries += 1;
        self.sandbox.empty(&self.sandbox.state, 0)?;
        Ok(true)
    }

    /// Ends a try: threads that perch was not given must be as they were.
    pub fn end(&mut self) {
        let mut tally = Tally::default();
        self.strangers.check(&mut tally);
        self.tally.checked += tally.checked;
        for (_, fault) in tally.faults {
            for example in fault.examples {
                self.tally.fault("stranger's mask changed", example);
            }
        }
        self.strangers.repair(&[]);
    }

    /// Waits until perch has bound a thread; one that it does not bind makes a try hollow, which counts.
    pub fn await_bound(&mut self, tid: i32, wanted: &PuSet, what: &str) -> bool {
        let bound = await_mask(tid, wanted, BINDING);
        self.tally
            .hold(bound, "never bound", || format!("{what}: {:?}", mask(tid)));
        bound
    }

    /// Counts a `perch restore` after which nothing may be left.
    pub fn restore(&mut self, perch: &Perch) -> Result<()> {
        let done = perch.restore()?;
        self.tally.judge(&done, "restore");
        self.tally
            .hold(done.code() == Some(0), "restore failed", || done.text());
        self.nothing_left(perch);
        Ok(())
    }

    /// Counts a journal that is left though everything should have been undone.
    pub fn nothing_left(&mut self, perch: &Perch) {
        let left = perch.left();
        self.tally
            .hold(left.is_empty(), "journal left", || format!("{left:?}"));
    }

    /// Counts a journal that was removed while threads still have perch's masks.
    pub fn kept(&mut self, perch: &Perch, world: &World, what: &str) {
        let (bound, left) = (world.changed(), perch.left());
        self.tally.hold(
            bound == 0 || !left.is_empty(),
            "journal removed, threads still bound",
            || format!("{what}: {bound} bound"),
        );
    }

    /// Ends a session in one of the two ways: politely, or by a kill and `perch restore`.
    pub fn finish(&mut self, perch: &Perch, session: Session, kill: bool) -> Result<()> {
        if kill {
            session.kill()?;
            return self.restore(perch);
        }
        let done = session.stop()?;
        self.tally.judge(&done, "stopped");
        self.nothing_left(perch);
        Ok(())
    }

    /// The same for `perch run`, and the check of the masks. After a polite signal perch may wait for a program that
    /// ignores it: then the masks are looked at while it does.
    pub fn finish_run(
        &mut self,
        perch: &Perch,
        session: Session,
        kill: bool,
        world: World,
    ) -> Result<()> {
        if kill {
            session.kill()?;
            self.restore(perch)?;
            world.check(&mut self.tally);
            return Ok(());
        }
        session.signal(libc::SIGTERM);
        await_that(LETTING_GO, || !session.is_alive() || world.changed() == 0);
        world.check(&mut self.tally);
        drop(world);
        let done = session.wait(PATIENCE)?;
        self.tally.judge(&done, "stopped");
        self.nothing_left(perch);
        Ok(())
    }

    /// Waits for a random time of up to `most` microseconds.
    pub fn nap(&mut self, most: u64) {
        sleep(Duration::from_micros(self.rng.u64(0..=most)));
    }
}

/// The attacks of these names, all if there are none.
pub fn chosen(names: &[String]) -> Result<Vec<Attack>> {
    let known = || ATTACKS.map(|(name, _)| name).join(", ");
    if let Some(name) = names
        .iter()
        .find(|name| !ATTACKS.iter().any(|(known, _)| known == name))
    {
        bail!("no attack is called {name}; there are {}", known());
    }
    let wanted = |(name, _): &Attack| names.is_empty() || names.iter().any(|known| known == name);
    Ok(ATTACKS.into_iter().filter(wanted).collect())
}

/// Makes them, one after the other; and whether the user wanted no more.
pub fn run(
    chosen: &[Attack],
    sandbox: &Sandbox,
    args: &Args,
    seed: u64,
    progress: bool,
) -> Result<(Vec<(&'static str, Tally)>, bool)> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let style = ProgressStyle::with_template("{msg:12} {wide_bar} {pos}/{len} {elapsed}")?;
    let mut tallies = Vec::new();
    for (name, attack) in chosen {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let bar = if progress {
            ProgressBar::new(0)
        } else {
            ProgressBar::hidden()
        };
        let bar = bar.with_style(style.clone()).with_message(*name);
        // The same tries whatever other attacks are made.
        let own_seed = name.bytes().fold(seed, |seed, byte| {
            seed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let start = Instant::now();
        let mut context = Context::new(sandbox, args, own_seed, bar, Arc::clone(&stop))?;
        if let Err(error) = attack(&mut context) {
            let why = format!("{error:#}");
            context.tally.fault("the attack came to a halt", why);
        }
        context.tally.took(start.elapsed());
        context.bar.finish_and_clear();
        tallies.push((*name, context.tally));
    }
    Ok((tallies, stop.load(Ordering::Relaxed)))
}
