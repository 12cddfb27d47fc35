//! Changes settings of the machine as a session of perch's does, until a signal ends it: the clock of one cpufreq policy
//! to its lowest step, work queues and new interrupts to PU 0. Prints each change as a line of JSON.

use anyhow::{Context, Result, bail};
use perch_core::{
    Count, EventPlan, MetricSource, Metrics, Plan, Policy, PuSet, Reason, Setting, SettingBinding,
    SettingChoices, SettingState, SettingValue, Snapshot, Thresholds, Topology, UnitDomains,
};
use perch_engine::{Acting, Options, Period, Processor, Session, SessionSink, StateDir};
use perch_linux::{LinuxMachine, machine::CountersMode};
use std::time::Duration;

/// Gives settings their values as long as no other process has changed them.
struct Slow {
    /// The number of the cpufreq policy.
    policy: u32,
}

impl Policy for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn wants_settings(&self) -> bool {
        true
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let free = snapshot.settings.iter().filter(|state| !state.foreign);
        let settings = free.filter_map(|state| {
            Some(SettingBinding {
                setting: state.setting.clone(),
                value: self.value(state)?,
                reason: Reason::new("a test"),
            })
        });
        Plan {
            settings: settings.collect(),
            ..Plan::default()
        }
    }
}

impl Slow {
    fn value(&self, state: &SettingState) -> Option<SettingValue> {
        match (&state.setting, &state.choices) {
            (Setting::MaxFrequency(policy), SettingChoices::Numbers(steps)) => {
                let own = *policy == self.policy;
                own.then(|| SettingValue::Number(steps[0]))
            }
            (Setting::WorkQueues | Setting::WorkQueue(_) | Setting::NewIrqs, _) => {
                Some(SettingValue::Pus(PuSet::single(0)))
            }
            _ => None,
        }
    }
}

/// A processor of which nothing is known.
struct Unknown;

impl Processor for Unknown {
    fn name(&self) -> &str {
        "unknown"
    }

    fn text(&self) -> &str {
        ""
    }

    fn event_plan(&self) -> EventPlan {
        EventPlan::default()
    }

    fn metrics(&self, _: &[Count], _: u64) -> (Metrics, Vec<String>) {
        Default::default()
    }

    fn unit_domains(&self, _: &Topology) -> UnitDomains {
        UnitDomains::default()
    }

    fn thresholds(&self, _: MetricSource) -> Thresholds {
        Thresholds::default()
    }
}

struct Print;

impl SessionSink for Print {
    fn period(&mut self, period: &Period) {
        for made in &period.setting_moves {
            let setting = made.setting.to_string();
            let (to, outcome) = (&made.to, made.outcome);
            println!(
                "{}",
                serde_json::json!({"setting": setting, "to": to, "outcome": outcome})
            );
        }
        for remark in &period.remarks {
            println!("{}", serde_json::json!({"remark": remark.text}));
        }
    }
}

fn main() -> Result<()> {
    let policy = std::env::args()
        .nth(1)
        .context("usage: guest-settings POLICY")?;
    let policy = policy.parse().context("the number of a cpufreq policy")?;
    let mut machine = LinuxMachine::builder()
        .counters(CountersMode::Nothing)
        .leave_orphans(true)
        .build()?;
    machine.stay(None);
    let acting = Acting::Live(StateDir::standard()?);
    let options = Options::new(Box::new(Slow { policy }), Box::new(Unknown), acting);
    let end = Session::new(machine, options)?.run(&mut Print)?;
    println!("{}", serde_json::json!({"restored": end.restored}));
    if end.restored.has_failed() {
        bail!("not everything could be restored");
    }
    Ok(())
}
