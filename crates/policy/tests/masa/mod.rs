//! What the policy `masa` promises, and the paper's own example by hand.

mod behaviour;
mod measured;
mod options;
mod paper;
mod properties;
mod world;
