//! All tests of this crate but those of single files, in one program: a program for each file would take minutes more to
//! build.

mod calibrate;
mod calibrate_noise;
mod fidelity;
mod masa;
mod mistakes;
mod pages;
mod phases;
mod placements;
mod scene;
mod shipped;
mod tournament;
mod workover;
