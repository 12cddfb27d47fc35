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
    /// Lines of a set that is visited at random that they ask for by one visit that would miss without them, whether these
    /// are there or not.
    pub asked: f64,
    /// Those of them that are asked for whenever that one is.
    pub paired: f64,
    /// Lines that they bring in vain, by one miss.
    pub wasted: f64,
    /// How many of these they ask for at once.
    pub at_once: f64,
}

/// As many times as often would a set be visited at random that misses as rarely without prefetchers, if these ask for
/// `asked` of its lines by one miss, and `alone` of the visits would miss without them. A line that is visited at a rate r,
/// and is forgotten a time t after the last visit, is there for (e^rt - 1) / r on the average, and away for 1 / r;
/// prefetchers bring those that are away back earlier, and change nothing for those that are there.
pub(super) fn visited_with(alone: f64, asked: f64) -> f64 {
    match alone > 1e-9 && alone < 1.0 - 1e-9 {
        true => (1.0 + (1.0 + alone * asked) * (1.0 / alone - 1.0)).ln() / -alone.ln(),
        false => 1.0 + alone * asked,
    }
}

/// The share of a set's visits that would miss without prefetchers while lines stay as long as they do now, if `missed` of
/// them miss and prefetchers ask for `asked` lines by one that would: the formula of [`visited_with`], solved for that share.
pub(super) fn missed_alone(missed: f64, asked: f64) -> f64 {
    if missed <= 1e-9 || asked <= 1e-9 {
        return missed;
    }
    let half = (1.0 / missed - asked) / (2.0 * asked);
    (half * half + 1.0 / asked).sqrt() - half
}

impl Cover {
    /// Lines that prefetchers bring in vain by one miss of a set that is visited at random, if `missed` of its visits miss. Of
    /// those that they ask for, some are there; the other line of a pair came with the one that was missed, and is away as
    /// well unless it was visited since.
    pub fn brought(&self, missed: f64) -> f64 {
        let alone = missed_alone(missed, self.asked);
        let away = |paired: bool| if paired { alone } else { missed };
        let lines = self.paired * away(true) + (self.asked - self.paired) * away(false);
        lines * alone / missed.max(1e-9)
    }

    /// How long before it is needed a line is asked for, in picoseconds, if there are `between` from one visit to the next on
    /// the average. Where nothing is asked for, at the beginning of each page, a visit is held up for `missed`: elsewhere
    /// they follow each other faster.
    pub fn lead(&self, between: f64, missed: f64) -> f64 {
        let between = (between - (1.0 - self.share) * missed) / self.share.max(1e-30);
        self.ahead * between.max(0.0)
    }
}

/// Visits that a prefetcher learns from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Learned<'a> {
    pub lines: &'a Lines,
    /// How many of them need a line that would not be there without prefetchers, in a unit of time.
    pub rate: f64,
}

