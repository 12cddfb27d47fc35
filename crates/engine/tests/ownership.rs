//! Whose mask is whose, when the kernel changes it.

use perch_core::{
    Metrics, Observation, Origin, Outcome, PuSet, Source, ThreadId, ThreadInfo, ThreadSample,
    Unmanaged,
};
use perch_engine::ownership::Ownership;

const THREAD: ThreadId = ThreadId { tid: 7, start: 1 };

fn set(text: &str) -> PuSet {
    text.parse().unwrap()
}

fn no_cpuset(_: ThreadId) -> Option<PuSet> {
    None
}

fn seen(mask: &str) -> Observation {
    let info = ThreadInfo {
        id: THREAD,
        pid: 7,
        name: "t".into(),
        process: "t".into(),
        work: perch_core::Work::default(),
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
        event_set: None,
        metrics: Metrics::default(),
    };
    Observation {
        threads: vec![sample],
        ..Observation::default()
    }
}

/// A thread whose affinity was not set, then bound by perch to PU 3 of eight.
fn bound() -> Ownership {
    let mut ownership = Ownership::new(set("0-7"), false);
    ownership.observe(&seen("0-7"), &set("0-7"), &no_cpuset);
    ownership.outcome(THREAD, &set("3"), Outcome::Applied, None, None);
    ownership
}

#[test]
fn a_changed_cpuset_gives_the_whole_of_it_and_the_thread_stays_ours_to_place() {
    let mut ownership = bound();
    for cpuset in ["0-5", "0-7", "2-5"] {
        assert!(ownership.set_default(set(cpuset)));
        ownership.observe(&seen(cpuset), &set("0-7"), &no_cpuset);
        let owned = ownership.get(THREAD).unwrap();
        // The kernel may remember the mask that perch asked for.
        assert_eq!(
            (
                owned.unmanaged,
                &owned.before,
                owned.bound(),
                owned.lapsed()
            ),
            (None, &set(cpuset), None, true),
            "{cpuset}"
        );
        ownership.outcome(THREAD, &set("3"), Outcome::Applied, None, None);
    }
}

#[test]
fn the_same_mask_without_a_changed_cpuset_is_foreign() {
    let mut ownership = bound();
    ownership.observe(&seen("0-7"), &set("0-7"), &no_cpuset);
    assert_eq!(
        ownership.get(THREAD).unwrap().unmanaged,
        Some(Unmanaged::ChangedByOthers)
    );
}

#[test]
fn another_mask_than_the_new_cpuset_is_foreign_too() {
    let mut ownership = bound();
    ownership.set_default(set("0-5"));
    ownership.observe(&seen("1-2"), &set("0-7"), &no_cpuset);
    assert_eq!(
        ownership.get(THREAD).unwrap().unmanaged,
        Some(Unmanaged::ChangedByOthers)
    );
}

/// A thread that is new in an observation, with what the kernel reported of its creation.
fn born(mask: &str, from: Option<Source>) -> Observation {
    let child = ThreadId { tid: 8, start: 2 };
    let mut observation = seen(mask);
    observation.threads[0].info.id = child;
    observation.origins.extend(from.map(|from| Origin {
        thread: child,
        from,
        exec: false,
        at: None,
    }));
    observation
}

/// A daemon's parent showed in `/proc` and ended before the kernel's record of its creation came.
#[test]
fn a_record_that_comes_after_its_thread_has_ended_tells_whose_its_children_are() {
    let mut ownership = bound();
    let parent = ThreadId { tid: 8, start: 2 };
    let mut observation = born("3", Some(Source::Process(1)));
    observation.ended.push(parent);
    ownership.observe(&observation, &set("0-7"), &no_cpuset);
    let daemon = ThreadId { tid: 9, start: 2 };
    let mut observation = seen("3");
    observation.threads[0].info.id = daemon;
    for (thread, from) in [(parent, THREAD), (daemon, parent)] {
        observation.origins.push(Origin {
            thread,
            from: Source::Thread(from),
            exec: false,
            at: None,
        });
    }
    ownership.observe(&observation, &set("0-7"), &no_cpuset);
    let owned = ownership.get(daemon).unwrap();
    assert_eq!(
        (owned.unmanaged, &owned.before, owned.bound()),
        (None, &set("0-7"), Some(&set("3")))
    );
}

fn child(ownership: &Ownership) -> (bool, Option<Unmanaged>) {
    let owned = ownership.get(ThreadId { tid: 8, start: 2 }).unwrap();
    (owned.held(), owned.unmanaged)
}

