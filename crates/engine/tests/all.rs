//! The tests of this crate in one program: one for each file would take minutes more to build. A file that is not named
//! here is not run; `perch`'s test `project` finds it.

mod common;
mod irq;
mod journal;
mod kinship;
mod ownership;
mod pus;
mod recording;
mod recover;
mod report;
mod restore;
mod service;
mod session;
mod settings;
mod settings_restored;
mod strangers;
mod system;
mod timeline;
mod undo;
mod ways;
mod weights;
