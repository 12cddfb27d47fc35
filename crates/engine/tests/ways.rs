//! Ways of caches in a session on a machine that offers none: the action is refused once, with the reason.

use crate::common::{Shared, kernel, live, run, session, steps};
use perch_core::{
    Action, ActionKind, CacheWays, Outcome, Plan, Reason, Snapshot, ThreadId, WayMask,
};
use perch_engine::Acting;

fn with_two_threads() -> Shared {
    let (kernel, all) = kernel(2);
    for _ in 0..2 {
        kernel.write().unwrap().spawn(None, &all, 0.5);
    }
    kernel
}

fn action(thread: ThreadId, level: u8, bits: u32) -> Action {
    let ways = CacheWays::new(level, WayMask::new(bits).unwrap()).unwrap();
    Action {
        thread,
        what: ActionKind::CacheWays(ways),
        reason: Reason::new("a test"),
    }
}

fn plan(snapshot: &Snapshot, of_thread: impl Fn(ThreadId) -> Vec<Action>) -> Plan {
    let threads = snapshot.threads.iter();
    Plan {
        actions: threads
            .flat_map(|thread| of_thread(thread.info.id))
            .collect(),
        ..Plan::default()
    }
}

#[test]
fn a_machine_without_them_refuses_once_and_says_why() {
    let kernel = with_two_threads();
    let (_dir, acting) = live();
    let policy = |snapshot: &Snapshot| {
        let bits = if snapshot.period < 3 { 0x3 } else { 0x7 };
        plan(snapshot, |thread| vec![action(thread, 3, bits)])
    };
    let mut session = session(&kernel, steps(6), policy, acting, false);
    let (heard, _) = run(&mut session);
    let threads = 2;
    let refused: Vec<usize> = heard
        .actions
        .iter()
        .map(|actions| {
            let refused = |taken: &&perch_engine::ActionTaken| {
                taken.outcome == Outcome::NotPermitted && taken.from.is_none()
            };
            actions.iter().filter(refused).count()
        })
        .filter(|count| *count > 0)
        .collect();
    // Once for each mask that is asked for, not in every period.
    assert_eq!(refused, [threads, threads]);
    let all: usize = heard.actions.iter().map(Vec::len).sum();
    assert_eq!(all, 2 * threads);
    let why = "this machine cannot limit the ways of caches that threads fill";
    let said = heard.remarks.iter().filter(|text| *text == why).count();
    assert_eq!(said, 1, "{:?}", heard.remarks);
}

#[test]
fn a_dry_run_says_once_what_it_would_do() {
    let kernel = with_two_threads();
    let policy = |snapshot: &Snapshot| {
        let both = |thread| vec![action(thread, 2, 0x1), action(thread, 3, 0x3)];
        plan(snapshot, |thread| match snapshot.period < 3 {
            true => both(thread),
            false => vec![action(thread, 3, 0x3)],
        })
    };
    let mut session = session(&kernel, steps(6), policy, Acting::DryRun(None), false);
    let (heard, _) = run(&mut session);
    let threads = 2;
    let taken: Vec<_> = heard.actions.iter().flatten().collect();
    assert!(
        taken
            .iter()
            .all(|taken| taken.outcome == Outcome::NotApplied)
    );
    // Both are set, and one is undone.
    assert_eq!(taken.len(), 3 * threads, "{taken:?}");
    let undone = taken.iter().filter(|taken| taken.to.is_none());
    assert_eq!(undone.count(), threads);
}

#[test]
fn a_plan_with_two_masks_for_a_level_is_a_bug_of_the_policy() {
    let kernel = with_two_threads();
    let policy = |snapshot: &Snapshot| {
        let mut plan = plan(snapshot, |thread| {
            vec![action(thread, 3, 0x1), action(thread, 3, 0x3)]
        });
        plan.actions
            .push(action(ThreadId { tid: 77, start: 7 }, 3, 0x1));
        plan
    };
    let mut session = session(&kernel, steps(3), policy, Acting::DryRun(None), false);
    let (heard, _) = run(&mut session);
    let threads = 2;
    let taken: usize = heard.actions.iter().map(Vec::len).sum();
    assert_eq!(taken, threads);
    for fault in [
        "gave a thread ways of a level's caches twice",
        "gave ways of a cache to a thread that is not there",
    ] {
        assert!(
            heard.remarks.iter().any(|text| text.contains(fault)),
            "{:?}",
            heard.remarks
        );
    }
}
