//! A victim seen from outside: it takes orders over a pipe, so that the attack controls the timing.

use crate::orders::{Message, Order, Reply};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::{Read, Write},
    process::{ChildStdin, ChildStdout, Command, Stdio},
};

/// A victim that has not answered for so long never will.
const PATIENCE: Timespec = Timespec {
    tv_sec: 15,
    tv_nsec: 0,
};

/// A running victim.
#[derive(Debug)]
pub struct Puppet {
    /// Its process.
    pub pid: i32,
    orders: ChildStdin,
    replies: ChildStdout,
    read: Vec<u8>,
}

impl Puppet {
    /// Starts one.
    pub fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a victim")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (orders, replies) = pipes.context("a victim without pipes")?;
        Self::meet(orders, replies)?.context("a victim ended at once")
    }

    /// Waits for one that another process starts with these pipes; `None` if it was never started.
    pub fn meet(orders: ChildStdin, replies: ChildStdout) -> Result<Option<Self>> {
        let mut puppet = Self {
            pid: 0,
            orders,
            replies,
            read: Vec::new(),
        };
        match puppet.reply()? {
            Some(pid) => {
                puppet.pid = pid;
                Ok(Some(puppet))
            }
            None => Ok(None),
        }
    }

    /// Gives an order to the thread of that first name, the main thread if it is empty. Answers with the thread or
    /// process that was started, or the one that obeyed.
    pub fn tell(&mut self, to: &str, order: Order) -> Result<i32> {
        self.send(to, order.clone())?;
        self.reply()?
            .with_context(|| format!("the victim exited on the order {order:?}"))
    }

    /// Gives an order to which no answer will come.
    pub fn send(&mut self, to: &str, order: Order) -> Result<()> {
        let to = to.to_owned();
        let mut line = serde_json::to_string(&Message { to, order })?;
        line.push('\n');
        self.orders.write_all(line.as_bytes())?;
        Ok(())
    }

    fn reply(&mut self) -> Result<Option<i32>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return match serde_json::from_slice(&line)? {
                    Reply::Tid(tid) => Ok(Some(tid)),
                    Reply::Failed(why) => bail!("the victim failed: {why}"),
                };
            }
            let mut ready = [PollFd::new(&self.replies, PollFlags::IN)];
            if poll(&mut ready, Some(&PATIENCE))? == 0 {
                bail!("victim {} does not answer", self.pid);
            }
            let mut chunk = [0; 512];
            match self.replies.read(&mut chunk)? {
                0 => return Ok(None),
                count => self.read.extend_from_slice(&chunk[..count]),
            }
        }
    }
}
