//! What a core executes: how its contexts share slots, units, queues and misses.

use super::kind;
use perch_sim::{
    core::{Core, Supply},
    counters::Counters,
    memory::{Access, Hierarchy},
    model::{CoreKind, Latency, Multithreading, Op, Queue, QueueSharing, UnitPool, Until},
    stream::Instruction,
    units::Ps,
};

/// Threads that execute operations over and over, each of which depends on the one so far back (0: on none); each access
/// is to a line of its own.
struct Chain {
    threads: Vec<(Vec<Op>, u16)>,
    at: u64,
}

impl Supply for Chain {
    fn fill(&mut self, thread: u32, into: &mut [Instruction]) -> usize {
        let (ops, depends) = &self.threads[thread as usize];
        for instruction in &mut *into {
            *instruction = Instruction {
                op: ops[(self.at % ops.len() as u64) as usize],
                depends: *depends,
                extra: 0,
                mispredicted: false,
                at: 0,
                data: 64 * self.at,
            };
            self.at += 1;
        }
        into.len()
    }

    fn give_back(&mut self, _: u32, _: &[Instruction]) {}
}

/// Memory in which every load and store misses for this long.
struct Far(Ps);

impl Hierarchy for Far {
    fn line_of(&self, address: u64) -> u64 {
        address / 64
    }

    fn access(
        &mut self,
        _: usize,
        _: u32,
        access: Access,
        _: u64,
        _: Ps,
        counters: &mut Counters,
    ) -> Ps {
        match access {
            Access::Fetch => 0,
            Access::Load | Access::Store => {
                counters.data_misses[0] += 1;
                self.0
            }
        }
    }
}

/// So long that what is in flight at the end hardly counts.
pub const CYCLES: u64 = 1_000_000;

/// Instructions of each context in [`CYCLES`], with misses of 100 cycles. Only the first thread's operations depend on each
/// other.
fn executed(kind: &CoreKind, ops: &[Op], depends: u16) -> Vec<u64> {
    let of = |context| (ops.to_vec(), if context == 0 { depends } else { 0 });
    executed_of(kind, (0..kind.contexts).map(of).collect())
}

/// The same for a thread on each context, with what it executes and how far back each of its operations depends.
pub fn executed_of(kind: &CoreKind, threads: Vec<(Vec<Op>, u16)>) -> Vec<u64> {
    let mut core = Core::new(0, kind);
    let cycle = core.cycle_time();
    let contexts = threads.len();
    let mut supply = Chain { threads, at: 0 };
    let mut memory = Far(100 * cycle);
    for context in 0..contexts {
        core.assign(context, Some(context as u32), 0, &mut supply, &mut memory);
    }
    core.run(CYCLES * cycle, &mut supply, &mut memory, |_| ());
    let of = |context| core.take_counters(context).instructions();
    (0..contexts).map(of).collect()
}

pub fn queue(ops: &[Op], entries: u32, sharing: QueueSharing, until: Until) -> Queue {
    Queue {
        name: "queue".into(),
        number: 0,
        ops: ops.to_vec(),
        entries,
        sharing,
        per_context: None,
        until,
        partitioned: false,
    }
}

/// Little's law: as many loads as may be under way, each for 100 cycles and its own latency.
#[test]
fn misses_under_way_bound_what_memory_gives() {
    let mut kind = kind(1, Multithreading::Simultaneous, false, 64);
    let takes = 100 + u64::from(kind.latencies[Op::Load as usize].cycles);
    let rate = |kind: &CoreKind| executed(kind, &[Op::Load], 0)[0] as f64 / CYCLES as f64;
    let of = |most: f64| most / takes as f64;
    for most in [1, 4, 16] {
        kind.misses = most;
        let (found, expected) = (rate(&kind), of(f64::from(most)));
        assert!(
            (found / expected - 1.0).abs() < 0.02,
            "{most}: {found}, {expected}"
        );
    }
    kind.misses_of_stores = false;
    kind.misses = 1;
    assert!((rate(&kind) / of(1.0) - 1.0).abs() < 0.02, "loads");
    assert!(executed(&kind, &[Op::Store], 0)[0] > CYCLES * 9 / 10);
    kind.misses = 0;
    assert!((rate(&kind) / of(64.0) - 1.0).abs() < 0.02, "the window's");
}

