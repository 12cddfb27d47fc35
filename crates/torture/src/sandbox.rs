//! Private mount and network namespaces: perch processes on the host are not affected and do not interfere, and
//! everything is removed when the process exits.

use crate::masks::mask;
use crate::perch::fresh_file;
use anyhow::{Context, Result, bail};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use perch_core::PuSet;
use std::{
    fs::{self, File},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
};

/// Where all of it is; `/run` is empty in here.
const ROOM: &str = "/run/torture";

/// A place to attack in.
#[derive(Debug)]
pub struct Sandbox {
    /// A copy of perch that every user can run.
    pub perch: PathBuf,
    /// A copy of this program that every user can run.
    pub program: PathBuf,
    /// perch's state directory.
    pub state: PathBuf,
    /// The mask of threads that have not been placed.
    pub all: PuSet,
    files: AtomicU64,
}

impl Sandbox {
    /// Makes one and enters it. The process must have no other thread yet. `instead` is a script that runs in perch's
    /// place.
    ///
    /// # Errors
    /// What the system refuses; a perch that does not exist; a mask that is already narrowed.
    pub fn enter(perch: &Path, instead: Option<&Path>) -> Result<Self> {
        let bytes = fs::read(perch).with_context(|| {
            format!(
                "{}: not there; build it with `cargo build --release -p perch`",
                perch.display()
            )
        })?;
        let own = fs::read("/proc/self/exe")?;
        let script = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
        };
        let instead = instead.map(script).transpose()?;
        let all = mask(std::process::id() as i32).context("no mask in /proc")?;
        if all.len() < 2 {
            bail!("needs 2 PUs, and may use {all} only");
        }
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
            .context("a mount and a network namespace of our own")?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .context("keeping mounts to ourselves")?;
        mount_tmpfs(Path::new("/run"), "mode=755")?;
        mount_tmpfs(Path::new("/tmp"), "mode=1777")?;
        let room = PathBuf::from(ROOM);
        fs::create_dir(&room)?;
        let sandbox = Self {
            perch: room.join("perch"),
            program: room.join("victim"),
            state: room.join("state"),
            all,
            files: AtomicU64::new(0),
        };
        if let Some(script) = instead {
            let real = room.join("perch-real");
            write_program(&real, &bytes, 0o755)?;
            let script = format!("#!/bin/sh\nPERCH_REAL={}\n{script}", real.display());
            write_program(&sandbox.perch, script.as_bytes(), 0o755)?;
        } else {
            write_program(&sandbox.perch, &bytes, 0o755)?;
        }
        write_program(&sandbox.program, &own, 0o755)?;
        fs::create_dir(sandbox.home())?;
        Ok(sandbox)
    }

    /// A home without settings.
    pub fn home(&self) -> PathBuf {
        self.room().join("home")
    }

    /// The directory that holds all else.
    pub fn room(&self) -> &Path {
        Path::new(ROOM)
    }

    /// A victim to be started.
    pub fn victim(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("victim");
        command
    }

    /// The command line of a program that does nothing.
    pub fn idle(&self) -> Vec<String> {
        let program = self.program.to_string_lossy().into_owned();
        vec![program, "idle".to_owned()]
    }

    /// The command line of another victim, for one that executes it in its place.
    pub fn victim_words(&self) -> Vec<String> {
        let program = self.program.to_string_lossy().into_owned();
        vec![program, "victim".to_owned()]
    }

    /// The last PU, which perch's rules never name.
    pub fn last(&self) -> PuSet {
        PuSet::single(self.all.last().unwrap_or_default())
    }

    /// The lower half of the PUs, with PU 0, and the upper half.
    pub fn halves(&self) -> (PuSet, PuSet) {
        let half = self.all.len() / 2;
        (
            self.all.iter().take(half).collect(),
            self.all.iter().skip(half).collect(),
        )
    }

    /// A program under another name that does nothing, and that perch's rules may name.
    pub fn program_named(&self, name: &str) -> Result<PathBuf> {
        let path = self.room().join(name);
        if !path.exists() {
            fs::hard_link(&self.program, &path)?;
        }
        Ok(path)
    }

    /// A new file for what perch says.
    pub fn said(&self) -> Result<(PathBuf, File)> {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.room().join(format!("said-{number}"));
        let file = fresh_file(&path)?;
        Ok((path, file))
    }

    /// A directory that is empty and belongs to a user.
    pub fn empty(&self, path: &Path, user: u32) -> Result<()> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        fs::create_dir_all(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        std::os::unix::fs::chown(path, Some(user), Some(user))?;
        Ok(())
    }
}

/// Mounts an empty file system in memory.
pub fn mount_tmpfs(at: &Path, options: &str) -> Result<()> {
    mount(
        Some("tmpfs"),
        at,
        Some("tmpfs"),
        MsFlags::empty(),
        Some(options),
    )
    .with_context(|| format!("mounting a tmpfs at {}", at.display()))
}

fn write_program(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    use std::io::Write;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(bytes)?;
    Ok(())
}
