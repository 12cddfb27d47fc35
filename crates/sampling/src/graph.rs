//! The control flow around sampled addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::instruction::Flow;
use crate::mix::MixSum;
use crate::source::{CodeReader, CodeSource};

/// Longest straight run of instructions in one block.
const BLOCK_LENGTH: usize = 512;
/// Blocks in one graph.
const MAX_NODES: usize = 1024;
/// Blocks remembered between graphs.
const MAX_BLOCKS: usize = 4096;
/// A callee is followed if a sample lies this close behind its entry, in bytes.
const CALLEE_REACH: u64 = 8192;

/// Instructions from an address to the next transfer of control. Blocks that are entered at different
/// points and end at the same transfer overlap: each has its own copy of the shared tail.
#[derive(Debug)]
pub(crate) struct Block {
    /// Address of the last instruction.
    pub(crate) last: u64,
    /// Address after it.
    pub(crate) next: u64,
    /// Mix of the block's instructions, each with weight 1.
    pub(crate) sum: MixSum,
    /// How it ends; an indirect jump through a readable pointer is resolved to a jump.
    pub(crate) flow: Flow,
}

/// Decodes blocks and keeps them.
#[derive(Default)]
pub(crate) struct Blocks {
    known: FxHashMap<u64, Option<Arc<Block>>>,
}

impl Blocks {
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    fn get(
        &mut self,
        reader: &mut CodeReader,
        source: &dyn CodeSource,
        start: u64,
    ) -> Option<Arc<Block>> {
        if let Some(block) = self.known.get(&start) {
            return block.clone();
        }
        if self.known.len() >= MAX_BLOCKS {
            self.known.clear();
        }
        let block = decode_block(reader, source, start).map(Arc::new);
        self.known.insert(start, block.clone());
        block
    }
}

fn decode_block(reader: &mut CodeReader, source: &dyn CodeSource, start: u64) -> Option<Block> {
    let mut sum = MixSum::default();
    let (mut at, mut last) = (start, start);
    let mut flow = Flow::Stop;
    for _ in 0..BLOCK_LENGTH {
        let Some(instruction) = reader.decode(source, at) else {
            break;
        };
        sum.add_instruction(&instruction, 1.0);
        last = at;
        at = instruction.next(at);
        flow = instruction.flow;
        if flow != Flow::Next {
            break;
        }
    }
    if at == start {
        return None;
    }
    let mut pointer = |slot: Option<u64>| slot.and_then(|slot| reader.pointer(source, slot));
    flow = match flow {
        Flow::IndirectJump { slot } => pointer(slot).map_or(flow, Flow::Jump),
        Flow::IndirectCall { slot } => pointer(slot).map_or(flow, Flow::Call),
        other => other,
    };
    Some(Block {
        last,
        next: at,
        sum,
        flow,
    })
}

/// How control leaves a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Exit {
    /// To one node.
    Next(usize),
    /// To one of two: taken, not taken.
    Branch(usize, usize),
    /// Into a function, and back to a node.
    Call { entry: usize, back: usize },
    /// Back to the caller.
    Return,
    /// Out of the graph.
    Unknown,
}

pub(crate) struct Node {
    pub(crate) start: u64,
    pub(crate) block: Arc<Block>,
    pub(crate) exit: Exit,
}

/// Blocks around sampled addresses and the ways between them.
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// For every node: if it returns, the calls (their nodes) whose function it belongs to.
    pub(crate) callers: Vec<Vec<usize>>,
}