/// Loads in pairs of the same line, which no pair before them touches. The first of a pair needs the second of the pair
/// before; the second needs nothing.
struct Pairs(u64);

impl Supply for Pairs {
    fn fill(&mut self, _: u32, into: &mut [Instruction]) -> usize {
        for instruction in &mut *into {
            *instruction = Instruction {
                op: Op::Load,
                depends: u16::from(self.0.is_multiple_of(2)),
                extra: 0,
                mispredicted: false,
                at: 0,
                data: 64 * (self.0 / 2),
            };
            self.0 += 1;
        }
        into.len()
    }

    fn give_back(&mut self, _: u32, _: &[Instruction]) {}
}

/// Memory in which the first access to a line misses for this long, and the next ones hit.
struct FirstMisses {
    takes: Ps,
    last: Option<u64>,
}

impl Hierarchy for FirstMisses {
    fn line_of(&self, address: u64) -> u64 {
        address / 64
    }

    fn access(
        &mut self,
        _: usize,
        _: u32,
        access: Access,
        address: u64,
        _: Ps,
        counters: &mut Counters,
    ) -> Ps {
        if access == Access::Fetch || self.last.replace(address / 64) == Some(address / 64) {
            return 0;
        }
        counters.data_misses[0] += 1;
        self.takes
    }
}

/// The second load of a line that is under way waits for it, although the cache has a place for it: so one pair follows
/// the other no sooner than the line takes.
#[test]
fn a_load_of_a_line_under_way_waits_for_it() {
    let kind = kind(1, Multithreading::Simultaneous, false, 64);
    let mut core = Core::new(0, &kind);
    let cycle = core.cycle_time();
    let mut memory = FirstMisses {
        takes: 100 * cycle,
        last: None,
    };
    let mut supply = Pairs(0);
    core.assign(0, Some(0), 0, &mut supply, &mut memory);
    core.run(CYCLES * cycle, &mut supply, &mut memory, |_| ());
    let found = core.take_counters(0).instructions() as f64 / CYCLES as f64;
    let takes = 100 + u64::from(kind.latencies[Op::Load as usize].cycles);
    let expected = 2.0 / takes as f64;
    assert!((found / expected - 1.0).abs() < 0.02, "{found}, {expected}");
}

/// Little's law for buffers: an entry is kept until the line is there.
#[test]
fn buffers_bound_loads_and_stores() {
    let mut kind = kind(1, Multithreading::Simultaneous, false, 64);
    for op in [Op::Load, Op::Store] {
        kind.queues = vec![queue(&[op], 8, QueueSharing::Shared, Until::End)];
        let takes = 100.0 + f64::from(kind.latencies[op as usize].cycles);
        let found = executed(&kind, &[op], 0)[0] as f64 / CYCLES as f64;
        let expected = 8.0 / takes;
        assert!(
            (found / expected - 1.0).abs() < 0.02,
            "{op:?}: {found}, {expected}"
        );
    }
    // A store that nothing bounds costs no more than its unit.
    kind.queues.clear();
    assert!(executed(&kind, &[Op::Store], 0)[0] > CYCLES * 9 / 10);
}

/// Contexts with a first-level data cache in common share the stores that it takes per cycle; others have a cache each.
#[test]
fn stores_of_all_contexts_share_what_their_cache_takes() {
    let mut kind = kind(2, Multithreading::Simultaneous, false, 1024);
    (kind.width, kind.window_shared) = (8, false);
    kind.units.iter_mut().for_each(|pool| pool.count = 8);
    kind.queues = vec![queue(&[Op::Store], 512, QueueSharing::Private, Until::End)];
    for (commits, private, expected) in [(1, false, 1), (2, false, 2), (1, true, 2), (2, true, 4)] {
        (kind.store_commits, kind.misses_private) = (commits, private);
        let both = executed(&kind, &[Op::Store], 0);
        let all = both.iter().sum::<u64>() as f64 / (CYCLES * expected) as f64;
        assert!((all - 1.0).abs() < 0.02, "{commits} {private}: {both:?}");
        let fair = both[0] as f64 / both[1] as f64;
        assert!((fair - 1.0).abs() < 0.05, "{both:?}");
    }
}

