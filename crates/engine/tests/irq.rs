//! Interrupts in a session: journaled before their masks are changed, restored unless another process has changed them
//! since, recorded and replayed.

use crate::common;
use crate::common::{
    Devices, Heard, Interrupted, IrqOp, IrqStep, Kill, live, options, recorded, replay, set,
};
use perch_core::{IrqBinding, Outcome, Plan, Policy, PuSet, Reason, Snapshot};
use perch_engine::{
    Acting, Cause, Command, IrqMove, Journal, Session, SessionEnd, StateDir,
    journal::{IrqRecord, Record, file::JournalFile, state_dir},
    recover_all, restore,
};
use proptest::prelude::*;

/// A policy of interrupts that is a function.
struct Sends<F>(F);

impl<F: FnMut(&Snapshot) -> Plan + Send> Policy for Sends<F> {
    fn name(&self) -> &'static str {
        "test"
    }

    fn wants_irqs(&self) -> bool {
        true
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        (self.0)(snapshot)
    }
}

fn to(irq: u32, pus: &str) -> IrqBinding {
    IrqBinding {
        irq,
        pus: set(pus),
        reason: Reason::new("a test"),
        step: None,
    }
}

fn plan(irqs: Vec<IrqBinding>) -> Plan {
    Plan {
        irqs,
        ..Plan::default()
    }
}

/// One plan a period.
fn plans(plans: Vec<Vec<IrqBinding>>) -> impl Policy {
    let mut plans = plans.into_iter();
    Sends(move |_: &Snapshot| plan(plans.next().unwrap_or_default()))
}

