//! What is written is read, and what is wrong is refused.

use super::*;
use crate::check::tests::machine;
use crate::frame::{Column, Moved, PuLoad, Thread};
use perch_core::{Outcome, ThreadId};
use proptest::prelude::*;

fn frame() -> Frame {
    let thread = |tid: i32, cpu: f32| Thread {
        id: ThreadId { tid, start: 5 },
        pid: 10,
        name: "worker".into(),
        process: "app".into(),
        cpu,
        waiting: 0.125,
        pu: Some(1),
        switches: Some(2.5),
        migrations: None,
        bound: (tid == 11).then(|| Arc::new(PuSet::single(1))),
    };
    Frame {
        at: 1_000_000_000,
        interval: 1_000_000_000,
        pus: vec![PuLoad {
            pu: 1,
            busy: 0.5,
            interrupts: 0.25,
        }],
        threads: vec![thread(11, 0.5), thread(12, 0.0)],
        metrics: vec![Column {
            name: "ipc".into(),
            values: vec![1.5, 2.0],
        }],
        moves: vec![Moved {
            id: ThreadId { tid: 11, start: 5 },
            name: "worker".into(),
            from: None,
            to: Some(PuSet::single(1)),
            reason: "FP rank 1".into(),
            numbers: vec![("fp_share".into(), 0.5)],
            outcome: Outcome::Applied,
        }],
        remarks: vec!["a remark".into()],
        unseen: 3,
        own: 0.001,
        ..Frame::empty(machine(1, 2, 1))
    }
}

fn read(text: &str) -> Result<Option<Frame>, WireError> {
    Lines::new(text.as_bytes()).read()
}

#[test]
fn what_is_written_is_read() {
    let written = frame();
    let later = Frame {
        at: 2_000_000_000,
        ..frame()
    };
    let stream = format!(
        "{}\n{}\n{{\"record\":\"newer\",\"x\":1}}\n{}\n{{\"rec",
        line(&written, true).unwrap(),
        line(&later, false).unwrap(),
        line(&later, false).unwrap(),
    );
    let mut lines = Lines::new(stream.as_bytes());
    assert_eq!(lines.read().unwrap().unwrap(), written);
    assert_eq!(lines.read().unwrap().unwrap(), later);
    // Time goes on, whatever the other side says.
    assert_eq!(lines.read().unwrap().unwrap().at, later.at + 1);
    // The last one is torn.
    assert!(lines.read().unwrap().is_none());
}

#[test]
fn names_are_made_printable_and_unknown_members_are_skipped() {
    let mut value: Value = serde_json::from_str(&line(&frame(), true).unwrap()).unwrap();
    value["version"] = 99.into();
    value["later"] = serde_json::json!({"x": [1]});
    value["threads"][0]["name"] = "a\u{1b}]0;x\u{7}".into();
    value["threads"][0]["cpu"] = (-3).into();
    value["moves"][0]["outcome"] = "postponed".into();
    let read = read(&format!("{value}\n")).unwrap().unwrap();
    assert_eq!(&*read.threads[0].name, "a\\x1b]0;x\\x07");
    assert_eq!(read.threads[0].cpu, 0.0);
    assert_eq!(read.moves[0].outcome, Outcome::NotApplied);
}

#[test]
fn what_is_no_frame_is_told_in_words() {
    let error = |text: &str| read(text).unwrap_err().to_string();
    let told = error("bash: perch: command not found\n");
    assert!(
        told.contains("line 1") && told.contains("command not found"),
        "{told}"
    );
    assert!(error("\u{1b}[2J\n").contains("\\x1b"));
    assert!(error("{\"record\":\"snapshot\"}\n").contains("topology"));
    assert!(read("").unwrap().is_none());
    // Sets as large as they can be, very many of them.
    let cache = r#"{"level":1,"size":1,"pus":"65535"}"#;
    let caches = vec![cache; 40_000].join(",");
    let line = format!(r#"{{"record":"snapshot","topology":{{"caches":[{caches}]}}}}"#);
    assert!(error(&(line + "\n")).contains("beyond all measure"));
}

proptest! {
    #[test]
    fn damaged_lines_never_panic(at in 0usize..2000, byte: u8, cut in 0usize..3000) {
        let mut bytes = line(&frame(), true).unwrap().into_bytes();
        bytes.push(b'\n');
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(cut);
        let mut lines = Lines::new(&bytes[..]);
        while let Ok(Some(frame)) = lines.read() {
            // What is read can be written again.
            line(&frame, true).unwrap();
        }
    }
}