impl Graph {
    /// Explores the code from the sampled addresses on.
    pub(crate) fn explore(
        reader: &mut CodeReader,
        blocks: &mut Blocks,
        source: &dyn CodeSource,
        sampled: &[u64],
    ) -> Self {
        let mut sorted = sampled.to_vec();
        sorted.sort_unstable();
        let near_sample = |entry: u64| {
            let first = sorted.partition_point(|&ip| ip < entry);
            sorted
                .get(first)
                .is_some_and(|&ip| ip - entry < CALLEE_REACH)
        };
        let mut builder = Builder {
            reader,
            blocks,
            source,
            index: FxHashMap::default(),
            nodes: Vec::new(),
        };
        for &ip in sampled {
            builder.node(ip);
        }
        let mut done = 0;
        while done < builder.nodes.len() {
            let block = builder.nodes[done].block.clone();
            let exit = match block.flow {
                Flow::Next => builder.one(block.next),
                Flow::Jump(target) => builder.one(target),
                Flow::CondJump(target) => match (builder.node(target), builder.node(block.next)) {
                    (Some(taken), Some(not)) => Exit::Branch(taken, not),
                    (Some(only), None) | (None, Some(only)) => Exit::Next(only),
                    (None, None) => Exit::Unknown,
                },
                Flow::Call(target) => {
                    let entry = builder.through_stub(target);
                    let entered = if near_sample(entry) {
                        builder.node(entry)
                    } else {
                        None
                    };
                    match (entered, builder.node(block.next)) {
                        (Some(entry), Some(back)) => Exit::Call { entry, back },
                        (None, Some(back)) => Exit::Next(back),
                        (Some(only), None) => Exit::Next(only),
                        (None, None) => Exit::Unknown,
                    }
                }
                Flow::IndirectCall { .. } => builder.one(block.next),
                Flow::Return => Exit::Return,
                Flow::IndirectJump { .. } | Flow::Stop => Exit::Unknown,
            };
            builder.nodes[done].exit = exit;
            done += 1;
        }
        let nodes = builder.nodes;
        let callers = callers(&nodes);
        Self { nodes, callers }
    }
}

struct Builder<'a> {
    reader: &'a mut CodeReader,
    blocks: &'a mut Blocks,
    source: &'a dyn CodeSource,
    index: FxHashMap<u64, usize>,
    nodes: Vec<Node>,
}

impl Builder<'_> {
    /// The node that starts at `address`, new if there is room.
    fn node(&mut self, address: u64) -> Option<usize> {
        if let Some(&index) = self.index.get(&address) {
            return Some(index);
        }
        if self.nodes.len() >= MAX_NODES {
            return None;
        }
        let block = self.blocks.get(self.reader, self.source, address)?;
        let index = self.nodes.len();
        self.index.insert(address, index);
        self.nodes.push(Node {
            start: address,
            block,
            exit: Exit::Unknown,
        });
        Some(index)
    }

    fn one(&mut self, address: u64) -> Exit {
        self.node(address).map_or(Exit::Unknown, Exit::Next)
    }

    /// Where a call of `target` really goes: past a stub of a linkage table.
    fn through_stub(&mut self, target: u64) -> u64 {
        match self.blocks.get(self.reader, self.source, target) {
            Some(block) => match block.flow {
                Flow::Jump(real) if block.sum.weight() <= 3.0 => real,
                _ => target,
            },
            None => target,
        }
    }
}

/// For every returning node, the calls that it may return to: those of the functions from whose entry it
/// is reached without going through another call.
fn callers(nodes: &[Node]) -> Vec<Vec<usize>> {
    // Ordered, so that sums over calls do not depend on a hash.
    let mut calls: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        if let Exit::Call { entry, .. } = node.exit {
            calls.entry(entry).or_default().push(index);
        }
    }
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (entry, sites) in calls {
        let mut seen = vec![false; nodes.len()];
        let mut stack = vec![entry];
        while let Some(index) = stack.pop() {
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            match nodes[index].exit {
                Exit::Next(next) | Exit::Call { back: next, .. } => stack.push(next),
                Exit::Branch(taken, not) => stack.extend([taken, not]),
                Exit::Return => callers[index].extend(&sites),
                Exit::Unknown => {}
            }
        }
    }
    callers
}