/// Sends each interrupt that may be moved to the PU of its turn, or leaves it where it is; what it may use and what came
/// decides.
fn restless(salt: u64) -> impl Policy {
    Sends(move |snapshot: &Snapshot| {
        let binding = |load: &perch_core::IrqLoad| {
            let rate = load.rates.iter().map(|(_, rate)| *rate as u64).sum::<u64>();
            let mut state = salt ^ (u64::from(load.irq) << 8) ^ (snapshot.period / 2) ^ rate;
            state = (state ^ (state >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let pus: Vec<u32> = load.allowed.iter().collect();
            let pu = pus.get((state >> 40) as usize % pus.len().max(1))?;
            let pus = match &load.bound {
                Some(bound) if state >> 61 == 0 => bound.clone(),
                _ => PuSet::single(*pu),
            };
            let wanted = (state >> 60) & 3 != 0 && pus.is_subset(&load.allowed);
            wanted.then(|| to(load.irq, &pus.to_string()))
        };
        plan(snapshot.irqs.iter().filter_map(binding).collect())
    })
}

fn steps(n: usize) -> Vec<IrqStep> {
    vec![IrqStep::default(); n]
}

fn run(
    devices: &Devices,
    steps: &[IrqStep],
    policy: impl Policy + 'static,
    acting: Acting,
) -> (Heard, SessionEnd) {
    let machine = Interrupted::new(devices, steps);
    let mut session = Session::new(machine, options(policy, acting)).unwrap();
    let mut kept = Heard::default();
    let end = session.run(&mut kept).unwrap();
    (kept, end)
}

fn outcomes(moves: &[IrqMove]) -> Vec<(u32, Outcome)> {
    moves.iter().map(|made| (made.irq, made.outcome)).collect()
}

fn journals(dir: &tempfile::TempDir) -> usize {
    let dir = StateDir::open(dir.path()).unwrap();
    dir.journals().unwrap().len()
}

#[test]
fn moved_twice_and_given_back_to_where_it_was_at_first() {
    let devices = Devices::of(&[(24, "0-3"), (25, "0-1")]);
    let (dir, acting) = live();
    let policy = plans(vec![
        vec![],
        vec![to(24, "2")],
        vec![to(24, "2")],
        vec![to(24, "3")],
    ]);
    let machine = Interrupted::new(&devices, &steps(4));
    let mut session = Session::new(machine, options(policy, acting)).unwrap();
    session.begin();
    let mut seen = Vec::new();
    for _ in 0..4 {
        use perch_core::Machine;
        session.machine().wait(std::time::Duration::ZERO).unwrap();
        let observation = session.machine().observe().unwrap();
        let period = session.step(observation, false);
        let load = &period.snapshot.irqs[0];
        assert_eq!(load.allowed, set("0-3"), "as before perch moved it");
        seen.push((
            outcomes(&period.irq_moves),
            devices.masks()[&24].clone(),
            journals(&dir),
        ));
    }
    let applied = || vec![(24, Outcome::Applied)];
    let expected = [
        (vec![], "0-3", 0),
        (applied(), "2", 1),
        (vec![], "2", 1),
        (applied(), "3", 1),
    ];
    let expected = expected.map(|(moves, mask, journals)| (moves, mask.to_owned(), journals));
    assert_eq!(seen, expected, "an unchanged plan writes nothing");
    let end = session.finish(Ok(Cause::Commanded)).unwrap();
    assert_eq!(
        (end.restored.irqs.restored, end.restored.irqs.left_alone),
        (1, 0)
    );
    assert_eq!(
        devices.masks().into_values().collect::<Vec<_>>(),
        ["0-3", "0-1"]
    );
    assert_eq!(journals(&dir), 0);
}

#[test]
fn what_is_no_longer_in_the_plan_is_given_back_and_other_policies_hold_none() {
    let devices = Devices::of(&[(24, "0-3"), (25, "0-3")]);
    let (dir, acting) = live();
    let policy = plans(vec![vec![to(24, "2"), to(25, "3")], vec![to(25, "3")]]);
    let mut session = Session::new(
        Interrupted::new(&devices, &steps(9)),
        options(policy, acting),
    )
    .unwrap();
    session.begin();
    let tick = |session: &mut Session<Interrupted>| {
        use perch_core::Machine;
        session.obey();
        let observation = session.machine().observe().unwrap();
        session.step(observation, false);
        devices.masks().into_values().collect::<Vec<_>>()
    };
    assert_eq!(tick(&mut session), ["2", "3"]);
    assert_eq!(tick(&mut session), ["0-3", "3"]);
    // The next one does not look at interrupts at all.
    let other = common::Decide(|_: &Snapshot| Plan::default());
    session
        .handle()
        .send(Command::SetPolicy(Box::new(other)))
        .unwrap();
    assert_eq!(tick(&mut session), ["0-3", "0-3"], "given back at once");
    assert_eq!(journals(&dir), 0);
    // Its user may set the mask now that perch had set, and keeps it.
    devices.run(&IrqOp::Set {
        irq: 25,
        mask: set("3"),
    });
    let again = plans(vec![vec![to(24, "1")]; 4]);
    session
        .handle()
        .send(Command::SetPolicy(Box::new(again)))
        .unwrap();
    assert_eq!(tick(&mut session), ["1", "3"]);
    session.finish(Ok(Cause::Commanded)).unwrap();
    assert_eq!(
        devices.masks().into_values().collect::<Vec<_>>(),
        ["0-3", "3"]
    );
    assert_eq!(journals(&dir), 0);
}

#[test]
fn what_others_change_or_cannot_be_moved_is_left_alone() {
    let devices = Devices::of(&[(24, "0-3"), (25, "0-3"), (26, "0-3"), (27, "0-3")]);
    devices.manage(26);
    let (_dir, acting) = live();
    let foreign = |irq, mask: &str| IrqOp::Set {
        irq,
        mask: set(mask),
    };
    let script = [
        // Between look and deed.
        IrqStep {
            race: vec![foreign(25, "1")],
            ..IrqStep::default()
        },
        // After it.
        IrqStep {
            before: vec![foreign(24, "0")],
            ..IrqStep::default()
        },
        IrqStep::default(),
    ];
    let mut allowed = Vec::new();
    let (send, receive) = std::sync::mpsc::channel();
    let policy = Sends(move |snapshot: &Snapshot| {
        let loads = snapshot.irqs.iter().map(|load| load.allowed.to_string());
        send.send(loads.collect::<Vec<_>>()).unwrap();
        match snapshot.period {
            0 => plan(vec![to(24, "2"), to(25, "2")]),
            _ => plan(vec![to(24, "2"), to(26, "2"), to(27, "2"), to(27, "3")]),
        }
    });
    let (kept, end) = run(&devices, &script, policy, acting);
    allowed.extend(receive.try_iter());
    assert_eq!(allowed[0], ["0-3", "0-3", "", "0-3"]);
    assert_eq!(allowed[1], ["", "", "", "0-3"]);
    assert_eq!(
        outcomes(&kept.irq_moves[0]),
        [(24, Outcome::Applied), (25, Outcome::ChangedByOthers)]
    );
    assert_eq!(outcomes(&kept.irq_moves[1]), [(27, Outcome::Applied)]);
    let bugs = kept
        .remarks
        .iter()
        .filter(|remark| remark.contains("a bug in policy test"));
    assert_eq!(bugs.count(), 2, "{:?}", kept.remarks);
    let irqs = end.restored.irqs;
    // The other one is no matter of perch's any more.
    assert_eq!((irqs.restored, irqs.left_alone), (1, 0));
    let masks: Vec<String> = devices.masks().into_values().collect();
    assert_eq!(masks, ["0", "1", "0-3", "0-3"]);
}

#[test]
fn a_mask_of_others_that_equals_perch_s_is_theirs() {
    let devices = Devices::of(&[(24, "0-3")]);
    let (_dir, acting) = live();
    let foreign = |mask: &str| IrqStep {
        before: vec![IrqOp::Set {
            irq: 24,
            mask: set(mask),
        }],
        ..IrqStep::default()
    };
    let script = [
        IrqStep::default(),
        foreign("1"),
        foreign("2"),
        IrqStep::default(),
    ];
    let policy = plans(vec![vec![to(24, "2")]; 4]);
    let (kept, end) = run(&devices, &script, policy, acting);
    assert_eq!(outcomes(&kept.irq_moves[0]), [(24, Outcome::Applied)]);
    let told = kept
        .remarks
        .iter()
        .filter(|remark| remark.contains("another process has changed the mask of interrupt 24"));
    assert_eq!(told.count(), 1, "{:?}", kept.remarks);
    assert_eq!(end.restored.irqs.restored, 0);
    assert_eq!(devices.masks().into_values().next().unwrap(), "2");
}

#[test]
fn another_devices_interrupt_of_the_same_number_is_not_touched() {
    let devices = Devices::of(&[(24, "0-3")]);
    let (_dir, acting) = live();
    let replace = IrqOp::Replace {
        irq: 24,
        device: "eth1".to_owned(),
    };
    let script = [
        IrqStep::default(),
        IrqStep {
            before: vec![replace],
            ..IrqStep::default()
        },
    ];
    let (_, end) = run(&devices, &script, plans(vec![vec![to(24, "2")]]), acting);
    // It was no interrupt of perch's any more.
    assert_eq!((end.restored.irqs.gone, end.restored.irqs.restored), (0, 0));
    assert_eq!(devices.masks()[&24], "2");
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let devices = Devices::of(&[(24, "0-3")]);
    let (dir, acting) = live();
    let mut asked = 0;
    let policy = Sends(move |_: &Snapshot| {
        asked += 1;
        assert!(asked < 2, "as it must");
        plan(vec![to(24, "2")])
    });
    let machine = Interrupted::new(&devices, &steps(3));
    let mut session = Session::new(machine, options(policy, acting)).unwrap();
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _ = session.run(&mut ());
    }));
    assert!(run.is_err());
    assert_eq!(devices.masks()[&24], "0-3");
    assert_eq!(journals(&dir), 0);
}

