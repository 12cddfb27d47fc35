//! Manual binding: each thread where the user says.
//!
//! What MASA calls manual binding of processes (Nakajima and Pallipadi 2002, section 3.2), and WorkOver's intentionally
//! bad baseline (WorkOver, section 5.4): all floating-point threads on the same cores.

mod likwid;
mod location;
mod pattern;
mod rule;
mod value;

pub use location::{Location, LocationError};
pub use rule::{Rule, RuleError, parse_rules};
pub use value::{Given, ValueRule, WaysRule, WeightRule};

use crate::{PolicyError, history::PerThread};
use perch_core::{
    Action, ActionKind, Binding, Plan, Policy, PuSet, Reason, Remark, Snapshot, ThreadInfo,
    ThreadState,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of the policy `fixed`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FixedConfig {
    /// Rules `PATTERN=PUS`, the first that matches a thread's name, its process's, or `PROCESS/THREAD` wins. `*` stands
    /// for anything, `?` for one character. PUS are numbers of the operating system (`0-3,8`), or logical indexes in hwloc's way
    /// (`core:1`, `core:0-3.pu:1`, `package:0`, `numa:1`, `pu:3`) or in likwid's (`S0:0-3`); after `each:` every matching
    /// thread gets a PU of its own.
    pub pin: Vec<String>,
    /// Rules `PATTERN=WEIGHT`, the first that matches a thread's or its process's name wins. WEIGHT is 1 to 10000, where
    /// 100 is the usual one: of two threads that want one PU, each gets time in proportion to its weight.
    pub weight: Vec<String>,
    /// Rules `PATTERN=WAYS`: threads whose names, or whose processes', match may fill only these ways of their caches of a
    /// level, though they hit in all. WAYS is the level, 2 or 3, and a hexadecimal mask of neighbouring ways, such as `L3:0x3`.
    /// For each level the first rule that matches wins.
    pub ways: Vec<String>,
}

/// The policy `fixed`: the user's own rules for PUs, weights and ways of caches.
#[derive(Debug)]
pub struct Fixed {
    rules: Vec<Rule>,
    weights: Vec<WeightRule>,
    ways: Vec<WaysRule>,
    /// Which rule each thread matched, by what names, and which of the rule's PUs it got.
    memory: PerThread<Option<Match>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Match {
    name: String,
    process: String,
    rule: Option<usize>,
    weight: Option<usize>,
    /// For each level at most one.
    ways: Vec<usize>,
    turn: Option<u32>,
}

impl Fixed {
    /// A policy with these rules.
    ///
    /// # Errors
    /// No rule at all, or rules that cannot be read: all of them, each with a caret under the place.
    pub fn new(config: &FixedConfig) -> Result<Self, PolicyError> {
        let rules: Vec<_> = config.pin.iter().map(|rule| rule.parse::<Rule>()).collect();
        let weights = config.weight.iter();
        let weights: Vec<_> = weights.map(|rule| rule.parse::<WeightRule>()).collect();
        let wrong = rules.iter().filter_map(|rule| rule.as_ref().err());
        let wrong = wrong.chain(weights.iter().filter_map(|rule| rule.as_ref().err()));
        let ways: Vec<_> = config
            .ways
            .iter()
            .map(|rule| rule.parse::<WaysRule>())
            .collect();
        let wrong = wrong.chain(ways.iter().filter_map(|rule| rule.as_ref().err()));
        let errors: Vec<String> = wrong.map(ToString::to_string).collect();
        if !errors.is_empty() {
            return Err(PolicyError::Rules(errors.join("\n")));
        }
        if rules.is_empty() && weights.is_empty() && ways.is_empty() {
            return Err(PolicyError::Rules(
                "policy fixed needs at least one rule: --pin 'PATTERN=PUS', such as --pin 'worker*=0-3', --weight \
                 'PATTERN=WEIGHT', or --ways 'PATTERN=WAYS'"
                    .to_owned(),
            ));
        }
        let weights = weights.into_iter().flatten().collect();
        let fixed = Self::from_rules(rules.into_iter().flatten().collect());
        Ok(fixed
            .with_weights(weights)
            .with_ways(ways.into_iter().flatten().collect()))
    }

    /// A policy with rules that were read already, such as those of a file ([`parse_rules`]).
    pub fn from_rules(rules: Vec<Rule>) -> Self {
        Self {
            rules,
            weights: Vec::new(),
            ways: Vec::new(),
            memory: PerThread::default(),
        }
    }

    /// The same policy with rules of CPU weights.
    #[must_use]
    pub fn with_weights(mut self, weights: Vec<WeightRule>) -> Self {
        self.weights = weights;
        self
    }

    /// The same policy with rules of ways of caches.
    #[must_use]
    pub fn with_ways(mut self, ways: Vec<WaysRule>) -> Self {
        self.ways = ways;
        self
    }

    /// Which rules of ways are for a thread: of each level the first one.
    fn ways_of(&self, info: &ThreadInfo) -> Vec<usize> {
        let level = |rule: usize| self.ways[rule].value.level();
        let mut found: Vec<usize> = Vec::new();
        for rule in 0..self.ways.len() {
            let taken = found.iter().any(|other| level(*other) == level(rule));
            if !taken && self.ways[rule].matches(info) {
                found.push(rule);
            }
        }
        found
    }

    /// Matches threads that are new or have changed their name.
    fn match_threads(&mut self, snapshot: &Snapshot) {
        self.memory.follow(&snapshot.threads);
        for (at, thread) in snapshot.threads.iter().enumerate() {
            let info = &thread.info;
            let same = |m: &Match| *m.name == *info.name && *m.process == *info.process;
            if !self.memory[at].as_ref().is_some_and(same) {
                self.memory[at] = Some(Match {
                    name: info.name.to_string(),
                    process: info.process.to_string(),
                    rule: self.rules.iter().position(|rule| rule.matches(info)),
                    weight: self.weights.iter().position(|rule| rule.matches(info)),
                    ways: self.ways_of(info),
                    turn: None,
                });
            }
        }
    }

    fn rule_of(&self, at: usize) -> Option<usize> {
        self.memory[at].as_ref().and_then(|m| m.rule)
    }

    /// Gives each thread of an `each:` rule a PU: the one that it has, else the one of those it may use that fewest
    /// have, the first of equals. A PU that is listed twice takes twice as many.
    fn take_turns(&mut self, rule: usize, pus: &[u32], threads: &[ThreadState]) {
        let mut load = vec![0usize; pus.len()];
        let of_rule: Vec<usize> = (0..threads.len())
            .filter(|at| self.rule_of(*at) == Some(rule) && threads[*at].unmanaged.is_none())
            .collect();
        let mut waiting = Vec::new();
        for at in of_rule {
            let held = self.memory[at].as_ref().and_then(|m| m.turn);
            let held = held.filter(|pu| threads[at].allowed.contains(*pu));
            let of_pu = |pu| (0..pus.len()).filter(move |slot| pus[*slot] == pu);
            match held.and_then(|pu| of_pu(pu).min_by_key(|slot| (load[*slot], *slot))) {
                Some(slot) => load[slot] += 1,
                None => waiting.push(at),
            }
        }
        for at in waiting {
            let allowed = (0..pus.len()).filter(|slot| threads[at].allowed.contains(pus[*slot]));
            let slot = allowed.min_by_key(|slot| (load[*slot], *slot));
            if let Some(slot) = slot {
                load[slot] += 1;
            }
            if let Some(memory) = &mut self.memory[at] {
                memory.turn = slot.map(|slot| pus[slot]);
            }
        }
    }
}

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn wants_weights(&self) -> bool {
        !self.weights.is_empty()
    }

    fn decides_at_once(&self) -> bool {
        true
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        self.match_threads(snapshot);
        let usable = snapshot.topology.usable();
        let mut remarks = Vec::new();
        let mut sets = Vec::with_capacity(self.rules.len());
        for rule in 0..self.rules.len() {
            let resolved = self.rules[rule].pus.resolve_in_order(&snapshot.topology);
            let mut ordered = resolved.unwrap_or_else(|error| {
                remarks.push(Remark::warning(
                    "rule-without-pus",
                    format!("rule {}: {error}; it binds nothing", self.rules[rule]),
                ));
                Vec::new()
            });
            let pus: PuSet = ordered.iter().copied().collect();
            let usable = pus.and(&usable);
            if usable.is_empty() && !pus.is_empty() {
                remarks.push(Remark::warning(
                    "rule-without-pus",
                    format!(
                        "rule {}: none of PUs {pus} is usable; it binds nothing",
                        self.rules[rule]
                    ),
                ));
            }
            if self.rules[rule].each {
                ordered.retain(|pu| usable.contains(*pu));
                self.take_turns(rule, &ordered, &snapshot.threads);
            }
            sets.push(usable);
        }
        let mut plan = Plan::default();
        for (at, thread) in snapshot.threads.iter().enumerate() {
            let release = |why: String| (thread.info.id, Reason::new(why));
            let Some(rule) = self.rule_of(at) else {
                if thread.bound.is_some() {
                    plan.released
                        .push(release("no rule matches its name".to_owned()));
                }
                continue;
            };
            if thread.unmanaged.is_some() {
                continue;
            }
            let text = &self.rules[rule];
            let pus = if text.each {
                let turn = self.memory[at].as_ref().and_then(|m| m.turn);
                turn.map(PuSet::single).unwrap_or_default()
            } else {
                sets[rule].and(&thread.allowed)
            };
            if !pus.is_empty() {
                let reason = Reason::new(format!("rule {text}"));
                plan.bindings.push(Binding {
                    thread: thread.info.id,
                    pus,
                    reason,
                });
            } else if thread.bound.is_some() {
                plan.released.push(release(format!(
                    "rule {text}: it may run on none of these PUs"
                )));
            }
        }
        for (at, thread) in snapshot.threads.iter().enumerate() {
            let Some(found) = self.memory[at].as_ref() else {
                continue;
            };
            let mut action = |what, rule: &dyn std::fmt::Display| {
                plan.actions.push(Action {
                    thread: thread.info.id,
                    what,
                    reason: Reason::new(format!("rule {rule}")),
                });
            };
            if let Some(rule) = found.weight.map(|rule| &self.weights[rule]) {
                action(ActionKind::CpuWeight(rule.value), rule);
            }
            for rule in found.ways.iter().map(|rule| &self.ways[*rule]) {
                action(ActionKind::CacheWays(rule.value), rule);
            }
        }
        plan.remarks = remarks;
        plan
    }
}
