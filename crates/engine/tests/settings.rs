//! Settings of the machine in a session: journaled before they are changed, restored unless another process has changed
//! them since, and never faster than before.

use crate::common;
use crate::common::{Settable, SettingOp, SettingStep, giving::*, live, options};
use perch_core::{Machine, Outcome, Plan, Policy, Setting, SettingBinding, SettingValue, Snapshot};
use perch_engine::{Acting, Cause, Command, Session, SettingMove};

/// One plan a period.
fn plans(plans: Vec<Vec<SettingBinding>>) -> impl Policy {
    let mut plans = plans.into_iter();
    Gives(move |_: &Snapshot| plans.next().unwrap_or_default())
}

/// Something that happens before perch looks.
fn first(before: Vec<SettingOp>) -> SettingStep {
    SettingStep {
        before,
        ..SettingStep::default()
    }
}

/// Observes and decides once, and returns the values then.
fn tick(session: &mut Session<Settable>) -> Vec<SettingMove> {
    session.obey();
    session.machine().wait(std::time::Duration::ZERO).unwrap();
    let observation = session.machine().observe().unwrap();
    session.step(observation, false).setting_moves.clone()
}

fn outcomes(moves: &[SettingMove]) -> Vec<(Setting, Outcome)> {
    let outcomes = moves
        .iter()
        .map(|made| (made.setting.clone(), made.outcome));
    outcomes.collect()
}

#[test]
fn given_twice_and_restored_to_what_it_was_at_first() {
    let values = values();
    let first = values.all();
    let (dir, acting) = live();
    let (low, middle) = (number(1_500_000), number(2_345_678));
    let plan = |value: &SettingValue| vec![to(CLOCK, value.clone()), to(QUEUES, pus("1"))];
    let policy = plans(vec![vec![], plan(&middle), plan(&middle), plan(&low)]);
    let machine = Settable::new(&values, &steps(4));
    let mut session = Session::new(machine, options(policy, acting)).unwrap();
    session.begin();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let moves = tick(&mut session);
        let found = moves
            .iter()
            .map(|made| made.found.clone())
            .collect::<Vec<_>>();
        let clock = values.get(&CLOCK);
        seen.push((
            outcomes(&moves),
            found,
            clock,
            values.get(&QUEUES),
            journals(&dir),
        ));
    }
    let applied = |setting: Setting| (setting, Outcome::Applied);
    let expected = [
        (vec![], vec![], "3000000", "0-3", 0),
        // The kernel rounds it, and that is told.
        (
            vec![applied(CLOCK), applied(QUEUES)],
            vec![Some(number(2_300_000)), None],
            "2300000",
            "1",
            1,
        ),
        (vec![], vec![], "2300000", "1", 1),
        (vec![applied(CLOCK)], vec![None], "1500000", "1", 1),
    ];
    let expected = expected.map(|(moves, found, clock, queues, journals)| {
        (moves, found, clock.to_owned(), queues.to_owned(), journals)
    });
    assert_eq!(seen, expected, "an unchanged plan writes nothing");
    let end = session.finish(Ok(Cause::Commanded)).unwrap();
    let settings = end.restored.settings;
    assert_eq!((settings.restored, settings.left_alone), (2, 0));
    assert_eq!(values.all(), first);
    assert_eq!(journals(&dir), 0);
}

#[test]
fn what_is_no_longer_in_the_plan_is_given_back_and_other_policies_hold_none() {
    let values = values();
    let (dir, acting) = live();
    let both = vec![to(STEPS, number(1_500_000)), to(QUEUES, pus("1"))];
    // The value that it had before is none that perch gives.
    let one = vec![to(STEPS, number(2_000_000)), to(QUEUES, pus("1"))];
    let policy = plans(vec![both, one]);
    let machine = Settable::new(&values, &steps(9));
    let mut session = Session::new(machine, options(policy, acting)).unwrap();
    session.begin();
    let now = || (values.get(&STEPS), values.get(&QUEUES));
    let is = |clock: &str, queues: &str| (clock.to_owned(), queues.to_owned());
    tick(&mut session);
    assert_eq!(now(), is("1500000", "1"));
    let moves = tick(&mut session);
    assert_eq!((moves.len(), moves[0].to.clone()), (1, None));
    assert_eq!(now(), is("2000000", "1"));
    // The next one does not look at settings at all.
    let other = common::Decide(|_: &Snapshot| Plan::default());
    let command = Command::SetPolicy(Box::new(other));
    session.handle().send(command).unwrap();
    tick(&mut session);
    assert_eq!(now(), is("2000000", "0-3"), "given back at once");
    assert_eq!(journals(&dir), 0);
    // Its user may give it the value now that perch had given it, and keeps it.
    values.run(&SettingOp::Set(QUEUES, pus("1")));
    let again = plans(vec![vec![to(STEPS, number(1_500_000))]; 4]);
    let command = Command::SetPolicy(Box::new(again));
    session.handle().send(command).unwrap();
    tick(&mut session);
    assert_eq!(now(), is("1500000", "1"));
    session.finish(Ok(Cause::Commanded)).unwrap();
    assert_eq!(now(), is("2000000", "1"));
    assert_eq!(journals(&dir), 0);
}

