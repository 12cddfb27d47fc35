//! Counters that lie: counts that no processor can have made, and known work that was not counted.
//!
//! A virtual machine has been seen to answer 395 instructions for a second of work, with the time enabled equal to
//! the time running, so that nothing in the answer itself gave it away.

use perch_core::{Count, CountQuality, Limits, metric::names};

/// For how many nanoseconds a thread ran while its events were switched on. Events that are read one after the other were
/// on for different times: if a busy machine interrupts the reading, for very different ones.
#[derive(Debug, Clone, Copy)]
pub struct OnCpu {
    /// The event that was on for the shortest time.
    pub shortest: u64,
    /// The event that was on for the longest time.
    pub longest: u64,
}

impl From<u64> for OnCpu {
    fn from(time: u64) -> Self {
        Self {
            shortest: time,
            longest: time,
        }
    }
}

/// Marks the counts of one thread's interval that cannot be true by the limits of the profile. If cycles or instructions
/// are too few, none of the counts taken together with them is used.
///
/// `user_only` tells that its time in the kernel was not counted, so that few counts prove nothing. Without limits only
/// what is no number from 0 on is implausible.
pub fn judge(counts: &mut [Count], on_cpu: OnCpu, user_only: bool, limits: Option<&Limits>) {
    for count in counts.iter_mut() {
        if !count.value.is_finite() || count.value < 0.0 {
            count.quality = CountQuality::Implausible("not a count".to_owned());
        }
    }
    let Some(limits) = limits else {
        return;
    };
    let seconds = on_cpu.longest as f64 / 1e9;
    let milliseconds = on_cpu.longest as f64 / 1e6;
    let value = |counts: &[Count], alias: &str| {
        let count = counts.iter().find(|count| &*count.alias == alias);
        count.map(|count| count.value)
    };
    let cycles = value(counts, names::CYCLES);
    let instructions = value(counts, names::INSTRUCTIONS);
    let (least, greatest) = limits.cycles_per_second;
    let retired = limits.max_instructions_per_cycle;
    for count in counts.iter_mut() {
        let why = match &*count.alias {
            names::CYCLES if count.value > seconds * greatest => Some(format!(
                "{:.0} cycles in {milliseconds:.1} ms are more than {:.1} GHz",
                count.value,
                greatest / 1e9
            )),
            names::INSTRUCTIONS
                if cycles.is_some_and(|cycles| count.value > cycles.max(1.0) * retired)
                    || count.value > seconds * greatest * retired =>
            {
                Some(format!(
                    "{:.0} instructions in {milliseconds:.1} ms are more than a core of this processor retires",
                    count.value
                ))
            }
            _ => None,
        };
        if let Some(why) = why {
            count.quality = CountQuality::Implausible(why);
        }
    }
    if user_only || on_cpu.shortest < limits.judge_after_ns {
        return;
    }
    let seconds = on_cpu.shortest as f64 / 1e9;
    let milliseconds = on_cpu.shortest as f64 / 1e6;
    let too_few = [
        (names::CYCLES, cycles, least),
        (
            names::INSTRUCTIONS,
            instructions,
            limits.min_instructions_per_second,
        ),
    ]
    .into_iter()
    .find_map(|(name, value, least)| {
        let value = value.filter(|value| *value < seconds * least)?;
        Some(format!(
            "only {value:.0} {name} in {milliseconds:.1} ms on a PU: the counters do not count"
        ))
    });
    if let Some(why) = too_few {
        for count in counts {
            count.quality = CountQuality::Implausible(why.clone());
        }
    }
}

/// More cycles a nanosecond than any clock: 10 GHz. No processor has been clocked so fast, cooled with liquid helium
/// included. The probe runs before a profile is chosen, so these two are bounds for all processors.
const MOST_CYCLES: f64 = 10.0;

/// More instructions a cycle than any core retires: the widest retire 16 operations.
const MOST_IPC: f64 = 16.0;

/// What was counted over a loop of known length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calibration {
    /// Instructions that the loop executes, at least.
    pub known: u64,
    /// Instructions counted.
    pub instructions: u64,
    /// Cycles counted.
    pub cycles: u64,
    /// Nanoseconds for which the events were switched on.
    pub enabled: u64,
    /// Nanoseconds for which they were on the PMU.
    pub running: u64,
}

