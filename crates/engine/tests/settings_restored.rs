//! Settings of the machine, restored from journals whatever happens; recorded and replayed.

use crate::common::{
    Heard, Kill, Settable, SettingOp, SettingStep, giving::*, live, options, recorded, replay, set,
};
use perch_core::{Outcome, Setting, SettingValue};
use perch_engine::{
    Acting, Journal, Session, StateDir,
    journal::{Record, SettingRecord, file::JournalFile, state_dir},
    restore,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn record_of(setting: Setting, before: SettingValue, value: SettingValue) -> Record {
    Record::Setting(SettingRecord {
        setting,
        from: before.clone(),
        before,
        set: value,
    })
}

fn journal_of(records: &[Record]) -> Journal {
    let dir = tempfile::tempdir().unwrap();
    let header = state_dir::header(set("")).unwrap();
    let dir = StateDir::open(dir.path()).unwrap();
    let mut file = JournalFile::create(&dir, header).unwrap();
    file.log_intent(records).unwrap();
    Journal::parse(&std::fs::read(file.path()).unwrap()).unwrap()
}

/// `perch restore` reads journals as root: none may name a path, or a value that is more than a word.
#[test]
fn a_record_that_the_kernel_cannot_have_is_damaged() {
    for setting in ["../../x", "", ".", "..", "a/b", "a\n"] {
        let setting = Setting::WorkQueue(setting.to_owned());
        let done = Record::SettingDone {
            setting: setting.clone(),
            outcome: Outcome::Applied,
            found: None,
        };
        let journal = journal_of(&[record_of(setting.clone(), pus("0-3"), pus("1")), done]);
        assert_eq!(
            (journal.damaged, journal.settings().count()),
            (2, 0),
            "{setting:?}"
        );
    }
    let odd = record_of(PREFERENCE, name("power\nx"), name("power"));
    assert_eq!(journal_of(&[odd]).damaged, 1);
    let good = record_of(Setting::WorkQueue("writeback".into()), pus("0-3"), pus("1"));
    let journal = journal_of(&[good]);
    assert_eq!((journal.damaged, journal.settings().count()), (0, 1));
}

#[test]
fn the_journal_of_another_user_changes_no_setting() {
    let values = values();
    let records = [record_of(QUEUES, pus("0-1"), pus("0-3"))];
    let journal = journal_of(&records);
    let report = restore(&mut values.clone(), &journal, Some(1000));
    assert!(report.settings.is_empty());
    assert_eq!(values.get(&QUEUES), "0-3");
    let report = restore(&mut values.clone(), &journal, None);
    assert_eq!(
        (report.settings.restored, values.get(&QUEUES)),
        (1, "0-1".to_owned())
    );
}

/// Killed between the write and the journal of what the kernel made of it.
#[test]
fn a_rounded_value_of_which_the_journal_does_not_know_is_perchs() {
    let values = values();
    let record = record_of(CLOCK, number(3_000_000), number(2_345_678));
    let journal = journal_of(std::slice::from_ref(&record));
    values.run(&SettingOp::Set(CLOCK, number(2_300_000)));
    let report = restore(&mut values.clone(), &journal, None);
    assert_eq!(
        (report.settings.restored, values.get(&CLOCK)),
        (1, "3000000".to_owned())
    );
    // Once it is known, no other value is.
    let done = Record::SettingDone {
        setting: CLOCK,
        outcome: Outcome::Applied,
        found: Some(number(2_300_000)),
    };
    let journal = journal_of(&[record, done]);
    values.run(&SettingOp::Set(CLOCK, number(2_345_678)));
    let report = restore(&mut values.clone(), &journal, None);
    assert_eq!(
        (report.settings.left_alone, values.get(&CLOCK)),
        (1, "2345678".to_owned())
    );
}

fn all_settings() -> Vec<Setting> {
    vec![CLOCK, STEPS, QUEUES, PREFERENCE, THROTTLE]
}

/// A value that another process may give, and perch never does.
fn foreign(setting: &Setting, turn: usize) -> SettingValue {
    match *setting {
        CLOCK => [number(3_000_000), number(1_750_000)][turn].clone(),
        STEPS => [number(2_000_000), number(3_000_000)][turn].clone(),
        QUEUES => [pus("0-3"), pus("0,2-3")][turn].clone(),
        PREFERENCE => [name("balance_performance"), name("balance_power")][turn].clone(),
        _ => [number(1), number(2)][turn].clone(),
    }
}

fn op() -> impl Strategy<Value = SettingOp> {
    let setting = || prop::sample::select(all_settings());
    prop_oneof![
        3 => (setting(), 0usize..2).prop_map(|(setting, turn)| {
            let value = foreign(&setting, turn);
            SettingOp::Set(setting, value)
        }),
        1 => setting().prop_map(SettingOp::Hide),
        1 => setting().prop_map(SettingOp::Show),
        1 => setting().prop_map(SettingOp::Renew),
    ]
}

fn script(ops: usize) -> impl Strategy<Value = Vec<SettingStep>> {
    let ops = move || prop::collection::vec(op(), 0..=ops);
    let step = (ops(), ops()).prop_map(|(before, race)| SettingStep { before, race });
    prop::collection::vec(step, 1..12)
}

/// The values that there would be if no perch had run.
fn fair<'a>(ops: impl IntoIterator<Item = &'a SettingOp>) -> BTreeMap<Setting, SettingValue> {
    let values = values();
    ops.into_iter().for_each(|op| values.run(op));
    values.all()
}

