//! Whose mask is whose, when the kernel changes it.

use perch_core::{
    HandsOff, Metrics, Observation, Outcome, PuSet, ThreadId, ThreadInfo, ThreadSample,
};
use perch_engine::ownership::Ownership;

const THREAD: ThreadId = ThreadId { tid: 7, start: 1 };

fn set(text: &str) -> PuSet {
    text.parse().unwrap()
}

fn seen(mask: &str) -> Observation {
    let info = ThreadInfo {
        id: THREAD,
        pid: 7,
        name: "t".into(),
        process: "t".into(),
    };
    let sample = ThreadSample {
        info,
        interval: 1,
        cpu_time: 1,
        wait_time: 0,
        switches: None,
        migrations: None,
        last_pu: None,
        mask: Some(set(mask)),
        counts: Vec::new(),
        metrics: Metrics::default(),
    };
    Observation {
        threads: vec![sample],
        ..Observation::default()
    }
}

/// A thread that nobody placed, bound by perch to PU 3 of eight.
fn bound() -> Ownership {
    let mut ownership = Ownership::new(set("0-7"), false);
    ownership.observe(&seen("0-7"), &set("0-7"));
    ownership.will_set(THREAD, &set("3"));
    ownership.outcome(THREAD, &set("3"), Outcome::Applied);
    ownership
}

#[test]
fn a_changed_cpuset_gives_the_whole_of_it_and_the_thread_stays_ours_to_place() {
    let mut ownership = bound();
    for cpuset in ["0-5", "0-7", "2-5"] {
        assert!(ownership.set_default(set(cpuset)));
        ownership.observe(&seen(cpuset), &set("0-7"));
        let owned = ownership.get(THREAD).unwrap();
        assert_eq!(
            (owned.hands_off, &owned.before, owned.held),
            (None, &set(cpuset), false),
            "{cpuset}"
        );
        ownership.will_set(THREAD, &set("3"));
        ownership.outcome(THREAD, &set("3"), Outcome::Applied);
    }
}

#[test]
fn the_same_mask_without_a_changed_cpuset_is_somebodys() {
    let mut ownership = bound();
    ownership.observe(&seen("0-7"), &set("0-7"));
    assert_eq!(
        ownership.get(THREAD).unwrap().hands_off,
        Some(HandsOff::ChangedByOthers)
    );
}

#[test]
fn another_mask_than_the_new_cpuset_is_somebodys_too() {
    let mut ownership = bound();
    ownership.set_default(set("0-5"));
    ownership.observe(&seen("1-2"), &set("0-7"));
    assert_eq!(
        ownership.get(THREAD).unwrap().hands_off,
        Some(HandsOff::ChangedByOthers)
    );
}

/// A child that a thread bound to PU 3 started while that PU was away: it may use all others until the PU is back.
fn with_a_child() -> (Ownership, ThreadId) {
    let mut ownership = bound();
    let child = ThreadId { tid: 8, start: 2 };
    let mut observation = seen("0-7");
    observation.threads[0].info.id = child;
    ownership.observe(&observation, &set("0-2,4-7"));
    assert!(!ownership.get(child).unwrap().held);
    (ownership, child)
}

fn shown(child: ThreadId, mask: &str) -> Observation {
    let mut observation = seen(mask);
    observation.threads[0].info.id = child;
    observation
}

#[test]
fn a_mask_that_comes_back_with_its_pu_is_known_in_that_period_and_in_the_next() {
    for late in [false, true] {
        let (mut ownership, child) = with_a_child();
        if late {
            ownership.observe(&shown(child, "0-7"), &set("0-7"));
        }
        ownership.observe(&shown(child, "3"), &set("0-7"));
        let owned = ownership.get(child).unwrap();
        assert!(owned.held && owned.hands_off.is_none(), "late: {late}");
        assert_eq!(owned.before, set("0-7"));
    }
}

#[test]
fn a_mask_that_perch_also_uses_is_somebodys_long_after_pus_came_back() {
    let (mut ownership, child) = with_a_child();
    for _ in 0..2 {
        ownership.observe(&shown(child, "0-7"), &set("0-7"));
    }
    ownership.observe(&shown(child, "3"), &set("0-7"));
    assert_eq!(
        ownership.get(child).unwrap().hands_off,
        Some(HandsOff::PlacedBefore)
    );
}

#[test]
fn the_kernels_mask_for_a_pu_that_is_about_to_go_is_not_somebodys() {
    for periods in [0, 1, 2, 5] {
        let mut ownership = bound();
        for _ in 0..=periods {
            ownership.observe(&seen("0-7"), &set("0-7"));
            // Until the PU has gone it may just as well have been somebody.
            let owned = ownership.get(THREAD).unwrap();
            assert_eq!(owned.hands_off, Some(HandsOff::ChangedByOthers));
        }
        ownership.observe(&seen("0-7"), &set("0-2,4-7"));
        let owned = ownership.get(THREAD).unwrap();
        let (held, hands_off) = match periods {
            5 => (false, Some(HandsOff::ChangedByOthers)),
            _ => (true, None),
        };
        assert_eq!(
            (owned.held, owned.hands_off, &owned.before),
            (held, hands_off, &set("0-7")),
            "{periods}"
        );
    }
}

#[test]
fn a_pu_that_goes_explains_no_other_mask() {
    let mut ownership = bound();
    ownership.observe(&seen("5"), &set("0-7"));
    ownership.observe(&seen("5"), &set("0-2,4-7"));
    assert_eq!(
        ownership.get(THREAD).unwrap().hands_off,
        Some(HandsOff::ChangedByOthers)
    );
}
