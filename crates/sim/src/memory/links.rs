//! Links between NUMA nodes.
//!
//! Each ordered pair of nodes has a link of its own, which moves one line at a time: what comes from the memory or a cache
//! of the other node, and what is written back there. Requests, which are short against lines, take no time.

use super::bandwidth::Channel;
use crate::{model::MachineModel, units::Ps};

/// The links of a machine.
#[derive(Debug, Clone)]
pub(super) struct Links {
    nodes: usize,
    /// By the node from which and that to which they lead; none without limit.
    channels: Vec<Channel>,
}

impl Links {
    /// Those of a machine with this many nodes and lines of `line` bytes.
    pub fn new(model: &MachineModel, nodes: usize, line: u64) -> Self {
        let bandwidth = model.memory.link_bandwidth;
        let number = if bandwidth > 0.0 { nodes * nodes } else { 0 };
        Self {
            nodes,
            channels: vec![Channel::new(line, bandwidth); number],
        }
    }

    /// Forgets what is under way.
    pub fn rest(&mut self) {
        self.channels.iter_mut().for_each(Channel::rest);
    }

    /// A line comes to a link at a moment. Returns how long it waits there: not at all if it stays in its node.
    #[inline]
    pub fn cross(&mut self, from: usize, to: usize, at: Ps) -> Ps {
        match self.channels.get_mut(from * self.nodes + to) {
            Some(channel) if from != to => channel.request(at),
            _ => 0,
        }
    }

    /// How many lines wait for a link or are being moved over it.
    pub fn backlog(&self, from: usize, to: usize, at: Ps) -> u64 {
        let channel = self.channels.get(from * self.nodes + to);
        channel.map_or(0, |channel| channel.backlog(at))
    }
}