#[test]
fn without_a_journal_nothing_is_moved() {
    let devices = Devices::of(&[(24, "0-3")]);
    let (dir, acting) = live();
    let path = dir.path().to_owned();
    std::fs::remove_dir_all(&path).unwrap();
    let (kept, _) = run(
        &devices,
        &steps(2),
        plans(vec![vec![to(24, "2")]; 2]),
        acting,
    );
    assert_eq!(outcomes(&kept.irq_moves[1]), [(24, Outcome::NotApplied)]);
    let said = kept
        .remarks
        .iter()
        .any(|remark| remark.contains("without a journal"));
    assert!(said, "{:?}", kept.remarks);
    assert_eq!(devices.masks()[&24], "0-3");
}

/// Before plans had interrupts, they were kept in a journal of target 0 with an empty default mask. The file holds one in
/// that form: IRQ 24 of eth0 went from 0-3 to 2, and IRQ 25 was about to go from 0-1 to 1.
#[test]
fn a_journal_of_an_earlier_perch_is_restored() {
    let devices = Devices::of(&[(24, "2"), (25, "0-1")]);
    let journal = Journal::parse(include_bytes!("data/irq-2.journal")).unwrap();
    assert_eq!((journal.damaged, journal.irqs().count()), (0, 2));
    let report = restore(&mut devices.clone(), &journal, None);
    assert_eq!((report.irqs.restored, report.irqs.already), (1, 1));
    assert_eq!(
        devices.masks().into_values().collect::<Vec<_>>(),
        ["0-3", "0-1"]
    );
}

