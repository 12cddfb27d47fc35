//! How far perch's sampled floating-point share is from the truth.
//!
//! Real programs are run twice: once natively under `perch run --policy observe --counters sampling`, once
//! with every instruction counted (by valgrind's callgrind, or by single steps where valgrind would change
//! the code). The two shares are compared program by program.

pub mod catalogue;
pub mod command;
pub mod data;
pub mod estimate;
pub mod machine;
pub mod process;
pub mod report;
pub mod score;
pub mod truth;
pub mod workspace;