#[test]
fn a_child_of_a_bound_thread_whose_cpuset_is_changing_is_not_given_up() {
    for (cpuset, later, ours) in [("0-6", "3", true), ("0-7", "3", false), ("0-6", "4", false)] {
        let mut ownership = bound();
        let born = born("4", Some(Source::Thread(THREAD)));
        ownership.observe(&born, &set("0-7"), &no_cpuset);
        ownership.set_default(set(cpuset));
        for _ in 0..4 {
            let mut observation = seen(later);
            observation.threads[0].info.id = born.threads[0].info.id;
            ownership.observe(&observation, &set("0-7"), &no_cpuset);
        }
        let owned = ownership.get(born.threads[0].info.id).unwrap();
        assert_eq!(
            (owned.held(), owned.is_foreign()),
            (ours, !ours),
            "{cpuset} {later}"
        );
    }
}

#[test]
fn a_birth_that_is_reported_late_says_nothing_of_a_mask_that_perch_has_set_since() {
    let mut ownership = Ownership::new(set("0-7"), false);
    let mut first = born("0-7", None);
    let child = first.threads[0].info.id;
    first.at = 1;
    ownership.observe(&first, &set("0-7"), &no_cpuset);
    ownership.outcome(child, &set("3"), Outcome::Applied, Some((20, 30)), None);
    let mut late = born("3", Some(Source::Thread(THREAD)));
    late.at = 40;
    late.origins[0].at = Some(10);
    ownership.observe(&late, &set("0-7"), &no_cpuset);
    assert_eq!(ownership.get(child).unwrap().bound(), Some(&set("3")));
}

/// A double fork between two looks, whose records are still to come: `/proc` shows which process created which.
#[test]
fn a_grandchild_has_its_mask_from_the_nearest_process_that_was_known() {
    let mut ownership = bound();
    let mut observation = born("3", Some(Source::Process(7)));
    let mut daemon = observation.threads[0].clone();
    observation.threads[0].info.pid = 8;
    daemon.info.id = ThreadId { tid: 9, start: 3 };
    daemon.info.pid = 9;
    let mut origin = observation.origins[0];
    (origin.thread, origin.from) = (daemon.info.id, Source::Process(8));
    observation.threads.insert(0, daemon);
    observation.origins.push(origin);
    ownership.observe(&observation, &set("0-7"), &no_cpuset);
    let daemon = ownership.get(ThreadId { tid: 9, start: 3 }).unwrap();
    assert_eq!((daemon.held(), &daemon.before), (true, &set("0-7")));
}

/// The one between came and went between two looks, and what it created is seen only in the next.
#[test]
fn a_grandchild_that_is_seen_late_has_its_mask_from_one_that_had_ended() {
    let mut ownership = bound();
    let mut between = born("3", Some(Source::Thread(THREAD)));
    let middle = between.threads[0].info.id;
    between.ended.push(middle);
    ownership.observe(&between, &set("0-7"), &no_cpuset);
    let mut observation = born("3", Some(Source::Thread(middle)));
    let late = ThreadId { tid: 9, start: 3 };
    observation.threads[0].info.id = late;
    observation.threads[0].info.pid = 9;
    observation.origins[0].thread = late;
    ownership.observe(&observation, &set("0-7"), &no_cpuset);
    let owned = ownership.get(late).unwrap();
    assert_eq!((owned.held(), &owned.before), (true, &set("0-7")));
    assert!(ownership.get(middle).is_none());
}

#[test]
fn a_child_has_its_mask_from_its_creator_and_from_no_other_thread() {
    let (bound_one, free_one) = (Source::Thread(THREAD), ThreadId { tid: 9, start: 1 });
    let inherited = (true, None);
    let placed = (false, Some(Unmanaged::PlacedBefore));
    let unknown = (false, Some(Unmanaged::Unknown));
    // Or a cpuset that changes just now has made it.
    let doubted = (false, Some(Unmanaged::ChangedByOthers));
    for (mask, from, expected) in [
        ("3", Some(bound_one), inherited),
        ("0-7", Some(bound_one), (false, None)),
        ("4", Some(bound_one), doubted),
        // A thread whose affinity was not set cannot have passed on a mask that perch has set elsewhere.
        ("3", Some(Source::Thread(free_one)), placed),
        ("3", None, placed),
        // One of the two threads has that mask, the other has not.
        ("3", Some(Source::Process(7)), unknown),
        ("4", Some(Source::Process(7)), placed),
        ("0-7", Some(Source::Process(7)), (false, None)),
    ] {
        let mut ownership = bound();
        let mut other = seen("0-7");
        other.threads[0].info.id = free_one;
        ownership.observe(&other, &set("0-7"), &no_cpuset);
        ownership.observe(&born(mask, from), &set("0-7"), &no_cpuset);
        assert_eq!(child(&ownership), expected, "{mask} from {from:?}");
    }
    // The only one that can have created it is bound.
    let mut ownership = bound();
    ownership.observe(
        &born("3", Some(Source::Process(7))),
        &set("0-7"),
        &no_cpuset,
    );
    assert_eq!(child(&ownership), inherited);
}

