//! A policy of one's own on a simulated machine: `docs/own-policy.md` explains it piece by piece.
//!
//! `cargo run --release -p perch-lab --example own_policy`

use perch_core::{Binding, Plan, Policy, PuSet, Reason, Snapshot, metric::names};
use perch_engine::{Acting, Options, Session, StateDir};
use perch_lab::SimProcessor;
use perch_sim::{config, machine::SimMachine, os::SchedulerModel, system::System};
use std::{error::Error, sync::Arc, time::Duration};

/// Deals threads over the cores by rising IPC: the slowest to core 0, the next to core 1, and round again.
struct Deal;

impl Policy for Deal {
    fn name(&self) -> &'static str {
        "deal"
    }

    fn needs(&self) -> &'static [&'static str] {
        &[names::IPC]
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let mut threads: Vec<_> = snapshot
            .threads
            .iter()
            .filter(|thread| thread.unmanaged.is_none())
            .filter_map(|thread| Some((thread.metrics.value(names::IPC)?, thread)))
            .collect();
        // A thread that is already bound keeps its binding: one good deal is enough.
        if threads.iter().any(|(_, thread)| thread.bound.is_some()) {
            let kept = threads.iter().filter_map(|(_, thread)| {
                Some(Binding {
                    thread: thread.info.id,
                    pus: thread.bound.clone()?,
                    reason: Reason::new("stays"),
                })
            });
            return Plan {
                bindings: kept.collect(),
                ..Plan::default()
            };
        }
        threads.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.info.id.cmp(&b.1.info.id)));
        let cores = &snapshot.topology.cores;
        let bindings = threads
            .into_iter()
            .enumerate()
            .filter_map(|(at, (ipc, thread))| {
                let core = &cores[at % cores.len()];
                let pu = core.pus.iter().nth(at / cores.len())?;
                thread.allowed.contains(pu).then(|| Binding {
                    thread: thread.info.id,
                    pus: PuSet::single(pu),
                    reason: Reason::new(format!("dealt to core {}", at % cores.len()))
                        .with(names::IPC, ipc),
                })
            });
        Plan {
            bindings: bindings.collect(),
            ..Plan::default()
        }
    }
}

/// Instructions of all threads in four simulated seconds of table 1's workload.
fn play(policy: Box<dyn Policy>) -> Result<u64, Box<dyn Error>> {
    let machine = Arc::new(config::find_machine("cmt-4x4")?);
    let workload = Arc::new(config::find_workload("cmt-table1")?);
    let system = System::new(Arc::clone(&machine), workload, SchedulerModel::default(), 1);
    let state = tempfile::tempdir()?;
    let mut session = Session::new(
        SimMachine::new(system, Some(Duration::from_secs(4))),
        Options::new(
            policy,
            Box::new(SimProcessor::new(&machine)),
            Acting::Live(StateDir::open(state.path())?),
        ),
    )?;
    let mut nobody: Vec<&mut dyn perch_engine::SessionSink> = Vec::new();
    session.run(&mut nobody)?;
    let threads = session.machine().system().threads().iter();
    Ok(threads.map(|thread| thread.counters.instructions()).sum())
}

fn main() -> Result<(), Box<dyn Error>> {
    let alone = play(Box::new(perch_policy::Observe))?;
    let dealt = play(Box::new(Deal))?;
    println!("the default scheduler: {alone} instructions; deal: {dealt}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dealt by rising IPC, each core gets one thread of each CPI: schedule (a) of table 1 of Fedorova et al., the best.
    #[test]
    fn dealing_is_no_worse_than_the_default() {
        let (alone, dealt) = (
            play(Box::new(perch_policy::Observe)).unwrap(),
            play(Box::new(Deal)).unwrap(),
        );
        assert!(dealt as f64 > 0.95 * alone as f64, "{dealt} {alone}");
    }
}
