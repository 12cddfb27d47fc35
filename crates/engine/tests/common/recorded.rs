//! Sessions that are recorded and replayed.

use super::{options, parts::Heard};
use perch_core::{Machine, Policy};
use perch_engine::{Acting, Reader, RecordedMachine, Recorder, Session, SessionSink};

/// Runs a session to its end; its recording, and what was observed.
pub fn recorded<M: Machine>(session: &mut Session<M>) -> (Vec<u8>, Heard) {
    let mut recorder = Recorder::new(Vec::new(), "a test", &["app".to_owned()]);
    let mut heard = Heard::default();
    let mut observers: Vec<&mut dyn SessionSink> = vec![&mut recorder, &mut heard];
    session.run(&mut observers).unwrap();
    recorder.finish().unwrap();
    (recorder.into_inner(), heard)
}

/// Replays a recording with a policy; the recording of that, and what was observed.
pub fn replay(recording: &[u8], policy: impl Policy + 'static) -> (Vec<u8>, Heard) {
    let machine = RecordedMachine::new(Reader::new(recording, "a recording").unwrap());
    recorded(&mut Session::new(machine, options(policy, Acting::DryRun(None))).unwrap())
}
