//! The stretch of code that one sampled address stands for.
//!
//! The sampled address is the one behind the instruction that stalled, and instructions that retire
//! together with others are hardly ever hit, so neither the instruction at the address nor the one before
//! gives the mix. The stretch around it does: the innermost loop, found as the first backward branch that jumps
//! over the address; else the instructions on the static path ahead (jumps and backward branches followed, calls
//! stepped over). A repeated string instruction is one instruction that takes long, like a load from memory.
//!
//! With [enough samples](crate::Estimator::take) of a thread, these windows only tell the spread; the mix
//! comes from all addresses together.

use std::ops::Range;

use crate::accesses::PER_SAMPLE;
use crate::instruction::{Arch, Decoded, Flow, MemoryOperand};
use crate::mix::{Mix, MixSum};
use crate::predecessor::predecessor;
use crate::source::{CodeReader, CodeSource};

/// How far forward the end of an enclosing loop is looked for, in instructions.
const LOOP_REACH: usize = 160;
/// Longest loop body in bytes.
const LOOP_BYTES: u64 = 1024;
/// How far ahead a memory operand is looked for, in instructions.
const OPERAND_REACH: usize = 16;
/// Longest path, in instructions.
const PATH_LENGTH: usize = 64;

/// The method by which a stretch of code was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowKind {
    /// The body of the innermost loop around the address.
    Loop,
    /// The instructions that follow the address.
    Path,
}

/// The stretch of code around one address, and its instruction mix.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Mix of the stretch.
    pub mix: Mix,
    /// The method by which the stretch was found.
    pub kind: WindowKind,
    /// Addresses that it was decoded from.
    pub span: Range<u64>,
    /// Whether the instruction that ran before the address reads memory: a sample taken while waiting
    /// for memory shows the address after the load. `None` if no predecessor could be told.
    pub after_load: Option<bool>,
    /// A memory operand whose registers, at the moment of the sample, still (or already) give the
    /// address accessed.
    pub operand: Option<MemoryOperand>,
    /// The first such operands: that one and those that follow.
    pub operands: [Option<MemoryOperand>; PER_SAMPLE],
}

/// Finds windows in one address space's code.
pub struct WindowFinder {
    pub(crate) reader: CodeReader,
}

impl WindowFinder {
    /// A finder for code of `arch`.
    pub fn new(arch: Arch) -> Self {
        Self {
            reader: CodeReader::new(arch),
        }
    }

    /// Forgets code bytes read so far.
    pub fn clear(&mut self) {
        self.reader.clear();
    }

    /// The window of the sampled address `ip`, or `None` if there is no valid instruction.
    pub fn window(&mut self, source: &dyn CodeSource, ip: u64) -> Option<Window> {
        let first = self.reader.decode(source, ip)?;
        let (kind, body) = if let Some(body) = self.innermost_loop(source, ip) {
            (WindowKind::Loop, body)
        } else {
            (WindowKind::Path, self.path(source, ip))
        };
        let mut sum = MixSum::default();
        let mut span = ip..first.next(ip);
        for (address, instruction) in &body {
            sum.add_instruction(instruction, 1.0);
            span.start = span.start.min(*address);
            span.end = span.end.max(instruction.next(*address));
        }
        let predecessor = self.predecessor(source, ip, kind, &body);
        let operands = self.operands(source, ip, predecessor, &body);
        Some(Window {
            mix: sum.mix()?,
            kind,
            span,
            after_load: predecessor.map(|(_, p)| p.reads),
            operand: operands[0],
            operands,
        })
    }

    /// First backward branch ahead whose target is at or before `ip`, and what it encloses.
    fn innermost_loop(&mut self, source: &dyn CodeSource, ip: u64) -> Option<Vec<(u64, Decoded)>> {
        let mut ahead = Vec::new();
        let mut at = ip;
        for _ in 0..LOOP_REACH {
            let instruction = self.reader.decode(source, at)?;
            ahead.push((at, instruction));
            match instruction.flow {
                Flow::Jump(target) | Flow::CondJump(target)
                    if target <= ip && ip - target < LOOP_BYTES =>
                {
                    let mut body = self.straight(source, target, ip);
                    body.append(&mut ahead);
                    return Some(body);
                }
                Flow::Return => return None,
                _ => {}
            }
            at = instruction.next(at);
        }
        None
    }

