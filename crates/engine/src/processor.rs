//! A profile as the processor that the loop knows.

use crate::characterise::Processor;
use perch_core::{Count, EventPlan, MetricSource, Metrics, SharingDomain, Topology};
use perch_profile::Profile;

/// A profile, with its file's text if it is not one that perch ships.
#[derive(Debug, Clone)]
pub struct Profiled {
    profile: Profile,
    text: Option<String>,
}

impl Profiled {
    /// From the text of a recording.
    ///
    /// # Errors
    /// A text that is no profile.
    pub fn parse(text: &str, path: &str) -> Result<Self, Box<perch_profile::ProfileError>> {
        Ok(Self {
            profile: Profile::parse(text, path)?,
            text: Some(text.to_owned()),
        })
    }
}

impl From<Profile> for Profiled {
    fn from(profile: Profile) -> Self {
        let text = std::fs::read_to_string(&profile.path).ok();
        // A shipped profile's path may by chance name another file here.
        let text = text.filter(|text| Profile::parse(text, &profile.path).as_ref() == Ok(&profile));
        Self { profile, text }
    }
}

impl Processor for Profiled {
    fn name(&self) -> &str {
        &self.profile.name
    }

    fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    fn event_plan(&self) -> EventPlan {
        self.profile.event_plan()
    }

    fn metrics(&self, counts: &[Count], cpu_time: u64) -> (Metrics, Vec<String>) {
        // On which kind of core a thread spent its time is not known: all kinds together.
        self.profile.metrics(None, counts, cpu_time)
    }

    fn fp_domains(&self, topology: &Topology) -> Vec<SharingDomain> {
        self.profile.fp_domains(topology)
    }

    fn fp_threshold(&self, source: MetricSource) -> f64 {
        self.profile.fp_threshold(source)
    }
}
