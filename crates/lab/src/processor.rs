//! What perch knows of a simulated processor: metrics from the profile `profiles/sim.toml`, shared units from the
//! machine itself.

use perch_core::{
    Count, EventPlan, Metric, MetricName, MetricSource, Metrics, ShareLevel, Thresholds, Topology,
    UnitClass, UnitDomains,
};
use perch_engine::Processor;
use perch_profile::Profile;
use perch_sim::model::{MachineModel, Op};

const PROFILE: &str = include_str!("../profiles/sim.toml");

/// The processor of a simulated machine.
#[derive(Debug, Clone)]
pub struct SimProcessor {
    profile: Profile,
    level: ShareLevel,
    /// Metrics that are wanted besides those that cost nothing.
    wanted: Vec<String>,
}

impl SimProcessor {
    /// That of this machine. Floating-point units are shared by the contexts of a core, unless each has its own.
    ///
    /// # Panics
    /// Never with the profile of this source tree: a test reads it.
    pub fn new(machine: &MachineModel) -> Self {
        let profile = Profile::parse(PROFILE, "crates/lab/profiles/sim.toml")
            .unwrap_or_else(|error| panic!("the profile of simulated machines is broken: {error}"));
        let pools = machine.kinds.iter().flat_map(|kind| &kind.units);
        let mut pools = pools.filter(|pool| pool.ops.contains(&Op::Fp));
        let level = match pools.all(|pool| pool.private) {
            true => ShareLevel::Pu,
            false => ShareLevel::Core,
        };
        Self {
            profile,
            level,
            wanted: Vec::new(),
        }
    }

    /// The profile of simulated processors.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The same with these metrics besides, if they are counted on demand only, such as `llc_occupancy`.
    #[must_use]
    pub fn with_metrics<S: AsRef<str>>(mut self, wanted: &[S]) -> Self {
        let wanted = wanted.iter().map(|name| name.as_ref().to_owned());
        self.wanted.extend(wanted);
        self
    }
}

impl Processor for SimProcessor {
    fn name(&self) -> &str {
        &self.profile.name
    }

    fn text(&self) -> &str {
        &self.profile.text
    }

    fn event_plan(&self) -> EventPlan {
        self.event_plan_with(&[])
    }

    fn event_plan_with(&self, needs: &[&str]) -> EventPlan {
        let wanted = self.wanted.iter().map(String::as_str);
        let wanted: Vec<&str> = wanted.chain(needs.iter().copied()).collect();
        self.profile.event_plan_with(&wanted)
    }

    fn metrics(&self, counts: &[Count], cpu_time: u64) -> (Metrics, Vec<String>) {
        let (metrics, remarks) = Processor::metrics(&self.profile, counts, cpu_time);
        let simulated = |(name, metric): (&MetricName, &Metric)| {
            let source = MetricSource::Simulation;
            (MetricName::clone(name), Metric { source, ..*metric })
        };
        (metrics.iter().map(simulated).collect(), remarks)
    }

    fn unit_domains(&self, topology: &Topology) -> UnitDomains {
        let fp = topology.domains(self.level);
        [(UnitClass::Fp, fp)].into_iter().collect()
    }

    fn thresholds(&self, source: MetricSource) -> Thresholds {
        self.profile.thresholds(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{CountQuality, metric::names};
    use perch_sim::{config, events};

    #[test]
    fn every_event_of_the_profile_is_counted_by_simulated_machines() {
        let machine = config::find_machine("cmt-4x4").unwrap();
        let processor = SimProcessor::new(&machine);
        let plan = processor.event_plan();
        let events: Vec<_> = plan.sets.iter().flat_map(|set| &set.events).collect();
        assert!(!events.is_empty());
        for event in events {
            assert!(
                events::find(&event.spellings[0], &machine).is_some(),
                "{event:?}"
            );
        }
    }

    #[test]
    fn metrics_are_those_of_the_counts_and_say_that_they_are_simulated() {
        let processor = SimProcessor::new(&config::find_machine("cmt-4x4").unwrap());
        let count = |alias: &str, value: f64| Count {
            alias: alias.into(),
            value,
            quality: CountQuality::Exact,
        };
        let counts = [
            count("cycles", 6000.0),
            count("instructions", 1000.0),
            count("fp_instructions", 250.0),
        ];
        // A machine of 1 GHz at a scale of 1,000.
        let (metrics, remarks) = processor.metrics(&counts, 6_000_000);
        assert_eq!(remarks, Vec::<String>::new());
        assert_eq!(metrics.value(names::IPC), Some(1.0 / 6.0));
        assert_eq!(metrics.value(names::FP_SHARE), Some(0.25));
        assert!(
            metrics
                .iter()
                .all(|(_, metric)| metric.source == MetricSource::Simulation)
        );
    }

    #[test]
    fn floating_point_units_are_shared_as_the_machine_says() {
        let machine = config::find_machine("cmt-4x4").unwrap();
        let topology = perch_sim::topology::topology(&machine);
        let domains = SimProcessor::new(&machine).unit_domains(&topology);
        assert_eq!(domains.of(UnitClass::Fp).len(), 4);
        let mut private = machine.clone();
        private.kinds[0]
            .units
            .iter_mut()
            .for_each(|pool| pool.private = true);
        let domains = SimProcessor::new(&private).unit_domains(&topology);
        assert_eq!(domains.of(UnitClass::Fp).len(), 16);
    }
}
