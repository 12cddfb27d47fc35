//! A profile as the processor that the loop knows.

use crate::characterise::Processor;
use perch_core::{Count, EventPlan, MetricSource, Metrics, Thresholds, Topology, UnitDomains};
use perch_profile::Profile;

impl Processor for Profile {
    fn name(&self) -> &str {
        &self.name
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn event_plan(&self) -> EventPlan {
        self.event_plan()
    }

    fn event_plan_with(&self, needs: &[&str]) -> EventPlan {
        self.event_plan_with(needs)
    }

    fn metrics(&self, counts: &[Count], cpu_time: u64) -> (Metrics, Vec<String>) {
        // On which kind of core a thread spent its time is not known: all kinds together.
        self.metrics(None, counts, cpu_time)
    }

    fn unit_domains(&self, topology: &Topology) -> UnitDomains {
        self.unit_domains(topology)
    }

    fn thresholds(&self, source: MetricSource) -> Thresholds {
        self.thresholds(source)
    }
}
