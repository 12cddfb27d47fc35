//! Rules of the policy `fixed`: where they come from, and which of them were for no thread of a run. A misspelt name is not
//! found out otherwise.

use crate::config::Settings;
use anyhow::{Context, Result};
use perch_core::{Policy, Remark, ThreadInfo, Topology};
use perch_engine::{Period, SessionSink};
use perch_policy::{
    Fixed,
    fixed::{Rule, RuleError, WaysRule, WeightRule, parse_rules},
};
use std::path::Path;

/// What `--pin-file`, `--pin`, `--weight` and `--ways` say.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// PUs of threads: those of the file first.
    pub pus: Vec<Rule>,
    /// Weights of threads.
    pub weights: Vec<WeightRule>,
    /// Ways of caches that threads may fill.
    pub ways: Vec<WaysRule>,
}

impl Rules {
    /// Reads them; `rules` are those of `--pin`, `--weight` and `--ways`.
    ///
    /// # Errors
    /// A file that cannot be read, what is no rule.
    pub fn read(file: Option<&Path>, rules: [&[String]; 3]) -> Result<Self> {
        let [pins, weights, ways] = rules;
        let mut pus = Vec::new();
        if let Some(path) = file {
            let text = perch_files::read_to_string(path)
                .with_context(|| format!("--pin-file {}: cannot be read", path.display()))?;
            pus.extend(parse_rules(&text, path).map_err(|errors| {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                anyhow::anyhow!(errors.join("\n"))
            })?);
        }
        for pin in pins {
            pus.push(pin.parse()?);
        }
        let weights = weights.iter().map(|rule| rule.parse());
        Ok(Self {
            pus,
            weights: weights.collect::<Result<_, RuleError>>()?,
            ways: ways
                .iter()
                .map(|rule| rule.parse())
                .collect::<Result<_, RuleError>>()?,
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pus.is_empty() && self.weights.is_empty() && self.ways.is_empty()
    }

    /// Those of these settings; none for another policy than `fixed`.
    ///
    /// # Errors
    /// A file that cannot be read, what is no rule.
    pub fn of(settings: &Settings) -> Result<Self> {
        match &*settings.policy {
            "fixed" => Self::read(
                settings.pin_file.as_deref(),
                [&settings.pin, &settings.weight, &settings.ways],
            ),
            _ => Ok(Self::default()),
        }
    }

    /// The policy with its settings and these rules, which are checked against the machine now, not during a run.
    ///
    /// # Errors
    /// No such policy or setting, a rule that names what the machine has not.
    pub fn policy(self, settings: &Settings, topology: &Topology) -> Result<Box<dyn Policy>> {
        if self.is_empty() {
            return settings.build();
        }
        for rule in &self.pus {
            rule.pus
                .resolve(topology)
                .map_err(|error| anyhow::anyhow!("{error} (see `perch topology`)"))?;
        }
        Ok(Box::new(
            Fixed::from_rules(self.pus)
                .with_weights(self.weights)
                .with_ways(self.ways),
        ))
    }
}

/// The policy with its settings.
///
/// # Errors
/// As [`Rules::of`] and [`Rules::policy`].
pub fn policy(settings: &Settings, topology: &Topology) -> Result<Box<dyn Policy>> {
    Rules::of(settings)?.policy(settings, topology)
}

/// The rules that have matched no thread so far.
#[derive(Debug)]
pub struct Unmatched(Rules);

impl Unmatched {
    /// All of these.
    pub fn new(rules: Rules) -> Self {
        Self(rules)
    }

    fn see(&mut self, thread: &ThreadInfo) {
        self.0.pus.retain(|rule| !rule.matches(thread));
        self.0.weights.retain(|rule| !rule.matches(thread));
        self.0.ways.retain(|rule| !rule.matches(thread));
    }

    /// A note for each rule that is left.
    pub fn remarks(&self) -> Vec<Remark> {
        let rules = self.0.pus.iter().map(ToString::to_string);
        let weights = self.0.weights.iter().map(ToString::to_string);
        let note = |rule| {
            let text = format!("no thread or program had a name for the rule {rule}");
            Remark::note("rule-without-thread", text)
        };
        let ways = self.0.ways.iter().map(ToString::to_string);
        rules.chain(weights).chain(ways).map(note).collect()
    }
}

impl SessionSink for Unmatched {
    fn period(&mut self, period: &Period) {
        if self.0.is_empty() {
            return;
        }
        for sample in &period.observation.threads {
            self.see(&sample.info);
        }
    }
}