#[test]
fn what_others_change_is_left_alone_from_then_on() {
    let values = values();
    let (dir, acting) = live();
    let script = [
        // Between look and deed.
        SettingStep {
            race: vec![SettingOp::Set(STEPS, number(3_000_000))],
            ..SettingStep::default()
        },
        // After it.
        first(vec![SettingOp::Set(CLOCK, number(1_100_000))]),
        // Even if it is the very value that perch had given.
        first(vec![SettingOp::Set(CLOCK, number(1_200_000))]),
    ];
    let wanted = || {
        vec![
            to(CLOCK, number(1_200_000)),
            to(STEPS, number(1_500_000)),
            to(QUEUES, pus("1")),
        ]
    };
    let policy = Gives(move |snapshot: &Snapshot| {
        let mut wanted = wanted();
        let states = snapshot.settings.iter();
        let foreign: Vec<&Setting> = states
            .filter(|state| state.foreign)
            .map(|state| &state.setting)
            .collect();
        wanted.retain(|binding| !foreign.contains(&&binding.setting));
        assert_eq!(foreign.len(), [0, 2, 2][snapshot.period as usize]);
        wanted
    });
    let (kept, end) = run(&values, &script, policy, acting);
    let expected = [
        (CLOCK, Outcome::Applied),
        (STEPS, Outcome::ChangedByOthers),
        (QUEUES, Outcome::Applied),
    ];
    assert_eq!(outcomes(&kept.setting_moves[0]), expected);
    assert_eq!(kept.setting_moves[1..3], [vec![], vec![]]);
    let told = "another process has changed cpufreq/policy0/scaling_max_freq";
    assert!(
        kept.remarks.iter().any(|remark| remark.starts_with(told)),
        "{:?}",
        kept.remarks
    );
    assert_eq!(
        (end.restored.settings.restored, end.restored.has_failed()),
        (1, false)
    );
    let left = [CLOCK, STEPS, QUEUES].map(|setting| values.get(&setting));
    assert_eq!(left, ["1200000", "3000000", "0-3"]);
    assert_eq!(journals(&dir), 0);
}

#[test]
fn a_plan_that_asks_for_more_than_it_may_changes_nothing() {
    let first = values().all();
    let faults = [
        (to(STEPS, number(3_000_000)), "faster"),
        (to(THROTTLE, number(0)), "faster"),
        (to(PREFERENCE, name("performance")), "faster"),
        (to(STEPS, number(1_700_000)), "cannot have"),
        (to(CLOCK, number(999_999)), "cannot have"),
        (to(PREFERENCE, name("none")), "cannot have"),
        (to(CLOCK, pus("0")), "cannot have"),
        (to(QUEUES, pus("")), "cannot have"),
        (to(QUEUES, pus("0-4")), "faster"),
        (to(Setting::NewIrqs, pus("0")), "not there"),
        (to(Setting::WorkQueue("x".into()), pus("0")), "not there"),
    ];
    for (binding, fault) in faults {
        let values = values();
        let (_dir, acting) = live();
        let policy = plans(vec![vec![binding.clone()]]);
        let (kept, _) = run(&values, &steps(1), policy, acting);
        let [bug] = &kept.remarks[..] else {
            panic!("{binding:?}: {:?}", kept.remarks);
        };
        assert!(
            bug.contains("a bug in policy test") && bug.contains(fault),
            "{bug}"
        );
        assert_eq!((&kept.setting_moves[0], &values.all()), (&vec![], &first));
    }
    let values = values();
    let (_dir, acting) = live();
    let twice = vec![to(QUEUES, pus("1")), to(QUEUES, pus("2"))];
    let (kept, end) = run(&values, &steps(1), plans(vec![twice]), acting);
    assert!(kept.remarks[0].contains("two values"), "{:?}", kept.remarks);
    assert_eq!(
        outcomes(&kept.setting_moves[0]),
        [(QUEUES, Outcome::Applied)]
    );
    assert_eq!((end.restored.settings.restored, values.all()), (1, first));
}

