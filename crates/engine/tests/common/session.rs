//! Sessions on the kernel in memory, as most tests need them.

use super::{
    kernel::{Kernel, now},
    parts::{Decide, Heard, TestProcessor},
    script::{Scripted, Step},
    set,
};
use perch_core::{Binding, Plan, Policy, PuSet, Reason, Snapshot, ThreadId};
use perch_engine::{Acting, Options, Session, SessionEnd, StateDir};
use std::sync::{Arc, RwLock};

/// A kernel that a test and its machine share.
pub type Shared = Arc<RwLock<Kernel>>;

/// A kernel with that many cores of two PUs each, and all of its PUs.
pub fn kernel(cores: u32) -> (Shared, PuSet) {
    let kernel = Kernel::new(2 * cores);
    let all = kernel.pus.clone();
    (Arc::new(RwLock::new(kernel)), all)
}

/// A policy on the processor for tests, with everything else as it comes.
pub fn options(policy: impl Policy + 'static, acting: Acting) -> Options {
    Options::new(Box::new(policy), Box::new(TestProcessor), acting)
}

/// A session on that kernel with a policy that is a function.
pub fn session(
    kernel: &Shared,
    steps: Vec<Step>,
    policy: impl FnMut(&Snapshot) -> Plan + Send + 'static,
    acting: Acting,
    take_over: bool,
) -> Session<Scripted> {
    let cores = kernel.read().unwrap().pus.len() as u32 / 2;
    let options = Options {
        take_over,
        ..options(Decide(policy), acting)
    };
    let mut session = Session::new(Scripted::new(kernel, cores, steps), options).unwrap();
    session.set_clock(now);
    session
}

/// Acting in earnest, with the folder of the journals.
pub fn live() -> (tempfile::TempDir, Acting) {
    let dir = tempfile::tempdir().unwrap();
    let acting = Acting::Live(StateDir::open(dir.path()).unwrap());
    (dir, acting)
}

/// Runs a session to its end.
pub fn run(session: &mut Session<Scripted>) -> (Heard, SessionEnd) {
    let mut seen = Heard::default();
    let end = session.run(&mut seen).unwrap();
    (seen, end)
}

/// A binding to these PUs.
pub fn bind(thread: ThreadId, pus: &str) -> Binding {
    Binding {
        thread,
        pus: set(pus),
        reason: Reason::new("a test"),
    }
}

/// A plan of these bindings.
pub fn bindings(bindings: Vec<Binding>) -> Plan {
    Plan {
        bindings,
        ..Plan::default()
    }
}

/// That many periods in which nothing happens.
pub fn steps(n: usize) -> Vec<Step> {
    vec![Step::default(); n]
}
