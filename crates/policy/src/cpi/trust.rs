//! Whether moves brought what was promised.
//!
//! The demand of a contended thread is a guess, and its neighbours change the guess. So a move may look good, bring
//! nothing, and make the next one look good. Each broken promise doubles the gain that the next move must promise; one
//! that led to a throughput that was not there before halves it. Throughput is bounded, so under steady measurements
//! moves end. When the measurements change, the model gets a new chance.

/// The most by which the gain that is asked for may grow.
const MOST: f64 = 64.0;

/// A promise is kept if at least this part of it came.
const KEPT: f64 = 0.5;

/// Trust in predicted gains, from past ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trust {
    /// How many times the usual gain a move must promise, 1 or more.
    doubt: f64,
    /// The throughput before the last period's moves, and the part by which they were to raise it.
    promise: Option<(f64, f64)>,
    /// Threads and throughput when moves were last judged.
    known: (usize, f64),
    /// The highest throughput since the measurements last changed.
    record: f64,
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            doubt: 1.0,
            promise: None,
            known: (0, 0.0),
            record: 0.0,
        }
    }
}

impl Trust {
    /// Takes a period in: how many threads delivered how much. `change` is the part by which the throughput must differ to
    /// be another one. Returns how many times the usual gain moves must promise.
    pub fn follow(&mut self, threads: usize, delivered: f64, change: f64) -> f64 {
        let (count, then) = self.known;
        match self.promise.take().filter(|_| count == threads) {
            Some((before, gain)) => {
                let kept = |from: f64| delivered >= from * (1.0 + KEPT * gain);
                let doubt = match kept(before) {
                    true if kept(self.record) => self.doubt / 2.0,
                    // Back where it was before.
                    true => self.doubt,
                    false => self.doubt * 2.0,
                };
                self.doubt = doubt.clamp(1.0, MOST);
                self.known = (threads, delivered);
            }
            None if count != threads || (delivered - then).abs() > change * then => {
                self.doubt = 1.0;
                self.record = 0.0;
                self.known = (threads, delivered);
            }
            None => {}
        }
        self.record = self.record.max(delivered);
        self.doubt
    }

    /// Threads are moved for this gain.
    pub fn promise(&mut self, delivered: f64, gain: f64) {
        self.promise = Some((delivered, gain));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_promises_are_asked_for_more_until_things_change() {
        let mut trust = Trust::default();
        assert_eq!(trust.follow(4, 2.0, 0.1), 1.0);
        for doubt in [2.0, 4.0, 8.0] {
            trust.promise(2.0, 0.2);
            assert_eq!(trust.follow(4, 2.1, 0.1), doubt);
        }
        trust.promise(1.5, 0.2);
        assert_eq!(trust.follow(4, 2.1, 0.1), 8.0);
        trust.promise(2.0, 0.2);
        assert_eq!(trust.follow(4, 2.4, 0.1), 4.0);
        assert_eq!(trust.follow(4, 2.3, 0.1), 4.0);
        assert_eq!(trust.follow(4, 2.7, 0.1), 1.0);
        trust.promise(2.7, 0.2);
        assert_eq!(trust.follow(4, 2.7, 0.1), 2.0);
        assert_eq!(trust.follow(5, 2.7, 0.1), 1.0);
    }
}
