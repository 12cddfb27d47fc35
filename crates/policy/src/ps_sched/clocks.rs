//! Which settings slow down which PUs, and to what.

use super::config::Clock;
use perch_core::{
    PuSet, Reason, Remark, Setting, SettingBinding, SettingChoices, SettingState, SettingValue,
};

/// Steps of a clock are equal to what was asked for within this part: `86%` of 2.8 GHz is its step of 2.4 GHz.
const TOLERANCE: f64 = 0.005;

/// A search goes down in steps of 1/20 of the highest clock, and not below 4/20 of it.
const PARTS: u32 = 20;
const FEWEST: u32 = 4;

/// The bindings that slow down `slow` and no other PU, and what the user should know about PUs that stay as they are.
pub(super) fn slowed(
    settings: &[SettingState],
    slow: &PuSet,
    clock: Clock,
    why: &str,
) -> (Vec<SettingBinding>, Vec<Remark>) {
    let (mut bindings, mut remarks) = (Vec::new(), Vec::new());
    if matches!(clock, Clock::Keep | Clock::Search) {
        return (bindings, remarks);
    }
    let mut done = PuSet::new();
    let mut shared = PuSet::new();
    // Throttling loses time even where clocks could be lowered, so it comes last.
    let frequencies = settings.iter().filter(|state| is_frequency(&state.setting));
    let throttles = settings
        .iter()
        .filter(|state| matches!(state.setting, Setting::Throttling(_)));
    for state in frequencies.chain(throttles) {
        if state.governs.is_disjoint(slow) || state.governs.is_subset(&done) {
            continue;
        }
        if !state.governs.is_subset(slow) {
            shared.insert_all(&state.governs.and(slow));
            continue;
        }
        // Others have changed it since, which the user is told by then.
        if state.foreign {
            done.insert_all(&state.governs);
            continue;
        }
        let Some(value) = lowered(state, clock) else {
            continue;
        };
        done.insert_all(&state.governs);
        if value == state.before {
            continue;
        }
        bindings.push(SettingBinding {
            setting: state.setting.clone(),
            value,
            reason: Reason::new(why),
        });
    }
    let left = slow.minus(&done);
    let beside = left.and(&shared);
    if !beside.is_empty() {
        let text = format!(
            "PU {beside} shares its clock with PUs that run at full speed, and cannot be slowed down alone: give the \
             operating system all PUs that share it (system = \"core\")"
        );
        remarks.push(Remark::note("clock-shared", text));
    }
    let without = left.minus(&shared);
    if !without.is_empty() {
        let text = format!(
            "PU {without} cannot be slowed down: this machine offers no clock (cpufreq) and no throttling state for it"
        );
        remarks.push(Remark::note("no-clock", text));
    }
    (bindings, remarks)
}

/// Parts of the highest clock that differ on these PUs, from 1 down.
pub(super) fn points(settings: &[SettingState], slow: &PuSet) -> Vec<f64> {
    let values = |share: f64| -> Vec<SettingValue> {
        let (bindings, _) = slowed(settings, slow, Clock::Share(share), "");
        bindings.into_iter().map(|binding| binding.value).collect()
    };
    let shares = (FEWEST..=PARTS)
        .rev()
        .map(|part| f64::from(part) / f64::from(PARTS));
    let mut points: Vec<(f64, Vec<SettingValue>)> = Vec::new();
    for share in shares {
        let values = values(share);
        if points.last().is_none_or(|(_, last)| *last != values) {
            points.push((share, values));
        }
    }
    points.into_iter().map(|(share, _)| share).collect()
}

fn is_frequency(setting: &Setting) -> bool {
    matches!(setting, Setting::MaxFrequency(_))
}