/// What is written now is read the same; PERCH_WRITE_IRQ_JOURNAL=FILE keeps it.
#[test]
fn the_format_has_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let header = state_dir::header(PuSet::new()).unwrap();
    let dir = StateDir::open(dir.path()).unwrap();
    let mut file = JournalFile::create(&dir, header).unwrap();
    let record = |irq, before: &str, to: &str| {
        Record::Irq(IrqRecord {
            irq,
            device: "eth0".to_owned(),
            before: set(before),
            from: set(before),
            set: set(to),
        })
    };
    file.log_intent(&[record(24, "0-3", "2")]).unwrap();
    file.log_outcome(&[Record::IrqDone {
        irq: 24,
        outcome: Outcome::Applied,
    }])
    .unwrap();
    file.log_intent(&[record(25, "0-1", "1")]).unwrap();
    let written = std::fs::read(file.path()).unwrap();
    if let Some(path) = std::env::var_os("PERCH_WRITE_IRQ_JOURNAL") {
        std::fs::write(path, &written).unwrap();
    }
    let kept = Journal::parse(include_bytes!("data/irq-2.journal")).unwrap();
    let journal = Journal::parse(&written).unwrap();
    assert_eq!(journal.records(), kept.records());
}

fn op() -> impl Strategy<Value = IrqOp> {
    let irq = 0u32..4;
    let mask = prop::sample::select(vec!["0", "1-2", "0-3", "3"]);
    prop_oneof![
        (irq.clone(), mask).prop_map(|(irq, mask)| IrqOp::Set {
            irq,
            mask: set(mask)
        }),
        (irq.clone(), 0u64..5000).prop_map(|(irq, rate)| IrqOp::Rate { irq, rate }),
        irq.prop_map(|irq| IrqOp::Replace {
            irq,
            device: "eth1".to_owned()
        }),
    ]
}

fn script(ops: usize) -> impl Strategy<Value = Vec<IrqStep>> {
    let ops = move || prop::collection::vec(op(), 0..=ops);
    let step = (ops(), ops()).prop_map(|(before, race)| IrqStep { before, race });
    prop::collection::vec(step, 1..10)
}

fn four() -> Devices {
    Devices::of(&[(0, "0-3"), (1, "0-3"), (2, "0-1"), (3, "2-3")])
}

/// The masks that there would be if no perch had run. A mask that another process set to the very one that perch had in
/// force cannot be told from perch's.
fn fair(steps: &[IrqStep]) -> std::collections::BTreeMap<u32, String> {
    let devices = four();
    let ops = steps
        .iter()
        .flat_map(|step| step.before.iter().chain(&step.race));
    ops.for_each(|op| devices.run(op));
    devices.masks()
}

