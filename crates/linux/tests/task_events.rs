//! Task events of real processes: of this one, and of a program that is being started.

use perch_linux::perf::{TaskEvent, TaskEvents, task_events::Buffering};
use perch_skip::skip;
use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Starts and ends a named thread; returns its number.
fn short_thread(name: &str) -> i32 {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            sender
                .send(rustix::thread::gettid().as_raw_nonzero().get())
                .expect("receiver")
        })
        .expect("thread");
    let tid = receiver.recv().expect("sender");
    thread.join().expect("join");
    tid
}

/// Checks that the thread's creation, name and end were seen, in that order.
fn assert_life(events: &[TaskEvent], tid: i32, name: &str) {
    let at = |what: &dyn Fn(&TaskEvent) -> bool| {
        events
            .iter()
            .position(what)
            .unwrap_or_else(|| panic!("thread {tid} ({name}): an event is missing in {events:?}"))
    };
    let fork = at(&|e| matches!(e, TaskEvent::Fork { tid: t, .. } if *t == tid));
    let comm =
        at(&|e| matches!(e, TaskEvent::Comm { tid: t, name: n, .. } if *t == tid && n == name));
    let exit = at(&|e| matches!(e, TaskEvent::Exit { tid: t, .. } if *t == tid));
    assert!(fork < comm && comm < exit);
}

/// Records may reach their ring a moment after the thread was joined.
fn drain_soon(source: &mut TaskEvents) -> Vec<TaskEvent> {
    thread::sleep(Duration::from_millis(100));
    source.drain()
}

#[test]
fn a_running_process_s_threads_are_followed() {
    let pid = std::process::id() as i32;
    let mut source = match TaskEvents::for_process(pid, 0, Buffering::default()) {
        Ok(source) => source,
        Err(error) => return skip!(Perf, "{error}"),
    };
    let first = short_thread("first");
    let second = thread::spawn(|| short_thread("second"))
        .join()
        .expect("join");
    let events = drain_soon(&mut source);
    assert_life(&events, first, "first");
    assert_life(&events, second, "second");
    assert!(source.remarks().is_empty());
}

#[test]
fn all_threads_are_seen_where_permitted() {
    let mut source = match TaskEvents::system_wide(Buffering::default()) {
        Ok(source) => source,
        Err(error) => return skip!(SystemWidePerf, "{error}"),
    };
    let tid = short_thread("short");
    let events = drain_soon(&mut source);
    assert_life(&events, tid, "short");
    source.follow_cpus().expect("the same CPUs");
    let tid = short_thread("still");
    assert_life(&drain_soon(&mut source), tid, "still");
}

#[test]
fn a_launched_program_is_followed_through_its_descendants() {
    // The child waits for a line before it executes another shell, so that it can be followed from the start.
    let mut child = Command::new("sh")
        .args(["-c", "read go; exec sh -c '(exec true); (exec true); true'"])
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("sh");
    let pid = child.id() as i32;
    let mut source = match TaskEvents::for_launch(pid, Buffering::default()) {
        Ok(source) => source,
        Err(error) => {
            child.kill().expect("kill");
            child.wait().expect("wait");
            return skip!(Perf, "{error}");
        }
    };
    use std::io::Write;
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"go\n").expect("pipe");
    assert!(child.wait().expect("wait").success());
    let events = drain_soon(&mut source);
    let execs = events
        .iter()
        .filter(|e| matches!(e, TaskEvent::Comm { exec: true, .. }))
        .count();
    assert_eq!(execs, 3, "{events:?}");
    let forks = events
        .iter()
        .filter(|e| matches!(e, TaskEvent::Fork { ppid, .. } if *ppid == pid))
        .count();
    assert_eq!(forks, 2, "{events:?}");
    assert!(
        events
            .iter()
            .any(|e| matches!(e, TaskEvent::Mapped { file: Some(_), .. }))
    );
    assert!(
        events
            .iter()
            .any(|e| matches!(e, TaskEvent::Exit { tid, .. } if *tid == pid))
    );
    assert!(source.drain().is_empty());
}

#[test]
fn no_such_process_is_said() {
    let error = TaskEvents::for_process(i32::MAX, 0, Buffering::default())
        .err()
        .expect("no such process");
    assert!(error.to_string().contains("no process"), "{error}");
}
