//! What `perch stat` does with counts: which events a user asks for, which metrics follow from them, series over time
//! by thread, process, program, PU or part of the machine, and their totals.
//!
//! ```text
//! -e, -m texts ──▶ Request ──event plan──▶ the machine counts
//!                     └─────────▶ Collector ──observation──▶ Rows ──▶ Totals
//! ```
//!
//! Nothing here opens an event or prints. An observation may come from a live machine, a simulated one or a recording.
#![forbid(unsafe_code)]

mod amounts;
mod collector;
mod derived;
mod entity;
mod events;
mod names;
pub mod phases;
mod power;
pub mod raw;
mod readings;
pub mod series;
pub mod text;
mod totals;

pub use amounts::{Amounts, Value};
pub use collector::{Collector, Event, Options, Row, RowMetrics};
pub use derived::{ACCOUNTED, Derived, DerivedError, Evaluated};
pub use entity::{By, Entity};
pub use events::{
    Request, RequestError, Requested, RequestedSet, SOFTWARE, SOFTWARE_IN_USER_SPACE,
};
pub use names::{Space, canonical, suggestion, with_underscores, without_modifier};
pub use power::{PartPower, Power};
pub use readings::Readings;
pub use totals::{SMALL, Total, Totals};
