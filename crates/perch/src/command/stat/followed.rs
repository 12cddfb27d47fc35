//! What is counted: a program that is started, running processes, those of a control group, or the whole machine.

use super::regions::Regions;
use crate::{args::StatArgs, exit};
use anyhow::{Context, Result, bail};
use perch_core::{Launch, Machine, MachineError};
use perch_linux::{LinuxMachine, cgroup::Cgroup};
use std::{collections::BTreeSet, time::Instant};

/// What is followed, once counting has begun.
pub struct Followed {
    group: Option<Cgroup>,
    /// The processes of the group that were attached to.
    known: BTreeSet<i32>,
}

impl Followed {
    /// Starts the program, attaches to the processes, or stays without either.
    ///
    /// # Errors
    /// A program that cannot be started, a process or a group that is not there.
    pub fn begin(args: &StatArgs, machine: &mut LinuxMachine, regions: &Regions) -> Result<Self> {
        let mut followed = Self {
            group: args.cgroup.as_deref().map(Cgroup::open).transpose()?,
            known: BTreeSet::new(),
        };
        if args.program.is_empty() && args.pids.is_empty() && followed.group.is_none() {
            machine.stay(args.duration.map(|duration| Instant::now() + duration));
            return Ok(followed);
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
        match &followed.group {
            None => attach(machine, &args.pids)?,
            Some(group) => {
                let place = || format!("{}", group.directory().display());
                let pids = group.processes().with_context(place)?;
                if pids.is_empty() {
                    bail!(
                        "{}: no process is in this control group, or below it",
                        place()
                    );
                }
                attach(machine, &pids)?;
                followed.known = pids.into_iter().collect();
            }
        }
        Ok(followed)
    }

    /// Attaches to the processes that have come into the group. One that cannot be followed is said once.
    pub fn newcomers(&mut self, machine: &mut LinuxMachine) {
        let Some(pids) = self.group.as_ref().and_then(|group| group.processes().ok()) else {
            return;
        };
        let pids: BTreeSet<i32> = pids.into_iter().collect();
        for pid in pids.difference(&self.known) {
            let Some(targets) = machine.targets() else {
                return;
            };
            match targets.attach(*pid) {
                Ok(_) | Err(MachineError::NoSuchProcess(_)) => {}
                Err(error) => exit::say(&format!("process {pid} is not counted: {error}")),
            }
        }
        // PIDs are used again.
        self.known = pids;
    }
}

/// Attaches to processes; some of several may have exited.
pub fn attach(machine: &mut LinuxMachine, pids: &[i32]) -> Result<()> {
    let Some(targets) = machine.targets() else {
        bail!("this machine attaches to no processes");
    };
    let mut exited = 0;
    for pid in pids {
        match targets.attach(*pid) {
            Err(MachineError::NoSuchProcess(pid)) if exited + 1 < pids.len() => {
                exited += 1;
                exit::say(&format!(
                    "{}; the others are counted",
                    MachineError::NoSuchProcess(pid)
                ));
            }
            answer => {
                answer?;
            }
        }
    }
    Ok(())
}