fn ops(steps: &[SettingStep]) -> impl Iterator<Item = &SettingOp> {
    let steps = steps.iter();
    steps.flat_map(|step| step.before.iter().chain(&step.race))
}

fn record(steps: &[SettingStep], salt: u64, acting: Acting) -> (Vec<u8>, Heard) {
    let machine = Settable::new(&values(), steps);
    let mut session = Session::new(machine, options(restless(salt), acting)).unwrap();
    recorded(&mut session)
}

/// All lines but the header.
fn periods(recording: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(recording).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever others do meanwhile, whenever perch is killed, and whatever is offline then: when all is back and
    /// `perch restore` has run, every setting has the value that it would have without perch.
    #[test]
    fn in_the_end_all_is_as_without_perch(
        script in script(2),
        salt: u64,
        kill in prop::option::of((1usize..25, any::<bool>())),
    ) {
        let values = values();
        let (dir, acting) = live();
        if let Some((at, after)) = kill {
            values.kill(Kill { at, after }, dir.path());
        }
        run(&values, &script, restless(salt), acting);
        values.show_all();
        match values.take_killed() {
            None => {
                for recovery in recover(&dir, &values) {
                    prop_assert!(!recovery.has_failed(), "{recovery:?}");
                }
            }
            Some(left) => for bytes in left {
                let journal = Journal::parse(&bytes).unwrap();
                prop_assert_eq!(journal.damaged, 0);
                // Made shorter it says the same.
                let mut shortened = Journal::new(journal.header.clone());
                journal.records().iter().for_each(|record| shortened.add(record));
                prop_assert_eq!(journal.settings().collect::<Vec<_>>(), shortened.settings().collect::<Vec<_>>());
                let report = restore(&mut values.clone(), &journal, None);
                prop_assert!(!report.has_failed(), "{report:?}");
            }
        }
        prop_assert_eq!(values.all(), fair(ops(&script)));
    }

    #[test]
    fn a_dry_run_played_back_with_its_policy_is_the_same(script in script(2), salt: u64) {
        let (recording, _) = record(&script, salt, Acting::DryRun(None));
        let (again, _) = replay(&recording, restless(salt));
        prop_assert_eq!(periods(&recording), periods(&again));
    }

    /// The policy sees in the recording what it saw then, and decides the same: as long as no other process came between
    /// its look and its deed, or gave a setting the value back that it had before perch, which looks as if nothing had
    /// happened.
    #[test]
    fn a_recording_of_what_was_done_leads_to_the_same_plans(mut script in script(2), salt: u64) {
        let mut set_already = std::collections::BTreeSet::new();
        for step in &mut script {
            step.race.clear();
            for op in &mut step.before {
                if let SettingOp::Set(setting, value) = op {
                    *value = foreign(setting, 1);
                }
            }
            step.before.retain(|op| match op {
                SettingOp::Set(setting, _) => set_already.insert(setting.clone()),
                SettingOp::Renew(_) => false,
                SettingOp::Hide(_) | SettingOp::Show(_) => true,
            });
        }
        let (_dir, acting) = live();
        let (recording, first) = record(&script, salt, acting);
        let (_, second) = replay(&recording, restless(salt));
        prop_assert_eq!(first.plans, second.plans);
    }
}
