//! From a profile to what is counted, and from what was counted to metrics.

use crate::{
    plausible::{CYCLES, INSTRUCTIONS, best, trust},
    profile::{Input, MetricPlan, MetricRule, Profile},
    validate::MOST_INPUTS,
};
use perch_core::{Count, CountQuality, EventPlan, EventSet, Metric, MetricSource, Metrics};

/// How far beyond its range a value may lie before it is discarded, as a share of the range's width up to 1: counts
/// that were taken in turns and scaled up can give a share slightly above 1 or below 0.
const SLACK: f64 = 0.05;

impl Profile {
    /// What to count for the metrics that perch always wants: all sets but those that are counted on demand. Each
    /// event is in one set only, the first that names it.
    pub fn event_plan(&self) -> EventPlan {
        self.plan(|_| true, false)
    }

    /// What to count for a policy that needs these metrics: what perch always wants, and of the sets on demand the
    /// events that they take. Sets are multiplexed, so what a formula of a set on demand needs of other sets is counted
    /// beside it once more. Metrics that the profile does not know are passed over: modules may provide them.
    pub fn event_plan_with(&self, needs: &[&str]) -> EventPlan {
        let mut on_demand = vec![Vec::new(); self.sets.len()];
        let rules = self.metrics.iter();
        let rules = rules.filter(|metric| needs.contains(&&*metric.name));
        for plan in rules.flat_map(|metric| &metric.plans) {
            let inputs = plan.inputs.iter().filter_map(|input| match input {
                Input::Event(at) => Some(*at),
                Input::Constant(_) | Input::CpuSeconds => None,
            });
            let inputs: Vec<usize> = inputs.collect();
            let only_there = |at: &usize| self.set_of(*at).filter(|set| self.sets[*set].on_demand);
            if let Some(set) = inputs.iter().find_map(only_there) {
                on_demand[set].extend(inputs);
            }
        }
        let mut plan = self.event_plan();
        for (set, mut events) in self.sets.iter().zip(on_demand) {
            // As in the file, so that what leads there leads here.
            let order = |at: &usize| set.events.iter().position(|event| event == at);
            events.sort_by_key(|at| (order(at).unwrap_or(usize::MAX), *at));
            events.dedup();
            if !events.is_empty() {
                let events = events.iter().map(|at| self.events[*at].choice.clone());
                plan.sets
                    .push(EventSet::new(set.name.clone(), events.collect()));
            }
        }
        plan
    }

    /// The set that an event is counted in: one that is always counted, if there is one.
    fn set_of(&self, event: usize) -> Option<usize> {
        let holds = |set: &&usize| self.sets[**set].events.contains(&event);
        let all: Vec<usize> = (0..self.sets.len()).collect();
        let always = |set: &&usize| holds(set) && !self.sets[**set].on_demand;
        let found = all.iter().find(always).or_else(|| all.iter().find(holds));
        found.copied()
    }

    /// What to count for these metrics, and no more: cycles and instructions, on which plausibility rests, and what
    /// their formulas name. Metrics that the profile does not know are passed over: modules may provide them.
    pub fn event_plan_for(&self, wanted: &[&str]) -> EventPlan {
        let mut needed = vec![false; self.events.len()];
        for (at, event) in self.events.iter().enumerate() {
            needed[at] = matches!(&*event.name, CYCLES | INSTRUCTIONS);
        }
        let rules = self
            .metrics
            .iter()
            .filter(|metric| wanted.contains(&&*metric.name));
        for input in rules
            .flat_map(|metric| &metric.plans)
            .flat_map(|plan| &plan.inputs)
        {
            if let Input::Event(at) = input {
                needed[*at] = true;
            }
        }
        self.plan(|at| needed[at], true)
    }

    fn plan(&self, needed: impl Fn(usize) -> bool, on_demand: bool) -> EventPlan {
        let mut planned = vec![false; self.events.len()];
        let mut sets = Vec::new();
        for set in &self.sets {
            if set.on_demand && !on_demand {
                continue;
            }
            let mut events = Vec::new();
            for &at in &set.events {
                if needed(at) && !planned[at] {
                    planned[at] = true;
                    events.push(self.events[at].choice.clone());
                }
            }
            if !events.is_empty() {
                sets.push(EventSet::new(set.name.clone(), events));
            }
        }
        EventPlan {
            sets,
            limits: Some(self.limits),
        }
    }

    /// One thread's metrics from its counts over `cpu_time` nanoseconds on PUs (the user part where the kernel is not
    /// counted), and why others are missing.
    ///
    /// `kind` is the PMU of the kind of core that the counts are from; `None` takes all kinds together: totals are
    /// added up, ratios averaged by cycles. A metric's confidence is that of its worst count. A metric whose events
    /// were not counted at all is left out without a word ([`Profile::lacking`] tells, once for a machine).
    pub fn metrics(
        &self,
        kind: Option<&str>,
        counts: &[Count],
        cpu_time: u64,
    ) -> (Metrics, Vec<String>) {
        let mut metrics = Metrics::default();
        let mut problems = Vec::new();
        if counts.is_empty() || cpu_time == 0 {
            return (metrics, problems);
        }
        let doubts = self.doubts(counts, cpu_time);
        let mut believed = vec![None; self.events.len()];
        if !doubts.iter().any(|doubt| doubt.all) {
            for (slot, event) in believed.iter_mut().zip(&self.events) {
                if !doubts.iter().any(|doubt| doubt.alias == event.choice.alias) {
                    *slot = best(counts, &event.choice.alias);
                }
            }
        }
        problems.extend(doubts.into_iter().map(|doubt| doubt.why));
        for count in counts {
            if let CountQuality::Implausible(why) = &count.quality {
                problems.push(format!("`{}` is ignored: {why}", count.alias));
            }
        }
        let evaluation = Evaluation {
            parts: (0..self.kinds.len())
                .map(|kind| self.part(counts, Some(kind)))
                .collect(),
            profile: self,
            believed,
            seconds: cpu_time as f64 / 1e9,
            kind: kind.and_then(|pmu| self.kinds.iter().position(|kind| &*kind.pmu == pmu)),
        };
        for rule in &self.metrics {
            if let Some(metric) = evaluation.metric(rule, &mut problems) {
                metrics.set(rule.name.clone(), metric);
            }
        }
        (metrics, problems)
    }
}

