//! What the policy `masa` promises, and the paper's own example by hand.

#[path = "../support/mod.rs"]
mod support;

mod behaviour;
mod measured;
mod options;
mod paper;
mod properties;
mod world;
