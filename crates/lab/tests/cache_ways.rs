//! Sessions confine simulated threads to ways of caches, and give all ways back.

use perch_core::{
    Action, ActionKind, CacheWays, Outcome, Plan, Policy, Reason, Snapshot, ThreadState, WayMask,
};
use perch_engine::{ActionTaken, Period, SessionSink};
use perch_lab::session::{Decider, SimSession};
use perch_policy::{Inputs, registry};
use perch_sim::{
    config::{find_machine, find_workload},
    detail::{Detail, Fidelity},
    os::SchedulerModel,
    system::System,
};
use std::{sync::Arc, time::Duration};

#[derive(Default)]
struct Seen {
    actions: Vec<(u64, ActionTaken)>,
    remarks: Vec<(String, String)>,
}

impl SessionSink for Seen {
    fn period(&mut self, period: &Period) {
        let at = period.observation.at / 1_000_000_000;
        self.actions
            .extend(period.actions.iter().map(|taken| (at, taken.clone())));
        let remarks = period.remarks.iter();
        self.remarks
            .extend(remarks.map(|remark| (remark.code.to_string(), remark.text.clone())));
    }
}

/// Threads at the interval level on a machine whose third level has 16 ways, for 6 s.
fn run(policy: Box<dyn Policy>) -> (Seen, SimSession) {
    let machine = Arc::new(find_machine("smt2-zen").unwrap());
    let workload = Arc::new(find_workload("fp-int-8").unwrap());
    let detail = Detail::new(Fidelity::Interval, &machine, &workload);
    let system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    let mut seen = Seen::default();
    let time = Duration::from_secs(6);
    let mut session = SimSession::new(system, time, Decider::new(policy)).unwrap();
    session.run(&mut seen).unwrap();
    (seen, session)
}

fn fixed(ways: &[&str]) -> Box<dyn Policy> {
    let mut options = toml::Table::new();
    let ways: Vec<toml::Value> = ways.iter().map(|rule| (*rule).into()).collect();
    options.insert("ways".to_owned(), ways.into());
    registry::build("fixed", &options, &Inputs::default()).unwrap()
}

fn ways(level: u8, bits: u32) -> CacheWays {
    CacheWays::new(level, WayMask::new(bits).unwrap()).unwrap()
}

/// One mask at first, then another, then none.
struct Changing;

impl Policy for Changing {
    fn name(&self) -> &'static str {
        "changing"
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let bits = match snapshot.at / 1_000_000_000 {
            0..2 => 0x3,
            2..4 => 0xf0,
            _ => return Plan::default(),
        };
        let action = |thread: &ThreadState| Action {
            thread: thread.info.id,
            what: ActionKind::CacheWays(ways(3, bits)),
            reason: Reason::new("a test"),
        };
        Plan {
            actions: snapshot.threads.iter().take(1).map(action).collect(),
            ..Plan::default()
        }
    }
}

#[test]
fn a_plan_sets_changes_and_undoes_masks() {
    let (seen, mut session) = run(Box::new(Changing));
    let taken: Vec<_> = seen
        .actions
        .iter()
        .map(|(_, taken)| (taken.from, taken.to, taken.outcome))
        .collect();
    let kind = |bits| Some(ActionKind::CacheWays(ways(3, bits)));
    assert_eq!(
        taken,
        [
            (None, kind(0x3), Outcome::Applied),
            (kind(0x3), kind(0xf0), Outcome::Applied),
            (kind(0xf0), None, Outcome::Applied),
        ]
    );
    let threads = session.system().threads();
    assert!(threads.iter().all(|thread| thread.ways.of(3).is_none()));
}

#[test]
fn rules_are_carried_out_and_given_back_at_the_end() {
    let (seen, mut session) = run(fixed(&["*=L3:0x3", "*=L2:0x1"]));
    let threads = session.system().threads();
    let both = 2 * threads.len();
    assert_eq!(seen.actions.len(), both);
    assert!(
        seen.actions
            .iter()
            .all(|(_, taken)| taken.outcome == Outcome::Applied)
    );
    for thread in threads {
        assert_eq!((thread.ways.of(2), thread.ways.of(3)), (None, None));
    }
    assert_eq!(seen.remarks, []);
}

#[test]
fn ways_that_the_machine_has_not_are_refused() {
    let (seen, _) = run(fixed(&["*=L3:0x1ffff"]));
    assert!(!seen.actions.is_empty());
    let refused = |(_, taken): &(u64, ActionTaken)| taken.outcome == Outcome::NotPermitted;
    assert!(seen.actions.iter().all(refused));
    let [(code, text)] = &seen.remarks[..] else {
        panic!("{:?}", seen.remarks);
    };
    assert_eq!(code, "cache-ways-refused");
    assert!(
        text.contains("17 ways") && text.contains("only 16"),
        "{text}"
    );
}