fn record(steps: &[IrqStep], salt: u64, acting: Acting) -> (Vec<u8>, Heard) {
    let machine = Interrupted::new(&four(), steps);
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

    /// Whenever perch is killed, reading its journal and restoring gives back all masks that it alone has changed.
    #[test]
    fn killed_at_any_moment_all_comes_back(
        periods in 1usize..10,
        salt: u64,
        at in 1usize..25,
        after: bool,
    ) {
        let devices = four();
        let first = devices.masks();
        let (dir, acting) = live();
        devices.kill(Kill { at, after }, dir.path());
        let (_, end) = run(&devices, &steps(periods), restless(salt), acting);
        let Some(left) = devices.take_killed() else {
            // It came to its end first.
            prop_assert!(!end.restored.has_failed());
            prop_assert_eq!(devices.masks(), first);
            return Ok(());
        };
        for bytes in left {
            let journal = Journal::parse(&bytes).unwrap();
            prop_assert_eq!(journal.damaged, 0);
            // Made shorter it says the same.
            let mut shortened = Journal::new(journal.header.clone());
            journal.records().iter().for_each(|record| shortened.add(record));
            prop_assert_eq!(journal.irqs().collect::<Vec<_>>(), shortened.irqs().collect::<Vec<_>>());
            let report = restore(&mut devices.clone(), &journal, None);
            prop_assert!(!report.has_failed() && report.irqs.left_alone == 0);
        }
        prop_assert_eq!(devices.masks(), first);
    }

    /// Whatever others do meanwhile, at the end every interrupt has the mask that it would have without perch; one that
    /// another process set to the mask which perch had in force at that moment, or whose number changed hands, may have
    /// another.
    #[test]
    fn masks_of_others_stay(script in script(1), salt: u64) {
        let devices = four();
        let (dir, acting) = live();
        let (_, end) = run(&devices, &script, restless(salt), acting);
        prop_assert!(!end.restored.has_failed());
        let fair = fair(&script);
        let ops = || script.iter().flat_map(|step| step.before.iter().chain(&step.race));
        for (irq, mask) in devices.masks() {
            let replaced = ops().any(|op| matches!(op, IrqOp::Replace { irq: of, .. } if *of == irq));
            let hidden = ops().any(|op| matches!(op, IrqOp::Set { irq: of, mask } if *of == irq && mask.len() == 1));
            if !replaced && !hidden {
                prop_assert_eq!(&mask, &fair[&irq], "IRQ {}", irq);
            }
        }
        prop_assert!(recover_all(&StateDir::open(dir.path()).unwrap(), &mut devices.clone()).unwrap().is_empty());
    }

    #[test]
    fn a_dry_run_played_back_with_its_policy_is_the_same(script in script(2), salt: u64) {
        let (recording, _) = record(&script, salt, Acting::DryRun(None));
        let (again, _) = replay(&recording, restless(salt));
        prop_assert_eq!(periods(&recording), periods(&again));
    }

    /// The policy sees in the recording what it saw then, and decides the same: as long as no other process came between
    /// its look and its deed, or set a mask back to what it was before perch, which looks as if nothing had happened.
    #[test]
    fn a_recording_of_what_was_done_leads_to_the_same_plans(mut script in script(2), salt: u64) {
        let mut set_already = std::collections::BTreeSet::new();
        for step in &mut script {
            step.race.clear();
            for op in &mut step.before {
                if let IrqOp::Set { mask, .. } = op {
                    *mask = set("1-2");
                }
            }
            step.before.retain(|op| match op {
                IrqOp::Set { irq, .. } => set_already.insert(*irq),
                IrqOp::Replace { .. } | IrqOp::Rate { .. } => true,
            });
        }
        let (_dir, acting) = live();
        let (recording, first) = record(&script, salt, acting);
        let (_, second) = replay(&recording, restless(salt));
        prop_assert_eq!(first.plans, second.plans);
    }
}