/// A thread whose operations wait for loads fills a shared scheduler; one with a queue of its own is not disturbed.
#[test]
fn who_waits_for_memory_takes_the_entries_of_a_shared_scheduler() {
    let mut kind = kind(2, Multithreading::Simultaneous, false, 128);
    kind.window_shared = false;
    let ops = [Op::Load, Op::Fp, Op::Fp, Op::Fp];
    let sibling = |kind: &CoreKind| executed(kind, &ops, 1)[1];
    let free = sibling(&kind);
    let mut with = |sharing| {
        let fp = [Op::Fp, Op::FpDivide];
        kind.queues = vec![queue(&fp, 16, sharing, Until::Start)];
        sibling(&kind)
    };
    let (shared, private) = (with(QueueSharing::Shared), with(QueueSharing::Private));
    assert!(shared * 3 < free * 2, "{shared} of {free}");
    assert!(private * 10 > free * 8, "{private} of {free}");
}

/// A chain of loads that miss takes a shared scheduler whole, so that its sibling gets an entry once a miss; a watermark
/// leaves the sibling some. Alone, a context may have all.
#[test]
fn a_watermark_keeps_a_chain_of_misses_from_starving_its_sibling() {
    let last = |most: Option<u32>, contexts: u32| {
        let mut kind = kind(contexts, Multithreading::Simultaneous, false, 128);
        let mut scheduler = queue(&Op::ALL, 32, QueueSharing::Shared, Until::Start);
        scheduler.per_context = most;
        kind.queues = vec![scheduler];
        let threads = [(vec![Op::Load], 1), (vec![Op::Fp], 0)];
        let executed = executed_of(&kind, threads[..contexts as usize].to_vec());
        executed[executed.len() - 1]
    };
    let (starved, served) = (last(None, 2), last(Some(24), 2));
    assert!(starved < CYCLES / 20, "{starved}");
    assert!(served > CYCLES * 9 / 10, "{served}");
    assert_eq!(last(None, 1), last(Some(2), 1), "nobody else is there");
}

/// A queue that only waits for data is left before what is older is complete.
#[test]
fn an_entry_may_be_kept_until_data_is_there() {
    // Each load waits for nothing but is complete only behind a division that takes long.
    let executed = |until| {
        let mut kind = kind(1, Multithreading::Simultaneous, false, 256);
        kind.latencies[Op::FpDivide as usize] = Latency {
            cycles: 2000,
            busy: 1,
        };
        kind.queues = vec![queue(&[Op::Load], 8, QueueSharing::Shared, until)];
        let ops = [&[Op::FpDivide][..], &[Op::Load; 31]].concat();
        executed(&kind, &ops, 0)[0]
    };
    let (end, data) = (executed(Until::End), executed(Until::Data));
    assert!(data > 2 * end, "{data} and {end}");
}

/// Operations that two pools do go to the one that is free: as many a cycle as both have units. Those that only one does
/// get it as ever.
#[test]
fn an_operation_may_go_to_either_of_two_pools() {
    for in_order in [false, true] {
        let mut kind = kind(1, Multithreading::Simultaneous, in_order, 64);
        kind.width = 8;
        let pool = |ops: &[Op], count| UnitPool {
            name: "pool".into(),
            ops: ops.into(),
            count,
            private: false,
            partitioned: false,
        };
        let rest = [Op::Multiply, Op::Divide, Op::Fp, Op::FpDivide, Op::Branch];
        kind.units = vec![
            pool(&[&[Op::Alu][..], &rest].concat(), 2),
            pool(&[Op::Load, Op::Store, Op::Alu], 2),
        ];
        let rate = |ops: &[Op]| executed(&kind, ops, 0)[0] as f64 / CYCLES as f64;
        assert!(
            (rate(&[Op::Alu]) - 4.0).abs() < 0.01,
            "in order: {in_order}"
        );
        assert!((rate(&[Op::Store]) - 2.0).abs() < 0.01);
        // Three in four are for both, one only for the second: all four are busy.
        let mixed = rate(&[Op::Store, Op::Alu, Op::Alu, Op::Alu]);
        assert!((mixed - 4.0).abs() < 0.1, "in order: {in_order}, {mixed}");
    }
}

