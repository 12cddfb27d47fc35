//! Some settings, and policies that change them.

use super::{
    options,
    parts::Heard,
    set,
    settable::{Settable, SettingStep, Values},
};
use perch_core::{
    Plan, Policy, Reason, Setting, SettingBinding, SettingChoices, SettingState, SettingValue,
    Snapshot,
};
use perch_engine::{Acting, Recovery, Session, SessionEnd, StateDir, recover_all};

/// A policy of settings that is a function.
pub struct Gives<F>(pub F);

impl<F: FnMut(&Snapshot) -> Vec<SettingBinding> + Send> Policy for Gives<F> {
    fn name(&self) -> &'static str {
        "test"
    }

    fn wants_settings(&self) -> bool {
        true
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        Plan {
            settings: (self.0)(snapshot),
            ..Plan::default()
        }
    }
}

/// A clock from a range, whose values the kernel rounds.
pub const CLOCK: Setting = Setting::MaxFrequency(0);
/// A clock with steps.
pub const STEPS: Setting = Setting::MaxFrequency(2);
pub const QUEUES: Setting = Setting::WorkQueues;
pub const PREFERENCE: Setting = Setting::EnergyPreference(0);
pub const THROTTLE: Setting = Setting::Throttling(4);

pub fn number(number: u64) -> SettingValue {
    SettingValue::Number(number)
}

pub fn pus(text: &str) -> SettingValue {
    SettingValue::Pus(set(text))
}

pub fn name(name: &str) -> SettingValue {
    SettingValue::Name(name.to_owned())
}

pub fn to(setting: Setting, value: SettingValue) -> SettingBinding {
    let reason = Reason::new("a test");
    SettingBinding {
        setting,
        value,
        reason,
    }
}

pub fn values() -> Values {
    let values = Values::default();
    values.put(
        CLOCK,
        number(3_000_000),
        SettingChoices::Range(1_000_000, 3_000_000),
    );
    let steps = vec![1_500_000, 2_000_000, 3_000_000];
    values.put(STEPS, number(2_000_000), SettingChoices::Numbers(steps));
    values.put(QUEUES, pus("0-3"), SettingChoices::Pus);
    let names = [
        "performance",
        "balance_performance",
        "balance_power",
        "power",
    ];
    let names = SettingChoices::Names(names.map(str::to_owned).to_vec());
    values.put(PREFERENCE, name("balance_performance"), names);
    values.put(THROTTLE, number(1), SettingChoices::Range(0, 7));
    values
}

/// Values that the restless policy gives, as far as they are not faster than what was there: others never set these.
pub fn own(setting: &Setting) -> Vec<SettingValue> {
    match *setting {
        CLOCK => [1_234_567, 1_249_999, 2_000_000].map(number).to_vec(),
        STEPS => vec![number(1_500_000)],
        QUEUES => vec![pus("1"), pus("2-3")],
        PREFERENCE => vec![name("power")],
        _ => vec![number(5), number(7)],
    }
}

/// Gives each setting the value of its turn, or that which it had.
pub fn restless(salt: u64) -> impl Policy {
    Gives(move |snapshot: &Snapshot| {
        let states = snapshot.settings.iter().enumerate();
        let binding = |(at, state): (usize, &SettingState)| {
            let mut turn = salt ^ ((at as u64) << 8) ^ (snapshot.period / 2);
            turn = (turn ^ (turn >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut values = own(&state.setting);
            values.retain(|value| !state.setting.is_faster(value, &state.before));
            let value = values.get((turn >> 40) as usize % values.len().max(1))?;
            let wanted = (turn >> 60) & 3 != 0 && !state.foreign;
            wanted.then(|| to(state.setting.clone(), value.clone()))
        };
        states.filter_map(binding).collect()
    })
}

pub fn steps(n: usize) -> Vec<SettingStep> {
    vec![SettingStep::default(); n]
}

pub fn run(
    values: &Values,
    steps: &[SettingStep],
    policy: impl Policy + 'static,
    acting: Acting,
) -> (Heard, SessionEnd) {
    let machine = Settable::new(values, steps);
    let mut session = Session::new(machine, options(policy, acting)).unwrap();
    let mut kept = Heard::default();
    let end = session.run(&mut kept).unwrap();
    (kept, end)
}

pub fn journals(dir: &tempfile::TempDir) -> usize {
    let dir = StateDir::open(dir.path()).unwrap();
    dir.journals().unwrap().len()
}

pub fn recover(dir: &tempfile::TempDir, values: &Values) -> Vec<Recovery> {
    let dir = StateDir::open(dir.path()).unwrap();
    let all = recover_all(&dir, &mut values.clone()).unwrap();
    all.into_iter().map(|(_, recovery)| recovery).collect()
}
