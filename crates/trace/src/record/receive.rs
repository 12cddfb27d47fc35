//! Messages from the plugin, one by one.

use crate::wire::Head;
use std::{
    io::{self, ErrorKind, Read},
    os::unix::net::UnixStream,
    time::Duration,
};

/// How long a wait for a message is, before the caller may look around.
const PATIENCE: Duration = Duration::from_millis(100);

/// Bytes of a message at most; the plugin's are far below.
const LARGEST: usize = 1 << 28;

/// What was received.
pub(super) enum Message<'a> {
    /// A message.
    Told(Head, &'a [u8]),
    /// None yet.
    Nothing,
    /// There will be no more.
    End,
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Receiver {
    socket: UnixStream,
    buffer: Vec<u8>,
    /// Bytes of the message so far.
    filled: usize,
}

impl Receiver {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket,
            buffer: vec![0; Head::BYTES],
            filled: 0,
        })
    }

    /// Whether no part of a message has come yet.
    pub(super) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// The next message.
    pub(super) fn next(&mut self) -> Message<'_> {
        loop {
            let head = (self.filled >= Head::BYTES).then(|| self.head());
            let wanted = match head {
                None => Head::BYTES,
                Some(Some(head)) if head.length as usize <= LARGEST => {
                    Head::BYTES + head.length as usize
                }
                // The plugin never says that: whoever does is not it.
                Some(_) => return Message::End,
            };
            if let Some(Some(head)) = head
                && self.filled == wanted
            {
                self.filled = 0;
                return Message::Told(head, &self.buffer[Head::BYTES..wanted]);
            }
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
            match self.socket.read(&mut self.buffer[self.filled..wanted]) {
                Ok(0) => return Message::End,
                Ok(bytes) => self.filled += bytes,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                        return Message::Nothing;
                    }
                    _ => return Message::End,
                },
            }
        }
    }

    fn head(&self) -> Option<Head> {
        Head::from_bytes(self.buffer.first_chunk()?)
    }
}
