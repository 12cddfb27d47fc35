//! The journal's file: any bytes, any truncation, any length of a session.

use perch_core::{Outcome, ProcessId, PuSet, Setting, SettingValue, ThreadId, affinity::Image};
use perch_engine::{
    Journal, StateDir,
    journal::{
        Header, Kept, Knob, MaskRecord, Namespaces, ProcessRecord, Record, SetRecord,
        SettingRecord, VERSION, file::JournalFile,
    },
};
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;

fn header() -> Header {
    Header {
        journal: VERSION,
        session: "12-345-abc".to_owned(),
        target: 0,
        machine: String::new(),
        boot: "abc".to_owned(),
        perch: ProcessId {
            pid: 12,
            start: 345,
        },
        namespaces: Namespaces::default(),
        default: "0-7".parse().unwrap(),
        whole: true,
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
    let process = || 1..9i32;
    let whole = || any::<bool>().prop_map(Some);
    let froms = prop::collection::vec(pus(), 1..3);
    prop_oneof![
        4 => (thread(), process(), pus(), whole(), froms, pus(), 0..1000u64).prop_map(
            |(thread, process, before, whole, from, set, at)| Record::Set(SetRecord {
                thread, process, knob: Knob::Affinity, before, whole, from, set, let_go: whole, at,
            })
        ),
        4 => (thread(), outcome).prop_map(|(thread, outcome)| Record::Done { thread, outcome }),
        1 => (thread(), process()).prop_map(|(thread, process)| Record::Free { thread, process }),
        1 => (process(), any::<u64>()).prop_map(|(pid, code)| Record::Process(ProcessRecord {
            id: ProcessId { pid, start: 7 },
            image: Some(Image { code, stack: 3 }),
            unseen: code.is_multiple_of(2),
            first_ended: code.is_multiple_of(3),
            ended: code.is_multiple_of(5).then_some(code),
        })),
        1 => (process(), pus(), pus(), whole(), 0..1000u64).prop_map(
            |(process, set, before, whole, at)| Record::Mask(MaskRecord {
                process, set, before, whole, at,
            })
        ),
        1 => (process(), prop::collection::vec((1..40i32, Just(7u64)), 0..4)).prop_map(
            |(process, threads)| Record::Seen { process, threads }
        ),
        1 => (process(), prop::collection::vec((1..40i32, Just(7u64)), 0..4)).prop_map(
            |(process, threads)| Record::NiceSeen { process, threads }
        ),
        1 => process().prop_map(|pid| Record::Forgotten { process: ProcessId { pid, start: 7 } }),
        1 => (0..3u32, pus(), pus(), pus()).prop_map(|(queue, before, from, set)| Record::Setting(SettingRecord {
            setting: Setting::WorkQueue(format!("queue{queue}")),
            before: SettingValue::Pus(before),
            from: SettingValue::Pus(from),
            set: SettingValue::Pus(set),
        })),
        1 => (0..3u32, prop::option::of(pus()), any::<bool>()).prop_map(|(queue, found, applied)| Record::SettingDone {
            setting: Setting::WorkQueue(format!("queue{queue}")),
            outcome: if applied { Outcome::Applied } else { Outcome::ChangedByOthers },
            found: found.map(SettingValue::Pus),
        }),
        1 => (thread(), "g[0-3]").prop_map(|(thread, group)| Record::Group { thread, group }),
        1 => "g[0-3]".prop_map(|group| Record::GroupRemoved { group }),
    ]
}

/// What stands on disk after these records.
fn bytes(records: &[Record]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let dir = StateDir::open(dir.path()).unwrap();
    let mut file = JournalFile::create(&dir, header()).unwrap();
    for record in records {
        file.log_intent(std::slice::from_ref(record)).unwrap();
    }
    std::fs::read(file.path()).unwrap()
}

/// Something that happens to a file.
#[derive(Debug, Clone)]
enum Damage {
    Flip { at: usize, bit: u8 },
    Cut { at: usize },
    Delete { line: usize },
    Double { line: usize },
    Swap { line: usize },
    Insert { line: usize, text: String },
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<usize>;
    prop_oneof![
        3 => (at(), 0..8u8).prop_map(|(at, bit)| Damage::Flip { at, bit }),
        3 => at().prop_map(|at| Damage::Cut { at }),
        1 => at().prop_map(|line| Damage::Delete { line }),
        1 => at().prop_map(|line| Damage::Double { line }),
        1 => at().prop_map(|line| Damage::Swap { line }),
        1 => (at(), "[a-f0-9{}: ]{1,30}").prop_map(|(line, text)| Damage::Insert { line, text }),
    ]
}

impl Damage {
    fn done_to(&self, bytes: &[u8]) -> Vec<u8> {
        let mut lines: Vec<Vec<u8>> = bytes
            .split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect();
        let count = lines.len();
        match self {
            Self::Flip { at, bit } => {
                let mut bytes = bytes.to_vec();
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
                return bytes;
            }
            Self::Cut { at } => return bytes[..at % bytes.len()].to_vec(),
            Self::Delete { line } => {
                lines.remove(line % count);
            }
            Self::Double { line } => lines.insert(line % count, lines[line % count].clone()),
            Self::Swap { line } => lines.swap(line % count, (line + 1) % count),
            Self::Insert { line, text } => {
                lines.insert(line % count, format!("{text}\n").into_bytes())
            }
        }
        lines.concat()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(
        format in prop::sample::select(vec!["", "{", "perch-journal 2 ", "perch-journal 2 0000000000000000\n"]),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = Journal::parse(&[format.as_bytes(), &bytes].concat());
    }

    #[test]
    fn no_damage_goes_unnoticed(
        records in prop::collection::vec(record(), 1..20), damage in damage(),
    ) {
        let whole = bytes(&records);
        let clean = Journal::parse(&whole).unwrap();
        prop_assert_eq!(clean.damaged, 0);
        let damaged = damage.done_to(&whole);
        if let Ok(read) = Journal::parse(&damaged) {
            // All is there, at least.
            prop_assert!(read == clean || read.damaged > 0, "{damage:?}");
        }
    }

    #[test]
    fn what_is_not_damaged_is_read(
        records in prop::collection::vec(record(), 1..20), line in any::<usize>(), bit in 0..8u8,
    ) {
        let mut lines: Vec<Vec<u8>> =
            bytes(&records).split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        // The first line, and both of the header's; one of these may be damaged too.
        let line = line % lines.len();
        lines[line][3] ^= 1 << bit;
        let read = Journal::parse(&lines.concat()).unwrap();
        let others = records.iter().enumerate().filter(|(at, _)| at + 3 != line);
        let mut expected = Journal::new(header());
        others.for_each(|(_, record)| expected.add(record));
        prop_assert!(read.damaged >= 1);
        expected.damaged = read.damaged;
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn a_write_that_was_cut_short_is_no_damage(
        records in prop::collection::vec(record(), 1..8), more in record(), cut in any::<usize>(),
    ) {
        let before = bytes(&records);
        let after = bytes(&[&records[..], &[more]].concat());
        // The length in the first line is written last.
        let first = before.iter().position(|byte| *byte == b'\n').unwrap();
        let torn = [&before[..first], &after[first..after.len() - 2 - cut % (after.len() - before.len() - 1)]];
        let read = Journal::parse(&torn.concat()).unwrap();
        prop_assert_eq!(read.damaged, 0);
        prop_assert_eq!(read, Journal::parse(&before).unwrap());
    }

    #[test]
    fn the_shortest_records_add_up_to_the_same(records in prop::collection::vec(record(), 0..60)) {
        let journal = Journal::parse(&bytes(&records)).unwrap();
        let again = Journal::parse(&bytes(&journal.records())).unwrap();
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
            file.log_intent(&records).unwrap();
            file.log_outcome(&[]).unwrap();
        }
        let bytes = std::fs::read(file.path()).unwrap();
        let read = Journal::parse(&bytes).unwrap();
        prop_assert_eq!(&read, file.journal());
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        // 40 threads, 8 processes, and as many masks as records; twice that and the slack, and one more write.
        prop_assert!(lines <= 2 * (51 + records.len()) + 513 + records.len(), "{}", lines);
        let path = file.path().to_owned();
        file.remove().unwrap();
        prop_assert!(!path.exists());
    }
}

/// systemd-tmpfiles removes old files from `/tmp`, where a user without a runtime directory has journals.
#[test]
fn a_journal_that_others_have_removed_counts_as_removed() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    let file = JournalFile::create(&state, header()).unwrap();
    std::fs::remove_file(file.path()).unwrap();
    file.remove().unwrap();
}

/// What the only journal in a directory says; it must be locked.
fn only_journal(dir: &StateDir) -> Journal {
    let paths = dir.journals().unwrap();
    assert_eq!(paths.len(), 1, "{paths:?}");
    let other = std::fs::File::open(&paths[0]).unwrap();
    assert!(other.try_lock().is_err());
    Journal::parse(&std::fs::read(&paths[0]).unwrap()).unwrap()
}

#[test]
fn a_journal_that_others_have_removed_or_replaced_is_written_anew_before_a_change() {
    let free = |tid| {
        let thread = ThreadId { tid, start: 1 };
        Record::Free { thread, process: 1 }
    };
    for replaced in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let mut file = JournalFile::create(&state, header()).unwrap();
        file.log_intent(&[free(7)]).unwrap();
        std::fs::remove_file(file.path()).unwrap();
        if replaced {
            std::fs::write(file.path(), "another").unwrap();
        }
        file.log_intent(&[free(8)]).unwrap();
        let journal = only_journal(&state);
        assert_eq!((journal.threads().count(), journal.damaged), (2, 0));
        assert_eq!(&journal, file.journal());
        file.remove().unwrap();
        assert!(state.journals().unwrap().is_empty());
    }
}

