//! The journal's file: any bytes, any truncation, any length of a session.

use perch_core::{Outcome, ProcessId, PuSet, ThreadId};
use perch_engine::{
    Journal, StateDir,
    journal::{Header, Kept, Knob, MaskRecord, Record, SetRecord, VERSION, file::JournalFile},
};
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;

fn header() -> Header {
    Header {
        journal: VERSION,
        session: "12-345-abc".to_owned(),
        boot: "abc".to_owned(),
        perch: ProcessId {
            pid: 12,
            start: 345,
        },
        default: "0-7".parse().unwrap(),
    }
}

fn pus() -> impl Strategy<Value = PuSet> {
    prop::collection::btree_set(0..8u32, 1..4).prop_map(PuSet::from_iter)
}

fn thread() -> impl Strategy<Value = ThreadId> {
    (1..40i32).prop_map(|tid| ThreadId { tid, start: 7 })
}

fn record() -> impl Strategy<Value = Record> {
    let outcome = prop::sample::select(vec![
        Outcome::Applied,
        Outcome::NotApplied,
        Outcome::Gone,
        Outcome::ChangedByOthers,
        Outcome::NotPermitted,
        Outcome::NoUsablePu,
    ]);
    prop_oneof![
        4 => (thread(), pus(), prop::collection::vec(pus(), 1..3), pus(), 0..1000u64).prop_map(
            |(thread, before, from, set, at)| Record::Set(SetRecord {
                thread, knob: Knob::Affinity, before, from, set, at,
            })
        ),
        4 => (thread(), outcome).prop_map(|(thread, outcome)| Record::Done { thread, outcome }),
        1 => thread().prop_map(|thread| Record::Free { thread }),
        1 => (1..9i32).prop_map(|pid| Record::Process(ProcessId { pid, start: 7 })),
        1 => (pus(), pus(), 0..1000u64)
            .prop_map(|(set, before, at)| Record::Mask(MaskRecord { set, before, at })),
    ]
}

fn text(records: &[Record]) -> Vec<u8> {
    let mut text = serde_json::to_vec(&header()).unwrap();
    text.push(b'\n');
    for record in records {
        serde_json::to_writer(&mut text, record).unwrap();
        text.push(b'\n');
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Journal::parse(&bytes);
    }

    #[test]
    fn garbage_between_records_loses_none_of_them(
        records in prop::collection::vec((record(), "[^\n]{0,40}"), 0..20),
    ) {
        let mut with_garbage = serde_json::to_vec(&header()).unwrap();
        let mut damaged = 0;
        for (record, garbage) in &records {
            let is_record = serde_json::from_str::<Record>(garbage).is_ok();
            prop_assume!(!is_record);
            damaged += usize::from(!garbage.is_empty());
            with_garbage.push(b'\n');
            with_garbage.extend(garbage.as_bytes());
            with_garbage.push(b'\n');
            serde_json::to_writer(&mut with_garbage, record).unwrap();
        }
        let records: Vec<Record> = records.into_iter().map(|(record, _)| record).collect();
        let clean = Journal::parse(&text(&records)).unwrap();
        let mut read = Journal::parse(&with_garbage).unwrap();
        prop_assert_eq!(read.damaged, damaged);
        read.damaged = 0;
        prop_assert_eq!(read, clean);
    }

    #[test]
    fn every_truncation_reads_as_the_whole_records_before_it(
        records in prop::collection::vec(record(), 1..8),
    ) {
        let whole = text(&records);
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap();
        for end in 0..whole.len() {
            let read = Journal::parse(&whole[..end]);
            if end < first {
                prop_assert!(read.is_err());
                continue;
            }
            let read = read.unwrap();
            // A line that only lacks its end is whole.
            let mut lines = whole[..end].iter().filter(|byte| **byte == b'\n').count();
            lines += usize::from(whole[end] == b'\n');
            let expected = Journal::parse(&text(&records[..lines - 1])).unwrap();
            prop_assert_eq!(read.threads().collect::<Vec<_>>(), expected.threads().collect::<Vec<_>>());
            prop_assert!(read.damaged <= 1);
        }
    }

    #[test]
    fn the_shortest_records_add_up_to_the_same(records in prop::collection::vec(record(), 0..60)) {
        let journal = Journal::parse(&text(&records)).unwrap();
        let again = Journal::parse(&text(&journal.records())).unwrap();
        prop_assert_eq!(again, journal);
    }

    #[test]
    fn the_file_says_what_was_written_and_stays_short(
        records in prop::collection::vec(record(), 0..60), rounds in 1usize..60,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let dir = StateDir::open(dir.path()).unwrap();
        let mut file = JournalFile::create(&dir, header()).unwrap();
        for _ in 0..rounds {
            file.announce(&records).unwrap();
            file.conclude(&[]).unwrap();
        }
        let bytes = std::fs::read(file.path()).unwrap();
        let read = Journal::parse(&bytes).unwrap();
        prop_assert_eq!(&read, file.journal());
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        // 40 threads, 8 processes, and as many masks as records; twice that and the slack, and one more write.
        prop_assert!(lines <= 2 * (49 + records.len()) + 512 + records.len(), "{}", lines);
        let path = file.path().to_owned();
        file.remove().unwrap();
        prop_assert!(!path.exists());
    }
}