/// The value that brings a setting to the clock, never above what it was before perch; `None` for one that is no clock.
fn lowered(state: &SettingState, clock: Clock) -> Option<SettingValue> {
    let SettingValue::Number(before) = state.before else {
        return None;
    };
    if matches!(state.setting, Setting::Throttling(_)) {
        let SettingChoices::Range(_, most) = state.choices else {
            return None;
        };
        let Clock::Share(share) = clock else {
            return None;
        };
        // State N of M leaves about 1 - N / (M + 1) of the time.
        let states = most as f64 + 1.0;
        let state = ((1.0 - share) * states + 0.5).floor().min(most as f64);
        return Some(SettingValue::Number((state as u64).max(before)));
    }
    let highest = match &state.choices {
        SettingChoices::Range(_, most) => *most,
        SettingChoices::Numbers(numbers) => *numbers.last()?,
        SettingChoices::Names(_) | SettingChoices::Pus => return None,
    };
    let wanted = match clock {
        Clock::Keep | Clock::Search => return None,
        Clock::Share(share) => share * highest as f64,
        Clock::KiloHertz(clock) => clock,
    };
    let value = match &state.choices {
        SettingChoices::Numbers(numbers) => {
            let fits = |number: &&u64| **number as f64 <= wanted * (1.0 + TOLERANCE);
            *numbers.iter().rev().find(fits).or(numbers.first())?
        }
        // A recording may have anything in it.
        SettingChoices::Range(least, most) => (wanted.round() as u64).max(*least).min(*most),
        SettingChoices::Names(_) | SettingChoices::Pus => return None,
    };
    Some(SettingValue::Number(value.min(before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(
        setting: Setting,
        governs: &str,
        before: u64,
        choices: SettingChoices,
    ) -> SettingState {
        SettingState {
            setting,
            governs: governs.parse().unwrap(),
            before: SettingValue::Number(before),
            choices,
            given: None,
            foreign: false,
        }
    }

    /// The clocks of the paper's machine (section 4.3), in kHz.
    fn paper() -> SettingChoices {
        let steps = [600, 900, 1200, 1500, 1800, 2100, 2400, 2800];
        SettingChoices::Numbers(steps.map(|mhz| mhz * 1000).to_vec())
    }

    fn values(settings: &[SettingState], slow: &str, clock: Clock) -> (Vec<u64>, Vec<String>) {
        let (bindings, remarks) = slowed(settings, &slow.parse().unwrap(), clock, "why");
        let value = |binding: SettingBinding| match binding.value {
            SettingValue::Number(number) => number,
            other => panic!("{other:?}"),
        };
        (
            bindings.into_iter().map(value).collect(),
            remarks
                .into_iter()
                .map(|remark| remark.code.to_string())
                .collect(),
        )
    }

    #[test]
    fn shares_of_the_highest_clock_are_the_steps_of_the_paper() {
        let settings = [state(Setting::MaxFrequency(0), "0", 2_800_000, paper())];
        for (share, clock) in [
            (0.75, 2_100_000),
            (0.86, 2_400_000),
            (0.1, 600_000),
            (0.65, 1_800_000),
        ] {
            assert_eq!(
                values(&settings, "0", Clock::Share(share)).0,
                [clock],
                "{share}"
            );
        }
        assert_eq!(values(&settings, "0", Clock::Share(1.0)).0, [0u64; 0]);
        assert_eq!(values(&settings, "0", Clock::Keep).0, [0u64; 0]);
        assert_eq!(values(&settings, "0", Clock::KiloHertz(2e6)).0, [1_800_000]);
    }

    #[test]
    fn a_search_tries_each_step_once() {
        let settings = [state(Setting::MaxFrequency(0), "0", 2_800_000, paper())];
        let of = |slow: &str| points(&settings, &slow.parse().unwrap());
        let clocks: Vec<u64> = of("0")
            .into_iter()
            .flat_map(|share| values(&settings, "0", Clock::Share(share)).0)
            .collect();
        let steps = [2400, 2100, 1800, 1500, 1200, 900, 600].map(|mhz| mhz * 1000);
        assert_eq!(clocks, steps);
        assert_eq!(of("1"), [1.0], "no clock");
    }

    #[test]
    fn a_clock_is_never_raised_above_what_it_was() {
        let settings = [state(Setting::MaxFrequency(0), "0", 1_200_000, paper())];
        assert_eq!(values(&settings, "0", Clock::Share(0.75)).0, [0u64; 0]);
        let range = SettingChoices::Range(800_000, 3_000_000);
        let settings = [state(Setting::MaxFrequency(0), "0", 2_000_000, range)];
        assert_eq!(values(&settings, "0", Clock::Share(0.5)).0, [1_500_000]);
        assert_eq!(values(&settings, "0", Clock::Share(0.9)).0, [0u64; 0]);
        let throttling = state(Setting::Throttling(3), "0", 4, SettingChoices::Range(0, 7));
        assert_eq!(values(&[throttling], "0", Clock::Share(0.75)).0, [0u64; 0]);
    }

    #[test]
    fn a_pu_that_shares_its_clock_with_a_fast_one_stays_as_it_is() {
        let settings = [state(Setting::MaxFrequency(0), "0-1", 2_800_000, paper())];
        let (values_of_both, remarks) = values(&settings, "0", Clock::Share(0.75));
        assert_eq!(
            (values_of_both.len(), remarks),
            (0, vec!["clock-shared".to_owned()])
        );
        assert_eq!(values(&settings, "0-1", Clock::Share(0.75)).0, [2_100_000]);
    }

    #[test]
    fn what_has_no_clock_is_throttled_and_what_has_neither_is_named() {
        let throttling = || state(Setting::Throttling(3), "0", 0, SettingChoices::Range(0, 7));
        assert_eq!(values(&[throttling()], "0", Clock::Share(0.75)).0, [2]);
        let both = [
            throttling(),
            state(Setting::MaxFrequency(0), "0", 2_800_000, paper()),
        ];
        assert_eq!(
            values(&both, "0", Clock::Share(0.75)).0,
            [2_100_000],
            "the clock alone"
        );
        let (none, remarks) = values(&[throttling()], "0-1", Clock::Share(0.75));
        assert_eq!((none, remarks), (vec![2], vec!["no-clock".to_owned()]));
    }

    #[test]
    fn what_others_have_changed_is_left_alone() {
        let mut settings = [state(Setting::MaxFrequency(0), "0", 2_800_000, paper())];
        settings[0].foreign = true;
        let (none, remarks) = values(&settings, "0", Clock::Share(0.75));
        assert_eq!((none.len(), remarks.len()), (0, 0));
    }
}
