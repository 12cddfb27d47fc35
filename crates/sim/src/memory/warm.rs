//! Caches as they are after threads have run for long, without playing that.

use super::hierarchy::{Access, Memory};
use crate::{core::Hierarchy, counters::Counters, units::Ps};

/// Data that a thread on a PU goes through: from an address on, so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub pu: usize,
    pub thread: u32,
    pub access: Access,
    pub from: u64,
    pub bytes: u64,
}

/// Lines that one thread goes through before the next one's turn.
const TURN: u64 = 16;

impl Memory {
    /// Lets every span be gone through once, all side by side. It takes no time, and nobody counts it.
    pub(crate) fn warm(&mut self, spans: &[Span]) {
        let line = 1u64 << self.line_bits();
        let mut left: Vec<(Span, u64)> = spans.iter().map(|span| (*span, 0)).collect();
        let mut unseen = Counters::default();
        let never: Ps = 0;
        while !left.is_empty() {
            left.retain_mut(|(span, at)| {
                let end = (*at + TURN * line).min(span.bytes);
                while *at < end {
                    let address = span.from + *at;
                    self.access(
                        span.pu,
                        span.thread,
                        span.access,
                        address,
                        never,
                        &mut unseen,
                    );
                    *at += line;
                }
                *at < span.bytes
            });
        }
        self.rest();
    }
}