    /// The instructions from `start` up to, but without, `end`.
    fn straight(&mut self, source: &dyn CodeSource, start: u64, end: u64) -> Vec<(u64, Decoded)> {
        let mut body = Vec::new();
        let mut at = start;
        while at < end {
            let Some(instruction) = self.reader.decode(source, at) else {
                break;
            };
            body.push((at, instruction));
            at = instruction.next(at);
        }
        body
    }

    fn path(&mut self, source: &dyn CodeSource, ip: u64) -> Vec<(u64, Decoded)> {
        let mut body: Vec<(u64, Decoded)> = Vec::new();
        let mut at = ip;
        while body.len() < PATH_LENGTH && !body.iter().any(|(seen, _)| *seen == at) {
            let Some(instruction) = self.reader.decode(source, at) else {
                break;
            };
            body.push((at, instruction));
            at = match instruction.flow {
                Flow::Jump(target) => target,
                Flow::CondJump(target) if target <= at => target,
                Flow::Return | Flow::IndirectJump { .. } | Flow::Stop => break,
                _ => instruction.next(at),
            };
        }
        body
    }

    /// Within a known loop the instruction boundaries are certain; elsewhere they are voted on.
    fn predecessor(
        &mut self,
        source: &dyn CodeSource,
        ip: u64,
        kind: WindowKind,
        body: &[(u64, Decoded)],
    ) -> Option<(u64, Decoded)> {
        if kind == WindowKind::Loop {
            let within = body.iter().copied().find(|(at, d)| d.next(*at) == ip);
            let falls_through =
                |d: &Decoded| !matches!(d.flow, Flow::Jump(_) | Flow::Return | Flow::Stop);
            // The loop's head runs after its last branch.
            return match within {
                Some((at, d)) => falls_through(&d).then_some((at, d)),
                None => body.last().copied(),
            };
        }
        predecessor(&mut self.reader, source, ip)
    }

    /// Operands of the instruction before `ip`, if that did not overwrite their registers, and of the next ones that
    /// still find theirs unchanged, around the loop if there is one (a load that overwrites its own base, as in a linked
    /// list, shows where the next one goes). The stack is left out: it is always in the cache.
    fn operands(
        &mut self,
        source: &dyn CodeSource,
        ip: u64,
        predecessor: Option<(u64, Decoded)>,
        body: &[(u64, Decoded)],
    ) -> [Option<MemoryOperand>; PER_SAMPLE] {
        let stack = self.reader.arch().stack_pointer();
        let mut found = [None; PER_SAMPLE];
        let mut count = 0;
        let mut take = |instruction: &Decoded, overwritten: u64| {
            for operand in instruction.operands.into_iter().flatten() {
                let usable = operand.base != Some(stack)
                    && operand.registers() != 0
                    && operand.registers() & overwritten == 0;
                if usable && count < PER_SAMPLE && !found[..count].contains(&Some(operand)) {
                    found[count] = Some(operand);
                    count += 1;
                }
            }
            count < PER_SAMPLE
        };
        if let Some((_, before)) = predecessor {
            take(&before, before.written);
        }
        let mut overwritten = 0;
        let mut at = ip;
        for _ in 0..OPERAND_REACH {
            let Some(instruction) = self.reader.decode(source, at) else {
                break;
            };
            if !take(&instruction, overwritten) {
                break;
            }
            overwritten |= instruction.written;
            at = match instruction.flow {
                Flow::Next => instruction.next(at),
                Flow::Jump(target) => target,
                Flow::CondJump(_) if body.last().is_some_and(|(last, _)| *last == at) => body[0].0,
                Flow::CondJump(_) => instruction.next(at),
                _ => break,
            };
        }
        found
    }
}
