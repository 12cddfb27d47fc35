//! cpusets, of cgroup v1 and v2.

use crate::masks::await_that;
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const V1: &str = "/sys/fs/cgroup/cpuset";
const V2: &str = "/sys/fs/cgroup";

/// What all of a run's cpusets are called, and what it may remove.
pub const PREFIX: &str = "perch-torture-";

/// A cpuset of our own, removed with all that is in it moved out.
#[derive(Debug)]
pub struct Cpuset {
    path: PathBuf,
}

/// The root of the hierarchy that has cpusets.
pub fn root() -> Option<&'static Path> {
    if Path::new(V1).join("cpuset.cpus").exists() {
        return Some(Path::new(V1));
    }
    let controllers = fs::read_to_string(Path::new(V2).join("cgroup.controllers")).ok()?;
    controllers
        .split_whitespace()
        .any(|controller| controller == "cpuset")
        .then_some(Path::new(V2))
}

/// The name that this run's cpusets begin with.
fn own_prefix(process: u32) -> String {
    format!("{PREFIX}{process}-")
}

impl Cpuset {
    /// Makes one.
    ///
    /// # Errors
    /// A system without cpusets, or that refuses.
    pub fn new(name: &str, cpus: &str) -> Result<Self> {
        let root = root().context("this system has no cpusets")?;
        let control = root.join("cgroup.subtree_control");
        if control.exists() {
            fs::write(control, "+cpuset").context("enabling cpusets")?;
        }
        let owner = crate::supervisor::process();
        let path = root.join(format!("{}{name}", own_prefix(owner)));
        fs::create_dir(&path).with_context(|| format!("{}", path.display()))?;
        let made = Self { path };
        if root == Path::new(V1) {
            let mems = fs::read_to_string(root.join("cpuset.mems"))?;
            fs::write(made.path.join("cpuset.mems"), mems.trim())?;
        }
        made.set(cpus)?;
        Ok(made)
    }

    /// Gives it other PUs.
    pub fn set(&self, cpus: &str) -> Result<()> {
        fs::write(self.path.join("cpuset.cpus"), cpus)
            .with_context(|| format!("{}: cpus {cpus}", self.path.display()))
    }

    /// Moves a process into it.
    pub fn add(&self, pid: i32) -> Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
            .with_context(|| format!("{pid} into {}", self.path.display()))
    }

    /// What starts a program in it.
    pub fn prefix(&self) -> Vec<String> {
        let script = format!(
            "echo $$ >{}/cgroup.procs && exec \"$@\"",
            self.path.display()
        );
        ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(path: &Path) {
    let Some(parent) = path.parent() else { return };
    // One that is just ending or being born keeps it busy for a moment.
    let gone = await_that(Duration::from_secs(5), || {
        let members = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        for pid in members.split_whitespace() {
            let _ = fs::write(parent.join("cgroup.procs"), pid);
        }
        fs::remove_dir(path).is_ok()
    });
    if !gone {
        eprintln!("{}: cannot be removed", path.display());
    }
}

/// Removes what a run has left that was killed.
pub fn sweep(process: u32) {
    let Some(entries) = root().and_then(|root| fs::read_dir(root).ok()) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&own_prefix(process)) {
            remove(&path);
        }
    }
}
