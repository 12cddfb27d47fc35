//! What others ask a running session to do. Commands wait in a queue and are carried out between two observations, in
//! the order in which they came.

use perch_core::{MachineError, Policy};
use std::sync::mpsc::{
    Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel,
};

/// Commands that may wait; more are refused.
const QUEUE: usize = 1024;

/// A request to a running session.
pub enum Command {
    /// Follow this process and all that descends from it.
    Attach(i32),
    /// Give the threads of an attached process and of its descendants their masks back, and no longer follow them.
    Detach(i32),
    /// Decide by another policy from the next period on. It has seen nothing of the periods before.
    SetPolicy(Box<dyn Policy>),
    /// Decide and change nothing until [`Command::Resume`]; what is bound stays bound. Observing goes on.
    Pause,
    /// Decide again.
    Resume,
    /// End the session; every thread gets its mask back.
    Stop,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Attach(pid) => write!(f, "Attach({pid})"),
            Self::Detach(pid) => write!(f, "Detach({pid})"),
            Self::SetPolicy(policy) => write!(f, "SetPolicy({})", policy.name()),
            Self::Pause => f.write_str("Pause"),
            Self::Resume => f.write_str("Resume"),
            Self::Stop => f.write_str("Stop"),
        }
    }
}

/// The error of a command that was not executed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The machine refused.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Masks that could not be restored: the process is still followed.
    #[error("process {pid}: these threads keep the masks or CPU weights that perch set: {threads}")]
    LeftBehind {
        /// The process that was to be released.
        pid: i32,
        /// The threads, each with the reason.
        threads: String,
    },
    /// The session has ended, or ends.
    #[error("the session has ended")]
    Ended,
    /// Too many commands wait.
    #[error("{QUEUE} commands wait to be carried out: try again later")]
    Busy,
}

pub(crate) type Answer = Result<(), CommandError>;

pub(crate) struct Queued {
    pub command: Command,
    pub answer: Sender<Answer>,
}

/// Sends commands to a session; may be cloned and given to other threads.
#[derive(Debug, Clone)]
pub struct Handle {
    to: SyncSender<Queued>,
}

/// The pending result of a command.
#[derive(Debug)]
pub struct Reply(Receiver<Answer>);

impl Handle {
    /// Queues a command. It is carried out after the observation that is under way, so within the observing interval.
    ///
    /// # Errors
    /// A session that has ended, or a full queue.
    pub fn send(&self, command: Command) -> Result<Reply, CommandError> {
        let (answer, reply) = channel();
        match self.to.try_send(Queued { command, answer }) {
            Ok(()) => Ok(Reply(reply)),
            Err(TrySendError::Full(_)) => Err(CommandError::Busy),
            Err(TrySendError::Disconnected(_)) => Err(CommandError::Ended),
        }
    }
}

impl Reply {
    /// The result, if the command has been carried out by now, or never will be.
    pub fn now(&self) -> Option<Result<(), CommandError>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(CommandError::Ended)),
        }
    }

    /// Waits until the command has been carried out.
    ///
    /// # Errors
    /// Why it was not.
    pub fn wait(self) -> Result<(), CommandError> {
        self.0.recv().unwrap_or(Err(CommandError::Ended))
    }
}

/// The queue's two ends.
pub(crate) fn queue() -> (Handle, Receiver<Queued>) {
    let (to, from) = sync_channel(QUEUE);
    (Handle { to }, from)
}
