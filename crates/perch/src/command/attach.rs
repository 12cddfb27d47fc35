//! `perch attach`: place the threads of processes that run already.

use crate::{
    args::AttachArgs,
    command::{group::Group, place},
    exit,
};
use anyhow::Result;
use perch_core::{MachineError, Remark};
use perch_engine::{
    Period, SessionSink,
    command::{Command, CommandError, Handle, Reply},
};
use std::{collections::BTreeSet, process::ExitCode};

/// Places until the processes end or the user stops it.
///
/// # Errors
/// A process or a control group that is not there, settings that are wrong, permissions that are missing.
pub fn attach(args: &AttachArgs) -> Result<ExitCode> {
    let group = args.cgroup.as_deref().map(Group::open).transpose()?;
    let (pids, names) = match (&group, &args.cgroup) {
        (Some(group), Some(name)) => (group.known(), vec![format!("control group {name}")]),
        _ => {
            let names = args.pids.iter().map(ToString::to_string);
            (args.pids.clone(), names.collect())
        }
    };
    let mut placing = place::prepare(&args.place, &names, true)?;
    // A process of a list that `pgrep` made may have exited since; that is no reason to leave the others alone.
    let (mut exited, mut refused) = (Vec::new(), Vec::new());
    for pid in &pids {
        match placing.session.attach(*pid) {
            Err(MachineError::NoSuchProcess(pid)) => exited.push(pid),
            // Some processes of a group may be another user's.
            Err(error @ MachineError::NotPermitted { .. }) if group.is_some() => {
                refused.push(error);
            }
            answer => answer?,
        }
    }
    if exited.len() + refused.len() == pids.len() {
        let error = refused.into_iter().next();
        return Err(error.unwrap_or(MachineError::NoSuchProcess(pids[0])).into());
    }
    for error in refused {
        exit::say(&format!("{error}; perch attaches to the others"));
    }
    match group {
        Some(group) => {
            let to = placing.session.handle();
            placing.watch(Box::new(Newcomers::new(group, to)));
        }
        // Of a group, processes come and go.
        None => {
            for pid in exited {
                let text = format!(
                    "{}; perch attaches to the others",
                    MachineError::NoSuchProcess(pid)
                );
                placing.remark(Remark::warning("no-process", text));
            }
        }
    }
    placing.run(&args.place)?;
    Ok(exit::of_program(0, placing.unwritten()))
}

/// Attaches to processes that come into a control group.
struct Newcomers {
    group: Group,
    to: Handle,
    /// Seen for the first time in the last period. A child of a thread that perch has bound must be followed as that, so
    /// that its mask is known to be perch's: by the next period it is.
    seen: Vec<i32>,
    asked: Vec<(i32, Reply)>,
}

impl Newcomers {
    fn new(group: Group, to: Handle) -> Self {
        Self {
            group,
            to,
            seen: Vec::new(),
            asked: Vec::new(),
        }
    }
}

impl SessionSink for Newcomers {
    fn period(&mut self, period: &Period) {
        self.asked.retain(|(pid, reply)| match reply.now() {
            None => true,
            Some(answer) => {
                if let Err(error) = answer
                    && !matches!(
                        error,
                        CommandError::Ended | CommandError::Machine(MachineError::NoSuchProcess(_))
                    )
                {
                    exit::say(&format!("process {pid} is not placed: {error}"));
                }
                false
            }
        });
        let threads = period.observation.threads.iter();
        let followed: BTreeSet<i32> = threads.map(|thread| thread.info.pid).collect();
        for pid in std::mem::take(&mut self.seen) {
            if !followed.contains(&pid)
                && let Ok(reply) = self.to.send(Command::Attach(pid))
            {
                self.asked.push((pid, reply));
            }
        }
        self.seen = self.group.newcomers();
    }
}