#[test]
fn a_write_that_the_kernel_ignores_has_failed() {
    let values = values();
    values.stick(&QUEUES);
    let (dir, acting) = live();
    let policy = plans(vec![vec![to(QUEUES, pus("1"))]; 2]);
    let (kept, end) = run(&values, &steps(2), policy, acting);
    assert_eq!(
        outcomes(&kept.setting_moves[1]),
        [(QUEUES, Outcome::Failed)]
    );
    assert!(end.restored.settings.is_empty());
    assert_eq!(journals(&dir), 0);
}

/// A cpufreq policy keeps its limits while its PUs are offline.
#[test]
fn what_is_offline_in_the_end_is_restored_when_it_is_back() {
    let values = values();
    let first_values = values.all();
    let (dir, acting) = live();
    let script = [SettingStep::default(), first(vec![SettingOp::Hide(STEPS)])];
    let policy = plans(vec![
        vec![to(STEPS, number(1_500_000)), to(QUEUES, pus("1"))];
        2
    ]);
    let (_, end) = run(&values, &script, policy, acting);
    let failed = &end.restored.settings.failed;
    assert_eq!(failed.len(), 1);
    assert!(failed[0].1.contains("offline"), "{failed:?}");
    assert_eq!((end.restored.settings.restored, journals(&dir)), (1, 1));
    assert!(recover(&dir, &values)[0].has_failed(), "still offline");
    values.show_all();
    assert!(!recover(&dir, &values)[0].has_failed());
    assert_eq!((values.all(), journals(&dir)), (first_values, 0));
}

#[test]
fn what_comes_back_with_perchs_value_is_still_perchs() {
    let values = values();
    let first_values = values.all();
    let (dir, acting) = live();
    let script = [
        SettingStep::default(),
        first(vec![SettingOp::Hide(STEPS), SettingOp::Hide(CLOCK)]),
        first(vec![SettingOp::Show(STEPS), SettingOp::Renew(CLOCK)]),
        SettingStep::default(),
    ];
    let both = || vec![to(STEPS, number(1_500_000)), to(CLOCK, number(1_000_000))];
    let policy = plans(vec![both(), vec![], both(), vec![]]);
    let (kept, end) = run(&values, &script, policy, acting);
    let applied = |setting| (setting, Outcome::Applied);
    let made: Vec<_> = kept
        .setting_moves
        .iter()
        .map(|moves| outcomes(moves))
        .collect();
    let both = vec![applied(CLOCK), applied(STEPS)];
    // One that was made anew has lost perch's value, and is given it again.
    let expected = [both.clone(), vec![], vec![applied(CLOCK)], both, vec![]];
    assert_eq!(made, expected);
    assert_eq!((values.all(), journals(&dir)), (first_values, 0));
    assert!(!end.restored.has_failed());
}

#[test]
fn a_dry_run_lists_what_it_would_do() {
    let values = values();
    let first = values.all();
    let policy = plans(vec![vec![to(QUEUES, pus("1"))]; 2]);
    let (kept, _) = run(&values, &steps(2), policy, Acting::DryRun(None));
    assert_eq!(
        outcomes(&kept.setting_moves[0]),
        [(QUEUES, Outcome::NotApplied)]
    );
    assert_eq!(kept.setting_moves[1], []);
    assert_eq!(kept.snapshots[1].settings[4].given, Some(pus("1")));
    assert_eq!(values.all(), first);
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let values = values();
    let first = values.all();
    let (dir, acting) = live();
    let mut asked = 0;
    let policy = Gives(move |_: &Snapshot| {
        asked += 1;
        assert!(asked < 2, "as it must");
        vec![to(QUEUES, pus("1"))]
    });
    let machine = Settable::new(&values, &steps(3));
    let mut session = Session::new(machine, options(policy, acting)).unwrap();
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _ = session.run(&mut ());
    }));
    assert!(run.is_err());
    assert_eq!((values.all(), journals(&dir)), (first, 0));
}

#[test]
fn without_a_journal_nothing_is_changed() {
    let values = values();
    let first = values.all();
    let (dir, acting) = live();
    std::fs::remove_dir_all(dir.path()).unwrap();
    let policy = plans(vec![vec![to(QUEUES, pus("1"))]; 2]);
    let (kept, _) = run(&values, &steps(2), policy, acting);
    assert_eq!(
        outcomes(&kept.setting_moves[1]),
        [(QUEUES, Outcome::NotApplied)]
    );
    let said = kept
        .remarks
        .iter()
        .any(|remark| remark.contains("without a journal"));
    assert!(said, "{:?}", kept.remarks);
    assert_eq!(values.all(), first);
}
