//! The parts of a session that tests put in: a processor, a policy and an observer.

use perch_core::{
    Count, CountQuality, EventPlan, EventSet, Metric, MetricSource, Metrics, Plan, Policy,
    ShareLevel, Snapshot, Thresholds, Topology, UnitClass, UnitDomains, metric::names,
};
use perch_engine::{ActionTaken, IrqMove, Move, Period, Processor, SessionSink, SettingMove};

/// A processor whose cores' PUs share floating-point units.
pub struct TestProcessor;

impl Processor for TestProcessor {
    fn name(&self) -> &str {
        "test"
    }

    fn text(&self) -> &str {
        "a text"
    }

    fn event_plan(&self) -> EventPlan {
        EventPlan::default()
    }

    fn event_plan_with(&self, needs: &[&str]) -> EventPlan {
        let set = |name: &&str| EventSet::new(*name, Vec::new());
        EventPlan {
            limits: None,
            sets: needs.iter().map(set).collect(),
        }
    }

    fn metrics(&self, counts: &[Count], _: u64) -> (Metrics, Vec<String>) {
        let source = MetricSource::Counters;
        let metrics = counts.iter().map(|count| {
            (
                count.alias.clone(),
                Metric {
                    value: count.value,
                    confidence: 1.0,
                    source,
                },
            )
        });
        let wrong = counts.iter().filter_map(|count| match &count.quality {
            CountQuality::Implausible(why) => Some(why.clone()),
            _ => None,
        });
        (metrics.collect(), wrong.collect())
    }

    fn unit_domains(&self, topology: &Topology) -> UnitDomains {
        let cores = topology.domains(ShareLevel::Core);
        [(UnitClass::Fp, cores)].into_iter().collect()
    }

    fn thresholds(&self, source: MetricSource) -> Thresholds {
        let fp = match source {
            MetricSource::Sampling => 0.05,
            _ => 0.5,
        };
        [(names::FP_SHARE.into(), fp)].into_iter().collect()
    }
}

/// A policy that is a function.
pub struct Decide<F>(pub F);

impl<F: FnMut(&Snapshot) -> Plan + Send> Policy for Decide<F> {
    fn name(&self) -> &'static str {
        "test"
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        (self.0)(snapshot)
    }
}

/// Keeps all that it observes.
#[derive(Default)]
pub struct Heard {
    pub snapshots: Vec<Snapshot>,
    pub plans: Vec<Option<Plan>>,
    pub moves: Vec<Vec<Move>>,
    pub irq_moves: Vec<Vec<IrqMove>>,
    pub setting_moves: Vec<Vec<SettingMove>>,
    pub actions: Vec<Vec<ActionTaken>>,
    pub remarks: Vec<String>,
}

impl SessionSink for Heard {
    fn period(&mut self, period: &Period) {
        self.snapshots.push(Snapshot::clone(&period.snapshot));
        self.plans.push(period.plan().cloned());
        self.moves.push(period.moves.clone());
        self.irq_moves.push(period.irq_moves.clone());
        self.setting_moves.push(period.setting_moves.clone());
        self.actions.push(period.actions.clone());
        let texts = period.remarks.iter().map(|remark| remark.text.clone());
        self.remarks.extend(texts);
    }
}
