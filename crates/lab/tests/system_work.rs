//! Policies that move the operating system's work and slow cores down, on a simulated machine.

use perch_core::{Outcome, PuSet};
use perch_engine::{Period, SessionSink};
use perch_lab::session::{Decider, SimSession};
use perch_policy::{Inputs, registry};
use perch_sim::{
    config::{find_machine, find_workload},
    detail::{Detail, Fidelity},
    model::MachineModel,
    os::SchedulerModel,
    system::System,
    workload::WorkloadModel,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Eight cores of two contexts, which can run at three clocks.
fn machine() -> MachineModel {
    let mut machine = find_machine("smt2-zen").unwrap();
    machine.kinds[0].clocks = vec![1_800_000, 2_700_000, 3_600_000];
    machine
}

fn daemons() -> WorkloadModel {
    find_workload("daemons").unwrap()
}

/// What was seen of the operating system's threads, and what was changed.
#[derive(Default)]
struct Seen {
    system: BTreeSet<String>,
    programs: BTreeSet<String>,
    bound: BTreeSet<(String, String)>,
    clocks: BTreeSet<String>,
    failed: usize,
}

impl SessionSink for Seen {
    fn period(&mut self, period: &Period) {
        for sample in &period.observation.threads {
            let names = match sample.info.work.is_program() {
                true => &mut self.programs,
                false => &mut self.system,
            };
            names.insert(sample.info.name.to_string());
        }
        for moved in &period.moves {
            if let (Outcome::Applied, Some(to)) = (&moved.outcome, &moved.to) {
                let name = period.observation.threads.iter();
                let mut name = name.filter(|sample| sample.info.id == moved.thread);
                let name = name.next().map(|sample| sample.info.name.to_string());
                self.bound
                    .insert((name.unwrap_or_default(), to.to_string()));
            }
        }
        for setting in &period.setting_moves {
            self.failed += usize::from(setting.outcome != Outcome::Applied);
            self.clocks.insert(format!("{:?}", setting.to));
        }
    }
}

fn run(policy: &str, model: MachineModel) -> (Seen, SimSession) {
    let (machine, workload) = (Arc::new(model), Arc::new(daemons()));
    let detail = Detail::new(Fidelity::Interval, &machine, &workload);
    let system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    let policy = registry::build(policy, &toml::Table::new(), &Inputs::default()).unwrap();
    let mut seen = Seen::default();
    let mut session =
        SimSession::new(system, Duration::from_secs(8), Decider::new(policy)).unwrap();
    session.run(&mut seen).unwrap();
    (seen, session)
}

#[test]
fn daemons_go_to_one_pu_and_clocks_come_back() {
    let (seen, mut session) = run("ps-sched-2", machine());
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let daemons: BTreeSet<String> = names(&["indexer", "monitor"]);
    assert_eq!(seen.system, daemons);
    assert_eq!(seen.programs.len(), 8);
    for daemon in daemons {
        assert!(
            seen.bound.contains(&(daemon, "0".to_owned())),
            "{:?}",
            seen.bound
        );
    }
    assert!(!seen.clocks.is_empty());
    assert_eq!(seen.failed, 0);
    let system = session.system();
    for core in 0..8 {
        assert_eq!(system.point(core).clock, 3_600_000, "core {core}");
    }
    let all: PuSet = (0..16).collect();
    assert!(system.threads().iter().all(|thread| thread.mask == all));
}

/// Where cores have one clock, the work is moved all the same.
#[test]
fn daemons_go_to_one_pu_where_clocks_cannot_be_set() {
    let (seen, _) = run("ps-sched-1", find_machine("smt2-zen").unwrap());
    assert!(seen.bound.contains(&("indexer".to_owned(), "0".to_owned())));
    assert!(seen.clocks.is_empty());
}

#[test]
fn others_do_not_see_the_operating_system_s_threads() {
    let (seen, _) = run("workover", machine());
    assert!(seen.system.is_empty());
    assert_eq!(seen.programs.len(), 8);
    assert!(
        seen.bound
            .iter()
            .all(|(name, _)| name.starts_with("worker"))
    );
}
