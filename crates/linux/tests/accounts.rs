//! CPU time of threads and processes that end between two looks is accounted for.

mod common;

use common::{alone, machine, of_children, shell, until_end};
use perch_core::Targets;
use perch_linux::LinuxMachine;

#[test]
fn short_lived_processes_are_unmeasured_not_forgotten() {
    let _alone = alone();
    let before = of_children();
    let script = "i=0; while [ $i -lt 60 ]; do \
                  sh -c 'j=0; while [ $j -lt 4000 ]; do j=$((j+1)); done'; i=$((i+1)); done";
    // With exit records they would be measured.
    let mut machine = LinuxMachine::builder().per_thread(true).build().unwrap();
    machine.launch(&shell(script)).unwrap();
    let (seen, _) = until_end(&mut machine);
    drop(machine);
    let all = of_children() - before;
    let sampled: u64 = seen
        .iter()
        .flat_map(|seen| &seen.threads)
        .map(|thread| thread.cpu_time)
        .sum();
    let unmeasured: u64 = seen.iter().map(|seen| seen.unmeasured).sum();
    assert!(
        unmeasured > all / 4,
        "{unmeasured} of {all} ns, {sampled} measured"
    );
    // The kernel tells ticks of 10 ms, rounded down; what perch does before the program starts is the child's too.
    let known = sampled + unmeasured;
    let (least, most) = (
        all - all / 10 - 100_000_000.min(all / 3),
        all + all / 10 + 50_000_000,
    );
    assert!(
        (least..most).contains(&known),
        "{known} of {all} ns: {sampled} and {unmeasured}"
    );
}

#[test]
fn a_program_that_is_measured_to_its_end_has_next_to_nothing_unmeasured() {
    let _alone = alone();
    let mut machine = machine();
    let script = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
    machine.launch(&shell(script)).unwrap();
    let (seen, _) = until_end(&mut machine);
    let sampled: u64 = seen
        .iter()
        .flat_map(|seen| &seen.threads)
        .map(|thread| thread.cpu_time)
        .sum();
    let unmeasured: u64 = seen.iter().map(|seen| seen.unmeasured).sum();
    assert!(
        unmeasured <= sampled / 10 + 30_000_000,
        "{unmeasured}, {sampled} measured"
    );
}
