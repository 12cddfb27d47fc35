//! Rules of the policy `fixed` that were for no thread of a run: a misspelt name is not found out otherwise.

use perch_core::{Remark, ThreadInfo};
use perch_engine::{Period, SessionSink};
use perch_policy::fixed::{Rule, WeightRule};

/// The rules that have matched no thread so far.
#[derive(Debug, Default)]
pub struct Unmatched {
    rules: Vec<Rule>,
    weights: Vec<WeightRule>,
}

impl Unmatched {
    /// All of these.
    pub fn new(rules: Vec<Rule>, weights: Vec<WeightRule>) -> Self {
        Self { rules, weights }
    }

    fn see(&mut self, thread: &ThreadInfo) {
        self.rules.retain(|rule| !rule.matches(thread));
        self.weights.retain(|rule| !rule.matches(thread));
    }

    /// A note for each rule that is left.
    pub fn remarks(&self) -> Vec<Remark> {
        let rules = self.rules.iter().map(ToString::to_string);
        let weights = self.weights.iter().map(ToString::to_string);
        let note = |rule| {
            let text = format!("no thread or program had a name for the rule {rule}");
            Remark::note("rule-without-thread", text)
        };
        rules.chain(weights).map(note).collect()
    }
}

impl SessionSink for Unmatched {
    fn period(&mut self, period: &Period) {
        if self.rules.is_empty() && self.weights.is_empty() {
            return;
        }
        for sample in &period.observation.threads {
            self.see(&sample.info);
        }
    }
}
