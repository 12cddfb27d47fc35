//! Commands to a running session, and the programs that it follows.

use super::{Session, Wants, names, ramp::Ramp};
use crate::{
    command::{Answer, Command, CommandError, Queued},
    control::Control,
    decider::Decider,
    observer::Cause,
    restore::RestoreReport,
};
use perch_core::{Launch, Machine, MachineError, Policy, Remark, machine::SESSION_VARIABLE};
use std::ffi::OsString;

impl<M: Machine> Session<M> {
    /// Carries out the commands that wait; the cause if one of them ends the session. To be called before the machine is
    /// observed: an observation from before [`Command::Detach`] has threads in it that must not be placed any more.
    pub fn obey(&mut self) -> Option<Cause> {
        let mut cause = None;
        while let Ok(Queued { command, answer }) = self.commands.try_recv() {
            if matches!(command, Command::Stop) {
                cause = Some(Cause::Commanded);
            }
            // The sender may not wait for it.
            let _ = answer.send(self.carry_out(command));
        }
        cause
    }

    fn carry_out(&mut self, command: Command) -> Answer {
        match command {
            Command::Attach(pid) => self.attach(pid)?,
            Command::Detach(pid) => self.detach(pid)?,
            Command::SetPolicy(policy) => self.set_policy(policy)?,
            Command::Pause => self.paused = true,
            Command::Resume => self.paused = false,
            Command::Stop => {}
        }
        Ok(())
    }

    /// Another policy from now on. If the machine cannot observe what that needs, the present one stays.
    fn set_policy(&mut self, policy: Box<dyn Policy>) -> Result<(), MachineError> {
        let mut wants = Wants::of(&*policy, self.control.processor());
        // What is bound must be followed until it has its masks back.
        let leaves_system = self.wants.system && !wants.system;
        wants.system |= leaves_system;
        if let Err(error) = wants.configure(&mut self.machine) {
            // As before, which the machine could do.
            let _ = self.wants.configure(&mut self.machine);
            return Err(error);
        }
        if self.wants.irqs && !wants.irqs {
            self.let_irqs_go();
        }
        if self.wants.settings && !wants.settings {
            self.let_settings_go();
        }
        if leaves_system {
            wants.system = false;
            self.let_system_go()?;
        }
        self.ramp = Ramp::of(&wants);
        self.wants = wants;
        if !self.given_period {
            self.period = policy.period();
        }
        self.interval = self.given_interval.unwrap_or(self.period).min(self.period);
        self.decider = Decider::new(policy, self.deciding);
        Ok(())
    }

    /// Interrupts are not observed any more, so no plan would give them back.
    fn let_irqs_go(&mut self) {
        let mut left = RestoreReport::default();
        if let Some(reconciler) = &mut self.reconciler {
            left = reconciler.give_back_irqs(self.machine.affinity());
        }
        let failed = left.irqs.failed.iter().filter_map(|(irq, _)| *irq);
        self.control.irqs.let_go(&failed.collect());
        if left.has_failed() {
            let text = format!(
                "not all interrupts have their masks back: {}; perch tries again when it ends",
                names(&left)
            );
            self.remarks.push(Remark::error("irqs-left", text));
        }
    }

    /// The same of settings.
    fn let_settings_go(&mut self) {
        let mut left = RestoreReport::default();
        if let Some(reconciler) = &mut self.reconciler {
            left = reconciler.give_back_settings(self.machine.affinity());
        }
        let failed = left.settings.failed.iter();
        let failed = failed.filter_map(|(setting, _)| setting.clone());
        self.control.settings.let_go(&failed.collect());
        if left.has_failed() {
            let text = format!(
                "not all settings have their values back: {}; perch tries again when it ends",
                names(&left)
            );
            self.remarks.push(Remark::error("settings-left", text));
        }
    }

    /// The operating system's threads are not followed any more.
    fn let_system_go(&mut self) -> Result<(), MachineError> {
        let target = self.machine.system_target();
        let mut left = RestoreReport::default();
        if let (Some(target), Some(reconciler)) = (target, &mut self.reconciler) {
            left = reconciler.give_back_target(target, &mut self.machine);
        }
        self.machine.watch_system(false)?;
        if left.has_failed() {
            let text = format!(
                "not all threads of the operating system have their masks back: {}; perch tries again when it ends",
                names(&left)
            );
            self.remarks.push(Remark::error("system-left", text));
        } else if let Some(target) = target {
            self.control.forget_target(target);
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
        self.forget(target);
        Ok(())
    }

    /// Parts with targets whose last known process has ended: a session that others attach to for weeks would keep a
    /// journal of each.
    pub(super) fn part_with(&mut self, emptied: &[u32]) {
        if emptied.is_empty() {
            return;
        }
        let left = self.machine.processes();
        for target in emptied {
            // A process that was found since goes on.
            if left.iter().any(|(_, of)| of == target) {
                continue;
            }
            let failed = match &mut self.reconciler {
                Some(reconciler) => reconciler
                    .give_back_target(*target, &mut self.machine)
                    .has_failed(),
                None => false,
            };
            // With something left to restore it is kept, and tried again at the end.
            if !failed {
                self.forget(*target);
            }
        }
    }

    fn forget(&mut self, target: u32) {
        self.attached.retain(|(_, of)| *of != target);
        let Control {
            ways, ownership, ..
        } = &mut self.control;
        let of_target = |thread| {
            let owned = ownership.get(thread);
            owned.is_some_and(|owned| ownership.target(owned.pid) == target)
        };
        ways.give_back(self.machine.affinity(), of_target);
        if let Some(targets) = self.machine.targets() {
            targets.detach(target);
        }
        self.control.forget_target(target);
    }
}
