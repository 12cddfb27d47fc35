//! A simulation, period by period, as far ahead as it is watched.

use crate::{
    args::TopArgs,
    command::sim::{decider, scene},
};
use anyhow::Result;
use perch_core::text::printable;
use perch_engine::{Command, Handle, Period, SessionSink, Start};
use perch_profile::Profile;
use perch_top::{
    Frame,
    assemble::Assembler,
    source::{Next, Pace, Source, SourceError},
};
use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

/// How many periods are simulated ahead.
const AHEAD: usize = 4;

/// A running simulation.
pub struct SimSource {
    title: String,
    frames: Option<Receiver<Frame>>,
    handle: Handle,
    /// The thread that simulates.
    running: Option<JoinHandle<Result<(), String>>>,
}

/// Starts the simulation that was asked for.
///
/// # Errors
/// A machine, workload or policy that is not there or wrong.
pub fn start(args: &TopArgs) -> Result<SimSource> {
    let sim = args.sim();
    let scene = scene(&sim)?;
    let title = format!(
        "{} on {}, policy {}",
        scene.workload.name, scene.machine.name, args.policy
    );
    let mut session = scene.session(decider(&sim, &scene, &args.policy)?, args.seed)?;
    let handle = session.handle();
    let (to, frames) = sync_channel(AHEAD);
    let running = std::thread::Builder::new().spawn(move || {
        let mut sink = Sink {
            to,
            assembler: None,
        };
        session.run(&mut sink).map_err(|error| error.to_string())
    })?;
    Ok(SimSource {
        title: printable(&title).into_owned(),
        frames: Some(frames),
        handle,
        running: Some(running),
    })
}

impl Source for SimSource {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn pace(&self) -> Pace {
        Pace::Recorded
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        let frame = self.frames.as_ref().and_then(|frames| frames.recv().ok());
        if let Some(frame) = frame {
            return Ok(Next::Frame(Box::new(frame)));
        }
        match self.running.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(Next::End(None)),
            Some(Ok(Err(error))) => Err(error.into()),
            Some(Err(_)) => Err("the simulation has failed".into()),
        }
    }
}

/// The simulation ends with its watcher, and its temporary files with it.
impl Drop for SimSource {
    fn drop(&mut self) {
        let _ = self.handle.send(Command::Stop);
        self.frames = None;
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

/// Hands periods to the watcher, and waits for it.
struct Sink {
    to: SyncSender<Frame>,
    assembler: Option<Assembler>,
}

impl SessionSink for Sink {
    fn start(&mut self, start: &Start) {
        let profile = Profile::parse(&start.profile_text, &start.profile).ok();
        let topology = Arc::clone(&start.topology);
        self.assembler = profile.map(|profile| Assembler::new(topology, profile));
    }

    fn period(&mut self, period: &Period) {
        let Some(assembler) = &mut self.assembler else {
            return;
        };
        let frame = assembler.frame(&period.observation, &period.moves, &period.remarks);
        // Without a watcher, it is told to stop.
        let _ = self.to.send(frame);
    }
}