#[test]
fn who_created_a_thread_may_be_told_late() {
    let mut ownership = bound();
    ownership.observe(&born("3", None), &set("0-7"), &no_cpuset);
    assert_eq!(child(&ownership).1, Some(Unmanaged::PlacedBefore));
    ownership.observe(
        &born("3", Some(Source::Thread(THREAD))),
        &set("0-7"),
        &no_cpuset,
    );
    assert_eq!(child(&ownership), (true, None));
}

#[test]
fn a_child_inherits_the_mask_that_its_creator_had_when_it_was_created() {
    for (at, mask, held) in [
        (150, "3", true),
        (150, "5", false),
        (1_000_000_000, "3", false),
        (1_000_000_000, "5", true),
    ] {
        let mut ownership = Ownership::new(set("0-7"), false);
        ownership.observe(&seen("0-7"), &set("0-7"), &no_cpuset);
        ownership.outcome(THREAD, &set("3"), Outcome::Applied, Some((100, 110)), None);
        ownership.outcome(THREAD, &set("5"), Outcome::Applied, Some((200, 210)), None);
        let mut observation = born(mask, Some(Source::Thread(THREAD)));
        observation.origins[0].at = Some(at);
        ownership.observe(&observation, &set("0-7"), &no_cpuset);
        assert_eq!(child(&ownership).0, held, "{mask} at {at}");
    }
}

#[test]
fn a_mask_that_a_child_cannot_have_now_is_known_as_its_creators() {
    // PU 3 is away when the child is born: it may use all others until the PU is back.
    let mut ownership = bound();
    let from = Some(Source::Thread(THREAD));
    ownership.observe(&born("0-7", from), &set("0-2,4-7"), &no_cpuset);
    assert!(
        ownership
            .get(ThreadId { tid: 8, start: 2 })
            .unwrap()
            .lapsed()
    );
    ownership.observe(&born("3", None), &set("0-7"), &no_cpuset);
    assert_eq!(child(&ownership), (true, None));
}

#[test]
fn the_caller_of_execve_keeps_its_mask_under_the_first_threads_number() {
    let first = ThreadId { tid: 6, start: 1 };
    let executed = |mask: &str, caller| {
        let mut observation = seen(mask);
        observation.threads[0].info.id = first;
        observation.ended.push(THREAD);
        observation.origins.push(Origin {
            thread: first,
            from: Source::Thread(caller),
            exec: true,
            at: None,
        });
        observation
    };
    let with_first = |mask: &str| {
        let mut ownership = bound();
        let mut other = seen(mask);
        other.threads[0].info.id = first;
        ownership.observe(&other, &set("0-7"), &no_cpuset);
        ownership
    };
    // The caller was bound by perch.
    let mut ownership = with_first("0-7");
    ownership.observe(&executed("3", THREAD), &set("0-7"), &no_cpuset);
    let owned = ownership.get(first).unwrap();
    assert_eq!(
        (owned.bound(), &owned.before),
        (Some(&set("3")), &set("0-7"))
    );
    assert!(ownership.get(THREAD).is_none());
    // The same, and it was sampled under its own number a moment before.
    let mut ownership = with_first("0-7");
    let mut observation = executed("3", THREAD);
    observation.ended.clear();
    observation.threads.extend(seen("3").threads);
    ownership.observe(&observation, &set("0-7"), &no_cpuset);
    assert_eq!(ownership.get(first).unwrap().bound(), Some(&set("3")));
    assert!(ownership.get(THREAD).is_none());
    // The first thread itself: its mask still belongs to another process.
    let mut ownership = with_first("3");
    ownership.observe(&executed("3", first), &set("0-7"), &no_cpuset);
    let owned = ownership.get(first).unwrap();
    assert_eq!(
        (owned.bound(), owned.unmanaged),
        (None, Some(Unmanaged::PlacedBefore))
    );
}

#[test]
fn a_mask_that_perch_has_used_is_foreign_on_a_thread_that_it_let_go() {
    let mut ownership = bound();
    ownership.outcome(THREAD, &set("0-7"), Outcome::Applied, None, None);
    ownership.observe(&seen("3"), &set("0-7"), &no_cpuset);
    let owned = ownership.get(THREAD).unwrap();
    assert_eq!(
        (owned.held(), owned.unmanaged),
        (false, Some(Unmanaged::ChangedByOthers))
    );
}

