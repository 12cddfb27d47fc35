//! What `perch top` shows: a machine, what runs where, and how loaded each shared unit is.
//!
//! ```text
//! Source ──Frame──▶ Model ──▶ view
//!                     ▲
//!        input ──Action
//! ```
//!
//! A [`source::Source`] gives one [`Frame`] after the other: the local machine, a recording, a simulation, or the lines
//! of another perch. The [`model::Model`] is pure state: it keeps frames and what the user has chosen. [`view::draw`]
//! draws it. [`run::run`] connects them with a terminal.

pub mod assemble;
pub mod check;
pub mod frame;
pub mod input;
pub mod model;
pub mod run;
pub mod source;
pub mod terminal;
pub mod units;
pub mod view;
pub mod wire;

pub use frame::Frame;
