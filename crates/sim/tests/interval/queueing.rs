//! No thread waits behind more of its own lines than it has under way.

use super::{both, endless, near};
use crate::support::{machine, mix};
use perch_sim::{
    model::{MachineModel, Multithreading, Op},
    workload::{Mix, Pattern},
};

/// One core with a large window. Its memory takes `part` of the latency for each line.
fn with_service(part: f64) -> MachineModel {
    let mut machine = machine(1, 1, Multithreading::Simultaneous);
    (machine.kinds[0].window, machine.kinds[0].in_order) = (128, false);
    let seconds = part * machine.memory.latency as f64 * 1e-12;
    machine.memory.bandwidth = machine.caches[0].line as f64 / seconds;
    machine
}

/// Both levels agree on the speed of a thread that is alone, where a line takes `part` of the latency of memory.
fn agree(mix: &Mix, part: f64, within: f64) {
    let machine = with_service(part);
    let workload = endless(vec![mix.clone()], &[0]);
    let [exact, ours] = both(&machine, &workload, &[0], 4_000_000_000, 2_000_000_000);
    let [exact, ours] = [exact, ours].map(|of| of[0].instructions() as f64);
    let what = format!("{:?}, {part} of the latency for a line", mix.depends);
    near(ours, exact, within, &what);
}

#[test]
fn a_chain_of_loads_never_queues_behind_itself() {
    let ops = &[(Op::Alu, 0.5), (Op::Load, 0.5)];
    for part in [0.2, 0.5, 0.8] {
        agree(&mix("chain", ops, 32 << 20), part, 0.03);
    }
}

#[test]
fn who_has_few_lines_under_way_uses_nearly_all_of_a_channel() {
    let ops = &[(Op::Alu, 0.7), (Op::Load, 0.2), (Op::Branch, 0.1)];
    for (depends, pattern) in [
        (3, Pattern::Random),
        (5, Pattern::Random),
        (0, Pattern::Stride),
    ] {
        let mut some = mix("some", ops, 32 << 20);
        some.depends = depends.into();
        (some.working_sets[0].pattern, some.working_sets[0].stride) = (pattern, 64);
        for part in [0.1, 0.3, 0.5] {
            agree(&some, part, 0.1);
        }
    }
}
