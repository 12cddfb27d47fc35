//! The policy that sends interrupts of devices to PUs, and does not touch threads.

mod balance;

pub use balance::{IMBALANCE, LEAST_RATE, Source, balance, imbalance, package_loads};

use perch_core::{IrqBinding, IrqLevel, IrqLoad, IrqStep, Plan, Policy, PuSet, Reason, Snapshot};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of the policy `irq`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IrqConfig {
    /// Two loads are balanced if (highest - lowest) / 2 is at least this part (0 to 0.5) of the highest (MASA,
    /// section 4.2, step 4c).
    #[schemars(range(min = 0.0, max = 0.5))]
    pub imbalance: f64,
    /// Where the highest load has fewer interrupts a second than this, nothing is moved.
    #[schemars(range(min = 0.0))]
    pub least_rate: f64,
}

impl Default for IrqConfig {
    fn default() -> Self {
        Self {
            imbalance: IMBALANCE,
            least_rate: LEAST_RATE,
        }
    }
}

impl IrqConfig {
    /// Whether the values make sense.
    ///
    /// # Errors
    /// The first that does not, and what it may be.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=0.5).contains(&self.imbalance) {
            return Err(format!("imbalance = {}: must be 0 to 0.5", self.imbalance));
        }
        if !(self.least_rate >= 0.0 && self.least_rate.is_finite()) {
            let rate = self.least_rate;
            return Err(format!("least_rate = {rate}: must be 0 or more"));
        }
        Ok(())
    }
}

/// Balances interrupts in each period. What it has sent somewhere stays there until that is out of balance.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Irq {
    config: IrqConfig,
}

impl Irq {
    /// A policy with these options, which [`IrqConfig::check`] must accept.
    pub fn new(config: IrqConfig) -> Self {
        Self { config }
    }
}

/// The interrupts of a snapshot, as [`balance`] takes them.
pub fn sources(loads: &[IrqLoad]) -> Vec<Source> {
    let source = |load: &IrqLoad| Source {
        irq: load.irq,
        rates: load.rates.clone(),
        allowed: load.allowed.clone(),
    };
    loads.iter().map(source).collect()
}

fn reason(step: &IrqStep) -> Reason {
    let between = match step.level {
        IrqLevel::Package => "packages",
        IrqLevel::Pu => "PUs of the package",
    };
    let swapped = step
        .with
        .map_or(String::new(), |with| format!(", swapped with IRQ {with}"));
    Reason::new(format!("balances {between}{swapped}"))
        .with("highest_before", step.before.0)
        .with("lowest_before", step.before.1)
        .with("highest_after", step.after.0)
        .with("lowest_after", step.after.1)
}

impl Policy for Irq {
    fn name(&self) -> &'static str {
        "irq"
    }

    fn wants_irqs(&self) -> bool {
        true
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let topology = &snapshot.topology;
        let sources = sources(&snapshot.irqs);
        let mut steps = balance(&sources, topology, &topology.online(), &self.config).into_iter();
        // Both are in the order of the interrupts.
        let mut next = steps.next();
        let mut plan = Plan::default();
        for load in &snapshot.irqs {
            let step = next.take_if(|step| step.irq == load.irq);
            if let Some(step) = step {
                next = steps.next();
                plan.irqs.push(IrqBinding {
                    irq: load.irq,
                    pus: PuSet::single(step.to),
                    reason: reason(&step),
                    step: Some(step),
                });
            } else if let Some(bound) = &load.bound
                && bound.is_subset(&load.allowed)
            {
                plan.irqs.push(IrqBinding {
                    irq: load.irq,
                    pus: bound.clone(),
                    reason: Reason::new("balanced: stays"),
                    step: None,
                });
            }
        }
        plan
    }
}
