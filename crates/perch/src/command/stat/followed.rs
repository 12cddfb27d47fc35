//! What is counted: a program that is started, running processes, those of a control group, or the whole machine.

use super::regions::Regions;
use crate::{args::StatArgs, command::group::Group, exit};
use anyhow::{Result, bail};
use perch_core::{Launch, Machine, MachineError};
use perch_linux::LinuxMachine;

/// What is followed, once counting has begun.
pub struct Followed {
    group: Option<Group>,
}

impl Followed {
    /// Starts the program, attaches to the processes, or stays without either.
    ///
    /// # Errors
    /// A program that cannot be started, a process or a group that is not there.
    pub fn begin(args: &StatArgs, machine: &mut LinuxMachine, regions: &Regions) -> Result<Self> {
        let group = args.cgroup.as_deref().map(Group::open).transpose()?;
        if args.program.is_empty() && args.pids.is_empty() && group.is_none() {
            // How long is up to the intervals: opening the events of all PUs may take a part of the time.
            machine.stay(None);
            return Ok(Self { group });
        }
        if !args.program.is_empty() {
            let launch = Launch {
                command: args.program.clone(),
                environment: regions.environment(args),
            };
            let Some(targets) = machine.targets() else {
                bail!("this machine starts no programs");
            };
            targets.launch(&launch)?;
        }
        match &group {
            None => attach(machine, &args.pids)?,
            // Those that have exited since they were listed are nobody's concern.
            Some(group) => match attach_some(machine, &group.known(), |_| ()) {
                Err(error) if is_gone(&error) => {}
                attached => attached?,
            },
        }
        Ok(Self { group })
    }

    /// Attaches to the processes that have come into the group. One that cannot be followed is said once.
    pub fn newcomers(&mut self, machine: &mut LinuxMachine) {
        let Some(group) = &mut self.group else {
            return;
        };
        for pid in group.newcomers() {
            let Some(targets) = machine.targets() else {
                return;
            };
            match targets.attach(pid) {
                Ok(_) | Err(MachineError::NoSuchProcess(_)) => {}
                Err(error) => exit::say(&format!("process {pid} is not counted: {error}")),
            }
        }
    }
}

/// Attaches to processes; some of several may have exited.
pub fn attach(machine: &mut LinuxMachine, pids: &[i32]) -> Result<()> {
    attach_some(machine, pids, |gone| {
        exit::say(&format!("{gone}; the others are counted"));
    })
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(MachineError::NoSuchProcess(_)))
}

/// The same; hands over the error of each that has exited, unless all have.
fn attach_some(
    machine: &mut LinuxMachine,
    pids: &[i32],
    mut gone: impl FnMut(MachineError),
) -> Result<()> {
    let Some(targets) = machine.targets() else {
        bail!("this machine attaches to no processes");
    };
    let mut exited = 0;
    for pid in pids {
        match targets.attach(*pid) {
            Err(MachineError::NoSuchProcess(pid)) if exited + 1 < pids.len() => {
                exited += 1;
                gone(MachineError::NoSuchProcess(pid));
            }
            answer => {
                answer?;
            }
        }
    }
    Ok(())
}