#[test]
fn a_journal_whose_directory_is_moved_goes_with_its_perch() {
    let thread = ThreadId { tid: 7, start: 1 };
    let free = [Record::Free { thread, process: 1 }];
    for made_again in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (dir.path().join("here"), dir.path().join("there"));
        let state = StateDir::open(&here).unwrap();
        let mut file = JournalFile::create(&state, header()).unwrap();
        std::fs::rename(&here, &there).unwrap();
        if made_again {
            StateDir::open(&here).unwrap();
        }
        // Without a journal where others look for it nothing may be changed.
        assert_eq!(file.log_intent(&free).is_ok(), made_again);
        if made_again {
            assert_eq!(only_journal(&state).threads().count(), 1);
        }
        file.remove().unwrap();
        for folder in [here, there].iter().filter(|folder| folder.exists()) {
            assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "{folder:?}");
        }
    }
}

#[test]
fn a_process_that_is_forgotten_takes_its_masks_along() {
    let mask = |process| {
        Record::Mask(MaskRecord {
            process,
            set: "3".parse().unwrap(),
            before: "0-7".parse().unwrap(),
            whole: Some(true),
            at: 1,
        })
    };
    let mut journal = Journal::new(header());
    let id = ProcessId { pid: 5, start: 7 };
    journal.add(&Record::Process(ProcessRecord {
        id,
        image: None,
        unseen: false,
        first_ended: false,
        ended: None,
    }));
    for process in [4, 5, 6] {
        journal.add(&mask(process));
    }
    journal.forget_process(id);
    let left: Vec<i32> = journal.masks().map(|mask| mask.process).collect();
    assert_eq!(left, [4, 6]);
}