#[test]
fn a_journal_of_another_format_is_refused() {
    let error = Journal::parse(b"{\"journal\":99}\n").unwrap_err();
    assert!(error.to_string().contains("99"), "{error}");
    let error = Journal::parse(b"hello\n").unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
}

#[test]
fn a_release_that_is_done_frees_the_thread() {
    let thread = ThreadId { tid: 5, start: 6 };
    let set = |from: &str, set: &str| {
        Record::Set(SetRecord {
            thread,
            knob: Knob::Affinity,
            before: "0-7".parse().unwrap(),
            from: vec![from.parse().unwrap()],
            set: set.parse().unwrap(),
            at: 9,
        })
    };
    let done = Record::Done {
        thread,
        outcome: Outcome::Applied,
    };
    let mut journal = Journal::new(header());
    journal.add(&set("0-7", "3"));
    journal.add(&done);
    assert!(
        matches!(journal.thread(thread), Some(Kept::Held(held)) if held.set == "3".parse().unwrap())
    );
    journal.add(&set("3", "0-7"));
    journal.add(&done);
    assert_eq!(journal.thread(thread), Some(&Kept::Free));
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perch");
    let made = StateDir::open(&path).unwrap();
    let mode = std::fs::metadata(made.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = StateDir::open(&path).unwrap_err();
    assert!(error.to_string().contains("PERCH_STATE_DIR"), "{error}");
    let link = dir.path().join("link");
    std::fs::create_dir(dir.path().join("real")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("real"), &link).unwrap();
    assert!(StateDir::open(&link).is_err());
}

#[test]
fn the_lines_of_a_journal() {
    let thread = ThreadId { tid: 5, start: 6 };
    let records = [
        Record::Process(ProcessId { pid: 5, start: 6 }),
        Record::Set(SetRecord {
            thread,
            knob: Knob::Affinity,
            before: "0-7".parse().unwrap(),
            from: vec!["0-7".parse().unwrap()],
            set: "3".parse().unwrap(),
            at: 678,
        }),
        Record::Done {
            thread,
            outcome: Outcome::Applied,
        },
        Record::Free { thread },
        Record::Mask(MaskRecord {
            set: "3".parse().unwrap(),
            before: "0-7".parse().unwrap(),
            at: 678,
        }),
        Record::Default {
            mask: "0-3".parse().unwrap(),
        },
    ];
    insta::assert_snapshot!(String::from_utf8(text(&records)).unwrap(), @r#"
    {"journal":1,"session":"12-345-abc","boot":"abc","perch":{"pid":12,"start":345},"default":"0-7"}
    {"process":{"pid":5,"start":6}}
    {"set":{"thread":{"tid":5,"start":6},"knob":"affinity","before":"0-7","from":["0-7"],"set":"3","at":678}}
    {"done":{"thread":{"tid":5,"start":6},"outcome":"applied"}}
    {"free":{"thread":{"tid":5,"start":6}}}
    {"mask":{"set":"3","before":"0-7","at":678}}
    {"default":{"mask":"0-3"}}
    "#);
}
