//! Which misses prefetchers save, in closed form.

use super::demand::Lines;
use crate::model::{Pattern, Prefetcher};

/// What prefetchers do for one thread's visits of one sort of lines.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Cover {
    /// The share of the misses of their cache that they save.
    pub share: f64,
    /// How many visits before a line is needed they ask for it.
    pub ahead: f64,
    /// Lines that they bring in vain, by one miss.
    pub wasted: f64,
}

impl Cover {
    /// How long before it is needed a line is asked for, in picoseconds, if there are `between` from one visit to the next on
    /// the average. Where nothing is asked for, at the beginning of each page, a visit is held up for `missed`: elsewhere
    /// they follow each other faster.
    pub fn lead(&self, between: f64, missed: f64) -> f64 {
        let between = (between - (1.0 - self.share) * missed) / self.share.max(1e-30);
        self.ahead * between.max(0.0)
    }
}

/// Whether a prefetcher brings lines beside those of a set that is visited at random.
pub(super) fn brings_neighbours(prefetcher: &Prefetcher) -> bool {
    match prefetcher.pattern {
        Pattern::NextLine | Pattern::AdjacentLine => true,
        // Two misses in one page are no stream, most of the time.
        Pattern::Stream | Pattern::Stride => false,
    }
}

/// What the prefetchers of a cache do for a thread's visits of some lines. `line` is the length of a line in bytes. For each
/// miss of these visits there are `strays` misses of others that follow no pattern: each begins to track its page.
pub(super) fn cover(prefetchers: &[Prefetcher], lines: &Lines, line: f64, strays: f64) -> Cover {
    let each = prefetchers.iter().map(|its| one(its, lines, line, strays));
    // Where several ask for a line, the one counts that saves most.
    each.fold(Cover::default(), |best, its| {
        let wasted = best.wasted.max(its.wasted);
        let best = if its.share > best.share { its } else { best };
        Cover { wasted, ..best }
    })
}

fn one(prefetcher: &Prefetcher, lines: &Lines, line: f64, strays: f64) -> Cover {
    let ahead = f64::from(prefetcher.ahead);
    let of_page = prefetcher.page as f64 / line;
    let Some(step) = lines.step else {
        // At random: the next line is as good as any.
        let wasted = match brings_neighbours(prefetcher) {
            true => ahead,
            false => 0.0,
        };
        return Cover {
            wasted,
            ..Cover::default()
        };
    };
    // What follows the pattern in a page, with the visits that have to come first.
    let visits = (of_page / step).floor().max(1.0);
    let begun = |after: f64| ((visits - after) / visits).max(0.0);
    let near = step <= f64::from(prefetcher.longest);
    let (share, ahead, wasted) = match prefetcher.pattern {
        Pattern::NextLine if step == 1.0 => (begun(1.0), ahead, 0.0),
        Pattern::NextLine if step <= ahead => (begun(1.0), (ahead / step).floor(), step - 1.0),
        Pattern::NextLine => (0.0, 0.0, ahead),
        Pattern::AdjacentLine if step == 1.0 => (0.5, 1.0, 0.0),
        Pattern::AdjacentLine => (0.0, 0.0, 1.0),
        Pattern::Stream if near && step <= ahead => (
            begun(f64::from(prefetcher.after)),
            (ahead / step).floor(),
            step - 1.0,
        ),
        Pattern::Stream if near => (0.0, 0.0, ahead),
        Pattern::Stride if near => (begun(f64::from(prefetcher.after)), ahead, 0.0),
        Pattern::Stream | Pattern::Stride => (0.0, 0.0, 0.0),
    };
    // Between two visits, misses without a pattern begin to track other pages: with too many of them this one is forgotten.
    // What was asked for before that comes all the same; then the pattern has to show again.
    let remembered = match prefetcher.pattern {
        Pattern::NextLine | Pattern::AdjacentLine => 1.0,
        Pattern::Stream | Pattern::Stride => {
            let forgotten = (strays / (1.0 + strays)).powf(f64::from(prefetcher.streams));
            let kept = (1.0 - forgotten).max(1e-9);
            // Visits until one more than this many in a row were remembered (a run of successes; Feller, An Introduction to
            // Probability Theory, XIII.7).
            let run = f64::from(prefetcher.after) - 1.0;
            let learning = match forgotten < 1e-9 {
                true => 1.0 + run,
                false => 1.0 + (kept.powf(-run) - 1.0) / forgotten,
            };
            let followed = 1.0 / forgotten.max(1e-9) + ahead;
            followed / (followed + learning)
        }
    };
    Cover {
        share: share * remembered,
        ahead,
        wasted,
    }
}