#[test]
fn a_second_session_does_not_take_the_firsts_file() {
    let dir = tempfile::tempdir().unwrap();
    let dir = StateDir::open(dir.path()).unwrap();
    let first = JournalFile::create(&dir, header()).unwrap();
    let error = JournalFile::create(&dir, header()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    drop(first);
}

/// As perch 0.1 wrote it.
const FORMAT_1: &str = r#"{"journal":1,"session":"12-345-abc","boot":"abc","perch":{"pid":12,"start":345},"default":"0-7"}
{"process":{"pid":5,"start":6}}
{"set":{"thread":{"tid":5,"start":6},"knob":"affinity","before":"0-7","from":["0-7"],"set":"3","at":678}}
{"done":{"thread":{"tid":5,"start":6},"outcome":"applied"}}
{"set":{"thread":{"tid":8,"start":9},"knob":"affinity","before":"0-3","from":["0-3"],"set":"2","at":679}}
{"free":{"thread":{"tid":7,"start":6}}}
{"mask":{"set":"4","before":"0-7","at":678}}
{"default":{"mask":"0-5"}}
"#;

#[test]
fn a_journal_of_format_1_is_read() {
    let journal = Journal::parse(FORMAT_1.as_bytes()).unwrap();
    assert_eq!((journal.damaged, journal.header.whole), (0, true));
    let thread = |tid, start| match journal.thread(ThreadId { tid, start }) {
        Some(Kept::Held(held)) => format!(
            "{} from {:?} to {}, {}",
            held.set, held.from, held.before, held.whole
        ),
        other => format!("{other:?}"),
    };
    // The default mask, which has changed since, was taken for all that the CPU set allows.
    assert_eq!(thread(5, 6), "3 from [] to 0-5, true");
    // The mask that it had before perch's first change is none of perch's.
    assert_eq!(thread(8, 9), "2 from [] to 0-3, false");
    assert_eq!(thread(7, 6), "Some(Free { process: 0 })");
    let masks: Vec<String> = journal.masks().map(|mask| mask.set.to_string()).collect();
    assert_eq!(masks, ["2", "3", "4"]);
}

/// Without control groups.
const FORMAT_3: &str = r#"perch-journal 2 0000000000000325
0023aee7 0 {"journal":3,"session":"12-345-abc","target":0,"boot":"abc","perch":{"pid":12,"start":345},"namespaces":{"pid":0,"time":0},"default":"0-7","whole":true}
0b448763 1 {"journal":3,"session":"12-345-abc","target":0,"boot":"abc","perch":{"pid":12,"start":345},"namespaces":{"pid":0,"time":0},"default":"0-7","whole":true}
ee74ce21 2 {"process":{"pid":5,"start":6,"image":{"code":1,"stack":2}}}
38c2b3fd 3 {"set":{"thread":{"tid":5,"start":6},"process":5,"knob":"affinity","before":"0-7","whole":true,"from":["0-7"],"set":"3","let_go":false,"at":678}}
d348c85f 4 {"done":{"thread":{"tid":5,"start":6},"outcome":"applied"}}
498bff31 5 {"free":{"thread":{"tid":5,"start":6},"process":5}}
0c81bd78 6 {"mask":{"process":5,"set":"3","before":"0-7","whole":true,"at":678}}
"#;

/// Without settings of the machine.
const FORMAT_5: &str = r#"perch-journal 2 0000000000000355
1c6b0030 0 {"journal":5,"session":"12-345-abc","target":0,"boot":"abc","machine":"","perch":{"pid":12,"start":345},"namespaces":{"pid":0,"time":0,"cgroup":0},"default":"0-7","whole":true}
d81fcabe 1 {"journal":5,"session":"12-345-abc","target":0,"boot":"abc","machine":"","perch":{"pid":12,"start":345},"namespaces":{"pid":0,"time":0,"cgroup":0},"default":"0-7","whole":true}
ee74ce21 2 {"process":{"pid":5,"start":6,"image":{"code":1,"stack":2}}}
38c2b3fd 3 {"set":{"thread":{"tid":5,"start":6},"process":5,"knob":"affinity","before":"0-7","whole":true,"from":["0-7"],"set":"3","let_go":false,"at":678}}
d348c85f 4 {"done":{"thread":{"tid":5,"start":6},"outcome":"applied"}}
498bff31 5 {"free":{"thread":{"tid":5,"start":6},"process":5}}
0c81bd78 6 {"mask":{"process":5,"set":"3","before":"0-7","whole":true,"at":678}}
"#;

/// Every second thread goes back to the default mask, which changes again and again.
#[test]
fn the_default_of_format_1_is_followed_however_often_it_changes() {
    const THREADS: i32 = 20_000;
    let mut header = header();
    header.journal = 1;
    let mut text = serde_json::to_string(&header).unwrap() + "\n";
    for tid in 1..=THREADS {
        let record = Record::Set(SetRecord {
            thread: ThreadId { tid, start: 1 },
            process: 0,
            knob: Knob::Affinity,
            before: ["0-7", "0-2"][tid as usize % 2].parse().unwrap(),
            whole: None,
            from: Vec::new(),
            set: "3".parse().unwrap(),
            let_go: None,
            at: 1,
        });
        text += &(serde_json::to_string(&record).unwrap() + "\n");
        // One change after the other for each thread would take as long as their product.
        for default in ["0-3", "0-7"] {
            text += &format!("{{\"default\":{{\"mask\":\"{default}\"}}}}\n");
        }
    }
    text += "{\"default\":{\"mask\":\"0-5\"}}\n";
    let journal = Journal::parse(text.as_bytes()).unwrap();
    assert_eq!(journal.damaged, 0);
    assert_eq!(journal.header.default, "0-5".parse().unwrap());
    let before = |thread: ThreadId| match journal.thread(thread) {
        Some(Kept::Held(held)) => held.before.to_string(),
        other => panic!("{other:?}"),
    };
    for tid in 1..=THREADS {
        let expected = ["0-5", "0-2"][tid as usize % 2];
        assert_eq!(before(ThreadId { tid, start: 1 }), expected, "{tid}");
    }
}

#[test]
fn no_later_format_has_records_of_defaults() {
    let default = Record::Default {
        mask: "0-3".parse().unwrap(),
    };
    let journal = Journal::parse(&bytes(&[default])).unwrap();
    assert_eq!(journal.damaged, 1);
    assert_eq!(journal.header.default, header().default);
}

#[test]
fn a_record_of_a_pu_that_cannot_be_is_damaged() {
    let doubt = |mask: &str| Record::Placed {
        thread: ThreadId { tid: 7, start: 1 },
        process: 7,
        mask: mask.parse().unwrap(),
    };
    let read = |mask: &str, largest| {
        let journal = Journal::parse_for(&bytes(&[doubt(mask)]), largest).unwrap();
        (journal.threads().count(), journal.damaged)
    };
    assert_eq!(read("3,1023", 1023), (1, 0));
    assert_eq!(read("3,1024", 1023), (0, 1));
    assert_eq!(read("65535", u32::MAX), (1, 0));
    let far = Header {
        default: "0-1024".parse().unwrap(),
        ..header()
    };
    let dir = tempfile::tempdir().unwrap();
    let file = JournalFile::create(&StateDir::open(dir.path()).unwrap(), far).unwrap();
    let bytes = std::fs::read(file.path()).unwrap();
    assert!(Journal::parse_for(&bytes, 1023).is_err());
}

#[test]
fn a_journal_of_format_5_is_read() {
    let journal = Journal::parse(FORMAT_5.as_bytes()).unwrap();
    assert_eq!((journal.header.journal, journal.damaged), (5, 0));
    let threads = (journal.threads().count(), journal.masks().count());
    assert_eq!((threads, journal.settings().count()), ((1, 1), 0));
}

#[test]
fn a_journal_of_format_3_is_read() {
    let journal = Journal::parse(FORMAT_3.as_bytes()).unwrap();
    assert_eq!((journal.header.journal, journal.damaged), (3, 0));
    assert_eq!(
        (journal.processes().count(), journal.masks().count()),
        (1, 1)
    );
}

#[test]
fn a_journal_of_another_format_is_refused() {
    let error = Journal::parse(b"{\"journal\":99}\n").unwrap_err();
    assert!(error.to_string().contains("99"), "{error}");
    let error = Journal::parse(b"hello\n").unwrap_err();
    assert!(error.to_string().contains("no journal"), "{error}");
}

#[test]
fn a_release_that_is_done_frees_the_thread() {
    let thread = ThreadId { tid: 5, start: 6 };
    let set = |from: &str, set: &str| {
        Record::Set(SetRecord {
            thread,
            process: 5,
            knob: Knob::Affinity,
            before: "0-7".parse().unwrap(),
            whole: Some(true),
            from: vec![from.parse().unwrap()],
            set: set.parse().unwrap(),
            let_go: Some(set == "0-7"),
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
    assert_eq!(journal.thread(thread), Some(&Kept::Free { process: 5 }));
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
        Record::Process(ProcessRecord {
            id: ProcessId { pid: 5, start: 6 },
            image: Some(Image { code: 1, stack: 2 }),
            unseen: false,
            first_ended: false,
            ended: None,
        }),
        Record::Set(SetRecord {
            thread,
            process: 5,
            knob: Knob::Affinity,
            before: "0-7".parse().unwrap(),
            whole: Some(true),
            from: vec!["0-7".parse().unwrap()],
            set: "3".parse().unwrap(),
            let_go: Some(false),
            at: 678,
        }),
        Record::Done {
            thread,
            outcome: Outcome::Applied,
        },
        Record::Free { thread, process: 5 },
        Record::Mask(MaskRecord {
            process: 5,
            set: "3".parse().unwrap(),
            before: "0-7".parse().unwrap(),
            whole: Some(true),
            at: 678,
        }),
        Record::Setting(SettingRecord {
            setting: Setting::MaxFrequency(2),
            before: SettingValue::Number(3_000_000),
            from: SettingValue::Number(3_000_000),
            set: SettingValue::Number(1_234_567),
        }),
        Record::SettingDone {
            setting: Setting::MaxFrequency(2),
            outcome: Outcome::Applied,
            found: Some(SettingValue::Number(1_200_000)),
        },
    ];
    insta::assert_snapshot!(String::from_utf8(bytes(&records)).unwrap(), @r#"
    perch-journal 2 0000000000000446
    2f42a274 0 {"journal":6,"session":"12-345-abc","target":0,"boot":"abc","machine":"","perch":{"pid":12,"start":345},"namespaces":{"pid":0,"time":0,"cgroup":0},"default":"0-7","whole":true}
    eb3668fa 1 {"journal":6,"session":"12-345-abc","target":0,"boot":"abc","machine":"","perch":{"pid":12,"start":345},"namespaces":{"pid":0,"time":0,"cgroup":0},"default":"0-7","whole":true}
    ee74ce21 2 {"process":{"pid":5,"start":6,"image":{"code":1,"stack":2}}}
    38c2b3fd 3 {"set":{"thread":{"tid":5,"start":6},"process":5,"knob":"affinity","before":"0-7","whole":true,"from":["0-7"],"set":"3","let_go":false,"at":678}}
    d348c85f 4 {"done":{"thread":{"tid":5,"start":6},"outcome":"applied"}}
    498bff31 5 {"free":{"thread":{"tid":5,"start":6},"process":5}}
    0c81bd78 6 {"mask":{"process":5,"set":"3","before":"0-7","whole":true,"at":678}}
    5a5fbcd7 7 {"setting":{"setting":{"max-frequency":2},"before":{"number":3000000},"from":{"number":3000000},"set":{"number":1234567}}}
    ae7c643b 8 {"setting-done":{"setting":{"max-frequency":2},"outcome":"applied","found":{"number":1200000}}}
    "#);
}
