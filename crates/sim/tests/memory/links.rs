//! Lines queue at the links between NUMA nodes.

use super::machine::{LINE, packages};
use perch_sim::{
    counters::Counters,
    memory::{Access, Hierarchy, Memory},
    units::{NANOSECOND, Ps},
};

/// A line on a link, in nanoseconds.
const LINK: u64 = 1_000;

/// When all is done that was under way before.
const LATER: Ps = 1_000_000 * NANOSECOND;

/// The memory of two packages of two cores with links, or without a limit.
fn linked(limited: bool) -> Memory {
    let mut model = packages();
    if limited {
        model.memory.link_bandwidth = LINE as f64 * 1e9 / LINK as f64;
    }
    Memory::new(&model)
}

/// How long an access takes, in nanoseconds.
fn access(memory: &mut Memory, pu: usize, access: Access, page: u64, line: u64, now: Ps) -> u64 {
    let address = page * 4096 + line * LINE;
    let counters = &mut Counters::default();
    memory.access(pu, pu as u32, access, address, now, counters) / NANOSECOND
}

fn load(memory: &mut Memory, pu: usize, page: u64, line: u64, now: Ps) -> u64 {
    access(memory, pu, Access::Load, page, line, now)
}

/// Page 0 is in node 0, page 1 in node 1.
fn placed(limited: bool) -> Memory {
    let mut memory = linked(limited);
    load(&mut memory, 0, 0, 0, 0);
    load(&mut memory, 2, 1, 0, 0);
    memory
}

#[test]
fn lines_of_another_nodes_memory_queue_at_the_link() {
    let waits = |limited, pu: usize, page: u64| {
        let mut memory = placed(limited);
        [1, 2, 3].map(|line| load(&mut memory, pu, page, line, LATER))
    };
    let first = waits(false, 0, 1)[0];
    assert_eq!(waits(false, 0, 1), [first; 3]);
    assert_eq!(waits(true, 0, 1), [0, 1, 2].map(|at| first + at * LINK));
    for (pu, page) in [(0, 0), (2, 1)] {
        let local = waits(true, pu, page);
        assert_eq!(local, waits(false, pu, page), "no link on the way");
    }
}

#[test]
fn each_direction_has_a_link_of_its_own() {
    let mut memory = placed(true);
    let one = load(&mut memory, 0, 1, 1, LATER);
    let other = load(&mut memory, 2, 0, 1, LATER);
    assert_eq!(one, other);
}

#[test]
fn what_is_written_back_to_another_nodes_memory_crosses_the_link() {
    let wait = |access_before: Access| {
        let mut memory = placed(true);
        for line in 1..50 {
            access(&mut memory, 0, access_before, 1, line, 0);
        }
        // Lines of its own node push those out.
        for line in 1..64 {
            load(&mut memory, 1, 0, line, LATER);
            load(&mut memory, 0, 0, line, LATER);
        }
        // This one comes the same way.
        load(&mut memory, 2, 0, 0, LATER)
    };
    let (read, written) = (wait(Access::Load), wait(Access::Store));
    assert!(written >= read + 20 * LINK, "{written} {read}");
}

#[test]
fn a_line_that_was_written_in_another_node_comes_from_there() {
    // In which node the page is.
    for page in [0, 1] {
        let mut memory = placed(true);
        access(&mut memory, 2, Access::Store, page, 1, 0);
        let got = load(&mut memory, 0, page, 1, LATER);
        let next = load(&mut memory, 0, 1, 2, LATER);
        assert_eq!(next, got + LINK, "page {page}: once, for reader and memory");
    }
}

#[test]
fn a_line_that_was_written_in_the_own_package_stays_there() {
    let times = |limited| {
        let mut memory = placed(limited);
        access(&mut memory, 3, Access::Store, 0, 1, 0);
        [1, 2].map(|line| load(&mut memory, 2, 0, line, LATER))
    };
    assert_eq!(times(true), times(false));
}