impl Calibration {
    /// Whether the counters counted the loop.
    ///
    /// # Errors
    /// Why they are implausible, in words for the user.
    pub fn check(&self) -> Result<(), String> {
        if self.enabled == 0 {
            return Err("the counters were never switched on".to_owned());
        }
        if self.running == 0 {
            return Err("no counter was free".to_owned());
        }
        let share = self.running as f64 / self.enabled as f64;
        let (known, counted) = (self.known as f64, self.instructions as f64 / share);
        // Interrupts and the calls around the loop add some; a slice of a multiplexed count may miss some.
        if counted < 0.8 * known || counted > 2.0 * known + 1e6 {
            return Err(format!(
                "{} instructions were counted where {} were executed",
                self.instructions, self.known
            ));
        }
        let cycles = self.cycles as f64 / share;
        if cycles * MOST_IPC < known || cycles > self.enabled as f64 * MOST_CYCLES {
            return Err(format!(
                "{} cycles were counted for {} instructions in {} µs",
                self.cycles,
                self.known,
                self.enabled / 1000
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(pairs: &[(&str, f64)]) -> Vec<Count> {
        let count = |(alias, value): &(&str, f64)| Count {
            alias: (*alias).into(),
            value: *value,
            quality: CountQuality::Exact,
        };
        pairs.iter().map(count).collect()
    }

    const LIMITS: Limits = Limits {
        cycles_per_second: (10e6, 8e9),
        min_instructions_per_second: 1e6,
        max_instructions_per_cycle: 16.0,
        judge_after_ns: 10_000_000,
    };

    const SECOND: OnCpu = OnCpu {
        shortest: 1_000_000_000,
        longest: 1_000_000_000,
    };

    fn believed(counts: &[Count]) -> bool {
        let implausible = |c: &Count| matches!(c.quality, CountQuality::Implausible(_));
        !counts.iter().any(implausible)
    }

    #[test]
    fn the_395_instructions_of_a_busy_second_are_noticed() {
        let mut seen = counts(&[("cycles", 3.1e9), ("instructions", 395.0), ("fp_ops", 12.0)]);
        judge(&mut seen, SECOND, false, Some(&LIMITS));
        for count in &seen {
            assert!(
                matches!(&count.quality, CountQuality::Implausible(why) if why.contains("only 395 instructions"))
            );
        }
        let counted = Calibration {
            known: 3_500_000_000,
            instructions: 395,
            cycles: 290,
            enabled: 1_000_000_000,
            running: 1_000_000_000,
        };
        assert!(
            counted
                .check()
                .is_err_and(|why| why.contains("395 instructions"))
        );
    }

    /// What a profile says, and nothing that stands in code, decides.
    #[test]
    fn the_profile_says_what_no_count_can_be() {
        let slow = Limits {
            cycles_per_second: (1e6, 1e9),
            ..LIMITS
        };
        let few = Limits {
            min_instructions_per_second: 1.0,
            ..LIMITS
        };
        let fast = [("cycles", 3e9), ("instructions", 3e9)];
        let idle = [("cycles", 3e9), ("instructions", 395.0)];
        for (seen, limits, expected) in [
            (fast, Some(&LIMITS), true),
            (fast, Some(&slow), false),
            (idle, Some(&LIMITS), false),
            (idle, Some(&few), true),
            (idle, None, true),
        ] {
            let mut seen = counts(&seen);
            judge(&mut seen, SECOND, false, limits);
            assert_eq!(believed(&seen), expected, "{seen:?} {limits:?}");
        }
        let mut none = counts(&[("l2_misses", f64::NAN)]);
        judge(&mut none, SECOND, false, None);
        assert!(!believed(&none));
    }

    /// Cycles were read 13 ms after they were switched on, and the last event 5 ms later.
    #[test]
    fn a_reading_that_takes_long_makes_no_lie() {
        let mut seen = counts(&[("cycles", 154_872.0), ("instructions", 154_872.0)]);
        let mut judged = |shortest| {
            let longest = 18_400_000;
            judge(&mut seen, OnCpu { shortest, longest }, false, Some(&LIMITS));
            believed(&seen)
        };
        assert!(judged(12_900_000));
        assert!(!judged(18_400_000));
    }

    #[test]
    fn a_taken_counter_is_no_count() {
        let counted = Calibration {
            known: 1000,
            instructions: 0,
            cycles: 0,
            enabled: 5,
            running: 0,
        };
        assert_eq!(counted.check(), Err("no counter was free".to_owned()));
    }

    proptest! {
        #[test]
        fn real_processors_are_believed(
            time in 1_000u64..10_000_000_000,
            ghz in 0.4f64..6.0,
            ipc in 0.02f64..6.0,
            user_only: bool,
        ) {
            let cycles = time as f64 * ghz;
            let mut seen = counts(&[("cycles", cycles), ("instructions", cycles * ipc), ("fp_ops", 0.0)]);
            judge(&mut seen, time.into(), user_only, Some(&LIMITS));
            prop_assert!(believed(&seen));
        }

        #[test]
        fn real_calibrations_are_believed(
            known in 1_000_000u64..100_000_000,
            extra in 0u64..100_000,
            ghz in 0.4f64..6.0,
            ipc in 0.1f64..6.0,
            share in 0.3f64..=1.0,
        ) {
            let cycles = known as f64 / ipc;
            let enabled = cycles / ghz;
            let counted = Calibration {
                known,
                instructions: ((known + extra) as f64 * share) as u64,
                cycles: (cycles * share) as u64,
                enabled: enabled as u64 + 1000,
                running: ((enabled + 1000.0) * share) as u64,
            };
            prop_assert_eq!(counted.check(), Ok(()));
        }

        #[test]
        fn impossible_counts_are_not(time in 1u64..10_000_000_000, factor in 10.1f64..1e6) {
            let mut seen = counts(&[("cycles", time as f64 * factor)]);
            judge(&mut seen, time.into(), true, Some(&LIMITS));
            prop_assert!(!believed(&seen));
            let mut seen = counts(&[("l2_misses", -1.0), ("cycles", time as f64)]);
            judge(&mut seen, time.into(), true, Some(&LIMITS));
            prop_assert!(!believed(&seen[..1]) && believed(&seen[1..]));
        }
    }
}
