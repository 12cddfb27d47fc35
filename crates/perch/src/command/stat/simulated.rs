//! The series of a simulated machine: what is counted there is exact, and known to the user who wrote the workload.

use super::{
    drive::Clock, formulas::Formulas, modules::Chosen, output::Printer, wanted::Wanted,
    without_program,
};
use crate::args::StatArgs;
use anyhow::{Result, bail};
use perch_core::{Count, CountedSet, Machine, Observation};
use perch_lab::{processor::SimProcessor, scene::system};
use perch_sim::{config, detail::Detail, machine::SimMachine};
use perch_stat::{Collector, Request, RequestedSet};
use std::{collections::HashSet, process::ExitCode, sync::Arc, time::Duration};

/// How long the workload is simulated unless --for says so, as `perch sim` does.
const TIME: Duration = Duration::from_secs(10);

/// Simulates the workload under the default scheduler and counts.
///
/// # Errors
/// Files that are wrong, events that a simulated machine does not count, a deadlock.
pub fn stat(args: &StatArgs, machine: &str, workload: &str) -> Result<ExitCode> {
    let machine = Arc::new(config::find_machine(machine)?);
    let workload = Arc::new(config::find_workload(workload)?);
    let time = args.duration.unwrap_or(TIME);
    let profile = SimProcessor::new(&machine).profile().clone();
    let formulas = Formulas::read(args, &profile)?;
    let modules = Chosen::of_recording(args)?;
    let wanted = Wanted::new(args, &profile, true, formulas, &modules)?;
    if wanted.request.has_thresholds() {
        bail!(
            "`:every=`: a simulated machine makes no records of events: leave it out, and give an interval (-i)"
        );
    }
    let printer = Printer::new(args, &wanted, false)?;
    let detail = Detail::new(args.fidelity, &machine, &workload);
    let system = system(&detail, &machine, &workload, args.seed);
    let mut machine = SimMachine::new(system, Some(time));
    machine.watch_pus(wanted.by.is_of_pus())?;
    machine.configure(&wanted.request.plan(&profile))?;
    let collector = Collector::new(wanted.options(args), profile);
    let mut rotation = Rotation::new(&wanted.request);
    without_program(
        args,
        Clock::Observed,
        &mut machine,
        collector,
        printer,
        |observation| rotation.turn(observation),
    )
}

/// Event sets in rotation, one an interval, as on a machine without a counter for each event: a simulated one counts all of
/// them.
struct Rotation {
    /// The aliases of each set.
    sets: Vec<HashSet<Arc<str>>>,
    turn: usize,
}

impl Rotation {
    fn new(request: &Request) -> Self {
        let set = |set: &RequestedSet| {
            let events = set.events.iter();
            events.map(|event| Arc::clone(&event.alias)).collect()
        };
        Self {
            sets: request.sets.iter().map(set).collect(),
            turn: 0,
        }
    }

    /// Leaves the counts of the set of this interval.
    fn turn(&mut self, observation: &mut Observation) {
        if self.sets.len() < 2 {
            return;
        }
        let number = self.turn % self.sets.len();
        self.turn += 1;
        let set = &self.sets[number];
        let counted = |counts: &mut Vec<Count>, enabled: u64| {
            counts.retain(|count| set.contains(&count.alias));
            Some(CountedSet {
                number: number as u32,
                enabled,
            })
        };
        for sample in &mut observation.threads {
            sample.event_set = counted(&mut sample.counts, sample.cpu_time);
        }
        for sample in &mut observation.pus {
            sample.event_set = counted(&mut sample.counts, sample.interval);
        }
    }
}
