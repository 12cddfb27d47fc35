//! An experiment: what runs on what, what is measured, and what the paper claims.

mod changes;
mod check;
mod checker;
mod claims;
mod class;
mod file;
mod left_out;
mod measurable;
mod only;
mod place;
mod quantity;
mod vary;

pub use class::Class;
pub use left_out::LeftOut;
pub use measurable::Quantity;
pub use only::Only;
pub use quantity::duration;

use crate::{error::LabError, placement::Placement};
use perch_policy::Inputs;
use perch_profile::formula::Formula;
use perch_sim::{detail::Fidelity, model::MachineModel, workload::WorkloadModel};
use std::{path::Path, sync::Arc, time::Duration};

/// How long something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Cycles of the machine's first kind of core.
    Cycles(u64),
    /// The operating system's time: on the machine it is shorter by the machine's scale.
    Time(Duration),
}

/// When a simulation counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// This long nothing is counted.
    pub warm_up: Span,
    /// Then this long it is.
    pub length: Span,
}

/// Which of the placements that were searched are the run's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// All.
    Every,
    /// The one of the greatest throughput.
    Best,
    /// The one of the least.
    Worst,
}

/// Who places the threads of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// The model of the default Linux scheduler.
    Default,
    /// A policy under perch's own loop.
    Policy {
        /// Its name in the registry.
        name: String,
        /// Its options.
        options: toml::Table,
        /// What it is built from besides.
        inputs: Inputs,
        /// How often it decides; as it likes if not given.
        period: Option<Duration>,
    },
    /// The experiment's file.
    Listed(Placement),
    /// Random placements, this many for each seed.
    Random(usize),
    /// All placements that differ.
    Search {
        /// Which count.
        chosen: Chosen,
        /// If there are more, this many are drawn at random.
        most: usize,
    },
}

/// One configuration of an experiment.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its name in this file.
    pub name: String,
    /// The machine.
    pub machine: Arc<MachineModel>,
    /// The workload of each point of the sweep; one if nothing is swept.
    pub workloads: Vec<Arc<WorkloadModel>>,
    /// Who places its threads.
    pub place: Place,
    /// Whether each seed starts the threads in another order. Else they start as the workload's file lists them, kind
    /// by kind, which a scheduler that deals them out in turn finds easy.
    pub shuffled: bool,
    /// The level of detail of the simulation.
    pub fidelity: Fidelity,
    /// When it counts.
    pub times: Times,
}

/// What is varied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// What the values are called on an axis.
    pub label: String,
    /// The working sets, in bytes.
    pub values: Vec<u64>,
    /// How the file writes them.
    pub texts: Vec<String>,
}

/// How many values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// Their mean.
    Mean,
    /// The middle one.
    Median,
    /// The least.
    Least,
    /// The greatest.
    Greatest,
    /// (greatest - least) / mean.
    Spread,
    /// Standard deviation (of a sample) / mean; 0 of a single value.
    Deviation,
}

