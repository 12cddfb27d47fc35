//! Caches as they are after threads have run for long, without playing that.

use super::{
    access::{Access, Hierarchy},
    hierarchy::Memory,
};
use crate::counters::Counters;

/// Data or code that a thread on a PU goes through again and again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Span {
    pub pu: usize,
    pub thread: u32,
    pub access: Access,
    /// The first address, and how many bytes.
    pub from: u64,
    pub bytes: u64,
    /// Through how many of them one instruction goes.
    pub each: f64,
}

/// Instructions of every thread in a turn.
const TURN: f64 = 200.0;

/// Warming touches no more lines than that: by then it has walked through most of them.
const MOST: u64 = 8_000_000;

impl Memory {
    /// Walks through all spans in parallel, as if every thread executed as many instructions, until each span was
    /// visited once. It takes no time and is not counted.
    pub(crate) fn warm(&mut self, spans: &[Span]) {
        let line = self.line();
        let mut unseen = Counters::default();
        // How far each span is in all rounds, in lines, and what it is owed.
        let mut places = vec![(0u64, 0.0); spans.len()];
        let lines = |span: &Span| span.bytes.div_ceil(line).max(1);
        let mut touched = 0;
        let behind = |places: &[(u64, f64)]| {
            let mut both = spans.iter().zip(places);
            both.any(|(span, (at, _))| span.each > 0.0 && *at < lines(span))
        };
        while touched < MOST && behind(&places) {
            for (span, (at, owed)) in spans.iter().zip(&mut places) {
                *owed += TURN * span.each / line as f64;
                while *owed >= 1.0 {
                    *owed -= 1.0;
                    let address = span.from + *at % lines(span) * line;
                    *at += 1;
                    touched += 1;
                    self.access(span.pu, span.thread, span.access, address, 0, &mut unseen);
                }
            }
        }
        self.rest();
    }
}
