//! Counters that lie: counts that no processor can produce in the time that the thread had.
//!
//! A virtual machine may accept an event, report it as enabled and running all the time, and answer 395 instructions
//! for a second of work. Such counts are reported and discarded.
//!
//! The limits are the profile's. The machine applies those of cycles and instructions to the time for which each set was
//! counted ([`perch_core::EventPlan`]); here the sums over kinds of core are judged, and each event's own limit.

use crate::profile::Profile;
use perch_core::{Count, CountQuality};
use std::sync::Arc;

/// An implausible count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The event's alias.
    pub alias: Arc<str>,
    /// Why, as a whole sentence for the user that names the event.
    pub why: String,
    /// Whether the counter unit itself is in doubt, and with it all other counts of that kind of core.
    pub all: bool,
}

/// The alias of the event that counts cycles; plausibility rests on it.
pub const CYCLES: &str = "cycles";

/// The alias of the event that counts instructions; plausibility rests on it.
pub const INSTRUCTIONS: &str = "instructions";

impl Profile {
    /// The counts of one thread's interval that cannot be true, given that events could be counted for `cpu_time`
    /// nanoseconds: the time on a PU, or the user part of it where the kernel is not counted.
    ///
    /// A processor with several kinds of core is judged by the sum over the kinds, since the time that a thread spent
    /// on each is not known. Counts that the machine already called implausible are not judged again.
    pub fn doubts(&self, counts: &[Count], cpu_time: u64) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if cpu_time == 0 {
            return doubts;
        }
        let seconds = cpu_time as f64 / 1e9;
        for count in counts {
            if !count.value.is_finite() || count.value < 0.0 {
                doubts.push(Doubt {
                    alias: count.alias.clone(),
                    why: format!(
                        "`{}` counted {}, which is no count",
                        count.alias, count.value
                    ),
                    all: false,
                });
            }
        }
        let cycles = self.sum(CYCLES, counts);
        let instructions = self.sum(INSTRUCTIONS, counts);
        let mut doubt = |alias: &Arc<str>, why: String| {
            doubts.push(Doubt {
                alias: alias.clone(),
                why,
                all: true,
            });
        };
        let judge_small = cpu_time >= self.limits.judge_after_ns;
        if let Some((alias, cycles)) = cycles {
            let (least, greatest) = self.limits.cycles_per_second;
            let rate = cycles / seconds;
            if rate > greatest {
                doubt(
                    alias,
                    format!(
                        "`{alias}` counted {} cycles in {} on a PU: no processor runs at {} GHz",
                        big(cycles),
                        time(cpu_time),
                        big(rate / 1e9)
                    ),
                );
            } else if rate < least && judge_small {
                doubt(
                    alias,
                    format!(
                        "`{alias}` counted {} cycles in {} on a PU: {}",
                        big(cycles),
                        time(cpu_time),
                        LIAR
                    ),
                );
            }
        }
        if let Some((alias, instructions)) = instructions {
            let rate = instructions / seconds;
            if rate < self.limits.min_instructions_per_second && judge_small {
                doubt(
                    alias,
                    format!(
                        "`{alias}` counted {} instructions in {} on a PU: {}",
                        big(instructions),
                        time(cpu_time),
                        LIAR
                    ),
                );
            } else if let Some((_, cycles)) = cycles
                && cycles > 0.0
                && instructions / cycles > self.limits.max_instructions_per_cycle
            {
                doubt(
                    alias,
                    format!(
                        "`{alias}` counted {} instructions in {} cycles: this processor retires at most {} in a cycle",
                        big(instructions),
                        big(cycles),
                        self.limits.max_instructions_per_cycle
                    ),
                );
            }
        }
        self.doubt_rates(counts, &mut doubts);
        doubts
    }

    /// Events that happened more often than they can in a cycle.
    fn doubt_rates(&self, counts: &[Count], doubts: &mut Vec<Doubt>) {
        for event in &self.events {
            let (Some(limit), Some(count)) =
                (event.max_per_cycle, best(counts, &event.choice.alias))
            else {
                continue;
            };
            let cycles = self
                .event(CYCLES, event.kind)
                .and_then(|at| best(counts, &self.events[at].choice.alias));
            if let Some(cycles) = cycles
                && cycles.value > 0.0
                && count.value / cycles.value > limit
            {
                doubts.push(Doubt {
                    alias: count.alias.clone(),
                    why: format!(
                        "`{}` counted {} in {} cycles: it cannot happen more than {limit} times in a cycle",
                        count.alias,
                        big(count.value),
                        big(cycles.value)
                    ),
                    all: false,
                });
            }
        }
    }

    /// The index of the event of that name on a kind of core.
    pub(crate) fn event(&self, name: &str, kind: Option<usize>) -> Option<usize> {
        self.events
            .iter()
            .position(|event| &*event.name == name && (event.kind.is_none() || event.kind == kind))
    }

    /// The part of its time that a thread spent on a kind of core: a count of one kind is scaled up as if it had been there
    /// all the time. 1 where cycles were counted all the time.
    pub(crate) fn part(&self, counts: &[Count], kind: Option<usize>) -> f64 {
        let share = |kind: usize| {
            let at = self.event(CYCLES, Some(kind))?;
            match best(counts, &self.events[at].choice.alias)?.quality {
                CountQuality::Scaled(share) => Some(share),
                CountQuality::Exact | CountQuality::Implausible(_) => None,
            }
        };
        let Some(own) = kind.and_then(share) else {
            return 1.0;
        };
        let all: f64 = (0..self.kinds.len()).filter_map(share).sum();
        own / all
    }

    /// The sum of a name's plausible counts over the kinds of core, with the first one's alias.
    fn sum<'a>(&'a self, name: &str, counts: &[Count]) -> Option<(&'a Arc<str>, f64)> {
        let mut sum = None;
        for event in self.events.iter().filter(|event| &*event.name == name) {
            let alias = &event.choice.alias;
            if let Some(count) = best(counts, alias) {
                let (_, total) = sum.get_or_insert((alias, 0.0));
                *total += count.value * self.part(counts, event.kind);
            }
        }
        sum
    }
}

const LIAR: &str = "the counter does not count, as in many virtual machines";

/// The most trustworthy plausible count of an alias: an event may be in several sets.
pub(crate) fn best<'a>(counts: &'a [Count], alias: &str) -> Option<&'a Count> {
    counts
        .iter()
        .filter(|count| {
            &*count.alias == alias
                && count.value.is_finite()
                && count.value >= 0.0
                && trust(&count.quality) > 0.0
        })
        .max_by(|a, b| trust(&a.quality).total_cmp(&trust(&b.quality)))
}

/// How far a count can be trusted, 0 to 1.
pub(crate) fn trust(quality: &CountQuality) -> f64 {
    match quality {
        CountQuality::Exact => 1.0,
        CountQuality::Scaled(share) if share.is_finite() => share.clamp(0.0, 1.0),
        CountQuality::Scaled(_) | CountQuality::Implausible(_) => 0.0,
    }
}

/// A number with three figures.
fn big(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1e9 {
        format!("{:.2}e9", value / 1e9)
    } else if magnitude >= 1e6 {
        format!("{:.2}e6", value / 1e6)
    } else if magnitude >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}

/// A time for people.
fn time(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms >= 1000.0 {
        format!("{:.2} s", ms / 1000.0)
    } else {
        format!("{ms:.2} ms")
    }
}