impl Take {
    /// All of them, with the names that files use.
    pub const ALL: [(&'static str, Self); 6] = [
        ("mean", Self::Mean),
        ("median", Self::Median),
        ("least", Self::Least),
        ("greatest", Self::Greatest),
        ("spread", Self::Spread),
        ("deviation", Self::Deviation),
    ];
}

/// A number that is measured, by which claims and pictures name it.
#[derive(Debug, Clone)]
pub struct Measure {
    /// Its name.
    pub name: String,
    /// The quantity that is measured.
    pub of: Quantity,
    /// Of which run: an index of [`Experiment::runs`].
    pub run: usize,
    /// Divided, point by point of the sweep, by the same of this run.
    pub per: Option<usize>,
    /// At which points of the sweep; all if empty.
    pub at: Vec<usize>,
    /// Of which threads: those of this name; all if none is given.
    pub thread: Option<String>,
    /// What it is narrowed down to besides.
    pub only: Only,
    /// How the values of points, seeds and placements become one.
    pub take: Take,
}

/// How far a claim may be missed.
#[derive(Debug, Clone, PartialEq)]
pub enum Holds {
    /// Ours is at most so far from the published value.
    Within(f64),
    /// Ours is within these bounds.
    Between(f64, f64),
    /// Ours is at least the published value less this.
    AtLeast(f64),
    /// Ours is at most the published value plus this.
    AtMost(f64),
    /// Each of ours is greater than the one before, by more than this part of it.
    Rising(f64),
}

/// What ours is held against.
#[derive(Debug, Clone, PartialEq)]
pub enum Against {
    /// A number.
    Number(f64),
    /// Words: which of several is greater.
    Words(String),
}

/// Something that the paper says, or that perch aims at.
#[derive(Debug, Clone)]
pub struct Claim {
    /// In a few words.
    pub name: String,
    /// What is published or aimed at.
    pub published: Against,
    /// The place in the paper: a table, a figure, a section.
    pub place: String,
    /// The published value's name, if it is one.
    pub id: Option<String>,
    /// Ours: one formula, or several for an ordering.
    pub ours: Vec<Formula>,
    /// The unit of both.
    pub unit: String,
    /// How far it may be missed, written down before the run.
    pub holds: Holds,
    /// What it says if it holds.
    pub class: Class,
    /// What ours would be if nothing that is compared made a difference: 1 of a ratio.
    pub null: Option<f64>,
    /// It orders spreads, of which one is greater than the other in any case: without a difference it holds by chance.
    pub by_chance: bool,
}

/// One bar of a picture.
#[derive(Debug, Clone)]
pub struct Bar {
    /// The group that it belongs to.
    pub group: String,
    /// Which of the group.
    pub series: String,
    /// Its height.
    pub value: Formula,
    /// The ends of its whisker.
    pub range: Option<(Formula, Formula)>,
    /// What is published instead of it.
    pub published: Option<Mark>,
}

/// A published value in the unit of the picture.
#[derive(Debug, Clone)]
pub struct Mark {
    /// The published number.
    pub published: f64,
    /// What it becomes the height by, if it is a ratio.
    pub scale: Scale,
}

/// How a published ratio becomes a height.
#[derive(Debug, Clone)]
pub enum Scale {
    /// It is one.
    None,
    /// This times the ratio.
    Times(Formula),
    /// This divided by the ratio.
    Divides(Formula),
}

/// A line of a picture over the sweep.
#[derive(Debug, Clone)]
pub struct Line {
    /// What it is called.
    pub series: String,
    /// Which run it shows.
    pub run: usize,
}

/// What a picture shows.
#[derive(Debug, Clone)]
pub enum Shape {
    /// Bars in groups.
    Bars(Vec<Bar>),
    /// Lines over the sweep, whose axis is logarithmic.
    Lines {
        /// The quantity that is measured.
        of: Quantity,
        /// Of whom.
        lines: Vec<Line>,
        /// Published values: the point of the sweep, and the height.
        marks: Vec<(usize, Mark)>,
    },
}

/// A picture in the paper's axes.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Its title.
    pub title: String,
    /// What is to the right.
    pub x: String,
    /// What is upwards, with its unit.
    pub y: String,
    /// What it shows.
    pub shape: Shape,
}

/// A whole experiment. Made by [`parse`]; sound once made.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Its name: `cmt/figure3`, or the path that was given.
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// What is done and which values were chosen.
    pub about: String,
    /// Seeds: each simulation runs once with each.
    pub seeds: Vec<u64>,
    /// What is varied, if anything is.
    pub sweep: Option<Sweep>,
    /// The configurations.
    pub runs: Vec<Run>,
    /// What is measured.
    pub measures: Vec<Measure>,
    /// What is claimed.
    pub claims: Vec<Claim>,
    /// What cannot be had here.
    pub left_out: Vec<LeftOut>,
    /// The picture.
    pub figure: Option<Figure>,
    /// Whether runs without a policy find caches as they are after long.
    pub warm: bool,
    /// The same with other values where no source gives any: claims get the range of what comes of them.
    pub variants: Vec<Variant>,
}

/// An experiment with other values of parameters for which there is no source.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Which parameter, and its value.
    pub name: String,
    /// The experiment with it; it has no variants of its own.
    pub experiment: Experiment,
}

/// Reads an experiment. `sibling` reads a file whose path is given relative to the experiment's; `path` is for messages.
///
/// # Errors
/// The first mistake, with its place.
pub fn parse(
    name: &str,
    text: &str,
    path: &Path,
    sibling: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Experiment, LabError> {
    check::read(name, text, &path.to_string_lossy(), sibling).map_err(LabError::from)
}
