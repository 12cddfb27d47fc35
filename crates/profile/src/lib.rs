//! What perch knows about each processor: events, formulas, units, sharing domains.
//!
//! ```text
//! /proc/cpuinfo ──CpuIdentity──▶ detect ──▶ Profile ──event_plan──▶ the machine counts
//!                  Library ────────┘           └──metrics(counts)──▶ Metrics, and implausible counts
//! ```
//!
//! A profile is data, one TOML file a microarchitecture ([`Profile::parse`], `docs/profiles.md`). Nothing here reads
//! /proc, opens an event or knows a policy.
#![forbid(unsafe_code)]

pub mod cpu;
pub mod detect;
pub mod error;
mod event_set;
pub mod formula;
pub mod library;
pub mod plausible;
pub mod profile;
mod schema;
pub mod spelling;
mod validate;

pub use cpu::{CpuIdentity, Rule};
pub use detect::{Detected, detect};
pub use error::{LibraryError, ProfileError};
pub use library::{Library, user_dirs};
pub use perch_core::UnitClass;
pub use plausible::Doubt;
pub use profile::{EventCheck, Profile, Scope};
pub use spelling::Spelling;
