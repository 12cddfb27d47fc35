//! The monitoring modules of this machine: which there are, what each provides and needs, and whether it works here.

mod builtin;
mod core_types;
mod script;

pub use core_types::CoreTypes;
pub use script::{ScriptModule, is_answer};

use crate::{
    energy::{self, EnergyModule},
    resctrl::{self, ResctrlModule},
};
use perch_core::{MachineError, MetricInfo, Module, Need, Topology};
use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Where a module looks.
#[derive(Debug, Clone)]
pub struct Place {
    /// `/sys`, or a captured tree.
    pub sysfs: PathBuf,
    /// The machine's topology.
    pub topology: Arc<Topology>,
}

impl Place {
    /// This machine.
    pub fn here(topology: Arc<Topology>) -> Self {
        Self {
            sysfs: Path::new("/sys").to_owned(),
            topology,
        }
    }
}

/// Opens a module; it changes nothing before threads are observed.
pub type Open = Box<dyn Fn(&Place) -> Result<Box<dyn Module>, MachineError> + Send + Sync>;

/// How a module comes into the machine.
enum How {
    /// It is a part of the machine; whether it works, and how.
    BuiltIn(fn() -> Result<String, MachineError>),
    Opened(Open),
}

/// A module that can be asked for.
pub struct Entry {
    /// Its name.
    pub name: Cow<'static, str>,
    /// What it measures, in a few words.
    pub summary: Cow<'static, str>,
    /// What it provides where it works; a module that is opened may provide other metrics.
    pub metrics: Vec<MetricInfo>,
    /// What it needs.
    pub needs: Vec<Need>,
    how: How,
}

impl Entry {
    /// A module of a user's own, which `open` makes.
    pub fn own(
        name: &'static str,
        summary: &'static str,
        metrics: Vec<MetricInfo>,
        open: impl Fn(&Place) -> Result<Box<dyn Module>, MachineError> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, summary, metrics, Vec::new(), open)
    }

    fn new(
        name: &'static str,
        summary: &'static str,
        metrics: Vec<MetricInfo>,
        needs: Vec<Need>,
        open: impl Fn(&Place) -> Result<Box<dyn Module>, MachineError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            summary: summary.into(),
            metrics,
            needs,
            how: How::Opened(Box::new(open)),
        }
    }

    /// Whether it is a part of the machine, which need not be opened.
    pub fn is_built_in(&self) -> bool {
        matches!(self.how, How::BuiltIn(_))
    }

    /// Opens it; `None` if it is a part of the machine.
    ///
    /// # Errors
    /// Why it does not work here, and what would help.
    pub fn open(&self, place: &Place) -> Result<Option<Box<dyn Module>>, MachineError> {
        match &self.how {
            How::BuiltIn(_) => Ok(None),
            How::Opened(open) => open(place).map(Some),
        }
    }

    /// Tries it: what it provides here, and how.
    ///
    /// # Errors
    /// As [`Entry::open`].
    pub fn check(&self, place: &Place) -> Result<(Vec<MetricInfo>, String), MachineError> {
        match &self.how {
            How::BuiltIn(check) => Ok((self.metrics.clone(), check()?)),
            How::Opened(open) => {
                let module = open(place)?;
                Ok((module.provides(), module.description()))
            }
        }
    }
}

/// All modules that perch ships.
pub fn shipped() -> Vec<Entry> {
    let mut entries = builtin::entries();
    entries.push(Entry::new(
        energy::NAME,
        "energy of packages, domains and boards; power sensors",
        energy::usual_metrics(),
        energy::needs(),
        |place| Ok(Box::new(EnergyModule::open(&place.sysfs)?)),
    ));
    entries.push(Entry::new(
        resctrl::NAME,
        "occupancy of the last-level cache and memory traffic of each process",
        resctrl::usual_metrics(),
        resctrl::needs(),
        |_| Ok(Box::new(ResctrlModule::open()?)),
    ));
    entries.push(Entry::new(
        core_types::NAME,
        "instructions per cycle of each thread on each kind of core",
        core_types::usual_metrics(),
        core_types::needs(),
        |place| Ok(Box::new(CoreTypes::open(&place.sysfs, &place.topology)?)),
    ));
    entries
}
