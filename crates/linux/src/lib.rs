//! The live Linux machine.
