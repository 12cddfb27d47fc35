//! Asks a policy, on the observing path or off it.

use perch_core::{Plan, Policy, Snapshot};
use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};

/// Whether a policy decides on the observing thread or on one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deciding {
    /// On the observing path: the next observation waits for it. For machines whose time stands still meanwhile, and for
    /// recordings, which must give the same each time.
    Inline,
    /// On a thread of its own. The session waits this long for an answer; a later one is checked against the threads
    /// and masks as they are by then.
    Apart(Duration),
}

/// A policy and its place.
pub(crate) struct Decider {
    name: &'static str,
    place: Place,
}

enum Place {
    Inline(Box<dyn Policy>),
    Apart(Worker),
}

struct Worker {
    to: Option<SyncSender<Arc<Snapshot>>>,
    from: Receiver<Plan>,
    thread: Option<JoinHandle<()>>,
    patience: Duration,
    /// The snapshot on which the policy is deciding now.
    asked: Option<Arc<Snapshot>>,
}

impl Decider {
    /// A system that allows no more threads leaves the policy on the observing path.
    pub fn new(policy: Box<dyn Policy>, deciding: Deciding) -> Self {
        let name = policy.name();
        let place = match deciding {
            Deciding::Inline => Place::Inline(policy),
            Deciding::Apart(patience) => Worker::start(policy, patience),
        };
        Self { name, place }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it still thinks about an earlier snapshot.
    pub fn is_busy(&self) -> bool {
        matches!(&self.place, Place::Apart(worker) if worker.asked.is_some())
    }

    /// Asks for a plan; `None` if it takes longer. Must not be called while the policy is busy.
    pub fn ask(&mut self, snapshot: &Arc<Snapshot>) -> Option<Plan> {
        match &mut self.place {
            Place::Inline(policy) => Some(policy.decide(snapshot)),
            Place::Apart(worker) => worker.ask(snapshot),
        }
    }

    /// The plan that came late, with the snapshot that it is about.
    pub fn late(&mut self) -> Option<(Arc<Snapshot>, Plan)> {
        match &mut self.place {
            Place::Inline(_) => None,
            Place::Apart(worker) => {
                let plan = worker.receive(Duration::ZERO)?;
                Some((worker.asked.take()?, plan))
            }
        }
    }
}

impl Worker {
    fn start(policy: Box<dyn Policy>, patience: Duration) -> Place {
        let (to, jobs) = sync_channel::<Arc<Snapshot>>(1);
        let (answers, from) = sync_channel(1);
        // The policy goes over by a channel, so that it is still here if there can be no thread.
        let (give, take) = sync_channel::<Box<dyn Policy>>(1);
        let body = move || {
            let Ok(mut policy) = take.recv() else { return };
            while let Ok(snapshot) = jobs.recv() {
                if answers.send(policy.decide(&snapshot)).is_err() {
                    return;
                }
            }
        };
        let started = Builder::new().name("perch-policy".to_owned()).spawn(body);
        match started {
            Err(_) => Place::Inline(policy),
            Ok(thread) => {
                // The thread waits for it, so this cannot fail.
                let _ = give.send(policy);
                Place::Apart(Self {
                    to: Some(to),
                    from,
                    thread: Some(thread),
                    patience,
                    asked: None,
                })
            }
        }
    }

    fn ask(&mut self, snapshot: &Arc<Snapshot>) -> Option<Plan> {
        let sent = self
            .to
            .as_ref()
            .is_some_and(|to| to.send(Arc::clone(snapshot)).is_ok());
        if !sent {
            self.fail();
        }
        self.asked = Some(Arc::clone(snapshot));
        let plan = self.receive(self.patience)?;
        self.asked = None;
        Some(plan)
    }

    fn receive(&mut self, patience: Duration) -> Option<Plan> {
        self.asked.as_ref()?;
        match self.from.recv_timeout(patience) {
            Ok(plan) => Some(plan),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => self.fail(),
        }
    }

    /// The thread is gone, so the policy has panicked: as if it had done so here.
    fn fail(&mut self) -> ! {
        self.to = None;
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Err(panic)) => resume_unwind(panic),
            _ => panic!("the policy's thread ended by itself"),
        }
    }
}
