//! All tests of this crate but those of single files, in one program: a program for each file would take minutes more to
//! build.

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
mod weights;