/// Instructions of two micro-operations take two slots, and two places in the window.
#[test]
fn micro_operations_take_slots_and_places_in_the_window() {
    let rate = |multithreading, width, ops: &[Op]| {
        let mut kind = kind(1, multithreading, false, 64);
        kind.width = width;
        kind.units.iter_mut().for_each(|pool| pool.count = 8);
        kind.micro_ops[Op::Store as usize] = 2;
        kind.micro_ops[Op::Load as usize] = 2;
        executed(&kind, ops, 0)[0] as f64 / CYCLES as f64
    };
    let close = |found: f64, expected: f64| {
        assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}")
    };
    for (how, width) in [
        (Multithreading::Simultaneous, 3),
        (Multithreading::FineGrained, 3),
        (Multithreading::FineGrained, 1),
    ] {
        let width_of = f64::from(width);
        close(rate(how, width, &[Op::Fp]), width_of);
        close(rate(how, width, &[Op::Store]), width_of / 2.0);
        close(rate(how, width, &[Op::Store, Op::Fp]), width_of / 1.5);
    }
    // 32 loads are in flight, each for 100 cycles and its own latency.
    let mut kind = kind(1, Multithreading::Simultaneous, false, 64);
    let takes = 100.0 + f64::from(kind.latencies[Op::Load as usize].cycles);
    kind.micro_ops[Op::Load as usize] = 2;
    close(
        executed(&kind, &[Op::Load], 0)[0] as f64 / CYCLES as f64,
        32.0 / takes,
    );
    kind.micro_ops[Op::Load as usize] = 1;
    close(
        executed(&kind, &[Op::Load], 0)[0] as f64 / CYCLES as f64,
        64.0 / takes,
    );
}

/// What waits for a load that missed is sent to its unit again and again, for nothing: its sibling has the less of it, and
/// the thread itself loses nothing.
#[test]
fn replayed_operations_take_units_from_the_sibling() {
    let speeds = |replay| {
        let mut kind = kind(2, Multithreading::Simultaneous, false, 4);
        kind.replay = replay;
        let executed = executed_of(
            &kind,
            vec![(vec![Op::Load, Op::Alu], 1), (vec![Op::Alu], 0)],
        );
        [0, 1].map(|context| executed[context] as f64)
    };
    let (without, with) = (speeds(0), speeds(7));
    assert!(
        (with[0] / without[0] - 1.0).abs() < 0.02,
        "{without:?} {with:?}"
    );
    // Of the four in its window, three wait for the first, and each is sent every 7 cycles.
    let left = with[1] / without[1];
    assert!((left - 4.0 / 7.0).abs() < 0.05, "{without:?} {with:?}");
    // Data that comes when it is expected is waited for by nobody.
    let mut hits = kind(1, Multithreading::Simultaneous, false, 128);
    let alone = executed(&hits, &[Op::Alu, Op::Fp], 1);
    hits.replay = 7;
    assert_eq!(executed(&hits, &[Op::Alu, Op::Fp], 1), alone);
}

/// A thread is first in half of the cycles, if it shares a core with one other, whichever contexts are idle.
#[test]
fn idle_contexts_give_no_thread_an_advantage() {
    let mut kind = kind(4, Multithreading::Simultaneous, true, 1);
    kind.width = 1;
    let mut core = Core::new(0, &kind);
    let threads = vec![(vec![Op::Alu], 0), (vec![Op::Alu], 0)];
    let mut supply = Chain { threads, at: 0 };
    let mut memory = Far(0);
    for (context, thread) in [(0, 0), (1, 1)] {
        core.assign(context, Some(thread), 0, &mut supply, &mut memory);
    }
    core.run(CYCLES * core.cycle_time(), &mut supply, &mut memory, |_| ());
    for context in [0, 1] {
        let executed = core.take_counters(context).instructions();
        assert!(executed.abs_diff(CYCLES / 2) <= 1, "{context}: {executed}");
    }
}