#[test]
fn a_foreign_mask_that_the_kernel_replaces_is_still_foreign() {
    let mut ownership = Ownership::new(set("0-7"), false);
    ownership.observe(&seen("3"), &set("0-7"), &no_cpuset);
    ownership.set_default(set("4-7"));
    for _ in 0..5 {
        ownership.observe(&seen("4-7"), &set("4-7"), &no_cpuset);
        let owned = ownership.get(THREAD).unwrap();
        assert_eq!(owned.unmanaged, Some(Unmanaged::PlacedBefore));
    }
}

#[test]
fn the_kernels_mask_for_a_pu_that_is_about_to_go_is_not_foreign() {
    for periods in [0, 1, 2, 5] {
        let mut ownership = bound();
        for _ in 0..=periods {
            ownership.observe(&seen("0-7"), &set("0-7"), &no_cpuset);
            // Until the PU goes offline, another process may just as well have set the mask.
            let owned = ownership.get(THREAD).unwrap();
            assert_eq!(owned.unmanaged, Some(Unmanaged::ChangedByOthers));
        }
        ownership.observe(&seen("0-7"), &set("0-2,4-7"), &no_cpuset);
        let owned = ownership.get(THREAD).unwrap();
        let (held, unmanaged) = match periods {
            5 => (false, Some(Unmanaged::ChangedByOthers)),
            _ => (true, None),
        };
        assert_eq!(
            (owned.held(), owned.unmanaged, &owned.before),
            (held, unmanaged, &set("0-7")),
            "{periods}"
        );
    }
}

#[test]
fn a_foreign_mask_is_not_perchs_again_because_it_equals_what_perch_had_set() {
    for between in ["5", "0-7", "2-3"] {
        // The PU that goes offline comes back between: a kernel that remembers gives the mask back.
        for (usable, ours) in [("0-7", false), ("0-2,4-7", true)] {
            let mut ownership = bound();
            ownership.observe(&seen(between), &set("0-7"), &no_cpuset);
            if between == "0-7" {
                ownership.observe(&seen(between), &set(usable), &no_cpuset);
            }
            for _ in 0..6 {
                ownership.observe(&seen("3"), &set("0-7"), &no_cpuset);
            }
            let owned = ownership.get(THREAD).unwrap();
            let ours = ours && between == "0-7";
            assert_eq!(
                (owned.held(), owned.is_foreign()),
                (ours, !ours),
                "{between} {usable}"
            );
        }
    }
}

#[test]
fn a_thread_whose_own_cpuset_went_back_and_forth_is_still_perchs() {
    for (own, ours) in [("3-4", true), ("0-7", false)] {
        let mut ownership = bound();
        let allowed = |_| Some(set("0-7"));
        ownership.observe(&seen("5"), &set("0-7"), &allowed);
        for own in [own, "0-7", "0-7", "0-7", "0-7"] {
            let allowed = |_| Some(set(own));
            ownership.observe(&seen("3"), &set("0-7"), &allowed);
        }
        let owned = ownership.get(THREAD).unwrap();
        assert_eq!((owned.held(), owned.is_foreign()), (ours, !ours), "{own}");
    }
}

#[test]
fn a_pu_that_goes_explains_no_other_mask() {
    let mut ownership = bound();
    ownership.observe(&seen("5"), &set("0-7"), &no_cpuset);
    ownership.observe(&seen("5"), &set("0-2,4-7"), &no_cpuset);
    assert_eq!(
        ownership.get(THREAD).unwrap().unmanaged,
        Some(Unmanaged::ChangedByOthers)
    );
}

#[test]
fn a_mask_from_which_the_kernel_has_struck_an_offline_pu_is_not_foreign() {
    for noticed in [true, false] {
        let mut ownership = bound();
        if noticed {
            ownership.observe(&seen("0-2,4-7"), &set("0-2,4-7"), &no_cpuset);
        }
        let rest = set("0-2,4-7");
        let rest = (!noticed).then_some(&rest);
        ownership.outcome(THREAD, &set("0-7"), Outcome::Applied, None, rest);
        // Before and after PU 3 is back.
        for usable in ["0-2,4-7", "0-7", "0-7", "0-7", "0-7", "0-7"] {
            ownership.observe(&seen("0-2,4-7"), &set(usable), &no_cpuset);
            let owned = ownership.get(THREAD).unwrap();
            assert_eq!(
                (owned.unmanaged, &owned.before),
                (None, &set("0-7")),
                "{noticed}: {usable}"
            );
        }
    }
}
