//! Finished periods for those who watch from other threads: immutable, on bounded channels. A subscriber that does not
//! keep up misses periods, and the next message counts them. It never slows the session down.

use crate::observer::{Period, SessionEnd, Start};
use std::sync::{
    Arc,
    mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
};

/// A message to a subscriber.
#[derive(Debug, Clone)]
pub enum Published {
    /// The session begins, or the subscriber has come later: what it is.
    Start(Arc<Start>),
    /// A period is over.
    Period {
        /// The finished period, shared with other subscribers.
        period: Arc<Period>,
        /// Number of periods lost before this one, because the channel was full.
        missed: u64,
    },
    /// The session has ended. This one is lost too if the channel is full; the channel is closed then.
    End(Arc<SessionEnd>),
}

#[derive(Debug)]
struct Subscriber {
    to: SyncSender<Published>,
    missed: u64,
}

/// All subscribers of a session.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    start: Option<Arc<Start>>,
    subscribers: Vec<Subscriber>,
}

impl Publisher {
    /// A new subscriber, for which up to `capacity` messages wait (at least 2: what the session is, and a period).
    pub fn subscribe(&mut self, capacity: usize) -> Receiver<Published> {
        let (to, from) = sync_channel(capacity.max(2));
        if let Some(start) = &self.start {
            let _ = to.try_send(Published::Start(Arc::clone(start)));
        }
        self.subscribers.push(Subscriber { to, missed: 0 });
        from
    }

    pub fn start(&mut self, start: Start) {
        let start = Arc::new(start);
        self.start = Some(Arc::clone(&start));
        self.send(&Published::Start(start));
    }

    pub fn period(&mut self, period: &Arc<Period>) {
        self.subscribers.retain_mut(|subscriber| {
            let message = Published::Period {
                period: Arc::clone(period),
                missed: subscriber.missed,
            };
            match subscriber.to.try_send(message) {
                Ok(()) => subscriber.missed = 0,
                Err(TrySendError::Full(_)) => subscriber.missed += 1,
                Err(TrySendError::Disconnected(_)) => return false,
            }
            true
        });
    }

    pub fn end(&mut self, end: &SessionEnd) {
        if !self.subscribers.is_empty() {
            self.send(&Published::End(Arc::new(end.clone())));
        }
        self.subscribers.clear();
    }

    fn send(&mut self, message: &Published) {
        self.subscribers
            .retain(|subscriber| match subscriber.to.try_send(message.clone()) {
                Ok(()) | Err(TrySendError::Full(_)) => true,
                Err(TrySendError::Disconnected(_)) => false,
            });
    }
}
