//! Which processes are followed: attached to one by one, each as a target of its own.

use super::LiveMachine;
use perch_core::{Launch, MachineError, Targets, text};

impl Targets for LiveMachine {
    fn launch(&mut self, _: &Launch) -> Result<i32, MachineError> {
        Err(MachineError::Other(
            "this machine starts no programs: start them and attach to them".to_owned(),
        ))
    }

    fn attach(&mut self, pid: i32) -> Result<u32, MachineError> {
        if pid == std::process::id() as i32 {
            return Err(MachineError::Other(format!("{pid} is perch itself")));
        }
        check_owner(pid)?;
        if self.tracker.is_system(pid) {
            return Err(MachineError::Other(format!(
                "{pid} is followed as part of the operating system: attach to it before a policy that places that is in force"
            )));
        }
        if let Some(target) = self.tracker.target_if_followed(pid) {
            return Ok(target);
        }
        let target = self.places.add_attached();
        self.open_task_events(pid, target);
        if !self.tracker.follow_running(pid, target) {
            return Err(MachineError::NoSuchProcess(pid));
        }
        self.counting.attached(pid);
        self.places.look(self.tracker.processes());
        Ok(target)
    }

    fn detach(&mut self, target: u32) {
        let gone = self.tracker.unfollow(target);
        self.counting.target_gone(target);
        self.let_go.extend(gone);
        self.places.look(self.tracker.processes());
    }
}

/// Whether perch may place the threads of a process: its own user's, or any with CAP_SYS_NICE
/// (sched_setaffinity(2)).
fn check_owner(pid: i32) -> Result<(), MachineError> {
    let status = |pid: i32| procfs::process::Process::new(pid).and_then(|process| process.status());
    let (Ok(theirs), Ok(ours)) = (status(pid), status(std::process::id() as i32)) else {
        return Err(MachineError::NoSuchProcess(pid));
    };
    const CAP_SYS_NICE: u64 = 1 << 23;
    if ours.capeff & CAP_SYS_NICE != 0 || [theirs.ruid, theirs.euid].contains(&ours.euid) {
        return Ok(());
    }
    Err(MachineError::NotPermitted {
        what: format!(
            "attaching to process {pid} ({}) of user {}",
            text::printable(&theirs.name),
            theirs.euid
        ),
        remedy: format!(
            "run perch as that user or as root, or {}",
            crate::capability::advice("CAP_SYS_NICE")
        ),
    })
}
