//! Levels of floating-point use that noise does not change.
//!
//! WorkOver ranks threads and cuts the ranking into groups of as many threads as there are domains. Where neighbours in
//! the ranking differ by less than the noise, that cut is arbitrary and would move threads for nothing. So a thread is
//! above a cut only if it is above the first thread below the cut by more than a margin, and once there it stays until
//! it is below by more than the margin. Threads between are interchangeable: the caller may place them in any way. With
//! a margin of 0 and distinct shares the levels are the paper's groups.

use crate::ranking::Candidate;

/// The level of FP-heavy threads that are above no cut.
pub(crate) const HEAVY: u8 = 254;

/// The level of FP-light threads, the last.
pub(crate) const LIGHT: u8 = 255;

/// A share that is further from the FP threshold than this part of it is clearly FP-heavy or FP-light.
const CLEAR: f64 = 0.9;

/// When a thread changes its level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thresholds {
    /// Differences up to this part of the share (or of the FP threshold, if that is larger) are noise.
    pub margin: f64,
    /// Differences above this many margins are followed at once.
    pub large: f64,
    /// Smaller ones after this many periods.
    pub patience: u32,
    /// The profile's FP threshold.
    pub fp_threshold: f64,
}

/// A thread's level and how long it has looked like another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LevelState {
    level: Option<u8>,
    periods_off: u32,
}

impl LevelState {
    /// The level of a thread that was seen before.
    pub fn level(self) -> Option<u8> {
        self.level
    }
}

/// The cuts of one period's ranking.
#[derive(Debug, Clone)]
pub(crate) struct Cuts {
    /// For each group boundary the share of the first thread below it.
    below: Vec<f64>,
    thresholds: Thresholds,
}

impl Cuts {
    /// Cuts a ranking (by falling share) after each `domains` threads, `width - 1` times.
    pub fn new(ranked: &[Candidate], domains: usize, width: usize, thresholds: Thresholds) -> Self {
        let cuts = width.min(usize::from(HEAVY));
        let firsts = (1..cuts).map_while(|group| ranked.get(group * domains));
        Self {
            below: firsts.map(|first| first.known.share).collect(),
            thresholds,
        }
    }

    /// Follows one thread: its level after this period. 0 is the heaviest.
    pub fn follow(&self, state: &mut LevelState, candidate: &Candidate) -> u8 {
        let Some(was) = state.level else {
            let level = self.level(candidate, None, 1.0);
            state.level = Some(level);
            return level;
        };
        let seen = self.level(candidate, Some(was), 1.0);
        if seen == was {
            state.periods_off = 0;
        } else {
            state.periods_off += 1;
            let large = self.level(candidate, Some(was), self.thresholds.large) != was;
            if large || state.periods_off >= self.thresholds.patience {
                state.level = Some(seen);
                state.periods_off = 0;
                return seen;
            }
        }
        state.level = Some(was);
        was
    }

    /// The first cut above which the thread is, given where it was.
    fn level(&self, candidate: &Candidate, was: Option<u8>, margins: f64) -> u8 {
        let above_cut = |level: u8, cut: f64| {
            let margin = margins * self.margin(candidate, cut);
            // Ten samples tell FP-heavy from FP-light: a share near 0, or of twice the threshold, is no noise of the
            // other kind, however few samples stand behind it.
            let margin = match level {
                HEAVY => margin.min(CLEAR * cut),
                _ => margin,
            };
            match was {
                Some(was) if was <= level => candidate.known.share >= cut - margin,
                _ => candidate.known.share > cut + margin,
            }
        };
        let heavy = match was {
            None => candidate.known.share >= self.thresholds.fp_threshold,
            Some(_) => above_cut(HEAVY, self.thresholds.fp_threshold),
        };
        if !heavy {
            return LIGHT;
        }
        let cuts = self.below.iter().zip(0u8..);
        cuts.filter(|(cut, level)| above_cut(*level, **cut))
            .map(|(_, level)| level)
            .next()
            .unwrap_or(HEAVY)
    }

    fn margin(&self, candidate: &Candidate, cut: f64) -> f64 {
        let relative = self.thresholds.margin * cut.max(self.thresholds.fp_threshold);
        relative.max(candidate.known.noise) / candidate.known.confidence
    }
}
