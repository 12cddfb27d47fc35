//! Commands to a running session, and the programs that it follows.

use super::{Session, names};
use crate::{
    command::{Answer, Command, CommandError, Queued},
    decider::Decider,
    observer::Cause,
};
use perch_core::{Launch, Machine, MachineError, machine::SESSION_VARIABLE};
use std::ffi::OsString;

impl<M: Machine> Session<M> {
    /// Carries out the commands that wait; the cause if one of them ends the session.
    pub fn obey(&mut self) -> Option<Cause> {
        let mut cause = None;
        while let Ok(Queued { command, answer }) = self.commands.try_recv() {
            if matches!(command, Command::Stop) {
                cause = Some(Cause::Commanded);
            }
            // Nobody may wait for it.
            let _ = answer.send(self.carry_out(command));
        }
        cause
    }

    fn carry_out(&mut self, command: Command) -> Answer {
        match command {
            Command::Attach(pid) => self.attach(pid)?,
            Command::Detach(pid) => self.detach(pid)?,
            Command::SetPolicy(policy) => {
                self.machine.watch_irqs(policy.wants_irqs())?;
                self.machine.watch_weights(policy.wants_weights())?;
                self.machine.watch_pus(policy.wants_pu_loads());
                let events = self.control.processor().event_plan_with(policy.needs());
                self.machine.configure(&events)?;
                if !self.given_period {
                    self.period = policy.period();
                    self.interval = self.interval.min(self.period);
                }
                self.decider = Decider::new(policy, self.deciding);
            }
            Command::Pause => self.paused = true,
            Command::Resume => self.paused = false,
            Command::Stop => {}
        }
        Ok(())
    }

    /// Starts a program with the session's mark in its environment; its process number.
    ///
    /// # Errors
    /// A program that is not there or cannot be executed; a machine that starts none.
    pub fn launch(&mut self, command: Vec<OsString>) -> Result<i32, MachineError> {
        let mark = self
            .mark()
            .map(|mark| (SESSION_VARIABLE.into(), mark.into()));
        let launch = Launch {
            command,
            environment: mark.into_iter().collect(),
        };
        let Some(targets) = self.machine.targets() else {
            return Err(MachineError::Other(
                "this machine starts no programs".to_owned(),
            ));
        };
        let pid = targets.launch(&launch)?;
        let processes = self.machine.processes();
        if let Some((_, target)) = processes.iter().find(|(process, _)| process.pid == pid) {
            self.add_root(pid, *target);
        }
        Ok(pid)
    }

    /// Follows a process and all that descends from it.
    ///
    /// # Errors
    /// A process that is not there or not ours; a machine whose threads are given.
    pub fn attach(&mut self, pid: i32) -> Result<(), MachineError> {
        let Some(targets) = self.machine.targets() else {
            return Err(MachineError::Other(
                "this machine has no processes to attach to".to_owned(),
            ));
        };
        let target = targets.attach(pid)?;
        self.add_root(pid, target);
        Ok(())
    }

    /// A process that was given to perch, with its target. Its number may have been another one's before.
    fn add_root(&mut self, pid: i32, target: u32) {
        self.attached
            .retain(|(known, of)| *known != pid || *of == target);
        if !self.attached.contains(&(pid, target)) {
            self.attached.push((pid, target));
        }
    }

    fn detach(&mut self, pid: i32) -> Answer {
        let attached = || self.attached.iter().copied();
        let Some((_, target)) = attached().find(|(known, _)| *known == pid) else {
            return Err(MachineError::NoSuchProcess(pid).into());
        };
        if let Some((root, _)) = attached().find(|(_, of)| *of == target)
            && root != pid
        {
            return Err(MachineError::Other(format!(
                "process {pid} was followed as a descendant of process {root} when it was attached: detach that"
            ))
            .into());
        }
        if let Some(reconciler) = &mut self.reconciler {
            let left = reconciler.give_back_target(target, &mut self.machine);
            if left.has_failed() {
                let threads = names(&left);
                return Err(CommandError::LeftBehind { pid, threads });
            }
        }
        self.attached.retain(|(_, of)| *of != target);
        if let Some(targets) = self.machine.targets() {
            targets.detach(target);
        }
        self.control.forget_target(target);
        Ok(())
    }
}
