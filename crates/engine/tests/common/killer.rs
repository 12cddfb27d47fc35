//! Kills perch while it makes its changes.

use std::path::{Path, PathBuf};

/// When perch is killed: at the nth change, before or after it is made.
#[derive(Debug, Clone, Copy)]
pub struct Kill {
    pub at: usize,
    pub after: bool,
}

/// Counts changes and kills perch at one of them.
#[derive(Debug, Default)]
pub struct Killer {
    /// Those that perch has asked for.
    pub changes: usize,
    /// With the directory of the journals.
    kill: Option<(Kill, PathBuf)>,
    /// The journals on disk when perch was killed: nothing that it does later counts.
    killed: Option<Vec<Vec<u8>>>,
}

impl Killer {
    /// Kills perch, whose journals are in `dir`.
    pub fn arm(&mut self, kill: Kill, dir: &Path) {
        self.kill = Some((kill, dir.to_owned()));
    }

    /// A change is about to be made; whether perch is dead, so that it is not.
    pub fn before_change(&mut self) -> bool {
        self.changes += 1;
        self.strike(false);
        self.is_dead()
    }

    /// A change was made.
    pub fn after_change(&mut self) {
        self.strike(true);
    }

    pub fn is_dead(&self) -> bool {
        self.killed.is_some()
    }

    /// The journals that a killed perch left; what changes from now on counts again.
    pub fn take(&mut self) -> Option<Vec<Vec<u8>>> {
        self.kill = None;
        self.killed.take()
    }

    fn strike(&mut self, after: bool) {
        let now = |kill: &Kill| kill.at == self.changes && kill.after == after;
        let Some((_, dir)) = self.kill.take_if(|(kill, _)| now(kill)) else {
            return;
        };
        let entries = std::fs::read_dir(dir).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let journals = paths.filter(|path| path.extension().is_some_and(|e| e == "journal"));
        self.killed = Some(journals.map(|path| std::fs::read(path).unwrap()).collect());
    }
}