/// For how long each prefetcher of a cache remembers a page that is not visited again; 0 unless it follows streams and
/// some lines are visited at random. It tracks those pages that were used last, as many as it follows streams: each of P
/// pages that are visited at random, at a rate r together, is among them with a chance of 1 - e^(-rt/P) (Che, Tung and
/// Wang, Hierarchical Web Caching Systems, IEEE JSAC 20(7), 2002); of visits in order, the page in use is, and those
/// that were in use in the time t before.
pub(super) fn remembered(prefetchers: &[Prefetcher], line: f64, all: &[Learned<'_>]) -> Vec<f64> {
    let at_random = all.iter().any(|its| its.lines.step.is_none());
    let of = |prefetcher: &Prefetcher| {
        // Only lines that are visited at random depend on it.
        if !at_random || prefetcher.pattern != Pattern::Stream {
            return 0.0;
        }
        let of_page = prefetcher.page as f64 / line;
        let tracked = |time: f64| {
            let each = all.iter().filter(|its| its.rate > 0.0).map(|its| {
                let pages = pages(its.lines, of_page);
                match its.lines.step {
                    None => pages * watched(its, of_page, time),
                    Some(step) => (1.0 + its.rate * time * step / of_page).min(pages),
                }
            });
            each.sum::<f64>()
        };
        let streams = f64::from(prefetcher.streams);
        if tracked(f64::INFINITY) <= streams {
            return f64::INFINITY;
        }
        let rate: f64 = all.iter().map(|its| its.rate).sum();
        // Even if each visit were to another page, that many are remembered.
        let (mut short, mut long) = (0.0, 1.0 / rate);
        while tracked(long) < streams && long.is_finite() {
            (short, long) = (long, 2.0 * long);
        }
        for _ in 0..40 {
            let middle = f64::midpoint(short, long);
            match tracked(middle) < streams {
                true => short = middle,
                false => long = middle,
            }
        }
        short
    };
    prefetchers.iter().map(of).collect()
}

/// Pages of some lines.
fn pages(lines: &Lines, of_page: f64) -> f64 {
    (lines.lines * lines.step.unwrap_or(1.0) / of_page).max(1.0)
}

/// The chance that a page of lines that are visited at random is one that was used in this time.
fn watched(its: &Learned<'_>, of_page: f64, time: f64) -> f64 {
    -(-its.rate * time / pages(its.lines, of_page)).exp_m1()
}

/// Lines that a prefetcher of streams brings by each miss of a set that is visited at random: two misses in a page that it
/// still remembers may look like a stream.
fn false_streams(prefetcher: &Prefetcher, its: &Learned<'_>, line: f64, time: f64) -> f64 {
    let of_page = prefetcher.page as f64 / line;
    let own = of_page.min(its.lines.lines);
    let (longest, ahead) = (f64::from(prefetcher.longest), f64::from(prefetcher.ahead));
    if own <= 1.0 {
        return 0.0;
    }
    // Of two different lines of a page, drawn at random.
    let longest = longest.min(own - 1.0);
    let near = longest * (2.0 * own - longest - 1.0) / (own * (own - 1.0));
    let in_a_row = f64::from(prefetcher.after.max(2)) - 2.0;
    let looks_like = watched(its, of_page, time) * near;
    // Each further one has to go the same way.
    let chance = looks_like * (looks_like / 2.0).powf(in_a_row);
    // The page ends before some of them.
    let ahead = ahead.min(own - 1.0);
    chance * ahead * (1.0 - (ahead + 1.0) / (2.0 * own))
}

/// What the prefetchers of a cache do for a thread's visits of some lines. `line` is the length of a line in bytes; `times`
/// is for how long each [remembers](remembered) a page. For each miss of these visits there are `strays` misses of others
/// that follow no pattern: each begins to track its page.
pub(super) fn cover(
    prefetchers: &[Prefetcher],
    its: Learned<'_>,
    line: f64,
    (times, strays): (&[f64], f64),
) -> Cover {
    if its.lines.step.is_none() {
        let streams = prefetchers.iter().zip(times);
        let streams = streams.filter(|(its, _)| its.pattern == Pattern::Stream);
        let streams = streams.map(|(stream, time)| false_streams(stream, &its, line, *time));
        let paired: f64 = prefetchers.iter().map(paired).sum();
        let at_once = prefetchers.iter().map(|its| f64::from(its.ahead));
        return Cover {
            at_once: at_once.fold(0.0, f64::max),
            // They rarely ask for the same lines.
            asked: streams.sum::<f64>() + paired,
            paired,
            ..Cover::default()
        };
    }
    let each = prefetchers
        .iter()
        .map(|prefetcher| one(prefetcher, its.lines, line, strays));
    // Where several ask for a line, the one counts that saves most.
    each.fold(Cover::default(), |best, its| {
        let wasted = best.wasted.max(its.wasted);
        let at_once = best.at_once.max(its.at_once);
        let best = if its.share > best.share { its } else { best };
        Cover {
            wasted,
            at_once,
            ..best
        }
    })
}

/// Lines that a prefetcher asks for with each that is missed: of lines that are visited at random, the next one is as good as
/// any.
fn paired(prefetcher: &Prefetcher) -> f64 {
    match prefetcher.pattern {
        Pattern::NextLine | Pattern::AdjacentLine => f64::from(prefetcher.ahead),
        Pattern::Stream | Pattern::Stride => 0.0,
    }
}

/// For lines that are visited in order.
fn one(prefetcher: &Prefetcher, lines: &Lines, line: f64, strays: f64) -> Cover {
    let ahead = f64::from(prefetcher.ahead);
    let of_page = prefetcher.page as f64 / line;
    let step = lines.step.unwrap_or(1.0);
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
        at_once: f64::from(prefetcher.ahead),
        ..Cover::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What misses with prefetchers tells what would without them, and the other way round.
        #[test]
        fn both_formulas_are_one(alone in 0.001f64..0.999, asked in 0.0f64..30.0) {
            let missed = alone.powf(visited_with(alone, asked));
            prop_assert!(missed <= alone * (1.0 + 1e-9));
            prop_assert!((missed_alone(missed, asked) / alone - 1.0).abs() < 1e-6);
        }

        /// No more lines are brought than are asked for by each visit that would miss alone.
        #[test]
        fn what_is_there_is_not_brought(missed in 0.001f64..1.0, asked in 0.0f64..30.0, paired in 0.0f64..1.0) {
            let cover = Cover { asked, paired: asked * paired, ..Cover::default() };
            let most = asked * missed_alone(missed, asked) / missed;
            prop_assert!((0.0..=most * (1.0 + 1e-9)).contains(&cover.brought(missed)));
        }

        /// Lines of a set brought again and again, simulated visit by visit, in a cache that keeps each for some visits.
        #[test]
        fn a_set_with_pairs_misses_as_often_as_that(lines in 100u64..400, kept in 0.1f64..3.0, seed in any::<u64>()) {
            let (mut random, lines) = (crate::stream::Random::new(seed), 2 * lines);
            let kept = (kept * lines as f64) as u64;
            let mut last: Vec<Option<u64>> = vec![None; lines as usize];
            let (mut missed, visits) = (0.0, 200 * lines);
            for now in 0..visits {
                let line = random.below(lines) as usize;
                let there = |at: usize| last[at].is_some_and(|then| now - then < kept);
                if !there(line) {
                    missed += f64::from(u8::from(now > visits / 4));
                    if !there(line ^ 1) {
                        last[line ^ 1] = Some(now);
                    }
                }
                last[line] = Some(now);
            }
            let missed = missed / (0.75 * visits as f64);
            let alone = (-(kept as f64) / lines as f64).exp();
            let ours = alone.powf(visited_with(alone, 1.0));
            prop_assert!((ours / missed - 1.0).abs() < 0.15, "{ours} {missed}");
        }
    }
}