/// One thread's counts on their way to metrics.
struct Evaluation<'a> {
    profile: &'a Profile,
    /// For each of the profile's events the plausible count.
    believed: Vec<Option<&'a Count>>,
    /// For each kind of core the part of the time that the thread spent there ([`Profile::part`]).
    parts: Vec<f64>,
    seconds: f64,
    /// The kind of core asked for.
    kind: Option<usize>,
}

impl Evaluation<'_> {
    fn metric(&self, rule: &MetricRule, problems: &mut Vec<String>) -> Option<Metric> {
        let mut sum = 0.0;
        let mut weights = 0.0;
        let mut confidence = 0.0;
        for plan in &rule.plans {
            if self.kind.is_some() && plan.kind.is_some() && plan.kind != self.kind {
                continue;
            }
            let Some((mut value, trust)) = self.value(rule, plan, problems) else {
                continue;
            };
            let weight = if rule.total {
                // What was counted there, rather than what it would have been in all of the time.
                value *= self.part(plan.kind);
                1.0
            } else {
                self.weight(plan)
            };
            sum += value * weight;
            confidence += trust * weight;
            weights += weight;
        }
        if weights <= 0.0 {
            return None;
        }
        let value = if rule.total { sum } else { sum / weights };
        let confidence = confidence / weights * self.coverage(rule);
        // Counts that no counter can have reached, but a caller may.
        if !(value.is_finite() && confidence.is_finite()) {
            problems.push(format!("no {}: its counts are too large", rule.name));
            return None;
        }
        Some(Metric {
            value,
            confidence,
            source: MetricSource::Counters,
        })
    }

    /// The formula's value with how far it can be trusted; `None` where a count is missing or the value impossible.
    fn value(
        &self,
        rule: &MetricRule,
        plan: &MetricPlan,
        problems: &mut Vec<String>,
    ) -> Option<(f64, f64)> {
        let mut values = [0.0; MOST_INPUTS];
        let mut confidence = 1.0_f64;
        let values = values.get_mut(..plan.inputs.len())?;
        for (slot, input) in values.iter_mut().zip(&plan.inputs) {
            *slot = match *input {
                Input::Constant(value) => value,
                Input::CpuSeconds => self.seconds,
                Input::Event(at) => {
                    let count = self.believed[at]?;
                    confidence = confidence.min(trust(&count.quality));
                    count.value
                }
            };
        }
        // A kind of core on which the thread did not run in the window.
        if plan.kind.is_some() && self.cycles(plan.kind) == Some(0.0) {
            return None;
        }
        let value = match rule.formula.evaluate(values) {
            Ok(value) => value,
            Err(reason) => {
                problems.push(format!("no {}: {reason}", rule.name));
                return None;
            }
        };
        let Some((least, greatest)) = rule.range else {
            return Some((value, confidence));
        };
        let slack = (greatest - least).min(1.0) * SLACK;
        if value < least - slack || value > greatest + slack {
            problems.push(format!(
                "no {}: `{}` gives {value:.4}, but it lies between {least} and {greatest}",
                rule.name, rule.formula
            ));
            return None;
        }
        Some((value.clamp(least, greatest), confidence))
    }

    fn cycles(&self, kind: Option<usize>) -> Option<f64> {
        let at = self.profile.event(CYCLES, kind)?;
        Some(self.believed[at]?.value * self.part(kind))
    }

    fn part(&self, kind: Option<usize>) -> f64 {
        kind.map_or(1.0, |kind| self.parts[kind])
    }

    /// How much a kind of core weighs in an average: its cycles, or 1 where they are not counted.
    fn weight(&self, plan: &MetricPlan) -> f64 {
        self.cycles(plan.kind).filter(|c| *c > 0.0).unwrap_or(1.0)
    }

    /// The share of the thread's cycles that were on kinds of core where the metric can be had.
    fn coverage(&self, rule: &MetricRule) -> f64 {
        if self.kind.is_some() || self.profile.kinds.is_empty() {
            return 1.0;
        }
        let all: f64 = (0..self.profile.kinds.len())
            .filter_map(|kind| self.cycles(Some(kind)))
            .sum();
        let covered: f64 = (0..self.profile.kinds.len())
            .filter(|kind| {
                rule.plans
                    .iter()
                    .any(|plan| plan.kind.is_none() || plan.kind == Some(*kind))
            })
            .filter_map(|kind| self.cycles(Some(kind)))
            .sum();
        if all > 0.0 { covered / all } else { 1.0 }
    }
}
